// What a private heap keeps when its peak is over (docs/memory.md). A peak that has not come back
// goes while it is freed. One that came back costs no more faults, and goes in a wait.
#include <loam/loam.h>
#include <poll.h>
#include <sys/mman.h>

#include "../preload/check.h"

enum { kMost = 2 << 20, kPeak = 64 << 20, kAtOnceKib = 12 << 10 };

typedef struct {
  const char* name;
  size_t least, most;  // bytes of a block
  bool at_random;
  unsigned flags;
} Form;

static const Form forms[] = {
    {"mixed sizes in order", 16, 1515, false, 0},
    {"mixed sizes at random", 16, 1515, true, 0},
    {"small sizes at random", 16, 512, true, 0},
    {"64 B at random", 64, 64, true, 0},
    {"4 KB at random", 4096, 4096, true, 0},
    {"100 KB at random", 102400, 102400, true, 0},
    {"exact sizes at random", 16, 1515, true, LOAM_HEAP_EXACT_SIZES},
    {"without locks at random", 16, 1515, true, LOAM_HEAP_UNSYNCHRONIZED},
};

static void** blocks;
static uint64_t state = 1;

static loam_heap* make_heap(const Form* form) {
  // The table is not in a heap.
  blocks = mmap(NULL, kMost * sizeof(void*), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  CHECK(blocks != MAP_FAILED);
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.flags = form->flags;
  loam_heap* const heap = loam_heap_create(&options);
  CHECK(heap != NULL);
  CHECK_EQUAL(loam_free(heap, loam_alloc(heap, 100)), LOAM_OK);
  return heap;
}

// One peak. Returns the faults of its rise.
static long peak(loam_heap* heap, const Form* form) {
  const long before = minor_faults();
  size_t count = 0;
  for (size_t bytes = 0; bytes < kPeak; ++count) {
    CHECK(count < kMost);
    const size_t size = form->least + next_random(&state) % (form->most - form->least + 1);
    blocks[count] = loam_alloc(heap, size);
    CHECK(blocks[count] != NULL);
    memset(blocks[count], 1, size);
    bytes += size;
  }
  const long rise = minor_faults() - before;
  for (size_t i = count; i > 1 && form->at_random; --i) {
    const size_t other = next_random(&state) % i;
    void* const block = blocks[i - 1];
    blocks[i - 1] = blocks[other];
    blocks[other] = block;
  }
  for (size_t i = 0; i < count; ++i) CHECK_EQUAL(loam_free(heap, blocks[i]), LOAM_OK);
  return rise;
}

static void once(const void* argument) {
  const Form* const form = argument;
  loam_heap* const heap = make_heap(form);
  const long before = resident_kib();
  peak(heap, form);
  const long kept = resident_kib() - before;
  dprintf(2, "%s: %ld KiB of %d, at most %d\n", form->name, kept, kPeak / 1024, kAtOnceKib);
  CHECK(kept <= kAtOnceKib);
  CHECK(loam_validate(heap, NULL) == LOAM_OK);
}

static void rounds(const void* argument) {
  const Form* const form = argument;
  loam_heap* const heap = make_heap(form);
  const long before = resident_kib();
  long rise[4];
  for (int i = 0; i < 4; ++i) {
    state = 1;
    rise[i] = peak(heap, form);
  }
  const long held = resident_kib() - before;
  dprintf(2, "faults a round: %ld %ld %ld %ld; held: %ld KiB\n", rise[0], rise[1], rise[2], rise[3],
          held);
  CHECK(rise[1] <= kPeak / 4096 * 9 / 8);
  CHECK(rise[2] <= 2000 && rise[3] <= 2000);
  CHECK(held > 2 * kAtOnceKib);
  long kept = held;
  for (int looks = 0; looks < 20 && kept > kAtOnceKib; ++looks) {
    poll(NULL, 0, 1000);
    kept = resident_kib() - before;
  }
  dprintf(2, "after a wait: %ld KiB\n", kept);
  CHECK(kept <= kAtOnceKib);
  CHECK(loam_validate(heap, NULL) == LOAM_OK);
  peak(heap, form);
}

int main(void) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; ++i) check_in_child(once, &forms[i]);
  check_in_child(rounds, &forms[1]);
  return 0;
}
