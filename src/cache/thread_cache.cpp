#include "cache/thread_cache.h"

#include <atomic>
#include <cstring>

#include "cache/cache_registry.h"
#include "map/metadata.h"
#include "os/os.h"

namespace loam {

namespace {

// Blocks from this size on count from the first slot, because there are many such classes and each
// block is large.
constexpr size_t kDueBytes = kFineLimit;
// In a larger heap a thread may hold the heap's size divided by this instead of kThreadBytes, up to
// the limit of all threads. While another thread is refused room, and for kModestCollections
// afterwards, the limit is kThreadBytes again (decision 39).
constexpr size_t kThreadShare = 2;
constexpr uint8_t kModestCollections = 250;
// A magazine grows to the heap's size divided by this, or to magazine_policy::kOneWayBytes, while
// its thread only takes, or only gives (decision 62).
constexpr size_t kOneWayShare = 1024;
// A magazine of at most this many bytes may grow even while misses are rare. In a program that uses
// every class the first slots alone exceed kUnearnedBytes, and otherwise no magazine could grow
// (decision 59).
constexpr size_t kEverybodysBytes = size_t{8} << 10;
// A magazine of blocks from this size on, of at most 64 slots, has one array for the thread's life,
// so its growth costs nothing.
constexpr size_t kFixedBytes = magazine_policy::kSmallBlock;
static_assert(magazine_policy::max_capacity(kFixedBytes) <= 64);
// The slots of every other array at the start. Moving a magazine costs a look at all recent frees,
// some 700 instructions, and a thread that lives for some hundred calls would pay that for every
// class that it uses. Chosen: two doublings. An array that is never filled then takes four cache
// lines instead of one.
constexpr unsigned kFirstArray = 32;
// An array that is too short becomes this many times as long, while its magazine doubles. So every
// other growth stays in place, and an array becomes longer as often as Tuning counts.
constexpr unsigned kArrayGrowth = 4;
// An array is freed this many collections after its idle class returned its blocks. A program that
// goes through many sizes in turn comes back to each after a few (decision 34).
constexpr unsigned kIdleCollections = 8;
// Slow operations between two collections of idle classes.
constexpr uint32_t kCollectEvery = 256;
// Frees between two collections, if they come earlier: a thread that misses rarely would otherwise
// keep blocks that it needed once for long. While its magazines hold no more than kUnearnedBytes
// the collection comes later, because much of that, and of the kept runs, may stay unused (decision
// 61).
constexpr uint64_t kCollectFrees = 32768;
constexpr uint64_t kCollectUnearnedFrees = 2 * kCollectFrees;
// A class without a call in this many slow operations since the last collection gives its room to a
// class that misses and may not grow. A program that draws its sizes at random calls most of its
// classes in that time.
constexpr uint32_t kIdleAfter = kCollectEvery / 4;
// The classes that one search looks at: a miss costs some 800 instructions, a look six.
constexpr unsigned kLooksForIdle = 8;
// This many slow calls in kTickMs mean "busy": then armed magazines would cost more than they save.
constexpr uint32_t kBusy = 64;

constinit bool full_checks = false;
constinit bool sampled = false;
// full_checks, sampled, or a profiler listens. relaxed: a thread that reads an old value arms its
// magazines later
constinit std::atomic<bool> always_armed{false};
LOAM_INLINE bool stays_armed() { return always_armed.load(std::memory_order_relaxed); }
constinit bool guards_sampled = false;
constinit void* no_block = nullptr;  // unused places of the table of recent frees point to it

// Blocks of mixed spans have any size up to 8 KiB; each is counted as this many bytes.
constexpr size_t kMixedBytes = 512;

LOAM_INLINE size_t block_bytes(unsigned size_class) {
  return LOAM_UNLIKELY(size_class == kMixedClass) ? kMixedBytes : class_info(size_class).bytes;
}

unsigned initial_capacity(unsigned size_class) {
  return magazine_policy::initial_capacity(block_bytes(size_class));
}

// The bytes of the first slots that count against kThreadBytes: none for blocks too small to
// matter.
size_t initial_bytes(unsigned size_class, unsigned capacity) {
  return block_bytes(size_class) < kDueBytes ? 0 : capacity * block_bytes(size_class);
}

// A table by class, because a division costs as much as the rest of a miss whose magazine has its
// longest length.
struct MaxCapacities {
  uint16_t slots[kMixedClass + 1];
};
constexpr MaxCapacities make_max_capacities() {
  MaxCapacities table{};
  for (unsigned c = 1; c <= kMixedClass; ++c) {
    const size_t bytes = c == kMixedClass ? kMixedBytes : kSizeClasses[c].bytes;
    table.slots[c] = static_cast<uint16_t>(magazine_policy::max_capacity(bytes));
  }
  return table;
}
constexpr MaxCapacities kMaxCapacities = make_max_capacities();

unsigned max_capacity(unsigned size_class) {
  return LOAM_LIKELY(size_class <= kMixedClass)
             ? kMaxCapacities.slots[size_class]
             : magazine_policy::max_capacity(block_bytes(size_class));
}

// Whether the class's array has its full length from the start, and stays where it is until its
// thread ends. The array for blocks of mixed spans does, because other threads read its pointers to
// find the blocks' sizes (count_mixed()).
bool has_fixed_array(unsigned size_class) {
  return size_class == kMixedClass || block_bytes(size_class) >= kFixedBytes;
}

// The slots of an array that was made longer `growths` times; at most what its magazine may use.
unsigned array_slots(unsigned size_class, unsigned growths) {
  const unsigned most = max_capacity(size_class);
  if (has_fixed_array(size_class)) return most;
  unsigned slots = kFirstArray;
  for (; growths != 0; --growths) slots *= kArrayGrowth;
  return slots < most ? slots : most;
}

size_t array_bytes(unsigned size_class, unsigned growths) {
  return array_slots(size_class, growths) * sizeof(void*);
}

// The part of a thread's first slots that comes out of the shared room.
size_t beyond_due(size_t due_bytes) {
  return due_bytes > ThreadCache::kDue ? due_bytes - ThreadCache::kDue : 0;
}

// Uses a recent value of the heap's size.
size_t share_of_heap(size_t share, size_t least) {
  const size_t bytes = page_heap.hints().used_bytes() / share;
  return bytes < least ? least : bytes;
}

void* take_one(unsigned size_class) {
  void* block = nullptr;
  return default_small_heap.take({size_class, &block, 1}) == 1 ? block : nullptr;
}

}  // namespace

void ThreadCache::give_home(unsigned size_class, void* const* pointers, unsigned count,
                            SmallHeap::Wait wait) {
  if (LOAM_UNLIKELY(size_class == kMixedClass))
    return default_small_heap.give_mixed(pointers, count);
  default_small_heap.give(size_class, pointers, count, wait);
}

constinit decltype(ThreadCache::process_room) ThreadCache::process_room;

void keep_magazines_armed() {
  sampled = true;
  keep_magazines_armed_meanwhile(false);
}
void keep_magazines_armed_meanwhile(bool on) {
  always_armed.store(on || sampled || full_checks);  // seq_cst: detours.h
}
bool calls_are_counted() { return sampled; }

void sample_guards() { guards_sampled = true; }

bool all_frees_are_checked() { return full_checks; }

void set_full_free_checks(bool on) {
  full_checks = on;
  keep_magazines_armed_meanwhile(false);
  if (on) default_small_heap.keep_spans_pure();
}

ThreadCache::ThreadCache(Live) {
  asm("" : : "r"(this) : "memory");  // so that no earlier zeroing of calls_ is a dead store
  for (void**& recent : recent_) recent = &no_block;
}

void ThreadCache::forget_recent(void** begin, void** end) {
  for (void**& recent : recent_) {
    if (recent >= begin && recent < end) recent = &no_block;
  }
}

LOAM_INLINE void ThreadCache::count_slow_operation() {
  misses_.note_slow_operation(pushed());
  if (LOAM_UNLIKELY(++slow_operations_ >= kCollectEvery)) collect();
}

LOAM_INLINE bool ThreadCache::grow(unsigned size_class, Way way) {
  Tuning& t = tuning_[size_class];
  const bool turned = magazine_policy::has_turned(t.last_way, way);
  t.last_way = way;
  return LOAM_UNLIKELY(t.capacity != max_capacity(size_class)) && grow_to_next(size_class, turned);
}

bool ThreadCache::grow_to_next(unsigned size_class, bool turned) {
  Tuning& t = tuning_[size_class];
  const bool first = t.capacity == 0;
  const size_t one_way = share_of_heap(kOneWayShare, magazine_policy::kOneWayBytes);
  const unsigned capacity =
      magazine_policy::next_capacity(block_bytes(size_class), t.capacity, turned, one_way);
  if (capacity <= t.capacity) return false;
  // The first slots are every thread's due, whatever the process holds; but a thread may have few
  // slots of large blocks.
  const size_t due = first ? initial_bytes(size_class, capacity) : 0;
  const size_t more = first ? 0 : (capacity - t.capacity) * block_bytes(size_class);
  const size_t shared = more + beyond_due(due_bytes_ + due) - beyond_due(due_bytes_);
  const bool earned = capacity * block_bytes(size_class) <= kEverybodysBytes || !misses_.is_low();
  if (more != 0 && !earned && holds_unearned(more)) return false;
  if (due + more != 0 && !has_room(due + more)) {
    // A class without slots pays two locks for each block, so its first slots are worth more than
    // the upper half of the largest magazine.
    if (first ? !make_way(size_class, due) : !take_room_of_idle(more)) return false;
  }
  if (shared != 0 && !process_room.take(shared, page_heap.hints().used_bytes())) return false;
  if (!resize(size_class, capacity)) {
    process_room.give(shared);
    return false;
  }
  granted_bytes_ += more;
  due_bytes_ += due;
  return true;
}

// Whether magazines with `more` bytes would exceed the size that they may always have.
bool ThreadCache::holds_unearned(size_t more) const {
  return granted_bytes_ + due_bytes_ + more > share_of_heap(kProcessShare, kUnearnedBytes);
}

size_t ThreadCache::most_bytes() const {
  if (modest_ != 0) return kThreadBytes;
  const size_t most = share_of_heap(kThreadShare, kThreadBytes);
  return most < kProcessBytes ? most : kProcessBytes;
}

bool ThreadCache::has_room(size_t bytes) const {
  return granted_bytes_ + due_bytes_ + bytes <= most_bytes();
}

bool ThreadCache::resize(unsigned size_class, unsigned capacity) {
  static_assert(kFirstArray << 2 * Tuning::kMostGrowths >= kMaxCapacity && kArrayGrowth == 4,
                "longest array's growths");
  const Magazine m = magazine(size_class);
  Tuning& t = tuning_[size_class];
  if (m.base != nullptr && capacity <= array_slots(size_class, t.array_growths)) {
    t.set_capacity(capacity);
    disarm(size_class);
    return true;
  }
  unsigned growths = 0;
  while (array_slots(size_class, growths) < capacity) ++growths;
  void** slots = static_cast<void**>(metadata.allocate(array_bytes(size_class, growths)));
  if (slots == nullptr) return false;
  const size_t held = static_cast<size_t>(m.head - m.base);
  LOAM_ASSERT(held <= capacity);
  void** old = m.base;
  const unsigned old_growths = t.array_growths;
  if (held != 0) memcpy(slots, old, held * sizeof(void*));
  // Between two arrays the magazine is empty (head null) for a reader or a fork()ed child that
  // looks now.
  __atomic_store_n(&m.head, nullptr, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&m.base, slots, __ATOMIC_RELEASE);
  t.set_capacity(capacity);
  // At once, because such a child frees the array that it finds, by this length. The likeliest
  // place for a fork() is the lock with which this thread frees the old array.
  t.array_growths = growths & Tuning::kMostGrowths;
  __atomic_store_n(&m.head, slots + held, __ATOMIC_RELEASE);
  disarm(size_class);
  if (old != nullptr) {
    forget_recent(old, old + array_slots(size_class, old_growths));  // another thread may get it
    for (size_t i = 0; i < held; ++i) recent_[recent_index(slots[i])] = &slots[i];
    metadata.free(old, array_bytes(size_class, old_growths));
  }
  return true;
}

void ThreadCache::give_room_back(size_t bytes) {
  granted_bytes_ -= bytes;
  process_room.give(bytes);
}

void ThreadCache::give_due_back(size_t bytes) {
  const size_t shared = beyond_due(due_bytes_);
  due_bytes_ -= bytes;
  process_room.give(shared - beyond_due(due_bytes_));
}

void ThreadCache::recount_rooms_after_fork() const {
  process_room.recount_after_fork(granted_bytes_ + beyond_due(due_bytes_));
  RunCache::process_room.recount_after_fork(runs_.room().bytes());
}

// Returns half of a magazine's blocks, and halves its capacity down to its first slots at the
// least, so that other classes get that room.
void ThreadCache::shrink(unsigned size_class) {
  const Magazine m = magazine(size_class);
  Tuning& t = tuning_[size_class];
  const unsigned initial = initial_capacity(size_class);
  const unsigned capacity = t.capacity / 2u < initial ? initial : t.capacity / 2u;
  const unsigned held = static_cast<unsigned>(m.head - m.base);
  const unsigned gone = held / 2 > capacity ? held - capacity : held / 2;
  if (gone != 0) evict(size_class, gone, SmallHeap::Wait::kNo);
  disarm(size_class);
  const size_t less = (t.capacity - capacity) * block_bytes(size_class);
  if (less == 0 || held - gone > capacity || !resize(size_class, capacity)) return;
  give_room_back(less);
}

// Shrinks the largest of the other magazines. False where there is still no room for `bytes`.
bool ThreadCache::make_way(unsigned size_class, size_t bytes) {
  unsigned largest = 0;
  size_t most = 0;
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) {
    const unsigned capacity = tuning_[c].capacity;
    if (c == size_class || capacity <= initial_capacity(c)) continue;
    const size_t granted = (capacity - initial_capacity(c)) * block_bytes(c);
    if (granted > most) {
      most = granted;
      largest = c;
    }
  }
  if (largest != 0) {
    shrink(largest);
    if (stays_armed() || tuning_[largest].use == Use::kNone) arm(magazine(largest));
  }
  return has_room(bytes);
}

// Looks at a few classes, and returns the blocks and the room of the first idle one. False where
// there is still no room for `bytes`.
bool ThreadCache::take_room_of_idle(size_t bytes) {
  if (slow_operations_ < kIdleAfter) return false;
  for (unsigned looks = kLooksForIdle; looks != 0; --looks) {
    next_idle_ = static_cast<uint8_t>(next_idle_ % (split_classes.end() - 1) + 1);
    const unsigned c = next_idle_;
    const Tuning& t = tuning_[c];
    if (c == kMixedClass || t.use != Use::kNone || t.capacity <= initial_capacity(c)) continue;
    retire_magazine(c);
    return has_room(bytes);
  }
  return false;
}

// Returns a magazine's blocks and its room. Its class starts again with its first slots, but in the
// same array.
void ThreadCache::retire_magazine(unsigned size_class) {
  const Magazine m = magazine(size_class);
  Tuning& t = tuning_[size_class];
  const unsigned held = static_cast<unsigned>(m.head - m.base);
  if (held != 0) evict(size_class, held, SmallHeap::Wait::kNo);
  const unsigned initial = initial_capacity(size_class);
  give_room_back((t.capacity - initial) * block_bytes(size_class));
  if (size_class == kMixedClass) {
    t.set_capacity(initial);
    arm(m);
    return;
  }
  give_due_back(initial_bytes(size_class, initial));
  t.set_capacity(0);
  t.idle = 0;
  disarm(size_class);
  default_small_heap.release_kept_span(size_class, home);
}

// pre: its class has no magazine
void ThreadCache::free_array(unsigned size_class) {
  const Magazine m = magazine(size_class);
  Tuning& t = tuning_[size_class];
  void** const old = m.base;
  __atomic_store_n(&m.head, nullptr, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&m.base, nullptr, __ATOMIC_RELEASE);
  m.low = m.high = nullptr;
  forget_recent(old, old + array_slots(size_class, t.array_growths));
  metadata.free(old, array_bytes(size_class, t.array_growths));
  t.array_growths = 0;
}

void* ThreadCache::allocate_slow(unsigned size_class) {
  if (LOAM_UNLIKELY(state() != State::kLive)) {
    ThreadCache* live = state() == State::kUnused ? cache_registry.start_thread() : nullptr;
    return live != nullptr ? live->allocate_slow(size_class) : take_one(size_class);
  }
  note(size_class, Use::kHit);
  if (LOAM_LIKELY(!page_heap.hints().wants_ticks() && !stays_armed())) {
    disarm(size_class);
    return refill_and_pop(size_class);
  }
  const bool stay_armed = attend();
  disarm(size_class);
  void* block = refill_and_pop(size_class);
  if (stay_armed) arm(magazine(size_class));
  return block;
}

void* ThreadCache::refill_and_pop(unsigned size_class) {
  const Magazine m = magazine(size_class);
  Tuning& t = tuning_[size_class];
  if (m.head != m.base) return pop(size_class);

  note(size_class, Use::kMissed);
  count_up(refills_);
  const bool first = t.capacity == 0, only_takes = t.last_way == Way::kTake;
  grow(size_class, Way::kTake);
  if (LOAM_UNLIKELY(t.capacity == 0)) {
    // The other classes hold all the room: the count brings the next collection of idle ones
    // nearer.
    count_slow_operation();
    return take_one(size_class);
  }
  const unsigned wanted =
      magazine_policy::refill_count(block_bytes(size_class), t.capacity, first, only_takes);
  // A refill that has most of its blocks does not begin a span that it would leave in part. So
  // spans are taken whole, and come back whole.
  const unsigned enough = wanted < class_info(size_class).slots ? wanted : wanted / 2;
  Refill refill{.size_class = size_class,
                .out = m.base,
                .wanted = wanted,
                .taker = this,
                .enough = enough,
                .room = t.capacity,
                .home = home};
  const unsigned got = default_small_heap.take(refill);
  if (LOAM_UNLIKELY(refill.fresh != Pages(0))) runs_.note_growth(refill.fresh);
  if (got == 0) return nullptr;
  void* block = m.base[got - 1];
  __atomic_store_n(&m.head, m.base + (got - 1), __ATOMIC_RELEASE);
  note_taken(size_class, got);
  note_taken_bytes(got * block_bytes(size_class));
  count_slow_operation();
  if (LOAM_UNLIKELY(guards_sampled) && got > 1 && draws_guard(size_class, got)) {
    aim_guard(size_class, m.base + 1 + random_bits() % (got - 1));
    keep_aim(size_class);
  }
  return block;
}

template <class Give>
LOAM_INLINE void ThreadCache::take_out(unsigned size_class, unsigned count, unsigned at_once,
                                       Give give) {
  const Magazine m = magazine(size_class);
  const unsigned held = static_cast<unsigned>(m.head - m.base);
  // The magazine forgets its blocks before the bin gets some, and is empty until the others have
  // moved. A fork() in between loses blocks in the child; any other order would free some blocks
  // twice there.
  m.low = m.base;  // also for a handler of SIGABRT that allocates when a wrong block is given
  __atomic_store_n(&m.head, m.base, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  for (unsigned given = 0; given < count; given += at_once) {
    give(m.base + given, count - given < at_once ? count - given : at_once);
  }
  if (LOAM_LIKELY(size_class != kMixedClass)) {
    memmove(m.base, m.base + count, (held - count) * sizeof(void*));
  } else {
    // Not memmove(): count_mixed() may read.
    for (size_t i = count; i < held; ++i)
      __atomic_store_n(&m.base[i - count], m.base[i], __ATOMIC_RELAXED);
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&m.head, m.base + (held - count), __ATOMIC_RELEASE);
  note_given(size_class, count);
}

void ThreadCache::evict(unsigned size_class, unsigned count, SmallHeap::Wait wait) {
  take_out(size_class, count, SmallHeap::kMaxGive,
           [&](void** blocks, unsigned here) { give_home(size_class, blocks, here, wait); });
}

// `count`, or a few less, so that the first blocks of the magazine end with a whole span if its
// spans have few slots. Blocks of such a span were most likely allocated together and freed
// together, so they should return together.
unsigned ThreadCache::end_of_span(unsigned size_class, unsigned count) const {
  const SizeClassInfo& info = class_info(size_class);
  if (info.slots > count || count == held_blocks(size_class)) return count;
  void** const kept = bases_[size_class] + count;
  const uintptr_t address = reinterpret_cast<uintptr_t>(*kept);
  const auto is_near = [&](const void* block) {
    const size_t extent = size_t{info.slots} * info.bytes;
    return reinterpret_cast<uintptr_t>(block) - address + extent < 2 * extent;
  };
  if (!is_near(kept[-1])) return count;
  const Span* const span = span_at(address);
  for (unsigned less = 0; less < info.slots; ++less) {
    const void* const block = *(kept - less - 1);
    if (!is_near(block) || span_at(reinterpret_cast<uintptr_t>(block)) != span) return count - less;
  }
  return count;
}

// A class in use has too many blocks; perhaps another thread has too few. The cold half leaves: the
// blocks at the bottom, which were freed longest ago. Where this thread only frees and another
// takes, all blocks leave: there are fewer and longer batches, and this thread loses nothing.
void ThreadCache::overflow(unsigned size_class, bool only_gives) {
  unsigned count = magazine_policy::overflow_count(tuning_[size_class].capacity);
  if (LOAM_UNLIKELY(size_class == kMixedClass)) return overflow_mixed(count);
  if (LOAM_LIKELY(
          !default_small_heap.wants_transfer(size_class, this, bases_[size_class][0], home))) {
    return evict(size_class, end_of_span(size_class, count), SmallHeap::Wait::kNo);
  }
  const auto m = magazine(size_class);
  if (only_gives) count = static_cast<unsigned>(m.head - m.base);
  // Whole batches, if there are enough blocks.
  const unsigned batch = SmallHeap::max_transfer(size_class);
  if (count > batch) count -= count % batch;
  take_out(size_class, count, batch, [&](void** blocks, unsigned here) {
    here = check_share(size_class, blocks, here);
    if (LOAM_LIKELY(here != 0)) default_small_heap.transfer(size_class, blocks, here, this);
  });
}

// The blocks that a class takes back: as many as fill half of its magazine. A magazine into which
// the thread only frees already holds as many.
uint8_t ThreadCache::wanted_again(unsigned size_class) const {
  const auto m = magazine(size_class);
  // For blocks that share cache lines the limit may be below the capacity. An armed magazine has no
  // room: it waits for a call.
  const ptrdiff_t half = m.base + tuning_[size_class].capacity / 2 - m.head, room = m.high - m.head;
  const ptrdiff_t wanted = half < room ? half : room;
  return wanted <= 0 ? 0 : wanted > UINT8_MAX ? UINT8_MAX : static_cast<uint8_t>(wanted);
}

// Blocks of mixed spans that this thread's classes need stay with the thread. In their spans they
// would become free ranges, from which the next refill would cut them again.
void ThreadCache::overflow_mixed(unsigned count) {
  MixedHeap::Kept kept;
  for (unsigned c = 0; c < sizeof kept.wanted; ++c) kept.wanted[c] = wanted_again(c);
  take_out(kMixedClass, count, MixedHeap::kPiece, [&](void** blocks, unsigned here) {
    kept.count = 0;
    default_small_heap.give_mixed(blocks, here, &kept);
    for (unsigned i = 0; i < kept.count; ++i) {
      const Magazine m = magazine(kept.size_class[i]);
      // As push(), but without a note among the recent frees. A note is compared with the magazine
      // of the class of the block's pages, and this is a different magazine.
      __atomic_store_n(m.head, kept.block[i], __ATOMIC_RELAXED);
      __atomic_store_n(&m.head, m.head + 1, __ATOMIC_RELEASE);
    }
  });
}

void ThreadCache::free_slow(unsigned size_class, void* block) {
  if (LOAM_UNLIKELY(state() != State::kLive)) {
    ThreadCache* live = state() == State::kUnused ? cache_registry.start_thread() : nullptr;
    if (live != nullptr) return live->free_slow(size_class, block);
    give_home(size_class, &block, 1, SmallHeap::Wait::kYes);
    return;
  }
  if (LOAM_UNLIKELY(!check_free(size_class, block))) return;
  // A thread that misses has enough slow calls, and gets no extra call for a look.
  const bool looks = until_look_ <= kFreesPerLook / 2;
  if (looks && LOAM_UNLIKELY(!look(size_class, block))) return;
  note(size_class, Use::kHit);
  const bool draws =
      LOAM_UNLIKELY(guards_sampled) && looks && draws_guard(size_class, kFreesPerLook);
  if (const uint64_t frees = pushed() - collected_at_; LOAM_UNLIKELY(frees >= kCollectFrees)) {
    if (frees >= kCollectUnearnedFrees || holds_unearned(0)) collect();
  }
  const bool stay_armed =
      LOAM_UNLIKELY(page_heap.hints().wants_ticks() || stays_armed()) && attend();
  disarm(size_class);
  if (!push(size_class, block) && !put_below(size_class, block))
    make_room_and_push(size_class, block);
  if (LOAM_UNLIKELY(stay_armed)) arm(magazine(size_class));
  if (LOAM_UNLIKELY(draws)) aim_guard(size_class, magazine(size_class).head);
  if (LOAM_UNLIKELY(guard_at_ != nullptr)) keep_aim(size_class);
}

bool ThreadCache::free_run(Span* span) {
  if (!runs_.is_bypassed() &&
      (LOAM_LIKELY(runs_.give(span)) || (runs_.pass_batch(span) && runs_.give(span)))) {
    if (LOAM_UNLIKELY(runs_.calls() % kRunsPerLook == 0)) attend_kept();
    return true;
  }
  if (LOAM_UNLIKELY(!runs_.park(span))) return false;
  if (LOAM_UNLIKELY(runs_.is_look_due(kRunsPerLook))) attend_parked();
  return true;
}

void ThreadCache::attend_kept() {
  poll_probes();
  if (!page_heap.hints().wants_ticks()) return;
  os::ErrnoGuard guard;
  attend();
  // Not only when it is time: a fall may be shorter than that.
  page_heap.tick_unless_busy();
}

void ThreadCache::free_run_slow(Span* span) {
  if (LOAM_UNLIKELY(state() != State::kLive)) {
    ThreadCache* live = state() == State::kUnused ? cache_registry.start_thread() : nullptr;
    return live != nullptr ? live->free_run_slow(span) : page_heap.free(span);
  }
  static_cast<void>(runs_.shard());
  if (page_heap.hints().wants_ticks()) attend();
  runs_.make_room(span);
  if (free_run(span)) return;
  // Where there is no room, the run goes to its shard under the shard's lock. Under the page heap's
  // lock all threads without room would meet.
  if (LOAM_UNLIKELY(!runs_.park_refused(span))) return page_heap.free(span);
  if (LOAM_UNLIKELY(runs_.is_look_due(kRunsPerLook))) attend_parked();
}

bool ThreadCache::holds(unsigned size_class, const void* block) const {
  // The cache may belong to another thread, which goes on. An array that it has outgrown stays
  // readable, but a base and a head of two arrays are no range.
  const auto m = magazine(size_class);
  void** const base = __atomic_load_n(&m.base, __ATOMIC_ACQUIRE);
  void** const head = __atomic_load_n(&m.head, __ATOMIC_ACQUIRE);
  if (base == nullptr || head < base ||
      head - base > static_cast<ptrdiff_t>(max_capacity(size_class)))
    return false;
  for (void** slot = base; slot < head; ++slot) {
    if (__atomic_load_n(slot, __ATOMIC_RELAXED) == block) return true;
  }
  return false;
}

bool ThreadCache::check_free(unsigned size_class, void* block) {
  const bool twice = freed_recently(size_class, block);
  if (LOAM_UNLIKELY(full_checks)) return is_block_in_use(size_class, block, twice);
  if (LOAM_LIKELY(!twice)) return true;
  report_misuse("double free", block);
  return false;
}

void ThreadCache::stop_at_own(unsigned size_class) {
  Own& own = own_[size_class];
  if (own.below == kMostBelow) return;
  const Magazine m = magazine(size_class);
  const uint32_t held = static_cast<uint32_t>(m.head - m.base);
  if (own.level < held) own.level = held;
  if (m.base + own.level < m.high) m.high = m.base + own.level;
}

// Puts a block that another thread must have allocated at the bottom. False, and no change, where
// no block is known to be another thread's, or there is no room.
bool ThreadCache::put_below(unsigned size_class, void* block) {
  if (LOAM_LIKELY(!shares_lines(size_class))) return false;
  const Magazine m = magazine(size_class);
  Own& own = own_[size_class];
  if (own.below == kMostBelow || m.head != m.base + own.level ||
      own.level >= tuning_[size_class].capacity)
    return false;
  if (own.level == 0) {
    // These blocks keep the thread's next block from being this one. There is no `taker`, because
    // the thread did not ask for them.
    const unsigned got =
        default_small_heap.take({.size_class = size_class,
                                 .out = m.base,
                                 .wanted = magazine_policy::line_blocks(block_bytes(size_class)),
                                 .home = home});
    own.level = got;
    __atomic_store_n(&m.head, m.base + got, __ATOMIC_RELEASE);
  }
  void** const top = m.head;
  void** const place = own.below < own.level ? m.base + own.below : top;
  if (place != top) {
    // The block in that slot moves to the top. A fork() before the head moves loses it in the
    // child; any other order would have it there twice.
    void* const moved = *place;
    void**& recent = recent_[recent_index(moved)];
    if (recent == place) recent = top;
    __atomic_store_n(top, moved, __ATOMIC_RELAXED);
  }
  recent_[recent_index(block)] = place;
  __atomic_store_n(place, block, __ATOMIC_RELEASE);
  __atomic_store_n(&m.head, top + 1, __ATOMIC_RELEASE);
  ++own.level;
  ++own.below;
  disarm(size_class);
  return true;
}

void ThreadCache::make_room_and_push(unsigned size_class, void* block) {
  Tuning& t = tuning_[size_class];
  note(size_class, Use::kMissed);
  const bool only_gives = t.last_way == Way::kGive;
  if (LOAM_UNLIKELY(is_short_ != 0) || !grow(size_class, Way::kGive)) {
    if (LOAM_LIKELY(t.capacity != 0)) {
      count_up(flushes_);
      const size_t held = held_blocks(size_class);
      // The thread has taken nothing for long, so it will not take half of its blocks again.
      is_short_ != 0 && size_class != kMixedClass
          ? evict(size_class, static_cast<unsigned>(held), SmallHeap::Wait::kNo)
          : overflow(size_class, only_gives);
      note_fall((held - held_blocks(size_class)) * block_bytes(size_class));
    }
    if (LOAM_UNLIKELY(t.capacity == 0)) {
      count_slow_operation();
      give_home(size_class, &block, 1, SmallHeap::Wait::kYes);
      return note_fall(block_bytes(size_class));
    }
    disarm(size_class);
  }
  const bool pushed = push(size_class, block) || put_below(size_class, block);
  LOAM_CHECK(pushed, "thread cache: no room after an eviction");
  count_slow_operation();
}

void ThreadCache::collect() {
  slow_operations_ = 0;
  collected_at_ = pushed();
  poll_probes();
  default_small_heap.tick();
  runs_.collect();
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) {
    const Magazine m = magazine(c);
    Tuning& t = tuning_[c];
    if (t.capacity == 0) {
      static_assert(kIdleCollections < 1u << 6, "Tuning::idle counts that far");
      if (m.base != nullptr && !has_fixed_array(c) && ++t.idle == kIdleCollections) free_array(c);
      continue;
    }
    const Use use = t.use;
    t.use = Use::kNone;
    if (use == Use::kNone) {
      // The class had no call: other threads and classes may need its blocks and its room.
      retire_magazine(c);
      continue;
    }
    // The class neither missed nor overflowed, so it may hold more than it needs. A single block is
    // not more.
    if (use == Use::kHit) shrink(c);
    arm(m);
  }
  if (modest_ != 0) --modest_;
  notice_refusals();
}

void ThreadCache::notice_refusals() {
  const uint32_t refusals = process_room.refusals();
  if (LOAM_LIKELY(refusals == seen_refusals_)) return;
  seen_refusals_ = refusals;
  modest_ = kModestCollections;
}

bool ThreadCache::attend() {
  const uint64_t now = os::now_coarse_ms();
  if (LOAM_UNLIKELY(full_checks)) {
    page_heap.tick();
    return true;
  }
  const bool is_due = now - last_tick_ms_ >= kTickMs;
  if (!is_due && !page_heap.hints().is_behind())
    return ++slow_in_this_tick_ < kBusy || stays_armed();
  last_tick_ms_ = now;
  slow_in_this_tick_ = 0;
  default_small_heap.tick();
  // A silence is made up for by one thread at a time, and the others go on.
  is_due ? page_heap.tick() : page_heap.tick_unless_busy();
  notice_refusals();
  // The heap shrank, or another thread was refused room, and the next slow operation may be far
  // away.
  if (LOAM_UNLIKELY(!has_room(0))) collect();
  arm_all();
  return true;
}

void ThreadCache::flush_all(SmallHeap::Wait wait) {
  runs_.flush();
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) {
    const Magazine m = magazine(c);
    // A fork() caught the cache's thread between two arrays. (A class without an array stays as it
    // is.)
    if (m.head == nullptr && m.base != nullptr) __atomic_store_n(&m.head, m.base, __ATOMIC_RELAXED);
    if (m.head != m.base) evict(c, static_cast<unsigned>(m.head - m.base), wait);
    disarm(c);
    if (LOAM_UNLIKELY(stays_armed())) arm(m);
  }
}

void ThreadCache::release_slots() {
  runs_.close();
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) {
    const Magazine m = magazine(c);
    if (m.base != nullptr) metadata.free(m.base, array_bytes(c, tuning_[c].array_growths));
    m.head = m.low = m.high = m.base = nullptr;
    tuning_[c] = Tuning{};
  }
  for (Own& own : own_) own = Own{};
  for (void**& recent : recent_) recent = &no_block;
  give_room_back(granted_bytes_);
  give_due_back(due_bytes_);
}

size_t ThreadCache::held_bytes() const {
  size_t total = 0;
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) total += held_blocks(c) * block_bytes(c);
  return total + runs_.held().bytes();
}

}  // namespace loam
