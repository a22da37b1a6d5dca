// The page heap: hands out runs of 4 KiB pages, takes them back, joins neighbours at once, and
// decides which free pages stay backed.
//
//   used + parked + free pages         = pages of all committed slabs
//
// Order of preference for a run of n pages: a backed run in slabs of its kind, then in whole
// slabs (both again once parked runs are merged); a run of its kind's slabs that is not all
// backed; a backed run in the other kind's slabs; a whole slab, old or fresh; any run of the
// other kind's slabs.
//
// A freed run is parked for a while, joined with parked neighbours (parked_runs.h). The next
// requests of its kind take it or a part of it. Large runs are parked in shards (page_shard.h),
// each with a lock. Parked runs return to the bitmaps before any unbacked page is taken, and after
// they have waited for kParkedMs. Empty spans, and batches of large runs of one length, stand
// unchanged instead for a request of their length (standing_runs.h).
//
// Shorter spans fill one slab after the other (filling_slab.h).
//
// A run of more than one slab begins where a slab begins, at the place with the fewest unbacked
// pages. Other runs may use the rest of its last slab. All public functions take the locks
// themselves. Pages that are parked in shards count as used in used_.
#pragma once

#include "base/go_on.h"
#include "map/page_map.h"
#include "os/mutex.h"
#include "pages/address_space.h"
#include "pages/filling_slab.h"
#include "pages/free_slabs.h"
#include "pages/large_account.h"
#include "pages/own_mappings.h"
#include "pages/page_clock.h"
#include "pages/page_hints.h"
#include "pages/page_shard.h"
#include "pages/parked_runs.h"

namespace loam {

/// A large block may get a freed run, parked or kept by its thread, that is longer by at most this
/// part of its request. It gets the run whole, because the piece cut off would serve no request.
/// Chosen: as the size classes above 1 KiB round (decision 14), half of it on average. A smaller
/// part finds fewer runs, a larger part rounds more.
inline constexpr unsigned kSlackShare = 16;

/// The threads that free runs of up to this many pages keep them (cache/run_cache.h). Chosen:
/// longer runs are worth a lock; 1 MiB.
inline constexpr Pages kLongestKept{256};

/// The pages by which a parked run may be longer than a request that gets it whole. A request of a
/// length that threads keep gets no longer run than they keep. Otherwise that run would return
/// here, and be found here, every time.
[[nodiscard]] constexpr unsigned slack_of(Pages pages) {
  const size_t slack = pages.count / kSlackShare;
  const bool is_kept = pages <= kLongestKept;
  const size_t most = is_kept ? (kLongestKept - pages).count : slack;
  return static_cast<unsigned>(slack < most ? slack : most);
}

/// Runs that are parked in a shard are reserved for its threads while they have no more pages than
/// this for each shard in use, and no more than kMostReserved. The reason: threads that take from
/// each other's shards contend there again at every free, and the more threads there are, the more
/// often they meet (decision 112).
inline constexpr Pages kReservedByShard{128};
inline constexpr Pages kMostReserved{1024};
/// All shards together reserve at most what the heap uses, divided by this. Chosen: more than half
/// of a small heap would wait where its other threads may not take it.
inline constexpr size_t kReserveShare = 2;

/// A run that no request took for this long joins its neighbours. Chosen: longer than a round of
/// most programs, and far shorter than PurgePolicy::kSoonMs, after which it may be purged.
inline constexpr uint64_t kParkedMs = 100;

class PageHeap {
 public:
  constexpr PageHeap() = default;

  [[nodiscard]] HugeSurplus& huge_pages() { return slabs_.surplus(); }
  /// Call before purging pages inside of a used span. Otherwise the system (khugepaged) would back
  /// the gaps again. Takes no lock. A refusal needs no action. pre: the span stays used meanwhile
  static void keep_small_pages(const Span* span) {
    Slab* const slab = &region_of(span)->slabs[span->first_page / kPagesPerSlab];
    if (LOAM_UNLIKELY(__atomic_load_n(&slab->huge, __ATOMIC_RELAXED)))
      static_cast<void>(os::advise_huge(slab_base(slab), kSlabBytes, false));
  }

  enum class Source : uint8_t {
    kAny,
    kBacked,  ///< backed pages alone, in slabs of their kind or in whole slabs; else null
  };
  enum class Use : bool {
    kAtOnce,   ///< the caller uses all pages at once
    kBySlots,  ///< the record names unbacked pages; code that hands out a slot there removes them
  };
  /// The result of a request; no span when the system refuses memory.
  struct Run {
    Span* span = nullptr;
    uint32_t fresh = 0;  ///< pages that were taken for it and held no memory
    bool zero = false;   ///< the whole run reads as zero
  };
  /// The form of a new span: its length, its class, and the class byte under which the map
  /// publishes it (kNoClass for private heaps).
  struct SpanShape {
    Pages pages;
    SizeClass size_class;
    SizeClass class_byte;
    SpanOwner owner;
  };
  /// Takes up to `most` spans, linked through `next`: one, and more if they stand. The caller
  /// fills in the slots of their records.
  [[nodiscard]] Run allocate_spans(unsigned most, SpanShape shape, Source source,
                                   Use use = Use::kAtOnce);
  /// Takes one span.
  [[nodiscard]] Span* allocate_span(SpanShape shape, Source source = Source::kAny) {
    return allocate_spans(1, shape, source).span;
  }

  /// Takes a run that is one large block. pre: pages <= kMaxRun, alignment is a power of two.
  /// `shard`: the thread's shard, if it has one
  [[nodiscard]] Run allocate_large(Pages pages, Pages alignment, size_t requested, uint8_t heap,
                                   unsigned shard = 0);

  /// A large run that is no block yet, or null; and the rest of its batch. The runs of the rest
  /// have the same length and the kind kStanding, their first pages name them, and `next` links
  /// them.
  struct Runs {
    Span* first = nullptr;
    Span* rest = nullptr;
    unsigned rest_count = 0;
  };
  /// Takes a parked large run for one block of the default heap, or null. The calling thread's own
  /// shard comes first. The run may be longer by `more` pages. Perhaps no page names it yet. Its
  /// record lacks the requested size, it counts as no block, and its memory is not known to be
  /// zero. Takes only the shards' locks. The rest of a batch comes with the run, if a batch waits
  /// whose other runs are at most `most` and have at most `room` pages.
  [[nodiscard]] Runs take_run(Pages pages, unsigned more, unsigned shard, Pages room = Pages(0),
                              unsigned most = 0);  // shard_runs.h

  /// Parks a batch of runs of the default heap unchanged: `count` large runs of one length and one
  /// shard, kind kStanding, linked through `next`, that count as no block. pre: as give_run()
  void give_batch(Span* first, unsigned count);
  /// The shard in which a large run waits after it is freed. Only a hint without the page heap's
  /// lock or that shard's lock, because slabs move between shards.
  [[nodiscard]] static unsigned shard_of(const Span* span) {
    return __atomic_load_n(&region_of(span)->slabs[span->first_page / kPagesPerSlab].shard,
                           __ATOMIC_RELAXED);
  }
  /// The pages of the last request in a shard.
  [[nodiscard]] uint32_t length_asked(unsigned shard) const {
    return __atomic_load_n(&shards_[shard].asked, __ATOMIC_RELAXED);  // a hint
  }

  /// Parks a large run of the default heap that no longer counts as a block of the page heap. Takes
  /// only the lock of its shard. pre: at most kPagesPerSlab pages
  void give_run(Span* span);  // shard_runs.h

  /// Assigns a shard to the calling thread, until leave_shard().
  [[nodiscard]] unsigned join_shard();
  void leave_shard(unsigned shard);

  /// Frees a run. pre: no live block in it
  void free(Span* span);

  /// Frees spans that are linked through `next`, the last one first. allocate_spans() hands out the
  /// last one next.
  void free_spans(Span* last);

  /// Frees the pages of a span in the mask `pages`. Any request may get them, while the span stays
  /// unchanged. Pages that the span's record names as unbacked count as not backed. pre: no live
  /// block in them
  void free_pages_of(const Span* span, uint32_t pages);

  /// Parks runs that a thread kept, linked through `next`: large runs of the default heap, kind
  /// kStanding, that no longer count as blocks. pre: as give_run(). Consecutive runs of one shard
  /// cost one lock
  void give_home(Span* first);

  /// Grows or shrinks a large run in place. False when the pages behind it are taken; or when they
  /// lie in another slab than the run's end, and the run does not begin where a slab
  /// begins.
  [[nodiscard]] bool resize_large(Span* span, Pages pages, size_t requested);

  /// Purges all dirty pages. Returns the pages purged.
  Pages purge_all();
  /// Purges the pages that hold nothing but free records of runs, or entries of free pages in the
  /// maps. Returns the purged bytes.
  size_t purge_records();

  /// Call when a block in a mapping of its own (huge_map.h) came, grew, shrank or went, with its
  /// state before and now. If it grew, free memory goes back to the system.
  void note_huge(GrowthDebt::Debtor before, GrowthDebt::Debtor now);

  /// Frees a large run whose content was moved to a block of as many pages in a mapping of its own.
  /// None of the run's pages is backed any more; without `has_place` they are lost, and stay used
  /// for ever. pre: the run is one block
  void hand_over(Span* run, bool has_place);
  /// Whether freed mappings are kept (IdleMappings::are_kept()). Call for a request of `wanted`
  /// pages that can be served without a kept mapping.
  [[nodiscard]] bool keeps_mappings(Pages wanted);

  /// Takes a kept mapping, or a part of one, for a block of `pages` pages; `grows` if the block is
  /// likely to grow. The mapping may have fewer pages. Address 0: none. The caller reports its new
  /// state with note_huge().
  [[nodiscard]] IdleMappings::Mapping take_mapping(Pages pages, size_t alignment,
                                                   bool grows = false);
  /// Takes at most `most` kept pages from this address on, for the block before it.
  [[nodiscard]] Pages take_mapping_at(uintptr_t address, Pages most);
  /// Offers the mapping of a freed block; true if it is kept. Otherwise the caller releases it, and
  /// the page heap no longer counts it.
  [[nodiscard]] bool keep_mapping(uintptr_t address, Pages pages);

  /// Releases the address space of free slabs at the ends of extents; true if there was some. For
  /// the case that the system refuses more.
  bool release_idle_extents();

  /// Does mlockall(). Address space that is only reserved is released first, so it is neither
  /// counted nor locked from then on. Sets errno.
  int lock_all_memory(int flags) {
    Lock lock(mutex_);
    return space_.lock_all_memory(flags);
  }

  /// One step of the purge policy; cheap when there is nothing to do.
  void tick();
  /// Does a step of the policy unless another thread holds the lock. For frequent callers.
  void tick_unless_busy();

  /// For a thread that is about to wait (decision 136). Takes no lock.
  /// True while more is free and backed than a fall leaves.
  [[nodiscard]] bool much_waits() const;
  struct Silence {
    uint64_t left_ms;  ///< until no step came for PurgePolicy::kSilenceMs; 0: now
    Pages held;        ///< what came back after such a time before, and is waited for
  };
  /// Does a step of the policy if the heap is silent.
  [[nodiscard]] Silence look_at_silence();
  /// Gives free pages back, of any age, but for `keep` and the floor, as long as `go_on` allows.
  /// pre: the heap is silent
  void give_back_beyond(Pages keep, const GoOn& go_on);

  [[nodiscard]] PageHints& hints() { return hints_; }
  [[nodiscard]] PageStats stats();
  /// Whether the address lies in what was reserved for spans. Takes the lock.
  [[nodiscard]] bool reserves(uintptr_t address) {
    Lock lock(mutex_);
    return space_.reserves(address);
  }
  /// The number of places at which the last search for a run of more than one slab looked. Takes
  /// no lock; for tests.
  [[nodiscard]] size_t places_looked_at() const { return space_.places_looked_at(); }

  /// What use falls by stays until it is old, as if it had come back before: for tests.
  void keep_falls(bool on = true) {
    Lock lock(mutex_);
    policy_.keep_falls(on);
    hints_.set_returned(policy_.worth_waiting_for());
  }

  /// Free runs inside slabs, [k]: of 2^k to 2^(k+1) - 1 pages.
  struct RunCounts {
    static constexpr unsigned kBins = 10;
    uint64_t dirty[kBins];
    uint64_t clean[kBins];
    uint64_t uncommitted;  ///< extents that were not committed to their end
  };
  /// O(slabs): some 100 ns for each slab that is not full.
  void count_runs(RunCounts* out);
  [[nodiscard]] Mutex& mutex() { return mutex_; }
  [[nodiscard]] Mutex& shard_mutex(unsigned shard) { return shards_[shard].mutex; }
  /// For fork(): the page heap's lock and those of its shards.
  void lock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_locks_after_fork();
  /// Whether some thread, perhaps this one, holds one of the locks.
  [[nodiscard]] bool is_any_locked() const;
  [[nodiscard]] bool is_valid();

 private:
  friend struct CounterFields;
  /// A wait is split while more is free and backed than this and twice what a fall leaves: so the
  /// waits of a busy thread are rarely split. Less is not worth two system calls. Chosen: what a
  /// silent process may hold beside what lives (decision 104).
  static constexpr size_t kMuch = size_t{8} << 20;
  struct Place {
    Region* region = nullptr;
    PageId page;
    bool zero = false;      ///< none of its pages is backed
    uint32_t fresh = 0;     ///< pages that were taken for it and held no memory
    uint32_t unbacked = 0;  ///< of a run short enough for a span: its unbacked pages, as a mask
  };
  enum class Cut { kDone, kNothing, kCloserElsewhere, kNoRecord };
  /// The taker of a run. Slabs that it takes whole get this kind, and runs freed in them are
  /// parked in this shard.
  struct Taker {
    RunKind kind;
    uint8_t shard;
  };

  Place take(Pages pages, Pages alignment, Taker taker, Source source);
  /// For systems that count committed memory. False when the system refuses; the place is then
  /// free.
  inline bool commit_place(const Place& place, Pages pages);
  Place take_in_slab(unsigned count, unsigned alignment, Taker taker, Source source);
  Place take_slabs(Pages pages, Pages alignment, Taker taker);
  void use_slabs(Slab* slab, size_t pages, Taker taker);
  Slab* take_whole_slab(Taker taker);
  [[nodiscard]] bool extend(const Span* span, Pages more);
  [[nodiscard]] bool clear_way(Slab* slab, unsigned first, unsigned count);
  /// Unmaps the free slabs at the end of each extent that has more than `more_than` of them. For
  /// programs that lock their memory.
  void unmap_ends(size_t more_than);
  void unmap_ends_if_locked();
  void release_slabs(Region* region, uint32_t first, uint32_t committed, uint32_t reserved);
  void activate(Slab* slab, Taker taker);
  /// Marks pages of one slab used; returns how many of them were backed before.
  unsigned mark_used(Slab* slab, unsigned first, unsigned count);
  LOAM_COLD void end_huge_pages(Pages surplus);
  LOAM_NOINLINE void shed_surplus();
  void release_pages(Region* region, PageId first, Pages pages, uint32_t unbacked_mask,
                     uint64_t since_ms);
  void note_dirty();
  LOAM_NOINLINE void note_waiting();
  void free_span(Span* span);
  void release_some(const Span* span, uint32_t pages);
  void park_span(Span* span, uint64_t since_ms);
  [[nodiscard]] bool may_stand(const Span* span) const;
  void let_stand(Span* span);
  Span* take_standing_spans(unsigned most, const SpanShape& shape);
  /// pre: the lock of its shard is held
  void park_large(Span* span, uint64_t since_ms);
  void park_in(unsigned shard, Span* span, uint64_t since_ms);
  [[nodiscard]] bool is_reserved(const PageShard& shard) const;
  void count_taken_elsewhere(unsigned own, const Span* span);
  LOAM_NOINLINE void move_slab(Slab* slab, unsigned to);
  Span* take_run_anywhere(unsigned count, unsigned more, unsigned own, bool own_too);
  /// Takes the first `count` pages of the shortest run that is parked at the place `number` and is
  /// long enough; or the whole run, if it is longer by at most `more`. pre: that place's lock is
  /// held
  Cut cut_parked(unsigned number, unsigned count, unsigned more, Span** out);
  /// The same in a shard; also updates its count of parked pages.
  Cut take_parked(unsigned shard, unsigned count, unsigned more, Span** out);
  /// The same where a batch stands. Takes a run of the batch; or one of the parked runs, after as
  /// many batches are joined as necessary.
  LOAM_NOINLINE Cut take_beside_standing(unsigned shard, unsigned count, unsigned more, Span** out);
  Span* take_one_of_batch(PageShard& shard);
  /// Joins an entry to the parked runs of the place that it has left; returns its runs. pre: the
  /// place's lock is held
  unsigned join_entry(unsigned number, Span* entry);
  /// Joins standing runs of the place `number`, `most` or a few more, in the order of
  /// pop_standing(). False when there was none. pre: as join_entry()
  bool join_standing(unsigned number, unsigned most);
  /// As take_span_record(), but it can also take a record that a shard keeps. pre: the page heap's
  /// lock is held, and no shard's
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
  [[nodiscard]] Pages pages_in_shards() const;
  [[nodiscard]] Pages really_used() const { return used_ - pages_in_shards(); }
  Pages note_peak();
  Span* unpark_span(Pages pages, bool* none);
  Span* take_filling(unsigned count);
  static constexpr unsigned kNoShard = kPageShards;
  /// Visits every place where runs are parked, with its lock held, until a visit returns true.
  /// Places of that kind come first. If `own` is a shard, runs that are reserved for the threads of
  /// other shards are left out.
  template <class Visit>
  bool for_each_parked(RunKind kind, unsigned own, Visit visit);
  void release_parked(Span* span);
  void release_parked();
  bool search_parked(unsigned count, unsigned alignment, Taker taker, Slab** slab, Fit* fit);
  void release_old_parked();
  void release_large(Span* span, uint64_t since_ms, uint32_t unbacked_mask = 0);
  /// The pages that the heap holds, with those of blocks in mappings of their own.
  [[nodiscard]] Pages backed() const {
    return used_ + standing_spans_.waiting() + slabs_.dirty() + slabs_.surplus().pages() +
           mappings_.pages();
  }
  /// `taker` got `fresh` pages that hold nothing yet. As many dirty pages go back, if there are
  /// that many.
  void note_growth(Pages fresh, GrowthDebt::Debtor taker);
  /// A long run was freed. Its pages go back in exchange for fresh pages of the debtor that are not
  /// written to yet.
  LOAM_NOINLINE void pay_after_long_free(Pages freed);
  void pay_growth(Pages owed);
  /// A run took `fresh` pages that hold nothing yet. As many of the pages that lie idle for the
  /// longest time go back while the heap holds more than its bound (kIdleShare).
  void bound_idle(Pages fresh);
  void give_back_fall(Pages pages);
  Pages purge_oldest_of_any_age(Pages pages);
  void shed_due_mappings() { mappings_.shed_due(fresh_, used_, clock_.now_ms(), purges_); }
  void count_operation();
  void tick_locked();
  /// For those who take no lock.
  void note_what_waits();
  [[nodiscard]] bool place_is_valid(unsigned number, Pages waiting);

  /// By ParkedRuns::number().
  ParkedRuns& parked(unsigned number) { return parked_[kPageShards - number]; }
  /// Takes an entry that stands at the place `number` since before `before_ms`: the longest span,
  /// and the oldest of a length. Else null.
  [[nodiscard]] Span* pop_standing(unsigned number, uint64_t before_ms) {
    return number == ParkedRuns::kSpansRuns ? standing_spans_.pop_older(before_ms)
                                            : shards_[number - 1].standing.pop_older(before_ms);
  }

  // All zero at first. The members that a program's first block needs come last, behind the long
  // tables, because each touched page adds to the start of every program (decision 18).
  PageShard shards_[kPageShards];
  ParkedRuns parked_[1 + kPageShards];  // the large runs of each shard, then the runs of spans: see
                                        // parked()
  FreeSlabs slabs_;                     // its index of spans is last
  Mutex mutex_;
  PageHints hints_;
  AddressSpace space_;
  PageClock clock_;
  Pages used_{};
  StandingSpans standing_spans_;
  FillingSlab filling_;
  PurgeCounts purges_;
  FreshLedger fresh_;
  LargeAccount large_;
  PurgePolicy policy_;
  OwnMappings mappings_;
};

// Called at once and not at the next tick, because a program may free a few large runs and then
// never call again.
LOAM_INLINE void PageHeap::note_parked() {
  if (LOAM_UNLIKELY(!hints_.pages_wait())) note_waiting();
}

LOAM_INLINE PageHeap::Cut PageHeap::cut_parked(unsigned number, unsigned count, unsigned more,
                                               Span** out) {
  const bool is_spans = number == ParkedRuns::kSpansRuns;
  const RunKind kind = is_spans ? RunKind::kSpan : RunKind::kLarge;
  ParkedRuns& parked = *one_address(&this->parked(number));
  const unsigned length = parked.shortest(count);
  if (LOAM_UNLIKELY(length > kPagesPerSlab)) return Cut::kNothing;
  Span* span;
  if (length <= count + more) {
    span = parked.pop(length);
  } else {
    // If a slab's bitmap promises a shorter run that fits, the parked run is left for a longer
    // request.
    if (slabs_.promises_less(kind, count, length)) return Cut::kCloserElsewhere;
    // A shard's lock protects the records that the shard keeps, and no others.
    Region* region = region_of(parked.first(length));
    span = is_spans ? take_record(region) : take_spare_record(region, number - 1);
    if (LOAM_UNLIKELY(span == nullptr)) return Cut::kNoRecord;
    parked.cut(length, count, span);
  }
  *out = span;
  return Cut::kDone;
}

LOAM_INLINE void PageHeap::note_dirty() {
  if (hints_.pages_wait()) return;
  hints_.set_waiting(slabs_.dirty() + slabs_.surplus().pages() + standing_spans_.waiting());
  note_waiting();
}

/// The page heap that every heap of the process shares.
extern PageHeap page_heap;

}  // namespace loam
