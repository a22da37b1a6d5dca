#include "small/small_heap.h"

#include "base/cpu.h"
#include "small/remote_pool.h"

namespace loam {

constinit SmallHeap default_small_heap;

namespace {

// Slots that may wait in one remote queue before the sender itself waits for the lock and empties
// it, so that an idle owner strands nothing: 64 KiB of blocks, at least a few batches.
unsigned queue_limit(unsigned size_class) {
  const unsigned by_bytes = (64u << 10) / class_info(size_class).bytes;
  return by_bytes < 2 * RemoteBatch::kPointers ? 2 * RemoteBatch::kPointers : by_bytes;
}

// Free ranges that one donation brings, about: several refills' worth.
constexpr size_t kDonationBytes = size_t{32} << 10;
// A search for a donor looks at every bin: once in so many growths that found none.
constexpr unsigned kGrowthsBetweenDonations = 16;

// Pages that sparse spans lend at once, about; a search for a lender, as for a donor.
constexpr Pages kLentPages{128};
constexpr unsigned kGrowthsBetweenLends = 16;
// Such a search reads bins that a small program never touched. A heap of less has little to lend.
constexpr size_t kLeastLendingHeap = size_t{2} << 20;

// Whether it is time for a search again; a growth that finds that it is not counts.
bool is_time(std::atomic<unsigned>& skipped, unsigned between) {
  const unsigned growths = skipped.load(std::memory_order_relaxed);
  if (growths >= between) return true;
  skipped.store(growths + 1, std::memory_order_relaxed);
  return false;
}

// Between two looks at what waits; a batch that nobody wanted meanwhile goes home. Chosen: some
// time slices of a busy machine's scheduler.
constexpr uint64_t kLookMs = 50;

// Chosen: 64 purges inside spans, or 1,024 spans without one, are 0.3 to 0.8 ms: the pause of the
// call that happens to pay, and a hundredth of the running time while there is anything to purge.
constexpr unsigned kLooksATick = 64 * kLooksAPurge;
// ... of which so many under one class's lock.
constexpr unsigned kLooksALock = 8 * kLooksAPurge;

// A refill of so many blocks is used soon: whose class is one of many gets shorter ones, and lines
// asked for then push others out before their turn. Measured (decision 26).
constexpr unsigned kUsedSoon = 64;

// Blocks that lie anywhere: no hardware foresees their lines, but asked for at once, these come
// side by side. The last block is used first.
LOAM_INLINE void ask_for_lines(unsigned size_class, void* const* blocks, unsigned count) {
  // Smaller ones share lines, so there are fewer than blocks.
  if (count < kUsedSoon || class_info(size_class).bytes < kCacheLine) return;
  for (unsigned i = count; i-- != 0;) prefetch_for_write(blocks[i]);
}

}  // namespace

template <class Act>
LOAM_INLINE void SmallHeap::in_drained(Bin& bin, unsigned size_class, Act act) {
  RemoteBatch* emptied;
  {
    Lock lock(bin.mutex());
    emptied = bin.drain_locked(pages(), mixed_, size_class);
    act();
  }
  remote_pool.give(emptied);
}

unsigned SmallHeap::take_from(Bin& bin, unsigned size_class, void** out, unsigned wanted,
                              PageHeap::Source source, unsigned enough, bool short_too) {
  unsigned got;
  bool is_crowded;
  in_drained(bin, size_class, [&] {
    got = bin.take_locked(pages(), size_class, class_byte(size_class), heap_, out, wanted, source,
                          enough, short_too);
    is_crowded = bin.is_crowded_locked();
  });
  if (LOAM_UNLIKELY(is_crowded)) use_more_bins(size_class);
  return got;
}

void SmallHeap::use_more_bins(unsigned size_class) {
  Lock lock(bins_[size_class].mutex());  // who holds it knows how many there are
  const unsigned doublings = doublings_[size_class].load(std::memory_order_relaxed);
  const unsigned count = 1u << doublings;
  if (count == kShards) return;
  has_more_bins_.store(true, std::memory_order_relaxed);
  bins_[size_class].keep_empty_locked(kEmptyBytes, size_class);
  for (unsigned s = count; s < 2 * count; ++s) {
    bin_at(size_class, s).set_shard(s);
    bin_at(size_class, s).keep_empty_locked(kEmptyBytes, size_class);
  }
  // release pairs with the acquire in bins_in_use()
  doublings_[size_class].store(static_cast<uint8_t>(doublings + 1), std::memory_order_release);
}

// What others have free, where it is enough to be worth their lock: of one bin.
unsigned SmallHeap::take_from_other_bins(unsigned size_class, void** out, unsigned wanted,
                                         unsigned home) {
  const unsigned count = bins_in_use(size_class);
  for (unsigned i = 1; i < count; ++i) {
    Bin& bin = bin_of(size_class, home + i);
    if (bin.free_slots_hint() < wanted) continue;
    unsigned got = 0;
    in_drained(bin, size_class, [&] {
      const size_t free = bin.free_slots_locked();
      const unsigned here = free < wanted ? static_cast<unsigned>(free) : wanted;
      // No more than there is: so no page is asked for.
      if (here != 0) {
        got = bin.take_locked(pages(), size_class, class_byte(size_class), heap_, out, here,
                              PageHeap::Source::kBacked);
      }
    });
    if (got != 0) return got;
  }
  return 0;
}

// Makes empty spans that bins keep the page heap's, for who needs some before a page is touched
// that nobody has: those of the class first. True if there were some.
bool SmallHeap::release_some_empty_spans(unsigned size_class, unsigned wanted, unsigned home) {
  const SizeClassInfo& info = class_info(size_class);
  const size_t pages_wanted = size_t{(wanted + info.slots - 1) / info.slots} * info.pages;
  const unsigned classes = split_classes.end();
  for (unsigned i = 0; i < classes; ++i) {
    const unsigned c = (size_class + i) % classes;
    const unsigned count = bins_in_use(c);
    if (count == 1) continue;
    const unsigned length = class_info(c).pages;
    for (unsigned s = 1; s <= count; ++s) {
      Bin& bin = bin_of(c, home + s);
      if (!bin.has_empty_hint()) continue;
      unsigned released;
      {
        Lock lock(bin.mutex());
        released = bin.release_empty_locked(
            pages(), c, static_cast<unsigned>((pages_wanted + length - 1) / length));
      }
      if (released != 0) return true;
    }
  }
  return false;
}

// Before a page is touched that nobody has: empty spans of any bin, then free slots of the class's.
unsigned SmallHeap::take_what_others_keep(Bin& bin, unsigned size_class, void** out,
                                          unsigned wanted, unsigned enough, unsigned home) {
  while (release_some_empty_spans(size_class, wanted, home)) {
    if (const unsigned got =
            take_from(bin, size_class, out, wanted, PageHeap::Source::kBacked, enough))
      return got;
  }
  const unsigned got = take_from_other_bins(size_class, out, wanted, home);
  if (got != 0) ask_for_lines(size_class, out, got);
  return got;
}

void SmallHeap::make_room_for_runs(Pages run) {
  release_empty_spans();
  // Neighbouring spans may lend one run together, but no long one.
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

void SmallHeap::release_kept_span(unsigned size_class, unsigned home) {
  Bin& bin = bin_of(size_class, home);
  if (!bin.has_one_empty_hint() || !bin.mutex().try_lock()) return;
  static_cast<void>(bin.release_empty_locked(pages(), size_class, 1));
  bin.mutex().unlock();
}

unsigned SmallHeap::take_slots(unsigned size_class, void** out, unsigned wanted, unsigned home) {
  return take_pure(size_class, out, wanted, ~0u, home);
}

unsigned SmallHeap::take_pure(unsigned size_class, void** out, unsigned wanted, unsigned enough,
                              unsigned home) {
  Bin& bin = bin_of(size_class, home);
  if (LOAM_UNLIKELY(has_more_bins_.load(std::memory_order_relaxed))) {
    if (const unsigned got =
            take_from(bin, size_class, out, wanted, PageHeap::Source::kBacked, enough))
      return got;
    if (const unsigned got = take_what_others_keep(bin, size_class, out, wanted, enough, home))
      return got;
  }
  return take_from(bin, size_class, out, wanted, PageHeap::Source::kAny, enough);
}

unsigned SmallHeap::take_stashed(Bin& bin, unsigned size_class, void** out, unsigned wanted,
                                 unsigned room) {
  unsigned got = 0;
  // Batches may be small ones: a refill is worth a second look, not a third for the last few.
  while (got < (wanted + 1) / 2) {
    const unsigned more = bin.stash().take(out + got, wanted - got, room - got);
    if (more == 0) break;
    got += more;
  }
  if (got != 0) {
    ask_for_lines(size_class, out, got);  // from the cache of who freed them
    bin.remote().discount_others(got);
    stash_room_.give(got * size_t{class_info(size_class).bytes});
  }
  return got;
}

unsigned SmallHeap::take(unsigned size_class, void** out, unsigned wanted, const void* taker,
                         unsigned enough, unsigned room, unsigned home) {
  Bin& bin = bin_of(size_class, home);
  if (taker != nullptr) {
    TransferStash& stash = bins_[size_class].stash();
    bin.stash().note_taker(taker);
    if (stash.blocks() != 0) {
      const unsigned most = room < wanted ? wanted : room;
      if (const unsigned got = take_stashed(bins_[size_class], size_class, out, wanted, most))
        return got;
    }
  }
  if (LOAM_UNLIKELY(unmapped_)) return take_pure(size_class, out, wanted, enough, home);
  return MixedHeap::serves(size_class) ? take_small(bin, size_class, out, wanted, enough, home)
                                       : take_large(size_class, out, wanted, enough, home);
}

// Of a class that has blocks in mixed spans.
unsigned SmallHeap::take_small(Bin& bin, unsigned size_class, void** out, unsigned wanted,
                               unsigned enough, unsigned home) {
  const auto take = [&](PageHeap::Source source) {
    return take_from(bin, size_class, out, wanted, source, enough);
  };
  if (const unsigned got = take(PageHeap::Source::kBacked); LOAM_LIKELY(got != 0)) return got;
  // The next page would be a fresh one. Memory that others hold for nothing is cheaper.
  if (const unsigned found =
          take_pieces(bin, size_class, out, wanted, enough, home, MixedHeap::From::kBacked))
    return found;
  const auto take_donated = [&]() -> unsigned {
    if (!donate(size_class, home)) return 0;
    if (const unsigned got = take(PageHeap::Source::kBacked)) return got;
    // None where others of the home were faster.
    return take_pieces(bin, size_class, out, wanted, enough, home, MixedHeap::From::kLent);
  };
  if (const unsigned donated = take_donated()) return donated;
  // What other homes have comes last: whoever takes it shares lines with them.
  if (const unsigned mixed = mixed_.take_from_others(size_class, out, wanted, home)) {
    ask_for_lines(size_class, out, mixed);
    return mixed;
  }
  if (LOAM_UNLIKELY(has_more_bins_.load(std::memory_order_relaxed))) {
    if (const unsigned others = take_what_others_keep(bin, size_class, out, wanted, enough, home))
      return others;
  }
  if (const unsigned lent = take_lent(bin, size_class, out, wanted, enough, home)) return lent;
  if (const unsigned fresh = take(PageHeap::Source::kAny)) return fresh;
  // Refused: now any donor, and any lender, is worth a search.
  growths_skipped_.store(kGrowthsBetweenDonations, std::memory_order_relaxed);
  if (const unsigned donated = take_donated()) return donated;
  lends_skipped_.store(kGrowthsBetweenLends, std::memory_order_relaxed);
  return take_lent(bin, size_class, out, wanted, enough, home);
}

// Free ranges of mixed spans, and backed runs that are too short for a span. A short span of large
// slots serves them faster than a mixed one, and loses no more at its end.
unsigned SmallHeap::take_pieces(Bin& bin, unsigned size_class, void** out, unsigned wanted,
                                unsigned enough, unsigned home, MixedHeap::From from) {
  if (class_info(size_class).bytes > kFineLimit && may_be_partial() &&
      (from == MixedHeap::From::kLent || pages().short_runs_wait())) {
    if (const unsigned got =
            take_from(bin, size_class, out, wanted, PageHeap::Source::kBacked, enough, true))
      return got;
  }
  const unsigned got =
      mixed_.take(size_class, out, wanted, pure_ ? MixedHeap::From::kSpans : from, home);
  if (got != 0) ask_for_lines(size_class, out, got);
  return got;
}

// Of a class that has no blocks in mixed spans: what there is, and then a page that nobody has.
unsigned SmallHeap::take_large(unsigned size_class, void** out, unsigned wanted, unsigned enough,
                               unsigned home) {
  Bin& bin = bin_of(size_class, home);
  const unsigned least = enough < wanted ? enough : wanted;
  unsigned got = take_from(bin, size_class, out, wanted, PageHeap::Source::kBacked, enough);
  if (LOAM_LIKELY(got >= least)) return got;
  // What came first is used first: it stands behind what comes now.
  const auto take_more = [&](auto take_some) {
    if (got >= least) return;
    void** const waiting = out + (wanted - got);
    if (got != 0) __builtin_memmove(waiting, out, got * sizeof(void*));
    const unsigned more = take_some(wanted - got, enough - got);
    if (got != 0) __builtin_memmove(out + more, waiting, got * sizeof(void*));
    got += more;
  };
  if (LOAM_UNLIKELY(has_more_bins_.load(std::memory_order_relaxed))) {
    take_more([&](unsigned more, unsigned least_more) {
      return take_what_others_keep(bin, size_class, out, more, least_more, home);
    });
  }
  const auto take_short = [&](unsigned more, unsigned least_more) {
    return take_from(bin, size_class, out, more, PageHeap::Source::kBacked, least_more, true);
  };
  // Both of them, before a page is touched that nobody has: one brings a slot or two.
  if (may_be_partial() && pages().short_runs_wait()) take_more(take_short);
  take_more([&](unsigned more, unsigned least_more) {
    return take_lent(bin, size_class, out, more, least_more, home);
  });
  take_more([&](unsigned more, unsigned least_more) {
    return take_from(bin, size_class, out, more, PageHeap::Source::kAny, least_more);
  });
  if (LOAM_LIKELY(got != 0)) return got;
  // Refused: now any short run, and any lender, is worth a search.
  if (may_be_partial()) got = take_short(wanted, enough);
  if (got != 0) return got;
  lends_skipped_.store(kGrowthsBetweenLends, std::memory_order_relaxed);
  return take_lent(bin, size_class, out, wanted, enough, home);
}

// The one of which hint(bin, size_class) says most; none where it says 0 of all.
template <class Hint>
SmallHeap::Candidate SmallHeap::bin_with_most(Hint hint) {
  Candidate best{};
  for_each_class([&](unsigned c) {
    for_each_bin(c, [&](Bin& bin) {
      const size_t bytes = hint(bin, c);
      if (bytes > best.bytes) best = {&bin, c, bytes};
    });
  });
  return best;
}

// Has the bin with the most to lend, or the mixed spans, give the page heap whole free pages,
// unless a search found none a few growths ago. For a class that mixed spans do not serve of all,
// else of such classes only: what the others have to give is donate()'s. False if none were given.
bool SmallHeap::lend_pages(bool of_all, unsigned home) {
  if (!may_be_partial() || pages().used_bytes_hint() < kLeastLendingHeap) return false;
  if (!is_time(lends_skipped_, kGrowthsBetweenLends)) return false;
  const Candidate lender = bin_with_most([&](const Bin& bin, unsigned c) {
    const bool may = Bin::may_lend(c) && (of_all || !MixedHeap::serves(c));
    return may ? bin.lendable_bytes_hint(c) : 0;
  });
  Pages lent;
  if (of_all) lent = mixed_.lend(kLentPages, lender.bytes);
  if (lent == Pages(0) && lender.bin != nullptr) {
    Lock lock(lender.bin->mutex());
    lent = lender.bin->lend_locked(pages(), mixed_, lender.size_class, kLentPages, home);
  }
  if (lent == Pages(0)) lends_skipped_.store(0, std::memory_order_relaxed);
  return lent != Pages(0);
}

// Free pages of sparse spans, as spans or, where mixed spans do not serve the class, as short ones.
unsigned SmallHeap::take_lent(Bin& bin, unsigned size_class, void** out, unsigned wanted,
                              unsigned enough, unsigned home) {
  const bool is_large = !MixedHeap::serves(size_class);
  if (!lend_pages(is_large, home)) return 0;
  return take_from(bin, size_class, out, wanted, PageHeap::Source::kBacked, enough, is_large);
}

// Has sparse spans of another class become mixed, unless a search for some found none a few growths
// ago. False if none did.
bool SmallHeap::donate(unsigned size_class, unsigned home) {
  if (pure_) return false;
  // Smaller blocks may fit where larger ones did not.
  const bool fits_more = size_class < refused_class_.load(std::memory_order_relaxed);
  if (!fits_more && !is_time(growths_skipped_, kGrowthsBetweenDonations)) return false;
  const Candidate donor = bin_with_most([&](const Bin& bin, unsigned c) {
    return c == size_class ? 0 : bin.donatable_bytes_hint(c);
  });
  unsigned converted = 0;
  if (donor.bin != nullptr) {
    Lock lock(donor.bin->mutex());
    converted = donor.bin->donate_locked(mixed_, donor.size_class, class_info(size_class).bytes,
                                         kDonationBytes, home);
  }
  if (converted != 0) return true;
  growths_skipped_.store(0, std::memory_order_relaxed);
  refused_class_.store(static_cast<uint8_t>(size_class), std::memory_order_relaxed);
  return false;
}

void SmallHeap::transfer(unsigned size_class, void* const* pointers, unsigned count,
                         const void* giver) {
  Bin& bin = bins_[size_class];
  // Checks that must know every free block look into caches and spans.
  if ((bins_in_use(size_class) == 1 && !bin.stash().wants(giver)) || pure_ ||
      slots_are_chosen_at_random()) {
    return give(size_class, pointers, count, Wait::kNo);
  }
  // Counted before they can be taken.
  const size_t bytes = count * size_t{class_info(size_class).bytes};
  if (LOAM_LIKELY(stash_room_.take(bytes, pages().used_bytes_hint()))) {
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
  uint64_t last = last_look_ms_.load(std::memory_order_relaxed);
  if (LOAM_LIKELY(now - last < kLookMs)) return;
  // relaxed: one of those who come looks, whichever
  if (!last_look_ms_.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
  for (unsigned c = 1; c < split_classes.end() && stash_room_.held() != 0; ++c) {
    if (bins_[c].stash().blocks() != 0) empty_stash(c, false);
  }
  purge_unwanted(now);
}

void SmallHeap::purge_unwanted(uint64_t now_ms) {
  uint64_t began = period_began_ms_.load(std::memory_order_relaxed);
  const bool period_ends =
      now_ms - began >= IdleSlots::kPeriodMs &&
      period_began_ms_.compare_exchange_strong(began, now_ms, std::memory_order_relaxed);
  // Before the look: who begins to wait during it says so again.
  pages().note_spans_wait(false);
  const unsigned first = next_to_purge_.load(std::memory_order_relaxed);
  bool some_wait = false;
  unsigned looks = kLooksATick;
  const unsigned classes = split_classes.end();
  for (unsigned i = 0; i < classes; ++i) {
    const unsigned c = (first + i) % classes;
    if (!has_own_spans(c)) continue;
    for_each_bin(c, [&](Bin& bin) {
      if (LOAM_LIKELY(!bin.is_watched(c))) return;
      some_wait = true;
      // A lock that is held is somebody's who works with the class: the next look will do. A period
      // then is a longer one.
      if (period_ends && bin.mutex().try_lock()) {
        bin.end_period_locked(class_info(c).bytes);
        bin.mutex().unlock();
      }
      while (looks >= kLooksALock && bin.mutex().try_lock()) {
        next_to_purge_.store(c, std::memory_order_relaxed);
        const unsigned left = bin.purge_unwanted_locked(pages(), c, kLooksALock);
        bin.mutex().unlock();
        looks -= kLooksALock - left;
        if (left >= kLooksAPurge) break;
      }
    });
  }
  if (mixed_.lend_unwanted(period_ends, looks)) some_wait = true;
  if (some_wait) pages().note_spans_wait(true);
}

// Where a class has several bins, what came from the giver's own is best there; and what is
// another's is wanted if that one's threads take.
bool SmallHeap::wants_others(unsigned size_class, const void* giver, const void* first,
                             unsigned home) const {
  const unsigned bins = bins_in_use(size_class);
  const unsigned shard = SpanFinder().at(reinterpret_cast<uintptr_t>(first))->bin_shard();
  if (shard == (home & (bins - 1)) || shard >= bins) return false;
  return bin_at(size_class, shard).stash().wants(giver);
}

LOAM_NOINLINE void SmallHeap::give_by_shards(unsigned size_class, void* const* pointers,
                                             unsigned count, Wait wait) {
  const unsigned bins = bins_in_use(size_class);
  constexpr unsigned kPiece = 128;
  const auto shard_named_by = [bins](const Span* span) {
    const unsigned shard = span->bin_shard();
    return LOAM_LIKELY(shard < bins)
               ? shard
               : 0;  // of no block of the class: reported under any bin's lock
  };
  SpanFinder finder;
  unsigned same = 0;  // of `shard`, from the first on: what is of one bin stays together, for it
                      // may hold whole spans
  unsigned shard = 0;
  while (same != count) {
    // All records that are missed at once, and neighbours' but once.
    Span* found[kPiece];
    unsigned records = 0;
    uintptr_t page = UINTPTR_MAX;  // of no address
    void* const* const piece = pointers + same;
    const unsigned here = count - same < kPiece ? count - same : kPiece;
    for (unsigned i = 0; i < here; ++i) {
      const uintptr_t address = reinterpret_cast<uintptr_t>(piece[i]);
      if (address >> kPageShift == page) continue;
      page = address >> kPageShift;
      found[records] = finder.at(address);
      prefetch_for_write(found[records++]);
    }
    if (same == 0) shard = shard_named_by(finder.at(reinterpret_cast<uintptr_t>(piece[0])));
    unsigned of_shard = 0;
    while (of_shard < records && shard_named_by(found[of_shard]) == shard) ++of_shard;
    if (LOAM_LIKELY(of_shard == records)) {
      same += here;
      continue;
    }
    if (same != 0) give_to(bin_at(size_class, shard), size_class, pointers, same, wait);
    uint8_t shards[kPiece];
    unsigned some = 0;  // bins that get some
    for (unsigned i = 0; i < here; ++i) {
      shards[i] =
          static_cast<uint8_t>(shard_named_by(finder.at(reinterpret_cast<uintptr_t>(piece[i]))));
      some |= 1u << shards[i];
    }
    for (; some != 0; some &= some - 1) {
      const unsigned its_shard = lowest_bit(some);
      void* its[kPiece];
      unsigned n = 0;
      for (unsigned i = 0; i < here; ++i) {
        its[n] = piece[i];
        n += shards[i] == its_shard;
      }
      give_to(bin_at(size_class, its_shard), size_class, its, n, wait);
    }
    pointers = piece + here;
    count -= same + here;
    same = 0;
  }
  if (same != 0) give_to(bin_at(size_class, shard), size_class, pointers, same, wait);
}

void SmallHeap::give(unsigned size_class, void* const* pointers, unsigned count, Wait wait) {
  if (LOAM_UNLIKELY(bins_in_use(size_class) != 1))
    return give_by_shards(size_class, pointers, count, wait);
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

LOAM_COLD void SmallHeap::split_class(unsigned size_class, size_t slot_bytes) {
  const SizeClassInfo& whole = class_info(size_class);
  const SizeClassInfo finer = shape_of(slot_bytes);
  // What a slot takes of its span, the tail included.
  const size_t bytes = Pages(whole.pages).bytes() / whole.slots,
               fewer = Pages(finer.pages).bytes() / finer.slots;
  if (bytes - bytes / kLeastSavedShare < fewer) return;
  size_t used = 0;
  for_each_bin(size_class, [&](const Bin& bin) { used += bin.used_slots_hint(size_class); });
  if (used * (bytes - fewer) < kLeastSavedBytes) return;
  // Where it was refused, later requests ask again.
  static_cast<void>(split_classes.add(size_class, finer));
}

Pages SmallHeap::compact() {
  Pages purged;
  for_each_class([&](unsigned c) {
    empty_stash(c, true);
    for_each_bin(c, [&](Bin& bin) {
      in_drained(bin, c, [&] { purged += bin.compact_locked(pages(), c); });
    });
  });
  return purged + mixed_.compact();
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
    valid = valid && (unmapped_ || bins_[c].stash().is_valid(c));
  });
  return valid && mixed_.is_valid();
}

void SmallHeap::lock_all() {
  split_classes.mutex().lock();  // there are as many classes when they are unlocked
  // A class's first bin's lock keeps others from coming into use.
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
  mixed_.reset_locks_after_fork();
}

}  // namespace loam
