// Generated from formats/counters.toml by tools/gen_counters.py; do not edit. A test compares.
//! The ids of the counters and distributions: a slip of the pen does not compile.

/// bytes: in blocks that the program holds; what rounding adds is included
pub const LIVE_BYTES: &str = "live_bytes";
/// blocks: that the program holds: allocations minus frees
pub const LIVE_BLOCKS: &str = "live_blocks";
/// bytes: in live blocks of size classes
pub const LIVE_SMALL_BYTES: &str = "live_small_bytes";
/// blocks: live blocks of size classes
pub const LIVE_SMALL_BLOCKS: &str = "live_small_blocks";
/// bytes: in live runs of pages
pub const LIVE_LARGE_BYTES: &str = "live_large_bytes";
/// blocks: live runs of pages
pub const LIVE_LARGE_BLOCKS: &str = "live_large_blocks";
/// bytes: in live blocks with a mapping of their own
pub const LIVE_HUGE_BYTES: &str = "live_huge_bytes";
/// blocks: live blocks with a mapping of their own
pub const LIVE_HUGE_BLOCKS: &str = "live_huge_blocks";
/// bytes: of live_large_bytes and live_huge_bytes, not requested; exact
pub const LARGE_ROUNDING_BYTES: &str = "large_rounding_bytes";
/// bytes: of live_small_bytes, not requested; an unbiased estimate from blocks allocated since
/// sampling began
pub const SMALL_ROUNDING_BYTES: &str = "small_rounding_bytes";
/// bytes: in freed blocks that threads keep, or that are on their way to their bins
pub const CACHED_BYTES: &str = "cached_bytes";
/// blocks: of these, blocks of size classes
pub const CACHED_BLOCKS: &str = "cached_blocks";
/// blocks: the most cached blocks of any one class
pub const LARGEST_CACHE_DEPTH: &str = "largest_cache_depth";
/// spans: stretches of pages cut into blocks of a class
pub const SPANS: &str = "spans";
/// bytes: in free slots of spans
pub const SPAN_FREE_BYTES: &str = "span_free_bytes";
/// blocks: free slots of spans
pub const SPAN_FREE_BLOCKS: &str = "span_free_blocks";
/// bytes: in pages of spans and in no slot: behind the last slot, and beside the pages that a
/// partial span lent
pub const SPAN_TAIL_BYTES: &str = "span_tail_bytes";
/// bytes: free pages inside spans that were given back to the system, or not used yet
pub const UNBACKED_BYTES: &str = "unbacked_bytes";
/// bytes: in spans, runs and mappings that belong to the heap: live, cached, free in spans and
/// tails
pub const USED_BYTES: &str = "used_bytes";
/// bytes: in runs that private heaps took at their creation and have not used yet
pub const SET_ASIDE_BYTES: &str = "set_aside_bytes";
/// bytes: of metadata_bytes: records of private heaps
pub const PRIVATE_RECORDS_BYTES: &str = "private_records_bytes";
/// bytes: in free runs of pages, backed or not, and in mappings that are kept for the next
/// large block
pub const FREE_RUN_BYTES: &str = "free_run_bytes";
/// bytes: in free runs that are backed, and in mappings that are kept: free, but it costs
/// memory
pub const DIRTY_BYTES: &str = "dirty_bytes";
/// bytes: of dirty_bytes: freed runs that wait for the next request of their kind
pub const PARKED_BYTES: &str = "parked_bytes";
/// bytes: committed, and given back to the system or never used: free runs that are not backed,
/// and unbacked_bytes
pub const PURGED_BYTES: &str = "purged_bytes";
/// bytes: in the heap's own records, and in free records that wait to be used again
pub const METADATA_BYTES: &str = "metadata_bytes";
/// bytes: usable without a call of the system: used, free runs, metadata
pub const COMMITTED_BYTES: &str = "committed_bytes";
/// bytes: committed minus purged: the most that can be resident; untouched memory is not
/// resident
pub const BACKED_BYTES: &str = "backed_bytes";
/// bytes: address space: extents of regions, mappings of huge blocks, metadata
pub const RESERVED_BYTES: &str = "reserved_bytes";
/// bytes: free and backed: slots of spans and runs; not what caches hold
pub const FREE_BYTES: &str = "free_bytes";
/// ratio: free_bytes of backed_bytes
pub const FREE_RATIO: &str = "free_ratio";
/// ratio: committed_bytes of reserved_bytes
pub const VIRTUAL_RATIO: &str = "virtual_ratio";
/// blocks: free pieces above 1 KiB: slots of classes above it, and free runs that are backed
pub const FREE_LIST_LENGTH: &str = "free_list_length";
/// ranges: stretches of reserved space that are not backed: purged runs, and uncommitted parts
/// of extents
pub const UNCOMMITTED_RANGES: &str = "uncommitted_ranges";
/// bytes: the longest free and backed run inside a block of pages
pub const LARGEST_FREE_RUN_BYTES: &str = "largest_free_run_bytes";
/// bytes: the highest total of spans and runs
pub const PEAK_USED_BYTES: &str = "peak_used_bytes";
/// bytes: the highest total of mappings of huge blocks
pub const PEAK_HUGE_BYTES: &str = "peak_huge_bytes";
/// threads: with a cache
pub const THREADS: &str = "threads";
/// operations: allocations that found their thread's magazine empty
pub const CACHE_MISSES: &str = "cache_misses";
/// operations: frees that found their thread's magazine full
pub const CACHE_FLUSHES: &str = "cache_flushes";
/// operations: frees that their thread's magazine took; counted without sampling too
pub const CACHE_FREES: &str = "cache_frees";
/// blocks: that went from spans to caches, or whose span became mixed; cache hits are not
/// counted
pub const REFILLED_BLOCKS: &str = "refilled_blocks";
/// blocks: that came back from caches to spans, or whose span became mixed
pub const RETURNED_BLOCKS: &str = "returned_blocks";
/// batches: passed through a queue, because the class was locked
pub const REMOTE_BATCHES: &str = "remote_batches";
/// blocks: remote frees: blocks in those batches
pub const REMOTE_BLOCKS: &str = "remote_blocks";
/// blocks: of cached_blocks: on their way from one thread to another
pub const QUEUED_BLOCKS: &str = "queued_blocks";
/// operations: of blocks above the largest class
pub const LARGE_ALLOCS: &str = "large_allocs";
/// operations: of blocks above the largest class
pub const LARGE_FREES: &str = "large_frees";
/// operations: of all locks that the heap uses; a private heap's own ones only
pub const LOCK_ACQUISITIONS: &str = "lock_acquisitions";
/// operations: of these, the ones that waited
pub const LOCK_CONTENTIONS: &str = "lock_contentions";
/// operations: tries that found a lock taken and did not wait for it
pub const LOCK_REFUSALS: &str = "lock_refusals";
/// calls: that gave pages back to the system
pub const PURGE_CALLS: &str = "purge_calls";
/// nanoseconds: spent in those calls
pub const PURGE_NANOSECONDS: &str = "purge_nanoseconds";
/// bytes: given back by those calls since the start
pub const PURGED_TOTAL_BYTES: &str = "purged_total_bytes";
/// bytes: handed out in pages that were not backed: the page faults that the heap causes
pub const FRESH_BYTES: &str = "fresh_bytes";
/// calls: that the system refused
pub const REFUSED_CALLS: &str = "refused_calls";
/// operations: all allocations since sampling began; exact
pub const ALLOCS: &str = "allocs";
/// operations: all frees since sampling began; exact
pub const FREES: &str = "frees";
/// operations: served by the thread's cache
pub const CACHED_ALLOCS: &str = "cached_allocs";
/// operations: taken by the thread's cache
pub const CACHED_FREES: &str = "cached_frees";
/// operations: of blocks up to 1 KiB, cache included
pub const ALLOCS_TO_1K: &str = "allocs_to_1k";
/// operations: of blocks above 1 KiB, up to 8 KiB
pub const ALLOCS_TO_8K: &str = "allocs_to_8k";
/// operations: of blocks above 8 KiB
pub const ALLOCS_OVER_8K: &str = "allocs_over_8k";
/// operations: of blocks up to 1 KiB, cache included
pub const FREES_TO_1K: &str = "frees_to_1k";
/// operations: of blocks above 1 KiB, up to 8 KiB
pub const FREES_TO_8K: &str = "frees_to_8k";
/// operations: of blocks above 8 KiB
pub const FREES_OVER_8K: &str = "frees_over_8k";
/// operations: allocations that were timed
pub const TIMED_ALLOCS: &str = "timed_allocs";
/// nanoseconds: their time
pub const TIMED_ALLOC_NANOSECONDS: &str = "timed_alloc_nanoseconds";
/// operations: frees that were timed
pub const TIMED_FREES: &str = "timed_frees";
/// nanoseconds: their time
pub const TIMED_FREE_NANOSECONDS: &str = "timed_free_nanoseconds";
/// operations a second: one over the mean time of an allocation that its thread's cache did not
/// serve; unknown before the first
pub const ALLOC_RATE: &str = "alloc_rate";
/// operations a second: one over the mean time of a free that its thread's cache did not take;
/// unknown before the first
pub const FREE_RATE: &str = "free_rate";
/// faults: page faults of the process that needed no disk
pub const MINOR_FAULTS: &str = "minor_faults";
/// faults: page faults of the process that needed the disk
pub const MAJOR_FAULTS: &str = "major_faults";
/// bytes: of the heap's regions and huge mappings; by another process only
pub const RESIDENT_BYTES: &str = "resident_bytes";
/// bytes: of resident_bytes, backed by huge pages; by another process only
pub const HUGE_PAGE_BYTES: &str = "huge_page_bytes";
/// bytes: of the system's commit charge: what the heap and its tables have committed; on
/// Windows only
pub const CHARGED_BYTES: &str = "charged_bytes";
/// bytes: of a block
pub const CLASS_BYTES: &str = "class_bytes";
/// spans: of the class
pub const CLASS_SPANS: &str = "class_spans";
/// blocks: that the program holds
pub const CLASS_LIVE_BLOCKS: &str = "class_live_blocks";
/// blocks: in caches and queues
pub const CLASS_CACHED_BLOCKS: &str = "class_cached_blocks";
/// blocks: free in spans
pub const CLASS_FREE_BLOCKS: &str = "class_free_blocks";
/// blocks: of the cached ones: on their way from one thread to another
pub const CLASS_QUEUED_BLOCKS: &str = "class_queued_blocks";
/// bytes: in pages of its spans and in no slot
pub const CLASS_TAIL_BYTES: &str = "class_tail_bytes";
/// bytes: free pages of its spans that were given back, or not used yet
pub const CLASS_UNBACKED_BYTES: &str = "class_unbacked_bytes";
/// blocks: that went from spans to caches
pub const CLASS_REFILLED_BLOCKS: &str = "class_refilled_blocks";
/// blocks: that came back
pub const CLASS_RETURNED_BLOCKS: &str = "class_returned_blocks";
/// blocks: remote frees
pub const CLASS_REMOTE_BLOCKS: &str = "class_remote_blocks";
/// spans: without a free slot
pub const CLASS_FULL_SPANS: &str = "class_full_spans";
/// operations: of the class's lock
pub const CLASS_LOCK_ACQUISITIONS: &str = "class_lock_acquisitions";
/// operations: of these, the ones that waited
pub const CLASS_LOCK_CONTENTIONS: &str = "class_lock_contentions";
/// operations: frees that used the queue instead of waiting
pub const CLASS_LOCK_REFUSALS: &str = "class_lock_refusals";
/// operations: acquisitions of the lock
pub const LOCK_TAKEN: &str = "lock_taken";
/// operations: of these, the ones that waited
pub const LOCK_WAITED: &str = "lock_waited";
/// operations: tries that found it taken and did not wait for it
pub const LOCK_REFUSED: &str = "lock_refused";
/// pages: [k]: free and backed runs of 2^k to 2^(k+1) - 1 pages; runs end at their block's end
pub const FREE_RUNS: &str = "free_runs";
/// pages: [k]: free runs of 2^k to 2^(k+1) - 1 pages that are not backed
pub const UNBACKED_RUNS: &str = "unbacked_runs";
/// spans: [k]: spans with a used share in [k/8, (k+1)/8); [8]: full
pub const OCCUPANCY: &str = "occupancy";
/// nanoseconds: [k]: timed allocations of 2^k to 2^(k+1) - 1 nanoseconds
pub const ALLOC_TIME: &str = "alloc_time";
/// nanoseconds: [k]: timed frees of 2^k to 2^(k+1) - 1 nanoseconds
pub const FREE_TIME: &str = "free_time";
