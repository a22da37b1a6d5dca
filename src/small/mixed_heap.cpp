#include "small/mixed_heap.h"

#include "base/cpu.h"

namespace loam {

template <class Do>
void MixedHeap::for_each_locked(Do act) {
  if (!used_.load(std::memory_order_relaxed)) return;  // a look at the parts would touch a page
  const unsigned count = parts_in_use();
  for (unsigned s = 0; s < count; ++s) {
    Lock lock(parts_[s].mutex());
    act(parts_[s]);
  }
}

void MixedHeap::use_more_parts() {
  Lock lock(parts_[0].mutex());  // it guards the number of parts
  const uint8_t doublings = doublings_.load(std::memory_order_relaxed);
  // relaxed: a part is ready for use from the start
  if (1u << doublings != kHomes)
    doublings_.store(static_cast<uint8_t>(doublings + 1), std::memory_order_relaxed);
}

template <class Act>
LOAM_INLINE unsigned MixedHeap::in_part(MixedPart& part, Act act) {
  unsigned result;
  bool is_crowded;
  {
    Lock lock(part.mutex());
    result = act();
    is_crowded = part.is_crowded_locked();
  }
  if (LOAM_UNLIKELY(is_crowded)) use_more_parts();
  return result;
}

unsigned MixedHeap::take_from(unsigned home, Refill& refill, From from) {
  if (!serves(refill.size_class)) return 0;
  const bool makes_some =
      from == From::kLent || (from == From::kBacked && pages().hints().pages_wait());
  if (!makes_some && !used_.load(std::memory_order_relaxed)) return 0;
  if (!makes_some && !may_serve(refill.size_class, home)) return 0;
  MixedPart& part = part_of(home);
  const unsigned got = in_part(part, [&] { return part.take_locked(pages(), refill, from); });
  if (got != 0 && LOAM_UNLIKELY(!used_.load(std::memory_order_relaxed)))
    used_.store(true, std::memory_order_relaxed);
  return got;
}

unsigned MixedHeap::take_from_others(Refill& refill) {
  const unsigned count = parts_in_use();
  for (unsigned i = 1; i < count; ++i) {
    if (const unsigned got = take_from(refill.home + i, refill, From::kSpans)) return got;
  }
  return 0;
}

bool MixedHeap::convert(Span* span, unsigned home, Pages* lent) {
  if (LOAM_UNLIKELY(!used_.load(std::memory_order_relaxed)))
    used_.store(true, std::memory_order_relaxed);
  return part_of(home).convert(pages(), span, lent);
}

// The part that the span's record names; null if it names none. A guess, because the part's lock
// is not held. For the span of a live block it is right.
LOAM_INLINE MixedPart* MixedHeap::part_named_by(const Span* span) {
  MixedPart* const named =
      static_cast<MixedPart*>(__atomic_load_n(&span->mixed.part, __ATOMIC_RELAXED));
  const uintptr_t offset = reinterpret_cast<uintptr_t>(named) - reinterpret_cast<uintptr_t>(parts_);
  return LOAM_LIKELY(offset < sizeof parts_ && offset % sizeof *parts_ == 0) ? named : nullptr;
}

// For a pointer that is in no mixed span, by its span's record, this is a misuse, unless the record
// changed meanwhile.
LOAM_COLD void MixedHeap::give_one(void* pointer, Mutex* held) {
  const unsigned count = parts_in_use();
  for (unsigned s = 0; s < count; ++s) {
    MixedPart& part = parts_[s];
    Lock lock(part.mutex());
    Span* span = SpanFinder().at(reinterpret_cast<uintptr_t>(pointer));
    part.set_outer(held);
    const unsigned strangers = part.give_locked(pages(), &pointer, &span, 1, nullptr);
    part.set_outer(nullptr);
    if (strangers == 0) return;
  }
  report_misuse("free of a block that is free already, or of memory that is no block", pointer,
                held);
}

LOAM_INLINE void MixedHeap::give_to(MixedPart& part, void** pointers, Span** spans, unsigned count,
                                    Kept* kept) {
  const unsigned strangers =
      in_part(part, [&] { return part.give_locked(pages(), pointers, spans, count, kept); });
  for (unsigned i = 0; LOAM_UNLIKELY(i < strangers); ++i) give_one(pointers[i], nullptr);
}

LOAM_NOINLINE void MixedHeap::give_by_parts(void** pointers, Span** spans, unsigned count,
                                            Kept* kept) {
  while (count != 0) {
    MixedPart* const part = part_named_by(spans[0]);
    void* its_pointers[kPiece];
    Span* its_spans[kPiece];
    unsigned its = 0, others = 0;
    for (unsigned i = 0; i < count; ++i) {
      void* const pointer = pointers[i];
      Span* const span = spans[i];
      const bool is_its = part_named_by(span) == part;
      its_pointers[its] = pointers[others] = pointer;
      its_spans[its] = spans[others] = span;
      its += is_its;
      others += !is_its;
    }
    // Pointers whose spans name no part are handled under any part's lock.
    give_to(part != nullptr ? *part : parts_[0], its_pointers, its_spans, its, kept);
    count = others;
  }
}

void MixedHeap::give(void* const* pointers, unsigned count, Kept* kept) {
  LOAM_ASSERT(kept == nullptr || count <= kPiece);
  while (count != 0) {
    const unsigned here = count < kPiece ? count : kPiece;
    // A free at a random address misses the cache at the record, at the tables, and at the span's
    // neighbours in a list. So each of these is prefetched for a whole piece of blocks at once. A
    // piece is small enough that the lines are still in the cache when they are used. The first two
    // prefetches happen before the lock is taken.
    void* its[kPiece];
    Span* spans[kPiece];
    SpanFinder finder;
    for (unsigned i = 0; i < here; ++i) {
      its[i] = pointers[i];
      spans[i] = finder.at(reinterpret_cast<uintptr_t>(its[i]));
      prefetch_for_write(spans[i]);
    }
    for (unsigned i = 0; i < here; ++i) MixedPart::ask_for_tables(spans[i], its[i]);
    parts_in_use() == 1 ? give_to(parts_[0], its, spans, here, kept)
                        : give_by_parts(its, spans, here, kept);
    pointers += here;
    count -= here;
  }
}

size_t MixedHeap::block_bytes(uintptr_t address) {
  // Pages of a part get and lose this class byte only under its lock. So the byte and the record
  // stay true until the lock is released, even if the block is freed. (Misaligned addresses have no
  // class.)
  size_t bytes = 0;
  const auto look = [&](MixedPart& part) {
    Lock lock(part.mutex());
    if (class_at(reinterpret_cast<const void*>(address)) != kMixedClass) return false;
    const Span* const span = SpanFinder().at(address);
    if (!part.holds_locked(span)) return false;
    bytes = MixedPart::block_bytes_locked(span, address);
    return true;
  };
  if (class_at(reinterpret_cast<const void*>(address)) != kMixedClass) return 0;
  MixedPart* const named = part_named_by(SpanFinder().at(address));
  if (LOAM_LIKELY(named != nullptr) && LOAM_LIKELY(look(*named))) return bytes;
  const unsigned count = parts_in_use();
  for (unsigned s = 0; s < count; ++s) {
    if (look(parts_[s])) return bytes;
  }
  return 0;
}

size_t MixedHeap::block_bytes_locked(uintptr_t address) {
  if (class_at(reinterpret_cast<const void*>(address)) != kMixedClass) return 0;
  return MixedPart::block_bytes_locked(span_at(address), address);
}

Pages MixedHeap::compact() {
  Pages purged;
  for_each_locked([&](MixedPart& part) { purged += part.compact_locked(); });
  return purged;
}

Pages MixedHeap::lend(Pages wanted, size_t more_than) {
  if (!used_.load(std::memory_order_relaxed)) return Pages(0);
  MixedPart* lender = nullptr;
  const unsigned count = parts_in_use();
  for (unsigned s = 0; s < count; ++s) {
    const size_t bytes = parts_[s].lendable_bytes_hint();
    if (bytes <= more_than) continue;
    more_than = bytes;
    lender = &parts_[s];
  }
  if (lender == nullptr) return Pages(0);
  Lock lock(lender->mutex());
  return lender->lend_locked(pages(), wanted);
}

bool MixedHeap::lend_unwanted(bool period_ends, unsigned looks) {
  if (!used_.load(std::memory_order_relaxed)) return false;
  bool some_wait = false;
  const unsigned count = parts_in_use();
  for (unsigned s = 0; s < count; ++s) {
    MixedPart& part = parts_[s];
    if (!part.is_watched()) continue;
    some_wait = true;
    // As with bins: if the lock is held, another thread works with the part, and the next look
    // suffices.
    if (!part.mutex().try_lock()) continue;
    if (period_ends) part.end_period_locked();
    looks = part.lend_unwanted_locked(pages(), looks);
    part.mutex().unlock();
  }
  return some_wait;
}

size_t MixedHeap::fallen_bytes_hint() const {
  if (!used_.load(std::memory_order_relaxed)) return 0;
  size_t bytes = 0;
  const unsigned count = parts_in_use();
  for (unsigned s = 0; s < count; ++s) bytes += parts_[s].fallen_bytes_hint();
  return bytes;
}

void MixedHeap::give_back_fall(unsigned looks) {
  if (!used_.load(std::memory_order_relaxed)) return;
  const unsigned count = parts_in_use();
  for (unsigned s = 0; s < count; ++s) {
    MixedPart& part = parts_[s];
    if (part.fallen_bytes_hint() == 0 || !part.mutex().try_lock()) continue;
    part.begin_fall_locked();
    while (part.lend_unwanted_locked(pages(), looks) < kLooksAPurge) {
      part.mutex().unlock();
      part.mutex().lock();
    }
    part.mutex().unlock();
  }
}

MixedStats MixedHeap::stats() {
  MixedStats sum{};
  sum.parts = parts_in_use();
  for_each_locked([&](const MixedPart& part) { part.add_stats_locked(&sum); });
  return sum;
}

size_t MixedHeap::blocks(unsigned size_class) {
  size_t sum = 0;
  for_each_locked([&](const MixedPart& part) { sum += part.blocks_locked(size_class); });
  return sum;
}

bool MixedHeap::is_valid() {
  bool valid = true;
  for_each_locked([&](const MixedPart& part) { valid = valid && part.is_valid_locked(); });
  return valid;
}

// The first part's lock keeps more parts from coming into use.
void MixedHeap::lock_all() {
  parts_[0].mutex().lock();
  for (unsigned s = 1; s < parts_in_use(); ++s) parts_[s].mutex().lock();
}
void MixedHeap::unlock_all() {
  for (unsigned s = parts_in_use(); s-- != 0;) parts_[s].mutex().unlock();
}
bool MixedHeap::is_any_locked() {
  bool any = false;
  for (unsigned s = 0; s < parts_in_use(); ++s) any |= parts_[s].mutex().is_locked();
  return any;
}
void MixedHeap::reset_locks_after_fork() {
  for (unsigned s = 0; s < parts_in_use(); ++s) parts_[s].mutex().reset_after_fork();
}

}  // namespace loam
