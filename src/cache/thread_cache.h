// A thread's cache: its magazines (magazines.h), its kept runs (run_cache.h), and the order in
// which their parts act in a slow call.
//
//   allocate_slow   attend, disarm, then pop; or grow, refill, and perhaps collect
//   free_slow       check the pointer, look, perhaps collect, attend, disarm, then push; or put
//                   below, grow, or give the cold half away
//
//   part       what it decides                                                      where
//   budget_    how long a magazine may be, when a class gives back                  cache_budget.h
//   recent_    whether a pointer is one of the last frees                           recent_frees.h
//   own_       where the thread's own blocks end, among those that share lines      own_lines.h
//   checks_    when a free is looked at, and which pointers are checked            pointer_checks.h
//   draws_     which calls are sampled, which block gets guards                     draws.h
//   fall_      whether what the thread gives back should go to the system           thread_fall.h
//
// An armed magazine sends the next call of its class here. The slow call lets a thread that
// otherwise only hits its cache do the page heap's purge, and it tells a collection which classes
// are in use, at no cost to the fast path.
#pragma once

#include "base/list.h"
#include "base/shared_room.h"
#include "cache/cache_budget.h"
#include "cache/draws.h"
#include "cache/magazines.h"
#include "cache/own_lines.h"
#include "cache/pointer_checks.h"
#include "cache/recent_frees.h"
#include "cache/run_cache.h"
#include "cache/thread_fall.h"
#include "cache/thread_state.h"
#include "observers/detours.h"
#include "observers/memory_probes.h"
#include "observers/observed_thread.h"
#include "os/thread_pointer.h"
#include "small/small_heap.h"

namespace loam {

class ThreadCache : private Magazines, public ListLink<ThreadCache>, public ThreadState {
 public:
  enum class State : uint8_t { kUnused, kLive, kEnded };
  /// The interval at which a thread serves the page heap while the page heap wants ticks.
  static constexpr uint64_t kTickMs = 8;
  /// Frees of large blocks between two checks whether the page heap wants ticks. Half and double
  /// change nothing (decision 12).
  static constexpr uint32_t kRunsPerLook = RunCache::kMostRuns;
  /// For the caches of private heaps.
  static constexpr size_t kThreadBytes = CacheBudget::kThreadBytes;
  static constexpr size_t kDue = CacheBudget::kDue;

  /// For the two static caches, which have no slots: all zero, so that they take no space in the
  /// file.
  constexpr ThreadCache()
      : checks_(PointerChecks::Nothing()), fall_(ThreadFall::Nothing()), observed_{} {}
  struct Live {};
  /// pre: in zeroed memory
  explicit ThreadCache(Live);

  using Magazines::held_blocks;
  using Magazines::holds;
  using Magazines::pop;
  using Magazines::visit_held;

  /// False when the slow path must run; class 0 always needs it.
  [[nodiscard]] LOAM_INLINE bool push(size_t size_class, void* block) {
    void** const head = heads_[size_class];
    if (LOAM_UNLIKELY(head == highs_[size_class])) return false;
    void** const next = head + 1;
    size_t index = RecentFrees::index_of(block);
    void* const* const recent = noted_below(head, index);
    if (LOAM_UNLIKELY(*recent == block) && recent >= bases_[size_class])
      return false;  // a double free
    if (LOAM_UNLIKELY(checks_.is_look_due())) return false;
    asm(""
        : "+r"(index));  // otherwise the table's address is added to it for both uses, in an
                         // instruction of its own
    recent_.note(index, head);
    __atomic_store_n(head, block, __ATOMIC_RELAXED);  // count_mixed() may read the slot
    // release: pairs with the fork()ed child's copy of this memory (magazines.h)
    __atomic_store_n(&heads_[size_class], next, __ATOMIC_RELEASE);
    return true;
  }

  /// pop() and push() for a call that takes the slow path anyway. They ignore that the magazine is
  /// armed, and it stays armed. A detour uses them instead of the slow halves, most of the time.
  /// pre: magazines are kept armed
  [[nodiscard]] LOAM_INLINE void* pop_armed(unsigned size_class) {
    const Magazine m = magazine(size_class);
    if (LOAM_UNLIKELY(m.head == m.base)) return nullptr;
    void* block = m.head[-1];
    __atomic_store_n(&m.head, m.head - 1, __ATOMIC_RELAXED);
    m.arm();
    tuning_[size_class].note(Use::kHit);
    return block;
  }
  /// Ignores the arming as well. False when the slow path must run.
  [[nodiscard]] LOAM_INLINE bool push_armed(unsigned size_class, void* block) {
    if (LOAM_UNLIKELY(OwnLines::shares_lines(size_class)))
      return push_noted_armed(size_class, block);
    // Without a note among the recent frees: the callers find double frees by other means.
    const Magazine m = magazine(size_class);
    if (LOAM_UNLIKELY(m.head == m.base + tuning_[size_class].capacity) ||
        LOAM_UNLIKELY(checks_.is_look_due()))
      return false;
    m.put(block);
    m.arm();
    return true;
  }

  /// The same with a note among the recent frees, so that a double free is found.
  [[nodiscard]] LOAM_INLINE bool push_noted_armed(unsigned size_class, void* block) {
    const Magazine m = magazine(size_class);
    if (LOAM_UNLIKELY(m.head == nullptr)) return false;
    disarm(size_class);
    const bool pushed = push(size_class, block);
    m.arm();
    return pushed;
  }

  /// The slow halves. allocate_slow returns null when memory is refused.
  [[nodiscard]] LOAM_NOINLINE void* allocate_slow(unsigned size_class);
  LOAM_NOINLINE void free_slow(unsigned size_class, void* block);

  /// A block above the largest class, from a run that this thread or its shard kept; null when the
  /// page heap must give one. pre: pages != 0
  [[nodiscard]] LOAM_INLINE Span* take_run(Pages pages, size_t requested) {
    return runs_.take(pages, requested);
  }
  /// The same, but only from this thread's runs, and at a multiple of `alignment`, a power of two.
  [[nodiscard]] Span* take_aligned_run(Pages pages, Pages alignment, size_t requested) {
    return runs_.take_aligned(pages, alignment, requested);
  }
  /// The shard of the page heap that the thread uses.
  [[nodiscard]] unsigned page_shard() { return state() == State::kLive ? runs_.shard() : 0; }
  /// Keeps the run of a block above the largest class; false where free_run_slow() must do it.
  /// Leaves errno alone. pre: the block is live and of the default heap
  [[nodiscard]] bool free_run(Span* span);
  LOAM_NOINLINE void free_run_slow(Span* span);
  /// Call after a block above the largest class took `fresh` unbacked pages. (Refills of small
  /// blocks do this themselves.)
  void note_growth(Pages fresh) {
    if (state() == State::kLive) give_for_growth(fresh);
  }
  [[nodiscard]] const RunCache& runs() const { return runs_; }

  /// Returns all blocks held; `wait` as for SmallHeap::give.
  void flush_all(SmallHeap::Wait wait);

  /// True when `block` is one of this thread's last frees and still cached: a use of it now is a
  /// mistake.
  [[nodiscard]] bool freed_recently(unsigned size_class, const void* block) const {
    void* const* const recent = noted_below(heads_[size_class], RecentFrees::index_of(block));
    return LOAM_UNLIKELY(*recent == block) && recent >= bases_[size_class];
  }

  /// realloc() made a small block longer, and it is at `block` now. Null if that failed.
  void note_grown(const void* block, size_t bytes) {
    if (state() != State::kLive) return;
    grown_block = block;
    grown_bytes = bytes;
  }

  /// Returns pointers that begin no block from the magazines to the bins, which report them. For
  /// the process's end: it takes a lock only where a pointer is wrong, because another thread might
  /// hold the lock for ever.
  void check_all();

  /// Brings a random block of the magazine to its top, for the hardened heap. pre: random_source
  /// was started
  void mix(unsigned size_class);

  [[nodiscard]] inline State state() const;
  /// Bytes of the blocks held; exact for the owner thread, recent for other threads.
  [[nodiscard]] size_t held_bytes() const;
  /// Blocks of mixed spans, by their size, added to counts[class].
  void count_mixed(uint32_t counts[kSizeClassCount]) const;
  [[nodiscard]] uint64_t refills() const { return __atomic_load_n(&refills_, __ATOMIC_RELAXED); }
  [[nodiscard]] uint64_t flushes() const { return __atomic_load_n(&flushes_, __ATOMIC_RELAXED); }
  /// Frees that push() served.
  [[nodiscard]] uint64_t pushed() const { return checks_.counted(); }
  [[nodiscard]] Draws& draws() { return draws_; }
  /// True if this request of the class is one that gets guards, where sample_guards() was called:
  /// once for the block at which the magazine was aimed.
  [[nodiscard]] bool guard_is_due(unsigned size_class) {
    return draws_.guard_is_due(size_class, heads_[size_class]);
  }
  /// Notices a profiler that came or went, and arms all magazines if it came.
  LOAM_INLINE void poll_probes() {
    if (LOAM_UNLIKELY(memory_probes.has_turned(observed_.probe_era))) notice_probes();
  }
  /// Of the thread; null if it has no cache.
  [[nodiscard]] ObservedThread* observed() {
    return state() == State::kLive ? &observed_ : nullptr;
  }
  [[nodiscard]] bool is_valid() const;

  /// Returns slot arrays to the metadata arena. pre: flushed
  void release_slots();

  static CacheBudget::Room process_room;
  /// In the child of a fork(), where this is the only cache. pre: all other caches were released
  void recount_rooms_after_fork() const;

 private:
  friend class CacheRegistry;
  friend struct CounterFields;
  using Way = magazine_policy::Way;

  // The other result is class 0's head, which is null.
  [[nodiscard]] LOAM_INLINE void* const* noted_below(void* const* head, size_t index) const {
    return recent_.below(head, index, reinterpret_cast<void* const*>(&heads_[0]));
  }
  /// In an armed magazine low becomes the middle. The call that needs the lower half is then a slow
  /// one, and makes low the base; so a collection knows whether half of the blocks was enough.
  void disarm(unsigned size_class) {
    const Magazine m = magazine(size_class);
    if (m.is_armed()) {
      m.low = m.base + m.held() / 2;
    } else if (m.low >= m.head || m.low < m.base) {  // reached, or in another array
      m.low = m.base;
    }
    m.high = m.base + tuning_[size_class].capacity;
    if (LOAM_UNLIKELY(OwnLines::shares_lines(size_class)))
      own_.limit(size_class, magazine(size_class));
  }
  [[nodiscard]] bool put_below(unsigned size_class, void* block);
  void* refill_and_pop(unsigned size_class);
  void make_room_and_push(unsigned size_class, void* block);
  void count_slow_operation();
  bool grow(unsigned size_class, Way way);
  LOAM_NOINLINE bool grow_to_next(unsigned size_class, bool turned);
  [[nodiscard]] bool make_way(unsigned size_class, size_t bytes);
  [[nodiscard]] bool take_room_of_idle(size_t bytes);
  [[nodiscard]] bool resize(unsigned size_class, unsigned capacity);
  void shrink(unsigned size_class);
  LOAM_NOINLINE void give_for_growth(Pages fresh);
  void give_room_back(size_t bytes) { process_room.give(budget_.give(bytes)); }
  void retire_magazine(unsigned size_class);
  [[nodiscard]] bool check_free(unsigned size_class, void* block);
  static void give_home(unsigned size_class, void* const* pointers, unsigned count,
                        SmallHeap::Wait wait);
  [[nodiscard]] bool look(unsigned size_class, void* block);
  void check_one_mixed();
  LOAM_COLD void send_home(unsigned size_class, void** place);
  template <class Give>
  void take_out(unsigned size_class, unsigned count, unsigned at_once, Give give);
  void evict(unsigned size_class, unsigned count, SmallHeap::Wait wait);
  void evict_all(unsigned size_class, SmallHeap::Wait wait = SmallHeap::Wait::kNo);
  void overflow(unsigned size_class, bool only_gives);
  void overflow_mixed(unsigned count);
  void note_fall(size_t bytes) {
    if (LOAM_UNLIKELY(fall_.note_given(bytes))) look_at_fall();
  }
  LOAM_COLD void look_at_fall();
  LOAM_NOINLINE void shorten_magazines(size_t bytes);
  [[nodiscard]] uint8_t wanted_again(unsigned size_class) const;
  [[nodiscard]] unsigned end_of_span(unsigned size_class, unsigned count) const;
  void collect();
  LOAM_COLD void notice_probes();
  /// Serves the page heap when it is time; true while magazines should stay armed.
  bool attend();
  /// The same for a thread that frees runs, every kRunsPerLook of them.
  LOAM_COLD void attend_kept();
  LOAM_COLD void attend_parked();

  RecentFrees recent_;
  Tuning tuning_[kMagazineCount] = {};
  OwnLines own_;
  PointerChecks checks_;
  CacheBudget budget_;
  ThreadFall fall_;
  struct Ticks {
    uint64_t last_ms = 0;
    uint32_t slow_calls = 0;  ///< since then
  };
  Ticks ticks_;
  uint64_t refills_ = 0;
  uint64_t flushes_ = 0;
  Draws draws_;
  RunCache runs_;
  ObservedThread observed_;  // at the end, so that a thread's start does not touch its counts
};

static_assert(sizeof(ThreadCache) - sizeof(CallCounts) - 64 <= 2 * kPageBytes,
              "a thread's start touches all of that");

/// The caches of threads that have not allocated yet, and of threads that have ended.
extern ThreadCache unused_cache;
extern ThreadCache ended_cache;

// The state follows from the address, because a stored state would cost a program's first call a
// page fault on the static cache.
inline ThreadCache::State ThreadCache::state() const {
  return this == &unused_cache  ? State::kUnused
         : this == &ended_cache ? State::kEnded
                                : State::kLive;
}

/// Makes a thread's next allocation take the slow path after some thousand of its frees
/// (ThreadCache::guard_is_due()). Call before threads start.
void sample_guards();

/// Checks every free against the span and all magazines, at once. Call before threads start.
void set_full_free_checks(bool on);
[[nodiscard]] bool all_frees_are_checked();

/// The calling thread's cache; never null.
LOAM_DECLARE_THREAD_POINTER(ThreadCache, current_cache, &unused_cache, &ended_cache, 0);

/// The cache that the fast paths use: `current_cache`, or a cache that serves nothing. The latter
/// sends every call to the slow path, where the calls of a live process are recorded
/// (heap/recording.h). Another thread may write this variable. The slow paths must not see it
/// change, so they read `current_cache` (decision 87).
LOAM_DECLARE_THREAD_POINTER(ThreadCache, fast_cache, &unused_cache, &unused_cache, 3);

[[nodiscard]] LOAM_INLINE bool is_on_slow_path() {
  return os::load_pointer(fast_cache) == &unused_cache;
}
/// The thread is inside a call of the heap (CacheRegistry::any_inside()).
inline void mark_inside() {
  ThreadCache* const cache = current_cache;
  os::store_pointer(fast_cache, cache->state() == ThreadCache::State::kLive ? cache : &ended_cache);
}
inline void take_slow_path() { os::store_pointer(fast_cache, &unused_cache); }
inline void leave_slow_path() {
  ThreadCache* const cache = current_cache;
  if (cache->state() == ThreadCache::State::kLive) os::store_pointer(fast_cache, cache);
}

/// The cache for the operators that C++ defines by other operators (src/api/operators.cpp):
/// `current_cache`, or `unused_cache`, which serves nothing, so that every such call takes the slow
/// path. A second variable costs the fast path no instruction; a flag would (decision 4).
LOAM_DECLARE_THREAD_POINTER(ThreadCache, operators_cache, &unused_cache, &unused_cache, 1);

}  // namespace loam
