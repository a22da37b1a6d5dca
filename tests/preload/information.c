// mallinfo, mallinfo2, malloc_info and malloc_stats report on the heap that really serves us.
#include "check.h"

static void figures_follow_the_heap(void) {
  enum { kBlocks = 1000, kSize = 20000 };
  static void* blocks[kBlocks];
  const struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(kSize);
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 1, kSize);
  }
  const struct mallinfo2 during = mallinfo2();
  const struct mallinfo narrow = mallinfo();
  const size_t grown = (during.uordblks + during.hblkhd) - (before.uordblks + before.hblkhd);
  CHECK(grown >= (size_t)kBlocks * kSize);
  CHECK(grown <= (size_t)kBlocks * kSize * 5 / 4 + (1 << 20));
  CHECK(during.arena + during.hblkhd >= during.uordblks);
  CHECK((size_t)(unsigned)narrow.uordblks + (size_t)(unsigned)narrow.hblkhd >=
        (size_t)kBlocks * kSize);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  malloc_trim(0);
  const struct mallinfo2 after = mallinfo2();
  CHECK(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + (1 << 20));
}

// Well-formed enough for a parser: one root element, every tag closed in order.
static void check_is_xml(const char* text) {
  char open[64][32];
  int depth = 0;
  int roots = 0;
  const char* at = text;
  while ((at = strchr(at, '<')) != NULL) {
    const char* const end = strchr(at, '>');
    CHECK(end != NULL);
    if (at[1] == '?' || at[1] == '!') {
    } else if (at[1] == '/') {
      CHECK(depth > 0);
      --depth;
      CHECK(strncmp(at + 2, open[depth], strlen(open[depth])) == 0);
    } else {
      if (depth == 0) ++roots;
      if (end[-1] != '/') {
        CHECK(depth < 64);
        const size_t length = strcspn(at + 1, " \t\n/>");
        CHECK(length > 0 && length < sizeof open[0]);
        memcpy(open[depth], at + 1, length);
        open[depth][length] = '\0';
        ++depth;
      }
    }
    at = end;
  }
  CHECK_EQUAL(depth, 0);
  CHECK_EQUAL(roots, 1);
}

static void malloc_info_writes_xml(void) {
  char* text = NULL;
  size_t length = 0;
  FILE* const stream = open_memstream(&text, &length);
  CHECK(stream != NULL);
  CHECK_EQUAL(malloc_info(0, stream), 0);
  fclose(stream);
  CHECK(length > 20);
  CHECK(strncmp(text, "<malloc", 7) == 0);
  check_is_xml(text);
  free(text);
  // Only 0 is a defined option.
  CHECK(malloc_info(1, stdout) != 0);
}

static void malloc_stats_writes_to_standard_error(void) {
  char path[] = "/tmp/loam-malloc-stats-XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0);
  const int saved = dup(2);
  fflush(stderr);
  dup2(file, 2);
  malloc_stats();
  fflush(stderr);
  dup2(saved, 2);
  CHECK(lseek(file, 0, SEEK_END) > 20);
  close(file);
  unlink(path);
}

int main(void) {
  figures_follow_the_heap();
  malloc_info_writes_xml();
  malloc_stats_writes_to_standard_error();
  return 0;
}
