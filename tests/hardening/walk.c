// A walk of the default heap shows every live block, with every option, including blocks without
// bytes and blocks between walls.
#include <loam/loam.h>

#include "../preload/check.h"

enum { kBlocks = 60 };

static void* blocks[kBlocks];
static int met[kBlocks];

static int visit(void* context, const loam_walk_entry* entry) {
  (void)context;
  for (int i = 0; i < kBlocks; ++i)
    met[i] += entry->address == blocks[i] && entry->kind >= LOAM_ENTRY_SMALL;
  return 0;
}

int main(void) {
  static const size_t kSizes[] = {0, 1, 100, 5000, 40000, 300000};
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = opaque(malloc(kSizes[i % 6]));
    CHECK(blocks[i] != NULL);
  }
  // Freed blocks lie between the live ones.
  for (int i = 12; i < 24; ++i) {
    free(blocks[i]);
    blocks[i] = NULL;
  }
  loam_walk(loam_default(), visit, NULL);
  for (int i = 0; i < kBlocks; ++i) {
    if (blocks[i] != NULL) CHECK_EQUAL(met[i], 1);
  }
  return 0;
}
