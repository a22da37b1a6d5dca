// The page heap: hands out runs of 4 KiB pages, takes them back, joins neighbours at once, and
// decides which free pages stay backed.
//
//   used + parked + free pages         = pages of all committed blocks
//   dirty_pages                        = sum of |free & backed| over blocks   <= free_pages
//   surplus_pages                      = sum of |free & ~backed| over blocks that asked for a huge page
//   a block is in the age list         <=> it has dirty pages
//   a block is in region->whole        <=> all of its pages are free
//
// Order of preference for a run of n pages: a backed run in blocks of its kind, then in whole
// blocks (both again once parked runs are merged); a run of its kind's blocks that is not all
// backed; a backed run in the other kind's blocks; a whole block, old or fresh; any run of the
// other kind's blocks.
//
// A freed run is parked for a while, joined with parked neighbours: the next requests of its kind
// take it, or are cut out of it. Large runs are parked in shards (page_shard.h), each with a lock;
// batches of one length wait there as they stand (kind kCached), for a request of that length, and
// join the parked runs before one of another looks further. Parked runs join what the bitmaps hold
// before anything that is not backed is taken, and when they have waited for kParkedMs.
//
// An empty span of the length that was asked for last waits as it stands (kind kEmpty): the map
// still names it, so who takes and gives spans of one length in turn pays for no cut, no join and
// no entry of the map. A request of another length joins some of them to the parked runs, and
// nothing that is not backed is taken before all of them.
//
// Spans that are shorter than those fill one block after the other (take_filling()): parked runs
// and what the bitmaps hold alike, so that other blocks become whole.
//
// Runs of more than one block begin where a block does, where the fewest pages must be backed anew,
// and share the last one. All public functions take the locks themselves. What is parked in shards
// counts as used in used_.
#pragma once

#include "map/page_map.h"
#include "os/mutex.h"
#include "pages/block_index.h"
#include "pages/fresh_ledger.h"
#include "pages/idle_mappings.h"
#include "pages/page_shard.h"
#include "pages/parked_runs.h"
#include "pages/purge_policy.h"
#include "pages/run_search.h"

namespace loam {

/// Runs up to this many pages live in regions; larger blocks have a mapping of their own
/// (huge_map.h). Chosen: 32 MiB; above it a mapping's cost vanishes and mremap() moves it without
/// copying.
inline constexpr Pages kMaxRun{8192};

/// As the requested size of a large run: pages that are set aside for a heap and count as no block.
inline constexpr size_t kNobodysBlock = 0;

/// Short runs are looked for where more than this part of the heap lies free and holds memory, or
/// more than is worth keeping. Measured: with any at all, as many spans are short, and a program
/// that frees in order finds fewer neighbours (decision 56).
inline constexpr size_t kShortRunsShare = 16;

/// A large block gets a freed run, parked or kept by its thread, that is longer by at most this
/// part of its request: whole, since what is cut off would serve nobody. Chosen: as the small
/// classes above 1 KiB round (decision 14), half of it on average. A smaller part finds fewer runs,
/// a larger one rounds more.
inline constexpr unsigned kSlackShare = 16;

/// Runs up to this many pages are kept by the threads that free them (cache/run_cache.h). Chosen:
/// longer ones are worth a lock; 1 MiB.
inline constexpr Pages kLongestKept{256};

/// Pages that a parked run may be longer than a request that gets it whole. A request of a length
/// that threads keep gets no run that they do not: that one would come back here, and be found
/// here, every time.
[[nodiscard]] constexpr unsigned slack_of(Pages pages) {
  const size_t slack = pages.count / kSlackShare;
  const bool is_kept = pages <= kLongestKept;
  const size_t most = is_kept ? (kLongestKept - pages).count : slack;
  return static_cast<unsigned>(slack < most ? slack : most);
}

/// What is parked in a shard is left to its threads while it is no more than this, and while all
/// shards together hold no more than kReserves bytes, or the heap's size divided by kReserveShare:
/// threads that take from each other's shards meet there again at every free. As much as a thread's
/// cache of whole runs may keep (decision 14). 2 MiB
inline constexpr Pages kReserve{512};
inline constexpr size_t kReserves = size_t{4} << 20;
inline constexpr size_t kReserveShare = 32;

struct PageStats {
  size_t reserved_bytes;
  size_t committed_bytes;  ///< blocks that may be used
  Pages used;              ///< in runs
  Pages dirty;             ///< free and backed, parked runs included
  Pages parked;
  Pages peak_used;
  uint64_t purge_calls;
  uint64_t purged_pages;
  uint64_t purge_ns;       ///< spent in purge calls
  uint64_t refused_calls;  ///< purge or commit calls that the system refused
  uint64_t fresh_pages;    ///< pages handed out that were not backed
  uint64_t lock_acquisitions;
  uint64_t lock_contentions;
  size_t large_blocks;  ///< live runs that are one block, of all heaps
  Pages large_pages;
  size_t large_requested;  ///< bytes asked for in them
  uint64_t large_allocations;
  size_t longest_backed_run_bytes;  ///< exact
  size_t metadata_bytes;
};

class PageHeap {
 public:
  constexpr PageHeap() = default;

  /// For what the heap asks the system to use huge pages (decision 97).
  enum class HugePages : uint8_t {  // in the order of LOAM_HUGE_PAGES's values
    kLargeHeaps,  ///< blocks for spans, while what is surplus is at most the 32nd part of the heap
    kAlways,      ///< the same with the 8th part, for all runs, and mappings of their own
    kNever,
  };
  void use_huge_pages(HugePages when) { huge_pages_when_.store(when, std::memory_order_relaxed); }
  /// Whether a mapping of its own asks for them. Where the system's pages are larger than ours it
  /// has none of 2 MiB, and is not asked.
  [[nodiscard]] bool always_uses_huge_pages() const {
    return huge_pages_when_.load(std::memory_order_relaxed) == HugePages::kAlways &&
           os::granularity() == kPageBytes;
  }
  /// Before pages inside of a used span go back: the system would fill the gaps (khugepaged). Takes
  /// no lock. A refusal is as good. pre: the span stays used meanwhile
  static void keep_small_pages(const Span* span) {
    Block* const block = &region_of(span)->blocks[span->first_page / kPagesPerBlock];
    if (LOAM_UNLIKELY(__atomic_load_n(&block->huge, __ATOMIC_RELAXED)))
      static_cast<void>(os::advise_huge(block_base(block), kBlockBytes, false));
  }

  enum class Source : uint8_t {
    kAny,
    kBacked,  ///< pages that hold memory already, and in blocks of their kind or whole ones; else
              ///< null
  };
  enum class Use : bool {
    kAtOnce,   ///< all pages of it
    kBySlots,  ///< pages that hold no memory yet are named as unbacked: who hands out a slot there
               ///< takes them off
  };
  /// What a request got; no span when memory is refused.
  struct Run {
    Span* span = nullptr;
    uint32_t fresh = 0;  ///< pages that were taken for it and held no memory
    bool zero = false;   ///< all of it reads as zero
  };
  /// What a span becomes: its length, its class, and the class byte under which the map publishes
  /// it (kNoClass for private heaps).
  struct SpanShape {
    Pages pages;
    SizeClass size_class;
    SizeClass class_byte;
    SpanOwner owner;
  };
  /// Up to `most` spans, linked through `next`: one, and more where they wait whole. The records'
  /// slots are not filled in.
  [[nodiscard]] Run allocate_spans(unsigned most, SpanShape shape, Source source,
                                   Use use = Use::kAtOnce);
  /// One of them.
  [[nodiscard]] Span* allocate_span(SpanShape shape, Source source = Source::kAny) {
    return allocate_spans(1, shape, source).span;
  }

  /// A run that is one block. pre: pages <= kMaxRun, alignment is a power of two. `shard`: the
  /// thread's, if it has one
  [[nodiscard]] Run allocate_large(Pages pages, Pages alignment, size_t requested, uint8_t heap,
                                   unsigned shard = 0);

  /// A large run that is no block yet, or none, and more that came with it: of its length, kind
  /// kCached, named by their first pages, linked through `next`.
  struct Runs {
    Span* first = nullptr;
    Span* rest = nullptr;
    unsigned rest_count = 0;
  };
  /// A parked large run for one block of the default heap, or null: the calling thread's own shard
  /// first. It may be longer by `more` pages. Perhaps no page names it yet, its record lacks the
  /// requested size, and it counts as no block; takes the shards' locks alone. Its memory is not
  /// zero. With it a batch, if one waits whose other runs are `most` or fewer and have `room` pages
  /// or fewer.
  [[nodiscard]] Runs take_run(Pages pages, unsigned more, unsigned shard, Pages room = Pages(0),
                              unsigned most = 0);  // shard_runs.h

  /// Has a batch of runs of the default heap wait as it stands: `count` large runs of one length
  /// and one shard, kind kCached, linked through `next`, that count as no block. pre: as give_run()
  void give_batch(Span* first, unsigned count);
  /// Where a large run waits once it is freed. A hint, but for who holds the page heap's lock or
  /// that shard's: blocks move.
  [[nodiscard]] static unsigned shard_of(const Span* span) {
    return __atomic_load_n(&region_of(span)->blocks[span->first_page / kPagesPerBlock].shard,
                           __ATOMIC_RELAXED);
  }
  /// Pages that were asked for last in a shard.
  [[nodiscard]] uint32_t length_asked(unsigned shard) const {
    return __atomic_load_n(&shards_[shard].asked, __ATOMIC_RELAXED);  // a hint
  }

  /// Parks a large run of the default heap that counts as no block of the page heap any more. Takes
  /// the lock of its shard alone. pre: at most kPagesPerBlock pages
  void give_run(Span* span);  // shard_runs.h

  /// The shard of a thread from here on, until it leaves it.
  [[nodiscard]] unsigned join_shard();
  void leave_shard(unsigned shard);

  /// Gives a run back. pre: no live block in it
  void free(Span* span);

  /// The same with spans that are linked through `next`, the last first: allocate_spans() hands
  /// that one out next.
  void free_spans(Span* last);

  /// Gives back those pages of a span (a mask): whoever asks gets them, while the span stays what
  /// it is. Those among them that it has as unbacked are taken as such. pre: no live block in them
  void free_pages_of(const Span* span, uint32_t pages);

  /// Gives back runs that a thread kept, linked through `next`: large ones of the default heap,
  /// kind kCached, that count as no block any more. pre: as give_run(). One lock for all of a shard
  void give_home(Span* first);

  /// Grows or shrinks a large run where it stands; false when what follows is taken, or lies in
  /// another block of pages than the run's end and the run does not begin one.
  [[nodiscard]] bool resize_large(Span* span, Pages pages, size_t requested);

  /// Gives backed free pages back to the system: all of them. Returns the pages purged.
  Pages purge_all();
  /// Gives the pages back that hold free records of runs alone, or entries of free pages in the
  /// maps. Returns bytes.
  size_t purge_records();

  /// A block in a mapping of its own (huge_map.h) came, grew, shrank or went: what it was and is.
  /// Where it grew, memory that is free goes back.
  void note_huge(GrowthDebt::Debtor before, GrowthDebt::Debtor now);

  /// What a large run held was moved to a block in a mapping of its own, of as many pages: the run
  /// is free, and none of its pages is backed. pre: it is one block
  void hand_over(Span* run);
  /// A block of so many pages is asked for that could do without: whether mappings are kept, this
  /// time or the next.
  [[nodiscard]] bool keeps_mappings(Pages wanted);

  /// A mapping that was kept, or a part of one, for a block of so many pages, which may be about to
  /// grow; it may have fewer. Address 0: none. The caller says with note_huge() what became of it.
  [[nodiscard]] IdleMappings::Mapping take_mapping(Pages pages, size_t alignment,
                                                   bool grows = false);
  /// Pages that were kept, from that address on, for the block before it: at most so many.
  [[nodiscard]] Pages take_mapping_at(uintptr_t address, Pages most);
  /// A block's mapping, once the block is freed: true if it is kept. Otherwise the caller releases
  /// it, and it is no block's any more.
  [[nodiscard]] bool keep_mapping(uintptr_t address, Pages pages);

  /// Returns the address space of what is free at the ends of extents; true if there was some. For
  /// when the system refuses more.
  bool release_idle_extents();

  /// mlockall(): what is only reserved goes back before, and is neither counted nor locked from
  /// then on. Sets errno.
  int lock_all_memory(int flags);

  /// One step of the purge policy; cheap when there is nothing to do.
  void tick();
  /// The same, unless somebody holds the lock. For who comes here often.
  void tick_unless_busy();

  /// True while more is backed than is worth keeping: somebody should call tick() now and then, and
  /// that of the heap whose spans these are.
  [[nodiscard]] bool wants_ticks() const {
    return pages_wait() || spans_wait_.load(std::memory_order_relaxed);
  }
  /// True while a silence is made up for: whoever calls should call tick() at once.
  [[nodiscard]] bool is_behind() const { return is_behind_.load(std::memory_order_relaxed); }
  /// True while free pages are more than is worth keeping.
  [[nodiscard]] bool pages_wait() const { return pages_wait_.load(std::memory_order_relaxed); }
  /// Whether so many pages lie free that hold memory that a search for short runs of them is worth
  /// it.
  [[nodiscard]] bool short_runs_wait() const {
    return pages_wait() ||
           Pages(waiting_hint_.load(std::memory_order_relaxed) * kShortRunsShare).bytes() >
               used_bytes_hint();
  }
  /// Whether pages inside of spans may be.
  void note_spans_wait(bool they_do) { spans_wait_.store(they_do, std::memory_order_relaxed); }

  /// Bytes in runs, some operations old: for limits that follow the heap's size.
  [[nodiscard]] size_t used_bytes_hint() const {
    return used_hint_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] PageStats stats();
  /// Whether the address lies in what was reserved for spans. Takes the lock.
  [[nodiscard]] bool reserves(uintptr_t address);
  /// Places that the last search for a run of more than one block looked at, without the lock: for
  /// tests.
  [[nodiscard]] size_t places_looked_at() const { return places_looked_at_; }

  /// Free runs inside blocks, [k]: of 2^k to 2^(k+1) - 1 pages.
  struct RunCounts {
    static constexpr unsigned kBins = 10;
    uint64_t dirty[kBins];
    uint64_t clean[kBins];
    uint64_t uncommitted;  ///< extents that were not committed to their end
  };
  /// O(blocks), some 100 ns each that is not full.
  void count_runs(RunCounts* out);
  [[nodiscard]] Mutex& mutex() { return mutex_; }
  [[nodiscard]] Mutex& shard_mutex(unsigned shard) { return shards_[shard].mutex; }
  /// For fork(): the page heap's lock and those of its shards.
  void lock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_locks_after_fork();
  [[nodiscard]] bool is_valid();

 private:
  friend struct CounterFields;
  struct Place {
    Region* region = nullptr;
    PageId page;
    bool zero = false;      ///< none of its pages is backed
    uint32_t fresh = 0;     ///< pages that were taken for it and held no memory
    uint32_t unbacked = 0;  ///< of a run that a span may have: which of them are not, as a mask
  };
  enum class From { kDirty, kFree };
  enum class Cut { kDone, kNothing, kCloserElsewhere, kNoRecord };
  /// Who takes: its blocks are of that kind, and what is freed in them is parked in that shard.
  struct Taker {
    RunKind kind;
    uint8_t shard;
  };

  Place take(Pages pages, Pages alignment, Taker taker, Source source);
  /// Where the system counts what is committed: false where it refuses, and then the place is free.
  inline bool commit_place(const Place& place, Pages pages);
  Place take_in_block(unsigned count, unsigned alignment, Taker taker, Source source);
  Place take_blocks(Pages pages, Pages alignment, Taker taker);
  void use_blocks(Block* block, size_t pages, Taker taker);
  bool search(From from, unsigned index, unsigned count, unsigned alignment, Block** block,
              Fit* fit);
  Block* take_whole(Taker taker);
  bool grow(unsigned blocks);
  bool commit(Region* region, Extent& extent, unsigned blocks);
  /// Commits so many, the first at that place. False where nothing uncommitted begins there, or too
  /// little.
  bool commit_at(Region* region, uint32_t block, unsigned blocks);
  [[nodiscard]] bool extend(const Span* span, Pages more);
  [[nodiscard]] bool has_free_blocks(Region* region, size_t first, size_t pages);
  [[nodiscard]] bool clear_way(Block* block, unsigned first, unsigned count);
  bool add_extent(unsigned blocks);
  /// Returns what is reserved, here and by the metadata, and calls os::stop_reserving().
  void stop_reserving_locked();
  /// for_each_idle_map() of all regions, and for_each_idle_directory().
  void for_each_idle_part(VisitPart visit);
  /// Unmaps free blocks at the ends of extents, if they are more than that; for programs that lock
  /// their memory.
  void unmap_ends(size_t more_than);
  void unmap_ends_if_locked();
  void append_region(Region* region);
  void forget_block(Block* block);
  void release_blocks(Region* region, uint32_t first, uint32_t committed, uint32_t reserved);
  void forget_whole(const Block* block);
  void activate(Block* block, Taker taker);
  /// As a mask of unbacked pages: all of however many there are.
  static constexpr uint32_t kNoneBacked = ~uint32_t{0};
  /// Marks pages of one block used; returns how many of them were backed before.
  unsigned mark_used(Block* block, unsigned first, unsigned count);
  LOAM_NOINLINE void ask_for_huge(Block* block);
  LOAM_COLD void end_huge(Block* block);
  LOAM_COLD void end_huge_pages(Pages surplus);
  LOAM_NOINLINE void shed_surplus();
  void mark_free(Block* block, unsigned first, unsigned count, uint32_t unbacked_mask,
                 uint64_t since_ms);
  void note_age(Block* block, bool is_listed, uint64_t since_ms);
  void release_pages(Region* region, PageId first, Pages pages, uint32_t unbacked_mask,
                     uint64_t since_ms);
  void refresh_dirty(Block* block);
  void note_dirty();
  LOAM_NOINLINE void note_waiting();
  void free_span(Span* span);
  void release_some(const Span* span, uint32_t pages);
  void park_span(Span* span, uint64_t since_ms);
  [[nodiscard]] bool should_stay_whole(const Span* span) const;
  void keep_whole(Span* span);
  Span* take_whole_spans(unsigned most, const SpanShape& shape);
  void join_whole(Span* span);
  /// Joins that many of them at most, the longest kept first; false when there was none.
  bool join_whole(unsigned most);
  /// pre: the lock of its shard is held
  void park_large(Span* span, uint64_t since_ms);
  void park_in(unsigned shard, Span* span, uint64_t since_ms);
  [[nodiscard]] bool is_reserved(const PageShard& shard) const;
  void note_taken_elsewhere(unsigned own, const Span* span);
  LOAM_NOINLINE void move_block(Block* block, unsigned to);
  Span* take_run_anywhere(unsigned count, unsigned more, unsigned own, bool own_too);
  /// The first `count` pages of the shortest run that is parked there and holds them; or all of it,
  /// if it is longer by at most `more`. By ParkedRuns::number(). pre: that place's lock is held
  Cut cut_parked(unsigned number, unsigned count, unsigned more, Span** out);
  /// The same in a shard, whose count of parked pages follows.
  Cut take_from(unsigned shard, unsigned count, unsigned more, Span** out);
  /// The same where a batch waits: one of it, or of the parked runs once as much of it is joined as
  /// it takes.
  LOAM_NOINLINE Cut take_beside_batches(unsigned shard, unsigned count, unsigned more, Span** out);
  Span* take_one_of_batch(PageShard& shard);
  /// Joins a batch with the runs that are parked there. pre: the lock of the shard is held
  void join_batch(unsigned shard, Span* batch);
  /// Joins that many runs or a few more, the longest kept first; false when there was none. pre: as
  /// join_batch()
  bool join_batches(unsigned shard, unsigned most);
  /// take_span_record(), also of what shards keep. pre: the page heap's lock is held, and no
  /// shard's
  [[nodiscard]] LOAM_INLINE Span* take_record(Region* region) {
    Span* const span = take_span_record(region);
    return LOAM_LIKELY(span != nullptr) ? span : take_last_record(region);
  }
  LOAM_COLD Span* take_last_record(Region* region);
  void stock_records(unsigned shard);
  void return_spares(unsigned shard);
  void note_parked();
  LOAM_NOINLINE static void look_at_clock(PageShard& shard);
  static void set_parked(PageShard& shard, uint64_t pages) {
    __atomic_store_n(&shard.parked_pages, pages, __ATOMIC_RELAXED);
  }
  [[nodiscard]] unsigned shards_in_use() const {
    return shards_in_use_.load(std::memory_order_relaxed);
  }
  void use_shard(unsigned shard);
  [[nodiscard]] Pages pages_in_shards() const;
  [[nodiscard]] Pages really_used() const { return used_ - pages_in_shards(); }
  Pages note_peak();
  void count_large(const Span* span);
  void uncount_large(const Span* span);
  Span* unpark_span(Pages pages);
  Span* take_filling(unsigned count);
  Span* cut_filling(Span* run, unsigned count);
  LOAM_NOINLINE Span* search_filling(unsigned count);
  void fill_from(Region* region, PageId page);
  // How many parked runs are joined with their neighbours before the next search. Chosen: such a
  // search costs as much as joining one, so less would search in vain more often; more would undo
  // what the next requests could have taken as it stands.
  static constexpr unsigned kJoinedPerSearch = 32;
  static constexpr unsigned kNoShard = kPageShards;
  /// Visits every place where runs are parked, with its lock held: those of that kind first, until
  /// one says true. Not what is reserved for threads of other shards than `own`, if that is one.
  template <class Visit>
  bool for_each_parked(RunKind kind, unsigned own, Visit visit);
  void release_parked(Span* span);
  void release_parked();
  bool search_parked(unsigned count, unsigned alignment, Taker taker, Block** block, Fit* fit);
  void release_old_parked();
  void release_large(Span* span, uint64_t since_ms, uint32_t unbacked_mask = 0);
  Pages purge_block(Block* block, Pages limit);
  /// What the heap holds, blocks in mappings of their own too.
  [[nodiscard]] Pages backed() const {
    return used_ + parked_pages_ + dirty_pages_ + surplus_pages_ + huge_pages_;
  }
  /// Of what a long run took so many pages hold nothing yet: memory goes for them, if some is free.
  void note_growth(Pages fresh, GrowthDebt::Debtor taker);
  /// A long run that was freed is free now: it goes for what another has not written to yet.
  LOAM_NOINLINE void note_long_free();
  void pay_growth(Pages owed);
  void shed_mappings(Pages pages);
  LOAM_NOINLINE void shed_due_mappings();
  /// True if there was one.
  bool shed_all_mappings();
  void count_operation();
  void tick_locked();
  LOAM_NOINLINE size_t purge_records_locked(uint32_t least, size_t most);
  LOAM_NOINLINE size_t purge_maps(unsigned least);
  [[nodiscard]] bool block_is_valid(const Block* block) const;

  static char* block_base(const Block* block) {
    return static_cast<char*>(region_of(block)->page_address(first_page_of(block)));
  }
  static PageId first_page_of(const Block* block) {
    return PageId(region_of(block)->number_of(block) * kPagesPerBlock);
  }
  /// By ParkedRuns::number().
  ParkedRuns& parked(unsigned number) { return parked_[kPageShards - number]; }
  FreeIndex& free_index(unsigned kind) { return free_[kRunKinds - 1 - kind]; }
  DirtyIndex& dirty_index(const Block* block) {
    return block->state == BlockState::kWhole ? dirty_[kRunKinds] : dirty_[unsigned(block->kind)];
  }

  // All zero at first, and what a program's first block needs comes last, behind the long tables: a
  // page that is touched costs every program's start (decision 18).
  PageShard shards_[kPageShards];
  ParkedRuns parked_[1 + kPageShards];  // large runs' of each shard, and spans' last: see parked()
  DirtyIndex dirty_[kRunKinds + 1];     // the last one holds whole blocks
  FreeIndex free_[kRunKinds];           // that of spans last: see free_index()
  Mutex mutex_;
  std::atomic<bool> pages_wait_{false};
  std::atomic<bool> is_behind_{false};
  std::atomic<bool> spans_wait_{false};
  std::atomic<HugePages> huge_pages_when_{HugePages::kLargeHeaps};
  std::atomic<size_t> waiting_hint_{
      0};  // pages that are dirty or parked outside of shards; old while ticks are wanted
  std::atomic<unsigned> shards_in_use_{
      0};  // the first so many: a thread had them, or a block is theirs
  std::atomic<size_t> used_hint_{0};
  Region* regions_ = nullptr;  // oldest first
  uint64_t now_ms_ = 0;
  unsigned operations_ = 0;
  unsigned whole_blocks_ = 0;
  size_t places_looked_at_ = 0;
  unsigned extent_halvings_ = 0;  // of kBlocksPerRegion, when the system refuses
  size_t reserved_blocks_ = 0;
  size_t committed_blocks_ = 0;
  Pages used_{};
  Pages dirty_pages_{};
  Pages surplus_pages_{};      // of blocks that asked for a huge page: those that no run took
  Pages parked_pages_{};       // of spans, those that wait whole too
  List<Span> whole_spans_;     // kEmpty, all of one length, the last freed first
  Pages span_length_{};        // that was asked for last
  Region* filling_ = nullptr;  // whose block short spans fill; null: none
  PageId filled_to_{};         // there: the block's pages before it were passed
  Pages peak_used_{};
  uint64_t looked_at_parked_ms_ = 0;
  uint64_t looked_at_records_ms_ = 0;
  uint64_t looked_at_surplus_ms_ = 0;
  uint64_t fresh_at_look_ = 0;  // what fresh_ said then
  uint64_t purge_calls_ = 0;
  uint64_t purged_pages_ = 0;
  uint64_t purge_ns_ = 0;
  uint64_t refused_calls_ = 0;
  FreshLedger fresh_;
  size_t large_blocks_ = 0;
  Pages large_pages_{};
  size_t large_requested_ = 0;
  uint64_t large_allocations_ = 0;
  PurgePolicy policy_;
  GrowthDebt growth_;
  Pages huge_pages_{};  // of mappings of their own, those that are kept too
  IdleMappings idle_;
  List<Block, AgeList> age_;
};

// At once, not at the next tick: a program may free a few large runs and then never come here
// again.
LOAM_INLINE void PageHeap::note_parked() {
  if (LOAM_UNLIKELY(!pages_wait())) note_waiting();
}

LOAM_INLINE PageHeap::Cut PageHeap::cut_parked(unsigned number, unsigned count, unsigned more,
                                               Span** out) {
  const bool is_spans = number == ParkedRuns::kSpansRuns;
  const RunKind kind = is_spans ? RunKind::kSpan : RunKind::kLarge;
  ParkedRuns& parked = *one_address(&this->parked(number));
  const unsigned length = parked.shortest(count);
  if (LOAM_UNLIKELY(length > kPagesPerBlock)) return Cut::kNothing;
  Span* span;
  if (length <= count + more) {
    span = parked.pop(length);
  } else {
    // Shorter than what any block of bitmaps promises, or it is left for a longer request.
    if (dirty_[unsigned(kind)].promises_less(count, length)) return Cut::kCloserElsewhere;
    // A shard's lock leads to the records that the shard keeps, and to no others.
    Region* region = region_of(parked.first(length));
    span = is_spans ? take_record(region) : take_spare_record(region, number - 1);
    if (LOAM_UNLIKELY(span == nullptr)) return Cut::kNoRecord;
    parked.cut(length, count, span);
  }
  *out = span;
  return Cut::kDone;
}

LOAM_INLINE void PageHeap::note_dirty() {
  if (pages_wait()) return;
  waiting_hint_.store((dirty_pages_ + surplus_pages_ + parked_pages_).count,
                      std::memory_order_relaxed);
  note_waiting();
}

/// The page heap that every heap of the process shares.
extern PageHeap page_heap;

}  // namespace loam
