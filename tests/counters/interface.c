// loam/stats.h from C: sums that must hold, unknown figures, and refusals.
#include <loam/stats.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../preload/check.h"

static struct loam_stats read_process(void) {
  struct loam_stats stats;
  memset(&stats, 0, sizeof stats);
  stats.size = sizeof stats;
  CHECK_EQUAL(loam_stats(NULL, &stats), LOAM_OK);
  return stats;
}

static void check_identity(void) {
  const struct loam_stats s = read_process();
  CHECK_EQUAL(s.committed_bytes, s.live_bytes + s.cached_bytes + s.span_free_bytes +
                                     s.span_tail_bytes + s.set_aside_bytes + s.free_run_bytes +
                                     s.metadata_bytes);
  CHECK_EQUAL(s.backed_bytes, s.committed_bytes - s.purged_bytes);
  CHECK_EQUAL(s.refilled_blocks - s.returned_blocks, s.live_small_blocks + s.cached_blocks);
  CHECK(s.large_rounding_bytes <= s.live_large_bytes + s.live_huge_bytes);
  CHECK(s.free_ratio >= 0 && s.free_ratio <= 1 && s.virtual_ratio > 0 && s.virtual_ratio <= 1);
  uint64_t live = 0;
  struct loam_class_stats k;
  k.size = sizeof k;
  for (unsigned i = 0; loam_class_stats(NULL, i, &k) == LOAM_OK; ++i) {
    uint64_t spans = 0;
    for (unsigned b = 0; b < LOAM_OCCUPANCY_BUCKETS; ++b) spans += k.occupancy[b];
    CHECK_EQUAL(spans, k.spans);
    live += k.live_blocks * k.bytes;
  }
  CHECK(live <= s.live_small_bytes);  // private heaps have the rest
}

static void it_adds_up_through_all_kinds_of_blocks(void) {
  enum { kBlocks = 3000 };
  static void* blocks[kBlocks];
  unsigned state = 1;
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      state = state * 1664525u + 1013904223u;
      const unsigned pick = state >> 16;
      if (blocks[i] != NULL && pick % 3 != 0) {
        free(blocks[i]);
        blocks[i] = NULL;
      } else if (blocks[i] == NULL) {
        const size_t bytes = pick % 100 < 95 ? 1 + pick % 3000 : 1 + (size_t)pick * 20;
        blocks[i] = pick % 7 == 0 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : malloc(bytes);
        CHECK(blocks[i] != NULL);
      } else if (pick % 5 == 0) {
        blocks[i] = realloc(blocks[i], 1 + pick % 100000);
      }
    }
    check_identity();
  }
  void* huge = malloc((size_t)100 << 20);
  check_identity();
  CHECK(read_process().live_huge_bytes >= (size_t)100 << 20);
  free(huge);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  check_identity();
  loam_trim(NULL);
  check_identity();
}

static void large_blocks_are_exact(void) {
  const struct loam_stats before = read_process();
  void* block = malloc(100001);
  const struct loam_stats with = read_process();
  CHECK_EQUAL(with.live_large_blocks, before.live_large_blocks + 1);
  CHECK_EQUAL(with.large_allocs, before.large_allocs + 1);
  CHECK_EQUAL(with.live_large_bytes, before.live_large_bytes + 102400);
  CHECK_EQUAL(with.large_rounding_bytes, before.large_rounding_bytes + 102400 - 100001);
  free(block);
  CHECK_EQUAL(read_process().large_frees, before.large_frees + 1);
}

static void a_private_heap_has_its_own(void) {
  loam_heap* heap = loam_heap_create(NULL);
  CHECK(heap != NULL);
  const struct loam_stats before = read_process();
  void* blocks[100];
  for (int i = 0; i < 100; ++i) blocks[i] = loam_alloc(heap, (size_t)(i + 1) * 50);
  struct loam_stats own;
  own.size = sizeof own;
  CHECK_EQUAL(loam_stats(heap, &own), LOAM_OK);
  CHECK_EQUAL(own.live_blocks, 100);
  CHECK(own.live_bytes >= 50 * 100 * 101 / 2);
  CHECK_EQUAL(own.committed_bytes, LOAM_UNKNOWN);  // of the process only
  CHECK(isnan(own.free_ratio));
  CHECK_EQUAL(read_process().live_blocks, before.live_blocks + 100);
  check_identity();
  for (int i = 0; i < 50; ++i) loam_free(heap, blocks[i]);
  CHECK_EQUAL(loam_stats(heap, &own), LOAM_OK);
  CHECK_EQUAL(own.live_blocks, 50);
  loam_heap_destroy(heap);
  CHECK_EQUAL(loam_stats(heap, &own), LOAM_INVALID_HEAP);
  CHECK_EQUAL(read_process().live_blocks, before.live_blocks);
  check_identity();
}

static void older_and_newer_programs_are_served(void) {
  struct {
    struct loam_stats stats;
    uint64_t later;
  } wide;
  memset(&wide, 0, sizeof wide);
  wide.stats.size = sizeof wide;
  CHECK_EQUAL(loam_stats(NULL, &wide.stats), LOAM_OK);
  CHECK_EQUAL(wide.later, LOAM_UNKNOWN);
  void* block = malloc(1);
  struct {
    size_t size;
    uint64_t live_bytes, guard;
  } narrow = {2 * sizeof(uint64_t), 0, 42};
  CHECK_EQUAL(loam_stats(NULL, (struct loam_stats*)(void*)&narrow), LOAM_OK);
  CHECK(narrow.live_bytes != 0 && narrow.live_bytes != LOAM_UNKNOWN);
  CHECK_EQUAL(narrow.guard, 42);
  free(block);
  narrow.size = sizeof(size_t);
  CHECK_EQUAL(loam_stats(NULL, (struct loam_stats*)(void*)&narrow), LOAM_INVALID_ARGUMENT);
}

static void what_cannot_be_is_refused(void) {
  int no_heap = 0;
  struct loam_stats stats = read_process();
  CHECK_EQUAL(stats.allocs, LOAM_UNKNOWN);  // sampling is off
  CHECK_EQUAL(loam_stats((loam_heap*)(void*)&no_heap, &stats), LOAM_INVALID_HEAP);
  CHECK_EQUAL(loam_stats(NULL, NULL), LOAM_INVALID_ARGUMENT);
  CHECK_EQUAL(loam_stats_json(NULL, NULL, NULL), LOAM_INVALID_ARGUMENT);
  struct loam_class_stats k;
  k.size = sizeof k;
  CHECK_EQUAL(loam_class_stats(NULL, loam_class_count(), &k), LOAM_NO_MORE);
  uint64_t bins[4];
  CHECK_EQUAL(loam_stats_histogram(LOAM_ALLOC_TIME, bins, 4), 0);
  CHECK(loam_stats_histogram(LOAM_FREE_RUNS, bins, 4) > 4);
  struct loam_lock_stats lock;
  lock.size = sizeof lock;
  unsigned locks = 0;
  int page_heap = 0;
  for (; loam_lock_stats(locks, &lock) == LOAM_OK; ++locks)
    page_heap += strcmp(lock.name, "page_heap") == 0;
  CHECK(locks > loam_class_count());
  CHECK_EQUAL(page_heap, 1);
}

int main(void) {
  it_adds_up_through_all_kinds_of_blocks();
  large_blocks_are_exact();
  a_private_heap_has_its_own();
  older_and_newer_programs_are_served();
  what_cannot_be_is_refused();
  return 0;
}
