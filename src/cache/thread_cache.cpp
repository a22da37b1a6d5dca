#include "cache/thread_cache.h"

#include <utility>

#include "cache/cache_registry.h"
#include "cache/magazine_arrays.h"
#include "map/metadata.h"
#include "os/os.h"

namespace loam {

namespace {

// This many slow calls in kTickMs mean "busy": then armed magazines would cost more than they save.
// Half and double change nothing (decision 12).
constexpr uint32_t kBusy = CacheBudget::kIdleAfter;

constinit bool full_checks = false;
constinit bool guards_sampled = false;
// A thread that reads an old value arms its magazines later.
LOAM_INLINE bool stays_armed() { return every_call_is_slow(); }

// A recent value of the heap's size.
size_t heap_bytes() { return page_heap.hints().used_bytes(); }
// A recent number of threads, at least one.
size_t threads() {
  const size_t threads = cache_registry.threads_hint();
  return threads == 0 ? 1 : threads;
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

void sample_guards() { guards_sampled = true; }

bool all_frees_are_checked() { return full_checks; }

void set_full_free_checks(bool on) {
  full_checks = on;
  make_every_call_slow(SlowFor::kChecks, on);
  if (on) default_small_heap.keep_spans_pure();
}

ThreadCache::ThreadCache(Live) {
  asm("" : : "r"(this) : "memory");  // so that no earlier zeroing of observed_ is a dead store
  recent_.forget_all();
}

// ---- the length of a magazine -------------------------------------------------------------------

LOAM_INLINE void ThreadCache::count_slow_operation() {
  if (LOAM_UNLIKELY(budget_.note_slow_operation(pushed()))) collect();
}

LOAM_INLINE bool ThreadCache::grow(unsigned size_class, Way way) {
  Tuning& t = tuning_[size_class];
  const bool turned = magazine_policy::has_turned(t.last_way, way);
  t.last_way = way;
  return LOAM_UNLIKELY(t.capacity != max_capacity(size_class)) && grow_to_next(size_class, turned);
}

bool ThreadCache::grow_to_next(unsigned size_class, bool turned) {
  const CacheBudget::Growth growth =
      budget_.next(block_bytes(size_class), tuning_[size_class].capacity, turned, heap_bytes());
  if (growth.capacity == 0) return false;
  if (growth.bytes() != 0 && !budget_.has_room(growth.bytes(), heap_bytes(), threads())) {
    // A class without slots pays two locks for each block, so its first slots are worth more than
    // the upper half of the largest magazine.
    if (growth.first ? !make_way(size_class, growth.due) : !take_room_of_idle(growth.more))
      return false;
  }
  if (growth.shared != 0 && !process_room.take(growth.shared, heap_bytes())) return false;
  if (!resize(size_class, growth.capacity)) {
    process_room.give(growth.shared);
    return false;
  }
  budget_.take(growth);
  return true;
}

bool ThreadCache::resize(unsigned size_class, unsigned capacity) {
  const bool resized =
      resize_array(size_class, magazine(size_class), tuning_[size_class], recent_, capacity);
  if (LOAM_LIKELY(resized)) disarm(size_class);
  return resized;
}

void ThreadCache::recount_rooms_after_fork() const {
  process_room.recount_after_fork(budget_.shared());
  RunCache::process_room.recount_after_fork(runs_.room().bytes());
}

// Returns half of a magazine's blocks, and halves its capacity down to its first slots at the
// least, so that other classes get that room.
void ThreadCache::shrink(unsigned size_class) {
  const unsigned held = magazine(size_class).held(), before = tuning_[size_class].capacity;
  const auto [capacity, gone] = CacheBudget::shrink(before, initial_capacity(size_class), held);
  if (gone != 0) evict(size_class, gone, SmallHeap::Wait::kNo);
  disarm(size_class);
  const size_t less = (before - capacity) * block_bytes(size_class);
  if (less != 0 && held - gone <= capacity && resize(size_class, capacity)) give_room_back(less);
  if (stays_armed() || tuning_[size_class].use == Use::kNone) magazine(size_class).arm();
}

// The heap took fresh pages: the thread returns as many bytes of its kept runs and of its long
// magazines, for the next requests (decision 55).
void ThreadCache::give_for_growth(Pages fresh) {
  runs_.note_growth(fresh);
  size_t gone = 0;
  while (gone < fresh.bytes()) {
    const unsigned longest = budget_.longest(tuning_, split_classes.end());
    if (longest == 0) return;
    const size_t held = held_blocks(longest);
    shrink(longest);
    gone += (held - held_blocks(longest)) * block_bytes(longest);
  }
}

// Shrinks the largest of the other magazines. False where there is still no room for `bytes`.
bool ThreadCache::make_way(unsigned size_class, size_t bytes) {
  const unsigned largest = CacheBudget::largest_other(tuning_, split_classes.end(), size_class);
  if (largest != 0) shrink(largest);
  return budget_.has_room(bytes, heap_bytes(), threads());
}

// Returns the blocks and the room of an idle class. False where there is still no room for `bytes`.
bool ThreadCache::take_room_of_idle(size_t bytes) {
  const unsigned idle = budget_.next_idle(tuning_, split_classes.end());
  if (idle == 0) return false;
  retire_magazine(idle);
  return budget_.has_room(bytes, heap_bytes(), threads());
}

// Returns a magazine's blocks and its room. Its class starts again with its first slots, but in the
// same array.
void ThreadCache::retire_magazine(unsigned size_class) {
  Tuning& t = tuning_[size_class];
  evict_all(size_class);
  const unsigned initial = initial_capacity(size_class);
  give_room_back((t.capacity - initial) * block_bytes(size_class));
  if (size_class == kMixedClass) {
    t.set_capacity(initial);
    magazine(size_class).arm();
    return;
  }
  process_room.give(budget_.give_due(CacheBudget::due_bytes(block_bytes(size_class), initial)));
  t.set_capacity(0);
  t.idle = 0;
  disarm(size_class);
}

void ThreadCache::collect() {
  budget_.begin_collection(pushed());
  poll_probes();
  default_small_heap.tick();
  runs_.collect();
  fall_.end_wait();
  const bool holds_too_much = !budget_.has_room(0, heap_bytes(), threads());
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) {
    const Magazine m = magazine(c);
    Tuning& t = tuning_[c];
    if (t.capacity == 0) {
      if (m.base != nullptr && !has_fixed_array(c) && ++t.idle == CacheBudget::kIdleCollections)
        free_array(c, m, t, recent_);
      continue;
    }
    const Use use = t.use;
    t.use = Use::kNone;
    if (use == Use::kNone) {
      // The class had no call: other threads and classes may need its blocks and its room.
      retire_magazine(c);
      continue;
    }
    // The class neither missed nor overflowed, and did not need the lower half of its blocks; or
    // the thread has no right to it.
    const bool gives = use == Use::kHit && (m.low != m.base || holds_too_much);
    gives ? shrink(c) : m.arm();
  }
}

// ---- slow calls ---------------------------------------------------------------------------------

void* ThreadCache::allocate_slow(unsigned size_class) {
  if (LOAM_UNLIKELY(state() != State::kLive)) {
    ThreadCache* live = state() == State::kUnused ? cache_registry.start_thread() : nullptr;
    return live != nullptr ? live->allocate_slow(size_class) : take_one(size_class);
  }
  tuning_[size_class].note(Use::kHit);
  if (LOAM_LIKELY(!page_heap.hints().wants_ticks() && !stays_armed())) {
    disarm(size_class);
    return refill_and_pop(size_class);
  }
  const bool stay_armed = attend();
  disarm(size_class);
  void* block = refill_and_pop(size_class);
  if (stay_armed) magazine(size_class).arm();
  return block;
}

void* ThreadCache::refill_and_pop(unsigned size_class) {
  const Magazine m = magazine(size_class);
  Tuning& t = tuning_[size_class];
  if (m.head != m.base) return pop(size_class);

  t.note(Use::kMissed);
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
  if (got == 0) return nullptr;
  void* block = m.base[got - 1];
  m.set_head(m.base + (got - 1));
  if (LOAM_UNLIKELY(OwnLines::shares_lines(size_class))) {
    own_.note_taken(size_class, got);
    disarm(size_class);
  }
  fall_.note_taken(got * block_bytes(size_class));
  count_slow_operation();
  if (LOAM_UNLIKELY(guards_sampled) && got > 1 && draws_.draws_guard(size_class, got)) {
    draws_.aim_guard_between(size_class, m.base + 1, m.base + got);
    draws_.keep_aim(size_class, magazine(size_class));
  }
  // At the end, because the class's own magazine may shrink.
  if (LOAM_UNLIKELY(refill.fresh != Pages(0))) give_for_growth(refill.fresh);
  return block;
}

template <class Give>
LOAM_INLINE void ThreadCache::take_out(unsigned size_class, unsigned count, unsigned at_once,
                                       Give give) {
  Magazines::take_out(size_class, count, at_once, give);
  if (LOAM_UNLIKELY(OwnLines::shares_lines(size_class))) own_.note_given(size_class, count);
}

void ThreadCache::evict(unsigned size_class, unsigned count, SmallHeap::Wait wait) {
  take_out(size_class, count, SmallHeap::kMaxGive,
           [&](void** blocks, unsigned here) { give_home(size_class, blocks, here, wait); });
}

void ThreadCache::evict_all(unsigned size_class, SmallHeap::Wait wait) {
  if (const unsigned held = magazine(size_class).held(); held != 0) evict(size_class, held, wait);
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
  unsigned count =
      magazine_policy::overflow_count(block_bytes(size_class), tuning_[size_class].capacity);
  if (LOAM_UNLIKELY(size_class == kMixedClass)) return overflow_mixed(count);
  if (LOAM_LIKELY(
          !default_small_heap.wants_transfer(size_class, this, bases_[size_class][0], home))) {
    return evict(size_class, end_of_span(size_class, count), SmallHeap::Wait::kNo);
  }
  if (only_gives) count = magazine(size_class).held();
  // Whole batches, if there are enough blocks.
  const unsigned batch = SmallHeap::max_transfer(size_class);
  if (count > batch) count -= count % batch;
  take_out(size_class, count, batch, [&](void** blocks, unsigned here) {
    const SizeClassInfo& info = class_info(size_class);
    SpanFinder spans;
    void** const wrong = checks_.find_wrong(size_class, info, blocks, here,
                                            1 + (here - 1) / PointerChecks::kCheckedOfBatch, spans);
    if (LOAM_UNLIKELY(wrong != nullptr)) {
      std::swap(*wrong, blocks[--here]);
      give_home(size_class, &blocks[here], 1, SmallHeap::Wait::kYes);
    }
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
      // Without a note among the recent frees: it is compared with the magazine of the class of
      // the block's pages, and this is a different magazine.
      magazine(kept.size_class[i]).put(kept.block[i]);
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
  const bool looks = checks_.is_look_near();
  if (looks && LOAM_UNLIKELY(!look(size_class, block))) return;
  tuning_[size_class].note(Use::kHit);
  const bool guards = LOAM_UNLIKELY(guards_sampled) && looks &&
                      draws_.draws_guard(size_class, PointerChecks::kFreesPerLook);
  if (const uint64_t frees = budget_.since_collection(pushed());
      LOAM_UNLIKELY(frees >= CacheBudget::kCollectFrees)) {
    if (budget_.collects_after(frees, heap_bytes())) collect();
  }
  const bool stay_armed =
      LOAM_UNLIKELY(page_heap.hints().wants_ticks() || stays_armed()) && attend();
  disarm(size_class);
  if (!push(size_class, block) && !put_below(size_class, block))
    make_room_and_push(size_class, block);
  // Each names the magazine anew: one whose words were kept would lie on the stack in every call.
  if (LOAM_UNLIKELY(stay_armed)) magazine(size_class).arm();
  if (LOAM_UNLIKELY(guards)) draws_.aim_guard(size_class, heads_[size_class]);
  if (LOAM_UNLIKELY(draws_.aims())) draws_.keep_aim(size_class, magazine(size_class));
}

void ThreadCache::make_room_and_push(unsigned size_class, void* block) {
  Tuning& t = tuning_[size_class];
  t.note(Use::kMissed);
  const bool only_gives = t.last_way == Way::kGive;
  if (LOAM_UNLIKELY(fall_.is_short()) || !grow(size_class, Way::kGive)) {
    if (LOAM_LIKELY(t.capacity != 0)) {
      count_up(flushes_);
      const size_t held = held_blocks(size_class);
      // The thread has taken nothing for long, so it will not take half of its blocks again.
      fall_.is_short() && size_class != kMixedClass
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

bool ThreadCache::check_free(unsigned size_class, void* block) {
  const bool twice = freed_recently(size_class, block);
  if (LOAM_UNLIKELY(full_checks)) return is_block_in_use(size_class, block, twice);
  if (LOAM_LIKELY(!twice)) return true;
  report_misuse("double free", block);
  return false;
}

// Puts a block that another thread must have allocated at the bottom. False, and no change, where
// no block is known to be another thread's, or there is no room.
bool ThreadCache::put_below(unsigned size_class, void* block) {
  if (LOAM_LIKELY(!OwnLines::shares_lines(size_class))) return false;
  const Magazine m = magazine(size_class);
  if (!own_.takes_below(size_class, m, tuning_[size_class].capacity)) return false;
  if (own_.has_none(size_class)) {
    // These blocks keep the thread's next block from being this one. There is no `taker`, because
    // the thread did not ask for them.
    const unsigned got =
        default_small_heap.take({.size_class = size_class,
                                 .out = m.base,
                                 .wanted = magazine_policy::line_blocks(block_bytes(size_class)),
                                 .home = home});
    own_.set_level(size_class, got);
    m.set_head(m.base + got);
  }
  own_.put_below(size_class, m, block, recent_);
  disarm(size_class);
  return true;
}

// ---- wrong pointers (pointer_checks.h) ----------------------------------------------------------

// False where the freed pointer seems to be no block; the bin has it then.
bool ThreadCache::look(unsigned size_class, void* block) {
  checks_.begin_next_look();
  poll_probes();
  if (LOAM_UNLIKELY(heads_[kMixedClass] != bases_[kMixedClass])) check_one_mixed();
  if (LOAM_UNLIKELY(!has_own_spans(size_class))) return true;
  const Magazine m = magazine(size_class);
  const SizeClassInfo& info = class_info(size_class);
  SpanFinder spans;
  if (void** wrong = checks_.find_wrong(size_class, info, m.base, m.held(),
                                        1 + m.held() / PointerChecks::kCheckedShare, spans))
    send_home(size_class, wrong);
  if (LOAM_LIKELY(
          !seems_wrong(size_class, info, block, spans.at(reinterpret_cast<uintptr_t>(block)))))
    return true;
  give_home(size_class, &block, 1, SmallHeap::Wait::kYes);
  return false;
}

// The blocks of this magazine are never handed out, so a wrong pointer here does no harm. But it
// might stay here for long, so each look checks one.
LOAM_NOINLINE void ThreadCache::check_one_mixed() {
  const Magazine m = magazine(kMixedClass);
  void** const place = m.base + pushed() / PointerChecks::kFreesPerLook % m.held();
  if (LOAM_UNLIKELY(default_small_heap.mixed().block_bytes(reinterpret_cast<uintptr_t>(*place)) ==
                    0))
    send_home(kMixedClass, place);
}

void ThreadCache::send_home(unsigned size_class, void** place) {
  const Magazine m = magazine(size_class);
  const bool armed = m.low == m.head;
  void* block = *place;
  void** const top = m.head - 1;
  void* const moved = *top;
  // As in mix(): a child that is forked in between loses a block, but has none twice.
  m.set_head(top);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (place != top) {
    recent_.move(moved, top, place);
    __atomic_store_n(place, moved, __ATOMIC_RELEASE);
  }
  if (armed) m.arm();
  give_home(size_class, &block, 1, SmallHeap::Wait::kYes);
}

void ThreadCache::check_all() {
  if (state() != State::kLive) return;
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) {
    if (!has_own_spans(c)) continue;
    // A signal that ends the program may interrupt its thread between two arrays; then the magazine
    // holds nothing.
    void** const base = bases_[c];
    const SizeClassInfo& info = class_info(c);
    SpanFinder spans;
    for (void** place = base + held_blocks(c); place != base;) {
      --place;
      if (LOAM_UNLIKELY(
              seems_wrong(c, info, *place, spans.at(reinterpret_cast<uintptr_t>(*place)))))
        send_home(c, place);
    }
  }
}

void ThreadCache::mix(unsigned size_class) {
  const Magazine m = magazine(size_class);
  if (m.head == nullptr || m.head - m.base < 2) return;
  const bool armed = m.low == m.head;
  const unsigned top = m.held() - 1;
  const unsigned other = draws_.random_below(top + 1);
  if (other == top) return;
  void* const last = m.base[top];
  void* const picked = m.base[other];
  // The top block leaves the magazine while the two change places. A fork() in between loses a
  // block in the child; any other order would have one there twice.
  m.set_head(m.base + top);
  __atomic_store_n(&m.base[other], last, __ATOMIC_RELEASE);
  __atomic_store_n(&m.base[top], picked, __ATOMIC_RELEASE);
  m.set_head(m.base + top + 1);
  LOAM_ASSERT(armed == (m.low == m.head));
  static_cast<void>(armed);
}

// ---- serving others -----------------------------------------------------------------------------

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

bool ThreadCache::attend() {
  const uint64_t now = os::now_coarse_ms();
  if (LOAM_UNLIKELY(full_checks)) {
    page_heap.tick();
    return true;
  }
  const bool is_due = now - ticks_.last_ms >= kTickMs;
  if (!is_due && !page_heap.hints().is_behind())
    return ++ticks_.slow_calls < kBusy || stays_armed();
  ticks_.last_ms = now;
  ticks_.slow_calls = 0;
  default_small_heap.tick();
  // A silence is made up for by one thread at a time, and the others go on.
  is_due ? page_heap.tick() : page_heap.tick_unless_busy();
  // The heap shrank, or there are more threads, and the next slow operation may be far away.
  if (LOAM_UNLIKELY(!budget_.has_room(0, heap_bytes(), threads()))) collect();
  arm_all();
  return true;
}

void ThreadCache::attend_parked() {
  os::ErrnoGuard guard;
  page_heap.tick_unless_busy();
}

void ThreadCache::notice_probes() {
  const uint32_t era = memory_probes.era();
  if (state() != State::kLive) return;  // all threads share the static caches
  observed_.probe_era = static_cast<uint8_t>(era);
  // Otherwise the next slow call of each class disarms its magazine.
  if ((era & 1) != 0) arm_all();
}

// Gives back while the heap's use falls (thread_fall.h).
void ThreadCache::look_at_fall() {
  fall_.begin();
  if (heap_bytes() < ThreadFall::kSmallHeap) return;
  const SmallHeap::Fall fall = default_small_heap.look_at_fall();
  const size_t whole = page_heap.hints().returned_bytes();
  const ThreadFall::Decision decision =
      fall_.decide({.used = fall.used,
                    .free = fall.bytes,
                    .fallen = fall.fallen,
                    .returned = whole < fall.came_back ? fall.came_back : whole,
                    .cached = process_room.held(),
                    .threads = threads()});
  page_heap.hints().set_held_in_spans(decision.is_held ? fall.bytes : 0);
  if (decision.shortens) shorten_magazines(decision.keep);
  if (!decision.purges) return;
  default_small_heap.give_back_fall();
  page_heap.tick();
}

// Returns all blocks. Until the thread takes again, its magazines have so few slots that their
// blocks keep pages of `bytes` bytes at most; each may lie in a page of its own.
void ThreadCache::shorten_magazines(size_t bytes) {
  const unsigned end = split_classes.end();
  unsigned classes = 1;
  for (unsigned c = 1; c < end; ++c) classes += tuning_[c].capacity != 0;
  const size_t slots = bytes / kPageBytes / classes;
  runs_.flush();
  for (unsigned c = 1; c < end; ++c) {
    const unsigned before = tuning_[c].capacity;
    if (before == 0) continue;
    const size_t bytes_of_block = class_info(c).bytes;
    if (c == kMixedClass || slots < magazine_policy::initial_capacity(bytes_of_block)) {
      // Fewer slots than the first ones are none: who frees few blocks of a class meets no lock.
      retire_magazine(c);
      continue;
    }
    evict_all(c);
    if (slots >= before) continue;
    const unsigned capacity = static_cast<unsigned>(slots);
    if (resize(c, capacity)) give_room_back((before - capacity) * bytes_of_block);
  }
  // The next free of each class may be a sampled block's.
  arm_all();
  fall_.shorten();
}

// ---- the thread's end, and the view from outside ------------------------------------------------

void ThreadCache::flush_all(SmallHeap::Wait wait) {
  runs_.flush();
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) {
    const Magazine m = magazine(c);
    // A fork() caught the cache's thread between two arrays. (A class without an array stays as it
    // is.)
    if (m.head == nullptr && m.base != nullptr) __atomic_store_n(&m.head, m.base, __ATOMIC_RELAXED);
    evict_all(c, wait);
    disarm(c);
    if (LOAM_UNLIKELY(stays_armed())) m.arm();
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
  own_.reset();
  recent_.forget_all();
  process_room.give(budget_.give_all());
}

size_t ThreadCache::held_bytes() const {
  size_t total = 0;
  const unsigned end = split_classes.end();
  for (unsigned c = 1; c < end; ++c) total += held_blocks(c) * block_bytes(c);
  return total + runs_.held().bytes();
}

void ThreadCache::count_mixed(uint32_t counts[kSizeClassCount]) const {
  const size_t held = held_blocks(kMixedClass);
  void** slots = __atomic_load_n(&bases_[kMixedClass], __ATOMIC_RELAXED);
  if (held == 0) return;
  MixedHeap& mixed = default_small_heap.mixed();
  mixed.lock_all();
  for (size_t i = 0; i < held; ++i) {
    // Another thread's slot may be stale by now; block_bytes_locked() accepts any value.
    const void* block = __atomic_load_n(&slots[i], __ATOMIC_RELAXED);
    const size_t bytes = MixedHeap::block_bytes_locked(reinterpret_cast<uintptr_t>(block));
    if (bytes != 0) ++counts[class_for(bytes)];
  }
  mixed.unlock_all();
}

bool ThreadCache::is_valid() const {
  if (!runs_.is_valid()) return false;
  for (unsigned c = 0; c < kMagazineCount; ++c) {
    const auto m = magazine(c);
    const Tuning& t = tuning_[c];
    if (m.head < m.base || m.head > m.base + t.capacity || m.low < m.base || m.low > m.head)
      return false;
    if (m.high < m.head || m.high > m.base + t.capacity) return false;
    for (void** slot = m.base; slot < m.head; ++slot) {
      // A block's span may have become mixed while it waited here.
      if (class_at(*slot) != c && class_at(*slot) != kMixedClass) return false;
    }
  }
  return true;
}

}  // namespace loam
