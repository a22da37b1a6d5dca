// What malloc_trim (loam_heap_compact of the default heap) does and what it cannot do: the claims
// of docs/memory.md, one function each.
#include <pthread.h>

#include "check.h"

enum { kBlocks = 262144, kBytes = 256, kPerPage = 4096 / kBytes };
static void* blocks[kBlocks];

static void fill(void) {
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = opaque(malloc(kBytes));
    CHECK(blocks[i] != NULL);
    fill_pattern(blocks[i], kBytes, (uint64_t)i);
  }
}

// Frees all but one in `keep`.
static void thin(int keep) {
  for (int i = 0; i < kBlocks; ++i) {
    if (i % keep != 0) free(blocks[i]);
  }
}

static void check_survivors_and_free(int keep) {
  for (int i = 0; i < kBlocks; i += keep) CHECK(has_pattern(blocks[i], kBytes, (uint64_t)i));
  for (int i = 0; i < kBlocks; i += keep) free(blocks[i]);
}

// Free pages inside live spans are purged, and the live blocks between them do not change.
static void gives_back_pages_inside_live_spans(long before) {
  fill();
  const int keep = kPerPage * 8;
  thin(keep);
  CHECK_EQUAL(malloc_trim(0), 1);
  const long left = resident_kib() - before;
  const long live_pages_kib = (long)kBlocks / keep * 4;
  dprintf(2, "one block in %d pages: %ld KiB left, %ld KiB in the blocks' own pages\n", 8, left,
          live_pages_kib);
  CHECK(left < live_pages_kib + 3 * 1024);
  check_survivors_and_free(keep);
}

// A live block never moves, so it keeps its page. With one block on each page nothing can be
// purged.
static void cannot_free_a_page_with_a_live_block(long before) {
  fill();
  thin(kPerPage);
  malloc_trim(0);
  const long left = resident_kib() - before;
  const long pages_kib = (long)kBlocks / kPerPage * 4;
  dprintf(2, "one block a page: %ld KiB left of %ld KiB\n", left, pages_kib);
  CHECK(left > pages_kib * 9 / 10);
  check_survivors_and_free(kPerPage);
}

// The result tells whether memory was given back: 1, and 0 when called again at once.
static void says_whether_anything_was_given_back(void) {
  fill();
  thin(kBlocks + 1);
  free(blocks[0]);
  CHECK_EQUAL(malloc_trim(0), 1);
  CHECK_EQUAL(malloc_trim(0), 0);
}

// Of the records, only page maps and the like stay for the next growth: a small share of the peak.
static void keeps_few_records(long before, long peak) {
  malloc_trim(0);
  const long left = resident_kib() - before;
  dprintf(2, "all freed: %ld KiB left of a peak of %ld KiB\n", left, peak);
  CHECK(left < peak / 100 + 1024);
}

// Pages that are used again read as memory like any other, and cost only one fault each. Some
// faults are of records, which were purged too.
static void what_went_can_be_used_again(void) {
  const long faults = minor_faults();
  fill();
  const long taken = minor_faults() - faults;
  const long pages = kBlocks / kPerPage;
  dprintf(2, "filled again: %ld faults for %ld pages\n", taken, pages);
  CHECK(taken <= pages + pages / 64);
  for (int i = 0; i < kBlocks; ++i) CHECK(has_pattern(blocks[i], kBytes, (uint64_t)i));
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  malloc_trim(0);
}

static pthread_barrier_t cached, trimmed;
enum { kHeld = 20, kHeldBytes = 1000 };

static void* hold_in_cache(void* unused) {
  (void)unused;
  void* held[kHeld];
  for (int i = 0; i < kHeld; ++i) {
    held[i] = opaque(malloc(kHeldBytes));
    CHECK(held[i] != NULL);
    fill_pattern(held[i], kHeldBytes, 7);
  }
  for (int i = 0; i < kHeld; ++i) free(held[i]);
  pthread_barrier_wait(&cached);
  pthread_barrier_wait(&trimmed);
  // A cache hands out its blocks again, last first. Trimming has not taken them away.
  void* again = opaque(malloc(kHeldBytes));
  CHECK(again == held[kHeld - 1]);
  CHECK(has_pattern(again, kHeldBytes, 7));
  free(again);
  return NULL;
}

// Trimming empties the calling thread's cache. It leaves those of other threads, which would have
// to stop.
static void leaves_other_threads_caches_alone(void) {
  pthread_t thread;
  CHECK_EQUAL(pthread_barrier_init(&cached, NULL, 2), 0);
  CHECK_EQUAL(pthread_barrier_init(&trimmed, NULL, 2), 0);
  CHECK_EQUAL(pthread_create(&thread, NULL, &hold_in_cache, NULL), 0);
  pthread_barrier_wait(&cached);
  malloc_trim(0);
  pthread_barrier_wait(&trimmed);
  CHECK_EQUAL(pthread_join(thread, NULL), 0);
}

int main(void) {
  memset(blocks, 1, sizeof blocks);  // the table is not in the heap
  malloc_trim(0);
  const long before = resident_kib();
  gives_back_pages_inside_live_spans(before);
  cannot_free_a_page_with_a_live_block(before);
  says_whether_anything_was_given_back();
  what_went_can_be_used_again();
  keeps_few_records(before, (long)kBlocks * kBytes / 1024);
  leaves_other_threads_caches_alone();
  return 0;
}
