/* Loam's counters, read by the program itself. docs/counters.md explains them;
 * formats/counters.toml declares them.
 *
 * Any thread may call every function at any time, but not in a signal handler. A call takes each of
 * the heap's locks for a moment, one after another: figures are exact while no other thread uses
 * the heap, and otherwise each record is from its own moment within the call. No function here
 * allocates. */
#ifndef LOAM_STATS_H
#define LOAM_STATS_H

#include "loam.h"

#ifdef __cplusplus
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
/* A function and a struct share one name, as with stat(): GCC warns that one hides the other's
 * constructor. */
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#endif

/** The value of an unknown counter in a field of type uint64_t (in a field of type double it is
 *  NaN). A counter is unknown because sampling is off (LOAM_SAMPLE), or because it is the process's
 *  and the call names a heap. */
#define LOAM_UNKNOWN UINT64_MAX

/** The counters of a heap or of the process. Set `size` to sizeof(struct loam_stats) before the
 *  call: it says which fields there are. A field that this library does not have is unknown. */
struct loam_stats {
  size_t size;
  /* generated: heap and process */
  /** bytes: in blocks that the program holds; what rounding adds is included */
  uint64_t live_bytes;
  /** blocks: that the program holds: allocations minus frees */
  uint64_t live_blocks;
  /** bytes: in live blocks of size classes */
  uint64_t live_small_bytes;
  /** blocks: live blocks of size classes */
  uint64_t live_small_blocks;
  /** bytes: in live runs of pages */
  uint64_t live_large_bytes;
  /** blocks: live runs of pages */
  uint64_t live_large_blocks;
  /** bytes: in live blocks with a mapping of their own */
  uint64_t live_huge_bytes;
  /** blocks: live blocks with a mapping of their own */
  uint64_t live_huge_blocks;
  /** bytes: of live_large_bytes and live_huge_bytes, not requested; exact */
  uint64_t large_rounding_bytes;
  /** bytes: of live_small_bytes, not requested; an unbiased estimate from blocks allocated since
   *  sampling began [sampling] */
  uint64_t small_rounding_bytes;
  /** bytes: in freed blocks that threads keep, or that are on their way to their bins */
  uint64_t cached_bytes;
  /** blocks: of these, blocks of size classes */
  uint64_t cached_blocks;
  /** blocks: the most cached blocks of any one class */
  uint64_t largest_cache_depth;
  /** spans: stretches of pages cut into blocks of a class */
  uint64_t spans;
  /** bytes: in free slots of spans */
  uint64_t span_free_bytes;
  /** blocks: free slots of spans */
  uint64_t span_free_blocks;
  /** bytes: in pages of spans and in no slot: behind the last slot, and beside the pages that a
   *  partial span lent */
  uint64_t span_tail_bytes;
  /** bytes: free pages inside spans that were given back to the system, or not used yet */
  uint64_t unbacked_bytes;
  /** bytes: in spans, runs and mappings that belong to the heap: live, cached, free in spans and
   *  tails */
  uint64_t used_bytes;
  /** bytes: in runs that private heaps took at their creation and have not used yet */
  uint64_t set_aside_bytes;
  /** bytes: of metadata_bytes: records of private heaps */
  uint64_t private_records_bytes;
  /** bytes: in free runs of pages, backed or not, and in mappings that are kept for the next large
   *  block */
  uint64_t free_run_bytes;
  /** bytes: in free runs that are backed, and in mappings that are kept: free, but it costs
   *  memory */
  uint64_t dirty_bytes;
  /** bytes: of dirty_bytes: freed runs that wait for the next request of their kind */
  uint64_t parked_bytes;
  /** bytes: committed, and given back to the system or never used: free runs that are not backed,
   *  and unbacked_bytes */
  uint64_t purged_bytes;
  /** bytes: in the heap's own records, and in free records that wait to be used again */
  uint64_t metadata_bytes;
  /** bytes: usable without a call of the system: used, free runs, metadata */
  uint64_t committed_bytes;
  /** bytes: committed minus purged: the most that can be resident; untouched memory is not
   *  resident */
  uint64_t backed_bytes;
  /** bytes: address space: extents of regions, mappings of huge blocks, metadata */
  uint64_t reserved_bytes;
  /** bytes: free and backed: slots of spans and runs; not what caches hold */
  uint64_t free_bytes;
  /** ratio: free_bytes of backed_bytes */
  double free_ratio;
  /** ratio: committed_bytes of reserved_bytes */
  double virtual_ratio;
  /** blocks: free pieces above 1 KiB: slots of classes above it, and free runs that are backed */
  uint64_t free_list_length;
  /** ranges: stretches of reserved space that are not backed: purged runs, and uncommitted parts of
   *  extents */
  uint64_t uncommitted_ranges;
  /** bytes: the longest free and backed run inside a block of pages */
  uint64_t largest_free_run_bytes;
  /** bytes: the highest total of spans and runs */
  uint64_t peak_used_bytes;
  /** bytes: the highest total of mappings of huge blocks */
  uint64_t peak_huge_bytes;
  /** threads: with a cache */
  uint64_t threads;
  /** operations: allocations that found their thread's magazine empty */
  uint64_t cache_misses;
  /** operations: frees that found their thread's magazine full */
  uint64_t cache_flushes;
  /** operations: frees that their thread's magazine took; counted without sampling too */
  uint64_t cache_frees;
  /** blocks: that went from spans to caches, or whose span became mixed; cache hits are not
   *  counted */
  uint64_t refilled_blocks;
  /** blocks: that came back from caches to spans, or whose span became mixed */
  uint64_t returned_blocks;
  /** batches: passed through a queue, because the class was locked */
  uint64_t remote_batches;
  /** blocks: remote frees: blocks in those batches */
  uint64_t remote_blocks;
  /** blocks: of cached_blocks: on their way from one thread to another */
  uint64_t queued_blocks;
  /** operations: of blocks above the largest class */
  uint64_t large_allocs;
  /** operations: of blocks above the largest class */
  uint64_t large_frees;
  /** operations: of all locks that the heap uses; a private heap's own ones only */
  uint64_t lock_acquisitions;
  /** operations: of these, the ones that waited */
  uint64_t lock_contentions;
  /** operations: tries that found a lock taken and did not wait for it */
  uint64_t lock_refusals;
  /** calls: that gave pages back to the system */
  uint64_t purge_calls;
  /** nanoseconds: spent in those calls */
  uint64_t purge_nanoseconds;
  /** bytes: given back by those calls since the start */
  uint64_t purged_total_bytes;
  /** bytes: handed out in pages that were not backed: the page faults that the heap causes */
  uint64_t fresh_bytes;
  /** calls: that the system refused */
  uint64_t refused_calls;
  /** operations: all allocations since sampling began; exact [sampling] */
  uint64_t allocs;
  /** operations: all frees since sampling began; exact [sampling] */
  uint64_t frees;
  /** operations: served by the thread's cache [sampling] */
  uint64_t cached_allocs;
  /** operations: taken by the thread's cache [sampling] */
  uint64_t cached_frees;
  /** operations: of blocks up to 1 KiB, cache included [sampling] */
  uint64_t allocs_to_1k;
  /** operations: of blocks above 1 KiB, up to 8 KiB [sampling] */
  uint64_t allocs_to_8k;
  /** operations: of blocks above 8 KiB [sampling] */
  uint64_t allocs_over_8k;
  /** operations: of blocks up to 1 KiB, cache included [sampling] */
  uint64_t frees_to_1k;
  /** operations: of blocks above 1 KiB, up to 8 KiB [sampling] */
  uint64_t frees_to_8k;
  /** operations: of blocks above 8 KiB [sampling] */
  uint64_t frees_over_8k;
  /** operations: allocations that were timed [sampling] */
  uint64_t timed_allocs;
  /** nanoseconds: their time [sampling] */
  uint64_t timed_alloc_nanoseconds;
  /** operations: frees that were timed [sampling] */
  uint64_t timed_frees;
  /** nanoseconds: their time [sampling] */
  uint64_t timed_free_nanoseconds;
  /** operations a second: one over the mean time of an allocation that its thread's cache did not
   *  serve; unknown before the first [sampling] */
  uint64_t alloc_rate;
  /** operations a second: one over the mean time of a free that its thread's cache did not take;
   *  unknown before the first [sampling] */
  uint64_t free_rate;
  /** faults: page faults of the process that needed no disk */
  uint64_t minor_faults;
  /** faults: page faults of the process that needed the disk */
  uint64_t major_faults;
  /** bytes: of the system's commit charge: what the heap and its tables have committed; on Windows
   *  only */
  uint64_t charged_bytes;
  /* end: heap and process */
};

/** Fills in the counters of `heap`; NULL means the process, all heaps together. LOAM_OK,
 *  LOAM_INVALID_HEAP, LOAM_INVALID_ARGUMENT (no room for any field). */
LOAM_API loam_status loam_stats(loam_heap* heap, struct loam_stats* stats) LOAM_NOEXCEPT;

/** Buckets of occupancy: spans whose used share is in [k/8, (k+1)/8), and at last the full ones. */
#define LOAM_OCCUPANCY_BUCKETS 9

/** The counters of one size class of a heap; `size` as above. */
struct loam_class_stats {
  size_t size;
  /* generated: class */
  /** bytes: of a block */
  uint64_t bytes;
  /** spans: of the class */
  uint64_t spans;
  /** blocks: that the program holds */
  uint64_t live_blocks;
  /** blocks: in caches and queues */
  uint64_t cached_blocks;
  /** blocks: free in spans */
  uint64_t free_blocks;
  /** blocks: of the cached ones: on their way from one thread to another */
  uint64_t queued_blocks;
  /** bytes: in pages of its spans and in no slot */
  uint64_t tail_bytes;
  /** bytes: free pages of its spans that were given back, or not used yet */
  uint64_t unbacked_bytes;
  /** blocks: that went from spans to caches */
  uint64_t refilled_blocks;
  /** blocks: that came back */
  uint64_t returned_blocks;
  /** blocks: remote frees */
  uint64_t remote_blocks;
  /** spans: without a free slot */
  uint64_t full_spans;
  /** operations: of the class's lock */
  uint64_t lock_acquisitions;
  /** operations: of these, the ones that waited */
  uint64_t lock_contentions;
  /** operations: frees that used the queue instead of waiting */
  uint64_t lock_refusals;
  /* end: class */
  uint64_t occupancy[LOAM_OCCUPANCY_BUCKETS]; /**< the default heap's; unknown for private heaps */
};

/** The number of size classes. It grows when the sizes that the program requests split a class
 *  (docs/sizes.md). */
LOAM_API unsigned loam_class_count(void) LOAM_NOEXCEPT;

/** Fills in class `index`: from 0 by growing size, then the split classes by age. A NULL `heap` is
 *  the default heap. LOAM_OK, LOAM_NO_MORE, LOAM_INVALID_HEAP, LOAM_INVALID_ARGUMENT. */
LOAM_API loam_status loam_class_stats(loam_heap* heap, unsigned index,
                                      struct loam_class_stats* stats) LOAM_NOEXCEPT;

/** One of the process's locks. */
struct loam_lock_stats {
  size_t size;
  char name[32];    /**< "class-64", "page_heap", ...; a private heap's name, or "heap-" and its
                         generation */
  uint64_t taken;   /**< acquisitions */
  uint64_t waited;  /**< of these, the ones that waited */
  uint64_t refused; /**< tries that found it taken and did something else */
};

/** Fills in lock `index`, from 0: the classes' locks, the shared ones, then the private heaps'.
 *  LOAM_OK, LOAM_NO_MORE, LOAM_INVALID_ARGUMENT. */
LOAM_API loam_status loam_lock_stats(unsigned index, struct loam_lock_stats* stats) LOAM_NOEXCEPT;

typedef enum loam_histogram {
  LOAM_FREE_RUNS = 0,     /**< free and backed runs, by pages */
  LOAM_UNBACKED_RUNS = 1, /**< free runs that are not backed, by pages */
  LOAM_ALLOC_TIME = 2,    /**< timed allocations, by nanoseconds [sampling] */
  LOAM_FREE_TIME = 3      /**< timed frees, by nanoseconds [sampling] */
} loam_histogram;

/** Bin k counts values from 2^k to 2^(k+1) - 1. Fills bins[0 .. count - 1] and returns how many
 *  bins the histogram has; 0 when it is unknown. */
LOAM_API unsigned loam_stats_histogram(loam_histogram which, uint64_t* bins,
                                       unsigned count) LOAM_NOEXCEPT;

/** Takes a piece of text. The library calls it several times and holds none of its locks then. */
typedef void (*loam_stats_writer)(void* context, const char* text, size_t length);

/** Writes all of the above as one JSON object: format "loam-stats", version 1. NULL writes the
 *  process, with its classes, locks, histograms and heaps; a heap writes its counters and classes.
 *  LOAM_OK, LOAM_INVALID_HEAP, LOAM_INVALID_ARGUMENT. */
LOAM_API loam_status loam_stats_json(loam_heap* heap, loam_stats_writer writer,
                                     void* context) LOAM_NOEXCEPT;

/** Writes the counters as lines of text for people, without the unknown ones. Otherwise as
 *  loam_stats_json(). */
LOAM_API loam_status loam_stats_print(loam_heap* heap, loam_stats_writer writer,
                                      void* context) LOAM_NOEXCEPT;

#ifdef __cplusplus
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

#endif
