// The checks of freed pointers in a thread's cache: a block must begin there, and it must not be
// free. With default options a share of them is checked, in calls that are slow anyway (decision
// 69); with LOAM_CHECK_FREE=full each is checked at once.
#include <atomic>

#include "cache/cache_registry.h"
#include "cache/thread_cache.h"

namespace loam {

namespace {

// Each look checks one of this many pointers in its magazine, and one more. Chosen: in 100,000
// frees each is checked six times or more. More checks slow programs with long magazines; fewer let
// a wrong pointer be handed out for longer (decision 69).
constexpr unsigned kCheckedShare = 64;
// One of this many pointers in a batch for another thread is checked, because no bin sees the
// batch. Chosen: four instructions for each block; a wrong pointer that goes to and fro is found
// within some twenty journeys.
constexpr unsigned kCheckedOfBatch = 4;

// Whether a pointer that was freed as a block of the class begins no block, or a free one. A hint,
// without a lock: a live block keeps its span, and the span keeps its first page and its class. But
// the span may become partial, or mixed, at any moment. Blocks of mixed spans are checked only
// under their lock.
LOAM_INLINE bool seems_wrong(unsigned size_class, const SizeClassInfo& info, const void* block,
                             const Span* span) {
  constexpr uint32_t kClassAndKind = Span::label_of(SizeClass(0xff), 0, SpanKind(0xff), 0);
  const uint32_t label = span->label() & kClassAndKind;
  if (LOAM_UNLIKELY(label != Span::label_of(SizeClass(size_class), 0, SpanKind::kSmall, 0)) &&
      label != Span::label_of(SizeClass(size_class), 0, SpanKind::kPartial, 0)) {
    return span->run_kind() != SpanKind::kMixed;
  }
  // As mark_slot() in small/bin.cpp.
  const uint64_t quotient = uint64_t{offset_in(span, block)} * info.reciprocal;
  if (LOAM_UNLIKELY(static_cast<uint32_t>(quotient) >= info.reciprocal)) return true;
  const uint64_t slot = quotient >> 32;
  if (LOAM_UNLIKELY(slot >= info.slots)) return true;
  return ((__atomic_load_n(&span->free_bits[slot >> 6], __ATOMIC_RELAXED) >> (slot & 63)) & 1) != 0;
}

}  // namespace

// Looks come at irregular distances, because in a program that frees in rounds regular looks would
// always meet the same block.
LOAM_INLINE void ThreadCache::begin_next_look() {
  static_assert((kLookJitter & (kLookJitter - 1)) == 0 && kLookJitter <= kFreesPerLook,
                "chance's top bits; pushed_ >= 0");
  const uint64_t total = pushed();
  chance_ = chance_ * 1664525 + 1013904223;  // Knuth and Lewis
  const uint32_t frees = kFreesPerLook - kLookJitter / 2 +
                         static_cast<uint32_t>((uint64_t{chance_} * kLookJitter) >> 32);
  __atomic_store_n(&pushed_, total + frees - kFreesPerLook, __ATOMIC_RELAXED);
  __atomic_store_n(&until_look_, frees, __ATOMIC_RELAXED);
}

// False where the freed pointer seems to be no block; the bin has it then.
bool ThreadCache::look(unsigned size_class, void* block) {
  begin_next_look();
  poll_probes();
  if (LOAM_UNLIKELY(heads_[kMixedClass] != bases_[kMixedClass])) check_one_mixed();
  if (LOAM_UNLIKELY(!has_own_spans(size_class))) return true;
  const Magazine m = magazine(size_class);
  const SizeClassInfo& info = class_info(size_class);
  SpanFinder spans;
  if (const unsigned held = static_cast<unsigned>(m.head - m.base); held != 0) {
    // A number that is independent of the distance: without the bits that chose it.
    unsigned at = static_cast<unsigned>((uint64_t{chance_ * kLookJitter} * held) >> 32);
    for (unsigned left = 1 + held / kCheckedShare; left != 0; --left) {
      void** const place = m.base + at;
      if (LOAM_UNLIKELY(seems_wrong(size_class, info, *place,
                                    spans.at(reinterpret_cast<uintptr_t>(*place))))) {
        send_home(size_class, place);
        break;
      }
      if (++at == held) at = 0;
    }
  }
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
  void** const place = m.base + pushed() / kFreesPerLook % static_cast<size_t>(m.head - m.base);
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
  __atomic_store_n(&m.head, top, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (place != top) {
    void**& recent = recent_[recent_index(moved)];
    if (recent == top) recent = place;
    __atomic_store_n(place, moved, __ATOMIC_RELEASE);
  }
  if (armed) arm(m);
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

// Checks a share of the blocks in a batch for another thread. Returns the number of remaining
// blocks.
unsigned ThreadCache::check_share(unsigned size_class, void** blocks, unsigned count) const {
  const SizeClassInfo& info = class_info(size_class);
  SpanFinder spans;
  for (unsigned i = (chance_ ^ count) % kCheckedOfBatch; i < count; i += kCheckedOfBatch) {
    void* block = blocks[i];
    if (LOAM_LIKELY(
            !seems_wrong(size_class, info, block, spans.at(reinterpret_cast<uintptr_t>(block)))))
      continue;
    blocks[i] = blocks[--count];
    give_home(size_class, &block, 1, SmallHeap::Wait::kYes);
  }
  return count;
}

bool ThreadCache::is_block_in_use(unsigned size_class, const void* block, bool freed) {
  if (size_class != kMixedClass) {
    const SizeClassInfo& info = class_info(size_class);
    const Span* span = span_at(reinterpret_cast<uintptr_t>(block));
    const size_t offset =
        span == nullptr ? 0 : reinterpret_cast<uintptr_t>(block) - span_base(span);
    const size_t slot = offset / info.bytes;
    if (span == nullptr || !begins_slot(info, offset)) {
      report_misuse("free of a pointer into the middle of a block", block);
      return false;
    }
    // A live block's bit is clear and no thread writes it, so reading it needs no lock.
    const uint64_t word = __atomic_load_n(&span->free_bits[slot / 64], __ATOMIC_RELAXED);
    freed =
        freed || ((word >> (slot & 63)) & 1) != 0 || cache_registry.any_holds(size_class, block);
  }
  if (LOAM_LIKELY(!freed)) return true;
  report_misuse("double free", block);
  return false;
}

}  // namespace loam
