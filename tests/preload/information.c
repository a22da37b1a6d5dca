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

// The caller frees it.
static char* malloc_info_text(void) {
  char* text = NULL;
  size_t length = 0;
  FILE* const stream = open_memstream(&text, &length);
  CHECK(stream != NULL);
  CHECK_EQUAL(malloc_info(0, stream), 0);
  fclose(stream);
  CHECK(length > 20);
  return text;
}

// The number in attribute `name` of the element that begins at `element`.
static size_t attribute(const char* element, const char* name) {
  char pattern[32];
  snprintf(pattern, sizeof pattern, " %s=\"", name);
  const char* const found = strstr(element, pattern);
  CHECK(found != NULL && found < strchr(element, '>'));
  char* end;
  const size_t value = strtoull(found + strlen(pattern), &end, 10);
  CHECK(*end == '"');
  return value;
}

// As Netdata reads it: by text, behind the last arena.
static size_t from_root(const char* text, const char* element, const char* name) {
  const char* root = text;
  for (const char* end; (end = strstr(root, "</heap>")) != NULL;) root = end + strlen("</heap>");
  CHECK(root != text);
  const char* const found = strstr(root, element);
  CHECK(found != NULL);
  return attribute(found, name);
}

// As Go's decoder does for a struct that has all that glibc prints: each attribute is a number.
// Returns the bytes of all free blocks by their sizes.
static size_t check_sizes(const char* text) {
  size_t total = 0, sizes = 0;
  for (const char* at = text; (at = strstr(at, "<size ")) != NULL; ++at, ++sizes) {
    const size_t bytes = attribute(at, "total"), count = attribute(at, "count");
    CHECK(attribute(at, "from") <= attribute(at, "to"));
    CHECK(bytes <= count * attribute(at, "to"));
    CHECK(count == 0 || bytes >= count * attribute(at, "from"));
    total += bytes;
  }
  CHECK(sizes != 0);
  return total;
}

// As the crate malloc-info, whose decoder wants elements of one name one after the other.
static void check_order(const char* text) {
  const char* at = strstr(text, "</heap>");
  static const char* const kNames[] = {"<total ", "<system ", "<aspace "};
  for (int i = 0; i < 3; ++i) {
    at = strstr(at, kNames[i]);
    CHECK(at != NULL);
    while (strncmp(at, kNames[i], strlen(kNames[i])) == 0) at = strchr(at, '\n') + 1;
    CHECK(strstr(at, kNames[i]) == NULL);
  }
}

// Three public readers of malloc_info() find what they look for, and their figures are right.
static void readers_find_totals(void) {
  enum { kBlocks = 4000, kSize = 3000, kHuge = 100 << 20 };
  static void* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) CHECK((blocks[i] = opaque(malloc(kSize))) != NULL);
  char* const huge = opaque(malloc(kHuge));
  CHECK(huge != NULL);
  for (int i = 0; i < kBlocks; i += 2) free(blocks[i]);
  char* const text = malloc_info_text();
  check_order(text);
  const size_t free_bytes = check_sizes(text);
  const size_t fast = from_root(text, "<total type=\"fast\"", "size"),
               rest = from_root(text, "<total type=\"rest\"", "size"),
               current = from_root(text, "<system type=\"current\"", "size");
  // A quarantine holds 1 MiB of freed blocks, which nobody can have.
  const size_t held = getenv("LOAM_HARDEN") != NULL ? 1 << 20 : 0;
  const size_t known = (size_t)kBlocks / 2 * kSize;
  CHECK(free_bytes + held >= known * 9 / 10);
  CHECK(fast + rest >= free_bytes * 9 / 10);
  CHECK(from_root(text, "<total type=\"rest\"", "count") != 0);
  from_root(text, "<total type=\"fast\"", "count");
  const size_t live = current - fast - rest;
  CHECK(live >= known && live < known * 5 / 4 + (1 << 20));
  CHECK(from_root(text, "<total type=\"mmap\"", "count") >= 1);
  const size_t mapped = from_root(text, "<total type=\"mmap\"", "size");
  CHECK(mapped >= kHuge && mapped < kHuge + (1 << 20));
  CHECK(from_root(text, "<system type=\"max\"", "size") >= current);
  CHECK(from_root(text, "<aspace type=\"total\"", "size") >= current);
  from_root(text, "<aspace type=\"mprotect\"", "size");
  free(text);
  free(huge);
  for (int i = 1; i < kBlocks; i += 2) free(blocks[i]);
}

static void malloc_info_writes_xml(void) {
  char* const text = malloc_info_text();
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
  readers_find_totals();
  malloc_stats_writes_to_standard_error();
  return 0;
}
