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
// once. The slow call lets a thread that otherwise only hits its cache do the page heap's purge,
// and it tells a collection which classes are in use, at no cost to the fast path. Two static
// caches without slots stand for threads that have not started and threads that have ended. Their
// every operation takes the slow path too, so the fast path tests for neither.
//
// Blocks smaller than a cache line can make that line move to and fro between two cores. This
// happens when another thread allocated the block beside a block to which this thread still writes,
// and this thread frees it and hands it out again: the line moves for as long as both blocks live.
// The thread that allocated a block is not known. But when more blocks lie in a magazine than its
// thread took, one of them is another thread's. So the magazine's limit (high) is the number of
// blocks that the thread took. A few more frees are put at the bottom of the magazine: such blocks
// are handed out last and return to their spans first.
//
// Double frees are caught by a small table. By a hash of the pointer, it remembers the slots in
// which this thread's last frees lie; a pointer that still lies in its slot was freed already. The
// table is exact, is never wrong, and costs a few instructions. A double free that the table has
// forgotten (older than kRecent frees, or freed by another thread) is found when the block returns
// to its span, by its bit there.
//
// A freed pointer may begin no block, but point into one. The fast path takes it like any other,
// and the next malloc would hand it out. So wherever a free is slow already, the cache checks that
// pointer and a share of the pointers in the magazine: in each look (about every 256 frees), in
// each batch for another thread, and at the process's end in all magazines. seems_wrong() is a hint
// that takes no lock. A pointer that it names leaves the magazine for the bin, which decides under
// its lock, and reports. A good block that was named by mistake would only have returned to its
// span (decision 69).
//
// With full checking (LOAM_CHECK_FREE=full) magazines stay armed for ever, and every free is
// checked against span and magazines at once.
//
// Its thread owns a cache; other threads read head pointers for statistics only. The pointer is
// stored before the head (release), so that a fork()ed child sees consistent copies of other
// threads' caches.
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

/// References to the four words of a class's magazine.
template <class Word>
struct MagazineWords {
  Word& head;
  Word& low;
  Word& high;
  Word& base;
};
using Magazine = MagazineWords<void**>;

// The words of one kind are side by side, and this is the first base class. So an instruction of a
// fast path addresses a word directly: by the cache's address, eight times the class and a
// constant. If a magazine's four words were together, the address would have to be computed from
// the class first (decision 49).
struct alignas(64) Magazines {
  void** heads_[kMagazineCount] =
      {};  // kMixedClass: blocks of mixed spans. Class 0 has no magazine: null
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
  /// The most pointers in a magazine.
  static constexpr unsigned kMaxCapacity = magazine_policy::kMaxCapacity;
  /// The size to which the magazines of one thread may grow, in bytes of blocks; first slots of
  /// small blocks do not count. Chosen: the two first slots of every class make 1.5 MiB, so a
  /// thread that uses all of them does not take a lock for each block.
  static constexpr size_t kThreadBytes = size_t{2} << 20;
  /// The size to which they may always grow, or the heap's size divided by kProcessShare. Beyond it
  /// they grow only while misses are frequent. Measured: with 512 KiB, programs that only allocate
  /// and free are a tenth slower (decision 51).
  static constexpr size_t kUnearnedBytes = kThreadBytes / 2;
  /// What all threads free between two looks at a fall: this, or what they use divided by
  /// kFallShare. Chosen: a look is some 2,000 instructions, some a block.
  static constexpr size_t kFallStep = size_t{512} << 10;
  static constexpr size_t kFallShare = 32;
  /// What a fall leaves free inside of spans: the floor of the page heap.
  static constexpr size_t kFallFloor = PurgePolicy::kFloor.bytes();
  /// Every thread's due of first slots of large blocks; slots beyond it come out of the shared
  /// room.
  static constexpr size_t kDue = kThreadBytes / 4;
  /// The interval at which a thread serves the page heap while the page heap wants ticks.
  static constexpr uint64_t kTickMs = 8;
  /// Frees of large blocks between two checks whether the page heap wants ticks.
  static constexpr uint32_t kRunsPerLook = 32;

  /// For the two static caches, which have no slots: all zero, so that they take no space in the
  /// file.
  constexpr ThreadCache() : until_look_(0), fall_step_(0), calls_{}, bytes_to_probe(0) {}
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
    // Even a thread that never misses its cache takes a slow call now and then.
    if (LOAM_UNLIKELY(count_down(until_look_))) return false;
    asm(""
        : "+r"(index));  // otherwise recent_'s address is added to it for both uses, in an
                         // instruction of its own
    recent_[index] = head;
    __atomic_store_n(head, block, __ATOMIC_RELAXED);  // count_mixed() may read the slot
    // release: pairs with the fork()ed child's copy of this memory (see above)
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
    arm(m);
    note(size_class, Use::kHit);
    return block;
  }
  /// Ignores the arming as well. False when the slow path must run.
  [[nodiscard]] LOAM_INLINE bool push_armed(unsigned size_class, void* block) {
    const Magazine m = magazine(size_class);
    if (LOAM_UNLIKELY(shares_lines(size_class))) return push_noted_armed(size_class, block);
    // Without a note among the recent frees: the callers find double frees by other means.
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

  /// The same with a note among the recent frees, so that a double free is found.
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
    if (state() == State::kLive) runs_.note_growth(fresh);
  }
  [[nodiscard]] const RunCache& runs() const { return runs_; }

  /// Returns all blocks held; `wait` as for SmallHeap::give.
  void flush_all(SmallHeap::Wait wait);

  /// True when `block` is one of this thread's last frees and still cached: a use of it now is a
  /// mistake.
  [[nodiscard]] bool freed_recently(unsigned size_class, const void* block) const {
    void* const* const recent = noted_below(heads_[size_class], recent_index(block));
    return LOAM_UNLIKELY(*recent == block) && recent >= bases_[size_class];
  }

  /// Returns pointers that begin no block from the magazines to the bins, which report them. For
  /// the process's end: it takes a lock only where a pointer is wrong, because another thread might
  /// hold the lock for ever.
  void check_all();

  /// In the child of a fork(): the child must not draw the numbers that the parent draws next.
  void forget_random() { random_left_ = 0; }
  /// Brings a random block of the magazine to its top, for the hardened heap. pre: random_source
  /// was started
  void mix(unsigned size_class);

  /// Checks a block of the class about which nothing else is known: looks at its span and at all
  /// caches. Reports a double free (`freed`: already known to be one) or a pointer into a block's
  /// middle, and returns false. O(threads * blocks held).
  [[nodiscard]] static bool is_block_in_use(unsigned size_class, const void* block, bool freed);

  /// True when `block` is in this cache's magazine of the class. O(blocks held).
  [[nodiscard]] bool holds(unsigned size_class, const void* block) const;

  [[nodiscard]] inline State state() const;
  /// Bytes of the blocks held; exact for the owner thread, recent for other threads.
  [[nodiscard]] size_t held_bytes() const;
  [[nodiscard]] size_t held_blocks(unsigned size_class) const;
  /// Blocks of mixed spans, by their size, added to counts[class].
  void count_mixed(uint32_t counts[kSizeClassCount]) const;
  /// Calls visit(blocks, count) for each magazine.
  template <class Visit>
  void visit_held(Visit visit) const {
    for (unsigned c = 1; c < kMagazineCount; ++c) {
      const auto m = magazine(c);
      if (m.head > m.base && m.base != nullptr) visit(m.base, static_cast<size_t>(m.head - m.base));
    }
  }
  [[nodiscard]] uint64_t refills() const { return __atomic_load_n(&refills_, __ATOMIC_RELAXED); }
  [[nodiscard]] uint64_t flushes() const { return __atomic_load_n(&flushes_, __ATOMIC_RELAXED); }
  /// Frees that push() served.
  [[nodiscard]] uint64_t pushed() const {
    const uint32_t left = __atomic_load_n(&until_look_, __ATOMIC_RELAXED);
    // push() did not serve the free that counted to zero.
    return __atomic_load_n(&pushed_, __ATOMIC_RELAXED) + kFreesPerLook - (left == 0 ? 1 : left);
  }
  /// Counts calls down to the next sample; true when this call is one. On average one in `mean`
  /// calls is.
  [[nodiscard]] bool sample_is_due(uint64_t mean);
  /// True if this request of the class is one that gets guards, where sample_guards() was called:
  /// once for the block at which the magazine was aimed.
  [[nodiscard]] bool guard_is_due(unsigned size_class) {
    if (LOAM_LIKELY(guard_at_ == nullptr) || size_class != guard_class_ ||
        heads_[size_class] != guard_at_)
      return false;
    guard_at_ = nullptr;
    return true;
  }
  [[nodiscard]] uint64_t random_bits();
  /// Notices a profiler that came or went, and arms all magazines if it came.
  LOAM_INLINE void poll_probes() {
    if (LOAM_UNLIKELY(memory_probes.has_turned(probe_era_))) notice_probes();
  }
  [[nodiscard]] bool coin() { return (draw(uint64_t{1} << 32) & 1) != 0; }
  /// The counts of sampling; the owner writes, any thread reads.
  [[nodiscard]] CallCounts& calls() { return calls_; }
  [[nodiscard]] bool is_valid() const;

  /// For a new thread: refusals before its start do not concern it.
  void forget_refusals() {
    seen_refusals_ = process_room.refusals();
    modest_ = 0;
  }

  /// Returns slot arrays to the metadata arena. pre: flushed
  void release_slots();

  /// The most that all magazines hold beyond their threads' dues: this, or the heap's size divided
  /// by kProcessShare.
  static constexpr size_t kProcessBytes = size_t{8} << 20;
  static constexpr size_t kProcessShare = 32;
  static SharedRoom<kProcessBytes, kProcessShare> process_room;
  /// In the child of a fork(), where this is the only cache. pre: all other caches were released
  void recount_rooms_after_fork() const;

 private:
  friend class CacheRegistry;
  friend struct CounterFields;
  static constexpr unsigned kRecentBits = 8;
  static constexpr unsigned kRecent = 1u << kRecentBits;
  // The slot of the noted free, if it is below the head. A slot from the head on is meaningless,
  // because its block was popped. Whether the slot is below the head follows the order of the
  // program's frees, which no branch predictor learns. So the choice is made without a branch, and
  // the other result is class 0's head, which is null and therefore no block.
  [[nodiscard]] LOAM_INLINE void* const* noted_below(void* const* head, size_t index) const {
    return if_below<void* const>(recent_[index], head, reinterpret_cast<void* const*>(&heads_[0]));
  }
  [[nodiscard]] static LOAM_INLINE size_t recent_index(const void* block) {
    // Fibonacci hashing of the low 32 bits: blocks of one span differ there.
    const uint32_t low = static_cast<uint32_t>(rotate_right(reinterpret_cast<uintptr_t>(block), 4));
    return (low * 0x9e3779b9u) >> (32 - kRecentBits);
  }
  /// What a class did since the last collection. The collection armed its magazine, so the first
  /// call after it is a slow one.
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
  /// The next call of each class is slow.
  void arm_all() {
    const unsigned end = split_classes.end();
    for (unsigned c = 1; c < end; ++c) arm(magazine(c));
  }
  void disarm(unsigned size_class) {
    const Magazine m = magazine(size_class);
    m.low = m.base;
    m.high = m.base + tuning_[size_class].capacity;
    if (LOAM_UNLIKELY(shares_lines(size_class))) stop_at_own(size_class);
  }
  // Blocks of these classes share cache lines; class 0 has no blocks.
  static constexpr unsigned kLineClasses = 3;
  static_assert(kSizeClasses[kLineClasses].bytes < kCacheLine &&
                kSizeClasses[kLineClasses + 1].bytes >= kCacheLine);
  [[nodiscard]] static bool shares_lines(unsigned size_class) { return size_class <= kLineClasses; }
  struct Own {
    uint32_t level;  ///< blocks that the thread took, less those that it returned: when this many
                     ///< lie here, the next is another thread's
    uint32_t below;  ///< other threads' blocks that were put below its own since it last took some
  };
  void stop_at_own(unsigned size_class);
  /// The most blocks of other threads that are put below: a thread that goes on freeing blocks that
  /// it never allocates is a consumer.
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
  /// Whether this thread's limit has room for `bytes` more, whatever other threads hold.
  [[nodiscard]] bool has_room(size_t bytes) const;
  /// The most that this thread's magazines may hold, whatever other threads hold. A recent value.
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
  /// Passes the blocks at the magazine's bottom to give(blocks, count), at most `at_once` in each
  /// call.
  template <class Give>
  void take_out(unsigned size_class, unsigned count, unsigned at_once, Give give);
  void evict(unsigned size_class, unsigned count, SmallHeap::Wait wait);
  void overflow(unsigned size_class, bool only_gives);
  void overflow_mixed(unsigned count);
  void note_fall(size_t bytes) {
    fallen_ += bytes;
    if (LOAM_UNLIKELY(fallen_ >= fall_step_)) look_at_fall();
  }
  void note_taken_bytes(size_t bytes) {
    fallen_ -= bytes < fallen_ ? bytes : fallen_;
    if (LOAM_UNLIKELY(is_short_ != 0) && --is_short_ == 0) comes_back_ = true;
  }
  LOAM_COLD void look_at_fall();
  LOAM_NOINLINE void shorten_magazines(size_t bytes);
  [[nodiscard]] uint8_t wanted_again(unsigned size_class) const;
  [[nodiscard]] unsigned end_of_span(unsigned size_class, unsigned count) const;
  void collect();
  void notice_refusals();
  LOAM_COLD void notice_probes();
  /// Whether one of `blocks` blocks of the class is to get guards.
  [[nodiscard]] LOAM_COLD bool draws_guard(unsigned size_class, unsigned blocks);
  /// The next request that finds the magazine's head at `at` gets guards.
  LOAM_COLD void aim_guard(unsigned size_class, void** at);
  /// Makes the aimed request a slow one, if the class is the aim's.
  LOAM_COLD void keep_aim(unsigned size_class);
  [[nodiscard]] uint64_t draw(uint64_t mean);
  [[nodiscard]] uint32_t random_below(uint32_t limit);
  /// Serves the page heap when it is time; true while magazines should stay armed.
  bool attend();
  /// The same for a thread that frees runs, every kRunsPerLook of them.
  LOAM_COLD void attend_kept();
  LOAM_COLD void attend_parked();

  void** recent_[kRecent] = {};  // never null in a live cache
  Tuning tuning_[kMagazineCount] = {};
  Own own_[kLineClasses + 1] = {};
  static constexpr uint32_t kFreesPerLook = 256;
  // The distance between looks varies by half of this, up and down. With less, a program that
  // frees in rounds shows the same block to many looks (decision 69).
  static constexpr uint32_t kLookJitter = kFreesPerLook / 4;
  uint32_t until_look_ = kFreesPerLook;  ///< frees until the next slow call
  uint32_t chance_ = 0;  ///< a pseudo-random sequence: it decides when looks come, and which blocks
                         ///< they check
  uint32_t slow_operations_ = 0;
  MissRate misses_;
  uint64_t collected_at_ = 0;  ///< pushed() at the last collection
  uint8_t next_idle_ = 0;      ///< the class at which the last search for an idle one ended
  uint8_t guard_class_ = 0;    ///< of guard_at_
  uint8_t probe_era_ = 0;  ///< the lowest bits of memory_probes.era() when this thread last looked
  uint8_t modest_ =
      0;  ///< collections for which it stays at kThreadBytes: another thread was refused room
  uint32_t seen_refusals_ = 0;
  uint64_t last_tick_ms_ = 0;
  /// Refills that end a fall's short magazines. Chosen: more than a program makes while it frees
  /// what it is done with.
  static constexpr uint32_t kRefillsToGrow = 16;
  uint32_t is_short_ = 0;    ///< refills left for which magazines stay short, as blocks only leave
  bool comes_back_ = false;  ///< the thread took again after it had returned its blocks
  size_t fallen_ = 0;       ///< bytes given to bins since the last look at a fall, less those taken
  size_t used_before_ = 0;  ///< bytes of the heap's slots at the last look
  size_t fall_step_ = kFallStep;  ///< the next look
  size_t granted_bytes_ = 0;      ///< capacity beyond the initial one, in bytes of blocks
  size_t due_bytes_ = 0;          ///< initial capacity of large blocks
  uint64_t refills_ = 0;
  uint64_t flushes_ = 0;
  uint64_t until_sample_ = 0;                    ///< calls; 0 = not drawn yet
  uint32_t usual_bytes_ = 0;                     ///< of blocks, about, shifted; 0 = not known yet
  void** guard_at_ = nullptr;                    ///< the request at this head gets guards
  static constexpr unsigned kRandomHalves = 32;  // a block of the stream
  uint16_t random_halves_[kRandomHalves] = {};   // the first random_left_ of them were not used yet
  uint32_t random_left_ = 0;
  uint64_t random_ = 0;
  RunCache runs_;
  uint64_t pushed_ = 0;  ///< frees up to the last look, plus the countdown's start, less
                         ///< kFreesPerLook: pushed() adds the rest

 public:
  // The state of higher layers for the thread is here because static thread-local memory is scarce
  // (dlopen).
  void* heaps = nullptr;       ///< the thread's caches of private heaps; null until it has one, and
                               ///< always in a static cache
  uint8_t home = 0;            ///< the home whose bins and mixed spans serve it first
                               ///< (small/small_heap.h)
  int last_refusal = 0;        ///< the C interface's loam_last_status()
  uint32_t thread_number = 0;  ///< os::thread_number(), once the hardened heap asked for it
 private:
  uint32_t slow_in_this_tick_ = 0;

 public:
  /// Its thread's `fast_cache`; null where other threads cannot write it.
  ThreadCache** fast_pointer = nullptr;

 private:
  // At the end, so that a thread's start does not touch it: zero until a call is sampled.
  CallCounts calls_;

 public:
  uint64_t bytes_to_probe;  ///< bytes up to the next block that memory_probes samples; 0 = not
                            ///< drawn yet
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

/// Makes every call take the slow path from now on, where it is counted (ThreadCache::calls()).
/// Call before threads start.
void keep_magazines_armed();
/// The same for a while, and while threads run: each thread arms its own magazines when it notices.
void keep_magazines_armed_meanwhile(bool on);
[[nodiscard]] bool calls_are_counted();

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
/// path. A second variable costs the fast path no instruction; a flag would (decision 66).
LOAM_DECLARE_THREAD_POINTER(ThreadCache, operators_cache, &unused_cache, &unused_cache, 1);

}  // namespace loam
