#include "small/small_heap.h"

#include "base/cpu.h"

namespace loam {

constinit SmallHeap default_small_heap;

namespace {

// The most slots that may wait in one remote queue. With more, the sender itself waits for the lock
// and empties the queue, so that no blocks are stranded if no other thread uses the bin. 64 KiB of
// blocks, at least a few batches.
unsigned queue_limit(unsigned size_class) {
  const unsigned by_bytes = (64u << 10) / class_info(size_class).bytes;
  return by_bytes < 2 * RemoteBatch::kPointers ? 2 * RemoteBatch::kPointers : by_bytes;
}

// The time between two looks at waiting batches: some time slices of a busy machine's scheduler. A
// batch that no thread took meanwhile goes back to its bin. So it waits for as long as a freed run
// at most.
constexpr uint64_t kLookMs = kParkedMs / 2;

// The most looks of one tick. Chosen: 64 purges inside spans, or 1,024 spans without a purge, take
// 0.3 to 0.8 ms. That is the pause of the call that runs the tick, and a hundredth of the running
// time while there is memory to purge.
constexpr unsigned kLooksATick = 64 * kLooksAPurge;
// The most of these looks under the lock of one class.
constexpr unsigned kLooksALock = 8 * kLooksAPurge;

}  // namespace

void SmallHeap::use_more_bins(unsigned size_class) {
  Lock lock(bins_[size_class].mutex());  // it guards the number of bins
  const unsigned doublings = doublings_[size_class].load(std::memory_order_relaxed);
  const unsigned count = 1u << doublings;
  if (count == MixedHeap::kHomes) return;
  has_more_bins_.store(true, std::memory_order_relaxed);
  bins_[size_class].keep_empty_locked(kEmptyBytes, size_class);
  for (unsigned s = count; s < 2 * count; ++s) {
    bin_at(size_class, s).set_number(s);
    bin_at(size_class, s).keep_empty_locked(kEmptyBytes, size_class);
  }
  // release pairs with the acquire in bins_in_use()
  doublings_[size_class].store(static_cast<uint8_t>(doublings + 1), std::memory_order_release);
}

void SmallHeap::make_room_for_runs(Pages run) {
  release_empty_spans();
  // Neighbouring spans may lend one run together, but not a long run.
  if (run.count <= kMaxSpanPages) static_cast<void>(lend_pages(true, 0));
}

void SmallHeap::release_empty_spans() {
  if (LOAM_LIKELY(!has_more_bins_.load(std::memory_order_relaxed))) return;
  for_each_class([&](unsigned c) {
    if (bins_in_use(c) == 1) return;
    for_each_bin(c, [&](Bin& bin) {
      if (!bin.has_empty_hint()) return;
      Lock lock(bin.mutex());
      static_cast<void>(bin.release_empty_locked(pages(), c, ~0u));
    });
  });
}

void SmallHeap::transfer(unsigned size_class, void* const* pointers, unsigned count,
                         const void* giver) {
  Bin& bin = bins_[size_class];
  // Checks that must know every free block look only into caches and spans, so the stash is not
  // used then.
  if ((bins_in_use(size_class) == 1 && !bin.stash().wants(giver)) || pure_ ||
      slots_are_chosen_at_random()) {
    return give(size_class, pointers, count, Wait::kNo);
  }
  // The slots are counted before another thread can take them.
  const size_t bytes = count * size_t{class_info(size_class).bytes};
  if (LOAM_LIKELY(stash_room_.take(bytes, pages().hints().used_bytes()))) {
    bin.remote().count_others(count);
    if (LOAM_LIKELY(bin.stash().put(size_class, pointers, count))) return;
    bin.remote().discount_others(count);
    stash_room_.give(bytes);
  }
  give(size_class, pointers, count, Wait::kNo);
}

void SmallHeap::empty_stash(unsigned size_class, bool all) {
  Bin& bin = bins_[size_class];
  TransferStash::Batch* const idle = bin.stash().take_idle(all);
  if (idle == nullptr && !all) return;
  size_t blocks = 0;
  for (TransferStash::Batch* batch = idle; batch != nullptr; batch = batch->next) {
    blocks += batch->count;
    give(size_class, batch->pointers(), static_cast<unsigned>(batch->count), Wait::kYes);
  }
  bin.remote().discount_others(static_cast<uint32_t>(blocks));
  stash_room_.give(blocks * class_info(size_class).bytes);
  bin.stash().release(size_class, idle);
}

void SmallHeap::tick() {
  const uint64_t now = os::now_coarse_ms();
  uint64_t last = looks_.last_ms.load(std::memory_order_relaxed);
  if (LOAM_LIKELY(now - last < kLookMs)) return;
  // relaxed: any one of the calling threads does the look
  if (!looks_.last_ms.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
  for (unsigned c = 1; c < split_classes.end() && stash_room_.held() != 0; ++c) {
    if (bins_[c].stash().blocks() != 0) empty_stash(c, false);
  }
  purge_unwanted(now);
}

void SmallHeap::purge_unwanted(uint64_t now_ms) {
  uint64_t began = looks_.period_began_ms.load(std::memory_order_relaxed);
  const bool period_ends =
      now_ms - began >= IdleSlots::kPeriodMs &&
      looks_.period_began_ms.compare_exchange_strong(began, now_ms, std::memory_order_relaxed);
  // Cleared before the look, because a bin that begins to wait during the look sets it again.
  pages().hints().set_spans_wait(false);
  const unsigned first = looks_.next_to_purge.load(std::memory_order_relaxed);
  bool some_wait = false;
  unsigned looks = kLooksATick;
  const unsigned classes = split_classes.end();
  for (unsigned i = 0; i < classes; ++i) {
    const unsigned c = (first + i) % classes;
    if (!has_own_spans(c)) continue;
    for_each_bin(c, [&](Bin& bin) {
      if (LOAM_LIKELY(!bin.is_watched(c))) return;
      some_wait = true;
      // If the lock is held, another thread works with the class, and the next look suffices. The
      // period then is longer.
      if (period_ends && bin.mutex().try_lock()) {
        bin.end_period_locked(class_info(c).bytes);
        bin.mutex().unlock();
      }
      while (looks >= kLooksALock && bin.mutex().try_lock()) {
        looks_.next_to_purge.store(c, std::memory_order_relaxed);
        const unsigned left = bin.purge_unwanted_locked(pages(), c, kLooksALock);
        bin.mutex().unlock();
        looks -= kLooksALock - left;
        if (left >= kLooksAPurge) break;
      }
    });
  }
  if (mixed_.lend_unwanted(period_ends, looks)) some_wait = true;
  if (some_wait) pages().hints().set_spans_wait(true);
}

// If a class has several bins, slots of the giver's own bin are best returned there. Slots of
// another bin are wanted if other threads take from that bin.
bool SmallHeap::wants_others(unsigned size_class, const void* giver, const void* first,
                             unsigned home) const {
  const unsigned bins = bins_in_use(size_class);
  const unsigned bin = SpanFinder().at(reinterpret_cast<uintptr_t>(first))->bin_number();
  if (bin == (home & (bins - 1)) || bin >= bins) return false;
  return bin_at(size_class, bin).stash().wants(giver);
}

LOAM_NOINLINE void SmallHeap::give_by_bins(unsigned size_class, void* const* pointers,
                                           unsigned count, Wait wait) {
  const unsigned bins = bins_in_use(size_class);
  constexpr unsigned kPiece = 128;
  const auto bin_named_by = [bins](const Span* span) {
    const unsigned bin = span->bin_number();
    return LOAM_LIKELY(bin < bins)
               ? bin
               : 0;  // the pointer is to no block of the class: reported under any bin's lock
  };
  SpanFinder finder;
  unsigned same = 0;  // the slots of `bin`, from the first on; the slots of one bin stay
                      // together, because they may make up whole spans
  unsigned bin = 0;
  while (same != count) {
    // All records are prefetched together, and the record of neighbours only once.
    Span* found[kPiece];
    unsigned records = 0;
    uintptr_t page = UINTPTR_MAX;  // no address has this page
    void* const* const piece = pointers + same;
    const unsigned here = count - same < kPiece ? count - same : kPiece;
    for (unsigned i = 0; i < here; ++i) {
      const uintptr_t address = reinterpret_cast<uintptr_t>(piece[i]);
      if (address >> kPageShift == page) continue;
      page = address >> kPageShift;
      found[records] = finder.at(address);
      prefetch_for_write(found[records++]);
    }
    if (same == 0) bin = bin_named_by(finder.at(reinterpret_cast<uintptr_t>(piece[0])));
    unsigned of_bin = 0;
    while (of_bin < records && bin_named_by(found[of_bin]) == bin) ++of_bin;
    if (LOAM_LIKELY(of_bin == records)) {
      same += here;
      continue;
    }
    if (same != 0) give_to(bin_at(size_class, bin), size_class, pointers, same, wait);
    uint8_t bins_of[kPiece];
    unsigned some = 0;  // the bins that get slots
    for (unsigned i = 0; i < here; ++i) {
      bins_of[i] =
          static_cast<uint8_t>(bin_named_by(finder.at(reinterpret_cast<uintptr_t>(piece[i]))));
      some |= 1u << bins_of[i];
    }
    for (; some != 0; some &= some - 1) {
      const unsigned its_bin = lowest_bit(some);
      void* its[kPiece];
      unsigned n = 0;
      for (unsigned i = 0; i < here; ++i) {
        its[n] = piece[i];
        n += bins_of[i] == its_bin;
      }
      give_to(bin_at(size_class, its_bin), size_class, its, n, wait);
    }
    pointers = piece + here;
    count -= same + here;
    same = 0;
  }
  if (same != 0) give_to(bin_at(size_class, bin), size_class, pointers, same, wait);
}

void SmallHeap::give(unsigned size_class, void* const* pointers, unsigned count, Wait wait) {
  if (LOAM_UNLIKELY(bins_in_use(size_class) != 1))
    return give_by_bins(size_class, pointers, count, wait);
  give_to(bins_[size_class], size_class, pointers, count, wait);
}

void SmallHeap::give_to(Bin& bin, unsigned size_class, void* const* pointers, unsigned count,
                        Wait wait) {
  if (wait == Wait::kNo && !bin.mutex().try_lock()) {
    unsigned sent = 0;
    while (sent < count) {
      RemoteBatch* batch = remote_pool.take();
      if (batch == nullptr) break;
      while (batch->count < RemoteBatch::kPointers && sent < count) {
        batch->pointers[batch->count++] = pointers[sent++];
      }
      bin.remote().push(batch);
    }
    if (sent == count && bin.remote().queued() <= queue_limit(size_class) + bin.stash().blocks())
      return;
    bin.mutex().lock();
    pointers += sent;
    count -= sent;
    RemoteBatch* emptied = bin.drain_locked(pages(), mixed_, size_class);
    bin.give_locked(pages(), mixed_, size_class, pointers, count);
    bin.mutex().unlock();
    remote_pool.give(emptied);
    return;
  }
  if (wait == Wait::kYes) bin.mutex().lock();
  bin.give_locked(pages(), mixed_, size_class, pointers, count);
  RemoteBatch* emptied = bin.drain_locked(pages(), mixed_, size_class);
  bin.mutex().unlock();
  remote_pool.give(emptied);
}

// The slots in use from which two neighbouring classes are better apart. Four classes are better as
// two from half as many. Measured: between 300 and 640 all do as well (decision 98).
constexpr size_t kManySlots = 512;

// Requests of random sizes all fit the lower half in one look of 16. So only the looks of the first
// window are believed. All but the largest class they fit more often: a whole window is believed.
void SmallHeap::separate_classes(unsigned size_class, size_t used,
                                 const SplitClasses::Requests& seen) {
  for (unsigned apart = kMergedClasses / 2; apart != 0; apart /= 2) {
    if (!split_classes.has_merged(size_class, apart)) continue;
    const unsigned lower = size_class - apart;
    const bool fit_lower = seen.largest <= kSizeClasses[lower].bytes,
               fit_finer = seen.largest <= kSizeClasses[size_class - 1].bytes;
    const bool fit = seen.is_window ? fit_finer : seen.is_first && fit_lower;
    if (!fit && used * apart < kManySlots) return;
    split_classes.separate(size_class, lower);
    if (!fit) return;
    if (fit_lower) size_class = lower;
  }
}

LOAM_COLD void SmallHeap::look_at_requests(unsigned size_class) {
  const SplitClasses::Requests seen = split_classes.look(size_class);
  const bool is_merged = split_classes.has_merged(size_class, 1);
  if (!is_merged && !seen.is_window) return;
  size_t used = 0;
  for_each_bin(size_class, [&](const Bin& bin) { used += bin.used_slots_hint(size_class); });
  if (is_merged) return separate_classes(size_class, used, seen);
  const SizeClassInfo& whole = class_info(size_class);
  const SizeClassInfo finer = shape_of(seen.largest);
  // The bytes of the span for each slot, with the tail.
  const size_t bytes = Pages(whole.pages).bytes() / whole.slots,
               fewer = Pages(finer.pages).bytes() / finer.slots;
  if (bytes - bytes / kLeastSavedShare < fewer) return;
  if (used * (bytes - fewer) < kLeastSavedBytes) return;
  // If add() refuses, later requests ask again.
  static_cast<void>(split_classes.add(size_class, finer));
}

Pages SmallHeap::compact(const GoOn* go_on) {
  Pages purged;
  bool may_go_on = true;
  for_each_class([&](unsigned c) {
    may_go_on = may_go_on && (go_on == nullptr || (*go_on)());
    if (!may_go_on) return;
    empty_stash(c, true);
    for_each_bin(c, [&](Bin& bin) {
      in_drained(bin, c, [&] { purged += bin.compact_locked(pages(), c); });
    });
  });
  return may_go_on ? purged + mixed_.compact() : purged;
}

// Nothing is noted while another thread is at it.
void SmallHeap::note_use(Fall& fall) {
  if (falls_.is_busy.exchange(true, std::memory_order_acquire)) return;
  const uint64_t now = os::now_coarse_ms();
  if (now - falls_.round_began_ms >= PurgePolicy::kHoldMs) {
    falls_.came_back.end_round();
    if (now - falls_.round_began_ms >= 2 * PurgePolicy::kHoldMs) falls_.came_back.end_round();
    falls_.round_began_ms = now;
    falls_.use.forget();
  }
  falls_.came_back.note(falls_.use.note(fall.used));
  fall.fallen = falls_.use.fallen();
  fall.came_back = falls_.came_back.most();
  falls_.is_busy.store(false, std::memory_order_release);
}

SmallHeap::Fall SmallHeap::look_at_fall() {
  Fall fall{mixed_.fallen_bytes_hint(), 0, 0, 0};
  size_t hollow = 0;
  for_each_class([&](unsigned c) {
    for_each_bin(c, [&](const Bin& bin) {
      fall.bytes += bin.fallen_bytes_hint(c);
      fall.used += bin.used_slots_hint(c) * class_info(c).bytes;
      hollow += bin.unbacked_pages_hint();
    });
  });
  pages().hints().set_hollow(Pages(hollow));
  note_use(fall);
  return fall;
}

void SmallHeap::give_back_fall() {
  if (falls_.is_busy.exchange(true, std::memory_order_acquire)) return;
  constexpr unsigned kLooks = 4 * kLooksALock;
  falls_.use.give_back(falls_.use.fallen());
  size_t gone = 0;
  for_each_class([&](unsigned c) {
    if (bins_[c].stash().blocks() != 0) empty_stash(c, true);
    for_each_bin(c, [&](Bin& bin) {
      if (!bin.remote().empty() || bin.has_empty_hint()) {
        in_drained(bin, c, [&] {
          if (bin.fallen_bytes_hint(c) == 0)
            static_cast<void>(bin.release_empty_locked(pages(), c, ~0u));
        });
      }
      if (bin.fallen_bytes_hint(c) == 0 || !bin.mutex().try_lock()) return;
      const size_t before = bin.unbacked_pages_hint();
      bin.begin_fall_locked();
      while (bin.purge_unwanted_locked(pages(), c, kLooks) < kLooksAPurge) {
        bin.mutex().unlock();
        bin.mutex().lock();
      }
      const size_t after = bin.unbacked_pages_hint();
      if (after > before) gone += after - before;
      bin.mutex().unlock();
    });
  });
  pages().hints().set_hollow(pages().hints().hollow() + Pages(gone));
  mixed_.give_back_fall(kLooks);
  falls_.is_busy.store(false, std::memory_order_release);
}

BinStats SmallHeap::stats(unsigned size_class) {
  BinStats s{};
  for_each_bin(size_class, [&](Bin& bin) {
    Lock lock(bin.mutex());
    bin.add_stats_locked(&s);
  });
  s.slots = s.spans * class_info(size_class).slots - s.absent_slots;
  return s;
}

bool SmallHeap::is_valid() {
  bool valid = true;
  for_each_class([&](unsigned c) {
    for_each_bin(c, [&](Bin& bin) {
      Lock lock(bin.mutex());
      valid = valid && bin.is_valid_locked(c);
    });
    valid = valid && bins_[c].stash().is_valid(c);
  });
  return valid && mixed_.is_valid();
}

void SmallHeap::lock_all() {
  split_classes.mutex().lock();  // so the number of classes does not change until they are unlocked
  // The lock of a class's first bin keeps more bins from coming into use.
  for_each_class([&](unsigned c) {
    bins_[c].mutex().lock();
    for (unsigned s = 1; s < bins_in_use(c); ++s) bin_at(c, s).mutex().lock();
  });
  for_each_class([&](unsigned c) { bins_[c].stash().mutex().lock(); });
  mixed_.lock_all();
}
void SmallHeap::unlock_all() {
  mixed_.unlock_all();
  for_each_class([&](unsigned c) { bins_[c].stash().mutex().unlock(); });
  for_each_class([&](unsigned c) {
    for (unsigned s = bins_in_use(c); s-- != 0;) bin_at(c, s).mutex().unlock();
  });
  split_classes.mutex().unlock();
}
bool SmallHeap::is_any_locked() {
  bool any = split_classes.mutex().is_locked() || mixed_.is_any_locked();
  for_each_class([&](unsigned c) {
    any |= bins_[c].stash().mutex().is_locked();
    for_each_bin(c, [&](Bin& bin) { any |= bin.mutex().is_locked(); });
  });
  return any;
}
void SmallHeap::reset_locks_after_fork() {
  split_classes.mutex().reset_after_fork();
  size_t stashed = 0;
  for_each_class([&](unsigned c) {
    bins_[c].stash().mutex().reset_after_fork();
    const uint32_t blocks = bins_[c].stash().blocks();
    for (unsigned s = 0; s < bins_in_use(c); ++s) {
      bin_at(c, s).mutex().reset_after_fork();
      bin_at(c, s).remote().recount_after_fork(s == 0 ? blocks : 0);
    }
    stashed += blocks * size_t{class_info(c).bytes};
  });
  stash_room_.recount_after_fork(stashed);
  falls_.use = {};  // a thread that is gone may have been at it
  falls_.is_busy.store(false, std::memory_order_relaxed);
  mixed_.reset_locks_after_fork();
}

}  // namespace loam
