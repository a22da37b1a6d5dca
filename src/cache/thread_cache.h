// A thread's magazines: per size class a stack of pointers to free blocks. malloc() pops, free()
// pushes; the blocks themselves are never touched.
//
//            base        low            head           high
//             |           |              |              |
//             v           v              v              v
//   slots:   [ p0 | p1 | p2 | ... | pn |    |    |    ]
//
//   base <= low <= head <= high <= base + capacity;   normally low = base and high = base + capacity
//
// An *armed* magazine has low = high = head, so that the next malloc or free takes the slow path
// once. That is how a thread that only ever hits its cache still finds time for the page heap's
// purge, and how a collection learns which classes are in use, at no cost to the fast path. Two
// static caches with no slots stand for "not started" and "ended" threads: their every operation
// takes the slow path too, so the fast path tests for neither.
//
// Blocks smaller than a cache line: if one was allocated by another thread beside a block that this
// thread still writes to, and it is freed here and handed out again here, the line goes to and fro
// between two cores for as long as both live. Who allocated a block is not known; but when more
// blocks lie in a magazine than its thread took, one of them is another's. So its limit (high) is
// what the thread took, until a few frees beyond that: they are put at the bottom, to be handed out
// last and to go home first.
//
// Double frees are caught by a small table that remembers, by a hash of the pointer, where this
// thread's last frees stand; a pointer that still stands there was freed already. Exact, never
// wrong, a few instructions; what it has forgotten (older than kRecent frees, or freed by another
// thread) is found when the block goes home, by its bit in the span.
//
// Where a freed pointer begins no block (it points into one), the fast path takes it like any
// other, and the next malloc would hand it out. So wherever a free is slow already, that pointer is
// checked, and a share of those that rest here: each look (every 256 frees, about), each batch for
// another thread, and at the process's end all. seems_wrong() is a hint that takes no lock; what it
// names leaves the magazine and goes home, where the bin decides, under its lock, and reports. A
// good block that were named by mistake would just be at home (decision 69).
//
// With full checking on (LOAM_CHECK_FREE=full) magazines stay armed for ever and every
// free is checked against span and magazines at once.
//
// Owned by its thread; other threads read head pointers for statistics only. The pointer is stored
// before the head (release), so that the copy of another thread's cache that a fork()ed child sees
// is consistent.
#pragma once

#include "base/bits.h"
#include "base/cpu.h"
#include "base/list.h"
#include "base/shared_room.h"
#include "cache/call_counts.h"
#include "cache/magazine_policy.h"
#include "cache/memory_probes.h"
#include "cache/miss_rate.h"
#include "cache/run_cache.h"
#include "map/page_map.h"
#include "os/thread_pointer.h"
#include "small/small_heap.h"
#include "small/split_classes.h"

namespace loam {

/// Where the four words of a class's magazine stand.
template <class Word>
struct MagazineWords {
  Word& head;
  Word& low;
  Word& high;
  Word& base;
};
using Magazine = MagazineWords<void**>;

// The first base, and the words of one kind side by side, so that a fast path's instructions name a
// word as they are: the cache's address, eight times the class and a constant. With a magazine's
// four words together it has to be computed from the class first (decision 49).
struct alignas(64) Magazines {
  void** heads_[kMagazineCount] =
      {};  // those of kMixedClass: blocks of mixed spans. Class 0 has no magazine: null
  void** lows_[kMagazineCount] = {};
  void** highs_[kMagazineCount] = {};
  void** bases_[kMagazineCount] = {};

  [[nodiscard]] Magazine magazine(unsigned size_class) {
    return {heads_[size_class], lows_[size_class], highs_[size_class], bases_[size_class]};
  }
  [[nodiscard]] MagazineWords<void** const> magazine(unsigned size_class) const {
    return {heads_[size_class], lows_[size_class], highs_[size_class], bases_[size_class]};
  }
};

class ThreadCache : private Magazines, public ListLink<ThreadCache> {
 public:
  enum class State : uint8_t { kUnused, kLive, kEnded };
  /// Pointers in a magazine at most.
  static constexpr unsigned kMaxCapacity = magazine_policy::kMaxCapacity;
  /// What the magazines of one thread may grow to, in bytes of blocks; first slots of small blocks
  /// beside. Chosen: the two first slots of every class make 1.5 MiB, so a thread that uses them
  /// all pays no lock a block.
  static constexpr size_t kThreadBytes = size_t{2} << 20;
  /// What they may grow to in any case. Beyond it they grow only while misses are frequent.
  /// Measured: with 512 KiB, programs that do nothing else but call are a tenth slower (decision
  /// 51).
  static constexpr size_t kUnearnedBytes = size_t{1} << 20;
  /// How often a thread looks after the page heap while that wants it.
  static constexpr uint64_t kTickMs = 8;
  /// Frees of large blocks between two looks whether the page heap wants to be looked after.
  static constexpr uint32_t kRunsPerLook = 32;

  /// For the two static caches, which have no slots: all zero, so that the file need not hold them.
  constexpr ThreadCache() : until_look_(0), calls_{}, bytes_to_probe(0) {}
  struct Live {};
  /// pre: in zeroed memory
  explicit ThreadCache(Live);

  /// A block of the class, or null when the slow path must run.
  [[nodiscard]] LOAM_INLINE void* pop(size_t size_class) {
    void** const head = heads_[size_class];
    if (LOAM_UNLIKELY(head == lows_[size_class])) return nullptr;
    void* block = head[-1];
    __atomic_store_n(&heads_[size_class], head - 1,
                     __ATOMIC_RELAXED);  // readers of statistics see some recent value
    // Saves callers the test of the result: a magazine holds no null.
    if (block == nullptr) __builtin_unreachable();
    return block;
  }

  /// False when the slow path must run; class 0 always needs it.
  [[nodiscard]] LOAM_INLINE bool push(size_t size_class, void* block) {
    void** const head = heads_[size_class];
    if (LOAM_UNLIKELY(head == highs_[size_class])) return false;
    void** const next = head + 1;
    size_t index = recent_index(block);
    void* const* const recent = noted_below(head, index);
    if (LOAM_UNLIKELY(*recent == block) && recent >= bases_[size_class])
      return false;  // a double free
    // A thread that never misses its cache takes a slow call now and then all the same.
    if (LOAM_UNLIKELY(count_down(until_look_))) return false;
    asm(""
        : "+r"(index));  // or recent_'s place is added to it for both uses, in an instruction of
                         // its own
    recent_[index] = head;
    __atomic_store_n(head, block, __ATOMIC_RELAXED);  // count_mixed() may read what stood there
    // release: pairs with the fork()ed child's copy of this memory (see above)
    __atomic_store_n(&heads_[size_class], next, __ATOMIC_RELEASE);
    return true;
  }

  /// pop() and push() for who takes the slow path anyway, past an armed magazine, which stays so:
  /// what a detour does instead of the slow halves, most of the time. pre: magazines are kept armed
  [[nodiscard]] LOAM_INLINE void* pop_armed(unsigned size_class) {
    const Magazine m = magazine(size_class);
    if (LOAM_UNLIKELY(m.head == m.base)) return nullptr;
    void* block = m.head[-1];
    __atomic_store_n(&m.head, m.head - 1, __ATOMIC_RELAXED);
    arm(m);
    note(size_class, Use::kHit);
    return block;
  }
  /// Past the armed magazine as well. False when the slow path must run.
  [[nodiscard]] LOAM_INLINE bool push_armed(unsigned size_class, void* block) {
    const Magazine m = magazine(size_class);
    if (LOAM_UNLIKELY(shares_lines(size_class))) return push_noted_armed(size_class, block);
    // Without a note among the recent frees: who comes this way knows of double frees by other
    // means.
    void** const head = m.head;
    if (LOAM_UNLIKELY(head == m.base + tuning_[size_class].capacity) ||
        LOAM_UNLIKELY(count_down(until_look_)))
      return false;
    __atomic_store_n(head, block, __ATOMIC_RELAXED);
    // release: pairs with the fork()ed child's copy of this memory
    __atomic_store_n(&m.head, head + 1, __ATOMIC_RELEASE);
    arm(m);
    return true;
  }

  /// The same with the note, so that a double free is found.
  [[nodiscard]] LOAM_INLINE bool push_noted_armed(unsigned size_class, void* block) {
    const Magazine m = magazine(size_class);
    if (LOAM_UNLIKELY(m.head == nullptr)) return false;
    disarm(size_class);
    const bool pushed = push(size_class, block);
    arm(m);
    return pushed;
  }

  /// The slow halves. allocate_slow returns null when memory is refused.
  [[nodiscard]] LOAM_NOINLINE void* allocate_slow(unsigned size_class);
  LOAM_NOINLINE void free_slow(unsigned size_class, void* block);

  /// A block above the largest class whose run this thread kept, or its shard; null when the page
  /// heap must give one. pre: pages != 0
  [[nodiscard]] LOAM_INLINE Span* take_run(Pages pages, size_t requested) {
    return runs_.take(pages, requested);
  }
  /// One that this thread kept, at a multiple of `alignment`, a power of two.
  [[nodiscard]] Span* take_aligned_run(Pages pages, Pages alignment, size_t requested) {
    return runs_.take_aligned(pages, alignment, requested);
  }
  /// The page heap's shard that the thread uses.
  [[nodiscard]] unsigned page_shard() { return state() == State::kLive ? runs_.shard() : 0; }
  /// Keeps such a block's run; false where free_run_slow() must do it. Leaves errno alone. pre: it
  /// is live and of the default heap
  [[nodiscard]] bool free_run(Span* span);
  LOAM_NOINLINE void free_run_slow(Span* span);
  /// A block above the largest class took so many pages that nobody had. (Refills of small blocks
  /// notice themselves.)
  void note_growth(Pages fresh) {
    if (state() == State::kLive) runs_.note_growth(fresh);
  }
  [[nodiscard]] const RunCache& runs() const { return runs_; }

  /// Returns everything held; `wait` as for SmallHeap::give.
  void flush_all(SmallHeap::Wait wait);

  /// True when `block` is one of this thread's last frees and still cached: using it now is a
  /// mistake.
  [[nodiscard]] bool freed_recently(unsigned size_class, const void* block) const {
    void* const* const recent = noted_below(heads_[size_class], recent_index(block));
    return LOAM_UNLIKELY(*recent == block) && recent >= bases_[size_class];
  }

  /// Sends home what rests in the magazines and begins no block, to be reported there. For the
  /// process's end: takes no lock where all is well, which another thread might hold for ever.
  void check_all();

  /// In the child of a fork(): what the parent draws next it must not draw.
  void forget_random() { random_left_ = 0; }
  /// Brings a random block of the magazine to its top, for the hardened heap. pre: random_source
  /// was started
  void mix(unsigned size_class);

  /// A block of the class that nothing else is known of: looks at its span and at all caches.
  /// Reports a double free
  /// (`freed`: known to be one) or a pointer into a block's middle, and returns false. O(threads *
  /// blocks held).
  [[nodiscard]] static bool is_block_in_use(unsigned size_class, const void* block, bool freed);

  /// True when `block` stands in this cache's magazine of the class. O(blocks held).
  [[nodiscard]] bool holds(unsigned size_class, const void* block) const;

  [[nodiscard]] inline State state() const;
  /// Bytes in blocks held; exact for the owner, recent for others.
  [[nodiscard]] size_t held_bytes() const;
  [[nodiscard]] size_t held_blocks(unsigned size_class) const;
  /// Blocks of mixed spans, by their size, added to counts[class].
  void count_mixed(uint32_t counts[kSizeClassCount]) const;
  /// visit(blocks, how many) for each magazine.
  template <class Visit>
  void visit_held(Visit visit) const {
    for (unsigned c = 1; c < kMagazineCount; ++c) {
      const auto m = magazine(c);
      if (m.head > m.base && m.base != nullptr) visit(m.base, static_cast<size_t>(m.head - m.base));
    }
  }
  [[nodiscard]] uint64_t refills() const { return __atomic_load_n(&refills_, __ATOMIC_RELAXED); }
  [[nodiscard]] uint64_t flushes() const { return __atomic_load_n(&flushes_, __ATOMIC_RELAXED); }
  /// Frees that push() took.
  [[nodiscard]] uint64_t pushed() const {
    const uint32_t left = __atomic_load_n(&until_look_, __ATOMIC_RELAXED);
    // The one that came to zero was not taken.
    return __atomic_load_n(&pushed_, __ATOMIC_RELAXED) + kFreesPerLook - (left == 0 ? 1 : left);
  }
  /// Counts calls down to the next sample; true when this is one, of one in `mean` calls.
  [[nodiscard]] bool sample_is_due(uint64_t mean);
  /// True for the next block after some thousand frees, where sample_guards() was called; once each
  /// time.
  [[nodiscard]] bool guard_is_due() {
    const bool due = guard_is_due_;
    guard_is_due_ = false;
    return due;
  }
  [[nodiscard]] uint64_t random_bits();
  /// Looks whether a profiler came or went, and then arms all magazines.
  LOAM_INLINE void poll_probes() {
    if (LOAM_UNLIKELY(memory_probes.has_turned(probe_era_))) notice_probes();
  }
  [[nodiscard]] bool coin() { return (draw(uint64_t{1} << 32) & 1) != 0; }
  /// What sampling counts; the owner writes, anybody reads.
  [[nodiscard]] CallCounts& calls() { return calls_; }
  [[nodiscard]] bool is_valid() const;

  /// Who was refused room before is none of this thread's affair, which begins.
  void forget_refusals() {
    seen_refusals_ = process_room.refusals();
    modest_ = 0;
  }

  /// Returns slot arrays to the metadata arena. pre: flushed
  void release_slots();

  /// What all magazines hold beyond their threads' dues: at most this, or the heap's size divided
  /// by kProcessShare.
  static constexpr size_t kProcessBytes = size_t{8} << 20;
  static constexpr size_t kProcessShare = 32;
  static SharedRoom<kProcessBytes, kProcessShare> process_room;
  /// In the child of a fork(), where this is the only cache. pre: all others were released
  void recount_rooms_after_fork() const;

 private:
  friend class CacheRegistry;
  friend struct CounterFields;
  static constexpr unsigned kRecentBits = 8;
  static constexpr unsigned kRecent = 1u << kRecentBits;
  // Where the free noted there stands, if that is below the head. A place from the head on tells
  // nothing: its block was popped. Whether it is such a one follows the order of the program's
  // frees, which no branch predictor learns: without a branch, and then class 0's head instead,
  // which is null, and so no block.
  [[nodiscard]] LOAM_INLINE void* const* noted_below(void* const* head, size_t index) const {
    return if_below<void* const>(recent_[index], head, reinterpret_cast<void* const*>(&heads_[0]));
  }
  [[nodiscard]] static LOAM_INLINE size_t recent_index(const void* block) {
    // Fibonacci hashing of the low 32 bits: blocks of one span differ there.
    const uint32_t low = static_cast<uint32_t>(rotate_right(reinterpret_cast<uintptr_t>(block), 4));
    return (low * 0x9e3779b9u) >> (32 - kRecentBits);
  }
  /// What a class did since the last collection, which armed its magazine: the first call after it
  /// is a slow one.
  enum class Use : uint8_t { kNone, kHit, kMissed };
  using Way = magazine_policy::Way;
  struct [[gnu::packed]] Tuning {
    uint16_t capacity : 12;  ///< slots of the array that the magazine may use; 0 = the class has no
                             ///< magazine
    Use use : 2;
    Way last_way : 2;
    uint8_t array_growths : 2;  ///< how often the array was made longer
    uint8_t idle : 6;           ///< collections since the class lost its magazine

    static constexpr unsigned kMostGrowths = 3;
    void set_capacity(unsigned slots) { capacity = slots & 0xfffu; }
  };
  static_assert(kMaxCapacity <= 0xfff, "a capacity's bits");

  static void arm(Magazine m) { m.low = m.high = m.head; }
  void disarm(unsigned size_class) {
    const Magazine m = magazine(size_class);
    m.low = m.base;
    m.high = m.base + tuning_[size_class].capacity;
    if (LOAM_UNLIKELY(shares_lines(size_class))) stop_at_own(size_class);
  }
  // Blocks of these classes lie on one cache line with others; class 0 has none.
  static constexpr unsigned kLineClasses = 3;
  static_assert(kSizeClasses[kLineClasses].bytes < kCacheLine &&
                kSizeClasses[kLineClasses + 1].bytes >= kCacheLine);
  [[nodiscard]] static bool shares_lines(unsigned size_class) { return size_class <= kLineClasses; }
  struct Own {
    uint32_t level;  ///< blocks that the thread took less those it gave home: when so many lie
                     ///< here, the next is another's
    uint32_t below;  ///< others' blocks that were put below its own since it last took some
  };
  void stop_at_own(unsigned size_class);
  /// Others' blocks that are put below at most: a thread that goes on freeing what it never
  /// allocates is a consumer.
  static constexpr uint32_t kMostBelow = 16;
  [[nodiscard]] bool put_below(unsigned size_class, void* block);
  void note_taken(unsigned size_class, unsigned count) {
    if (LOAM_LIKELY(!shares_lines(size_class))) return;
    own_[size_class].level += count;
    own_[size_class].below = 0;
    disarm(size_class);
  }
  void note_given(unsigned size_class, unsigned count) {
    if (LOAM_LIKELY(!shares_lines(size_class))) return;
    uint32_t& level = own_[size_class].level;
    level -= count < level ? count : level;
  }
  void* refill_and_pop(unsigned size_class);
  void make_room_and_push(unsigned size_class, void* block);
  void count_slow_operation();
  void note(unsigned size_class, Use use) {
    if (tuning_[size_class].use < use) tuning_[size_class].use = use;
  }
  bool grow(unsigned size_class, Way way);
  LOAM_NOINLINE bool grow_to_next(unsigned size_class, bool turned);
  [[nodiscard]] bool holds_unearned(size_t more) const;
  void shrink(unsigned size_class);
  void give_room_back(size_t bytes);
  void give_due_back(size_t bytes);
  /// For so many bytes of blocks more, whatever other threads hold.
  [[nodiscard]] bool has_room(size_t bytes) const;
  /// What magazines may hold, whatever other threads hold. Recent.
  [[nodiscard]] size_t most_bytes() const;
  [[nodiscard]] bool make_way(unsigned size_class, size_t bytes);
  [[nodiscard]] bool take_room_of_idle(size_t bytes);
  [[nodiscard]] bool resize(unsigned size_class, unsigned capacity);
  void retire_magazine(unsigned size_class);
  void free_array(unsigned size_class);
  void forget_recent(void** begin, void** end);
  [[nodiscard]] bool check_free(unsigned size_class, void* block);
  static void give_home(unsigned size_class, void* const* pointers, unsigned count,
                        SmallHeap::Wait wait);
  void begin_next_look();
  [[nodiscard]] bool look(unsigned size_class, void* block);
  void check_one_mixed();
  LOAM_COLD void send_home(unsigned size_class, void** place);
  [[nodiscard]] unsigned check_share(unsigned size_class, void** blocks, unsigned count) const;
  /// Gives the blocks at the magazine's bottom to give(blocks, how many), `at_once` or fewer a
  /// call.
  template <class Give>
  void take_out(unsigned size_class, unsigned count, unsigned at_once, Give give);
  void evict(unsigned size_class, unsigned count, SmallHeap::Wait wait);
  void overflow(unsigned size_class, bool only_gives);
  void overflow_mixed(unsigned count);
  [[nodiscard]] uint8_t wanted_again(unsigned size_class) const;
  [[nodiscard]] unsigned end_of_span(unsigned size_class, unsigned count) const;
  void collect();
  void notice_refusals();
  LOAM_COLD void notice_probes();
  LOAM_COLD void count_look();
  [[nodiscard]] uint64_t draw(uint64_t mean);
  [[nodiscard]] uint32_t random_below(uint32_t limit);
  /// Looks after the page heap when it is time; true while magazines should stay armed.
  bool attend();
  /// The same for a thread that frees runs, now and then.
  LOAM_COLD void attend_kept();
  LOAM_COLD void attend_parked();

  void** recent_[kRecent] = {};  // never null in a live cache
  Tuning tuning_[kMagazineCount] = {};
  Own own_[kLineClasses + 1] = {};
  static constexpr uint32_t kFreesPerLook = 256;
  // Looks come after as many frees more or less, by half of this. Chosen: less, and a program that
  // frees in rounds shows some looks the same block for long.
  static constexpr uint32_t kLookJitter = 64;
  uint32_t until_look_ = kFreesPerLook;  ///< frees until the next slow call
  uint32_t chance_ = 0;  ///< a pseudo-random sequence: when looks come, and what they check
  uint32_t slow_operations_ = 0;
  MissRate misses_;
  uint64_t collected_at_ = 0;  ///< frees, at the last collection
  uint8_t next_idle_ = 0;      ///< the class at which the last search for an idle one ended
  bool guard_is_due_ = false;
  uint8_t probe_era_ = 0;  ///< the last bits of memory_probes.era(), when this thread looked
  uint8_t modest_ =
      0;  ///< collections for which this thread may hold no more than others, who were refused room
  uint32_t seen_refusals_ = 0;
  uint64_t last_tick_ms_ = 0;
  size_t granted_bytes_ = 0;  ///< capacity beyond the initial one, in bytes of blocks
  size_t due_bytes_ = 0;      ///< initial capacity of large blocks
  uint64_t refills_ = 0;
  uint64_t flushes_ = 0;
  uint64_t until_sample_ = 0;                    ///< calls; 0 = not drawn yet
  uint32_t until_guard_ = 0;                     ///< looks; 0 = not drawn yet
  static constexpr unsigned kRandomHalves = 32;  // a block of the stream
  uint16_t random_halves_[kRandomHalves] = {};   // the first random_left_ of them were not used yet
  uint32_t random_left_ = 0;
  uint64_t random_ = 0;
  RunCache runs_;
  uint64_t pushed_ = 0;  ///< frees that until_look_ counted, up to the last look; less what it
                         ///< started from below kFreesPerLook

 public:
  // What higher layers keep for the thread: static thread-local memory is scarce (dlopen).
  void* heaps = nullptr;  ///< what the layer of private heaps keeps of the thread; null until it
                          ///< does, and always in a static cache
  uint8_t home = 0;       ///< whose bins and mixed spans it takes from first (small/small_heap.h)
  int last_refusal = 0;   ///< the C interface's loam_last_status()
  uint32_t thread_number = 0;  ///< os::thread_number(), once the hardened heap asked for it
 private:
  uint32_t slow_in_this_tick_ = 0;

 public:
  /// Its thread's `fast_cache`; null where other threads can not write it.
  ThreadCache** fast_pointer = nullptr;

 private:
  // Last, and no start touches it: zero until something is sampled.
  CallCounts calls_;

 public:
  uint64_t bytes_to_probe;  ///< to the next block that memory_probes samples; 0 = not drawn yet
};

static_assert(sizeof(ThreadCache) - sizeof(CallCounts) - 64 <= 2 * kPageBytes,
              "a thread's start touches all of that");

/// The caches of threads that did not allocate yet, and of those that have ended.
extern ThreadCache unused_cache;
extern ThreadCache ended_cache;

// By address: a program's first call would have to fault the static cache's own state in.
inline ThreadCache::State ThreadCache::state() const {
  return this == &unused_cache  ? State::kUnused
         : this == &ended_cache ? State::kEnded
                                : State::kLive;
}

/// Has every call take the slow path from now on, where it is counted (ThreadCache::calls()). Set
/// before threads start.
void keep_magazines_armed();
/// The same for a while, while threads run: each arms its magazines itself when it notices.
void keep_magazines_armed_meanwhile(bool on);
[[nodiscard]] bool calls_are_counted();

/// Has a thread's next allocation take the slow path after some thousand of its frees
/// (ThreadCache::guard_is_due()). Set before threads start.
void sample_guards();

/// Checks every free against the span and all magazines, at once. Set before threads start.
void set_full_free_checks(bool on);

/// The calling thread's cache; never null.
LOAM_DECLARE_THREAD_POINTER(ThreadCache, current_cache, &unused_cache, &ended_cache, 0);

/// The cache that the fast paths use: `current_cache`, or one that serves nothing, so that every
/// call takes the slow path, where the calls of a live process are recorded (heap/recording.h).
/// Another thread may write it; so the slow paths, which may not see it change, read
/// `current_cache` (decision 87).
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

/// The cache for those operators that C++ defines by other operators (src/api/operators.cpp):
/// `current_cache`, or `unused_cache`, which serves nothing, so that every such call takes the slow
/// path. A second variable costs the fast path no instruction, and a flag would (decision 66).
LOAM_DECLARE_THREAD_POINTER(ThreadCache, operators_cache, &unused_cache, &unused_cache, 1);

}  // namespace loam
