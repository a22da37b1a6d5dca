// Serves a refill from the sources in the table.
#include "small/sources.h"

#include "base/cpu.h"
#include "small/small_heap.h"

namespace loam {

namespace {

// The rows without their texts, so that a program's start reads only a few bytes.
struct Step {
  BlockSource source;
  uint8_t serves;
};
struct Steps {
  Step of[kBlockSources];
};
constexpr Steps make_steps() {
  Steps steps{};
  for (unsigned i = 0; i < kBlockSources; ++i)
    steps.of[i] = {kBlockSourceRows[i].source, kBlockSourceRows[i].serves};
  return steps;
}
constexpr Steps kSteps = make_steps();

// About the bytes of free ranges that one donation brings, a quarter of what a donor has at least:
// enough for several refills.
constexpr size_t kDonationBytes = IdleSlots::kStep / 4;
// A search for a donor or a lender looks at every bin. After a search that found none, the next one
// waits for this many growths.
constexpr unsigned kGrowthsBetweenSearches = 16;

// About the pages that sparse spans lend at once: a batch, so that one search serves many growths.
constexpr Pages kLentPages = PurgePolicy::kBatch;

// Whether it is time for another search. If not, the growth is counted.
bool is_time(std::atomic<unsigned>& skipped) {
  const unsigned growths = skipped.load(std::memory_order_relaxed);
  if (growths >= kGrowthsBetweenSearches) return true;
  skipped.store(growths + 1, std::memory_order_relaxed);
  return false;
}

// A refill of at least this many blocks is used soon. If a program uses many classes, refills are
// shorter, and prefetched lines would evict others before their use. Measured (decision 15).
constexpr unsigned kUsedSoon = 64;

// Prefetches the lines of blocks that lie anywhere in memory. No hardware can predict these lines,
// but the fetches overlap when they start together. The last block is used first.
LOAM_INLINE void ask_for_lines(unsigned size_class, void* const* blocks, unsigned count) {
  // Smaller blocks share lines, so there are fewer lines than blocks.
  if (count < kUsedSoon || class_info(size_class).bytes < kCacheLine) return;
  for (unsigned i = count; i-- != 0;) prefetch_for_write(blocks[i]);
}

// The user of the table's rows for blocks of the class.
BlockSourceUser user_of(unsigned size_class) {
  if (!MixedHeap::serves(size_class)) return kAbove8KiB;
  return class_info(size_class).bytes > kFineLimit ? kUpTo8KiB : kUpTo1KiB;
}

}  // namespace

unsigned SmallHeap::take(Refill& refill) {
  if (refill.taker != nullptr) {
    bin_of(refill.size_class, refill.home).stash().note_taker(refill.taker);
    if (bins_[refill.size_class].stash().blocks() != 0) {
      if (const unsigned got = take_stashed(refill)) return got;
    }
  }
  // A refill of blocks up to 8 KiB takes whatever the first source with blocks has.
  return take_in_order(refill, !MixedHeap::serves(refill.size_class), false);
}

unsigned SmallHeap::take_slots(Refill&& refill) { return take_in_order(refill, true, true); }

LOAM_INLINE unsigned SmallHeap::take_in_order(Refill& refill, bool needs_enough, bool own_slots) {
  const unsigned least = !needs_enough                   ? 1
                         : refill.enough < refill.wanted ? refill.enough
                                                         : refill.wanted;
  // The first row after the stash, before the loop over the other rows.
  take_from_bin(refill, Bin::From::kBacked);
  if (LOAM_UNLIKELY(refill.got() < least))
    take_from_rows(refill, least, own_slots ? kOwnSlots : user_of(refill.size_class));
  return refill.finish();
}

LOAM_NOINLINE void SmallHeap::take_from_rows(Refill& refill, unsigned least, uint8_t user) {
  static_assert(
      kSteps.of[0].source == BlockSource::kStash && kSteps.of[1].source == BlockSource::kBin,
      "the callers have looked there");
  for (unsigned row = 2; row < kBlockSources && refill.got() < least; ++row) {
    const Step step = kSteps.of[row];
    if ((step.serves & user) != 0) take_from(step.source, refill, false);
  }
  if (LOAM_LIKELY(refill.got() != 0)) return;
  // The system refused fresh pages, so any search is worth its time now.
  for (const Step step : kSteps.of) {
    if ((step.serves & user) != 0 && (step.serves & kRefused) != 0)
      take_from(step.source, refill, true);
    if (refill.got() != 0) return;
  }
}

void SmallHeap::take_from(BlockSource source, Refill& refill, bool refused) {
  switch (source) {
    case BlockSource::kStash:
    case BlockSource::kBin:
      return;
    case BlockSource::kShortRuns:
      if (may_be_partial() && (refused || pages().hints().pages_wait()))
        take_from_bin(refill, Bin::From::kShortRuns);
      return;
    case BlockSource::kMixedSpans:
      return take_mixed(refill, pure_ ? MixedHeap::From::kSpans : MixedHeap::From::kBacked);
    case BlockSource::kDonor:
      return take_donated(refill, refused);
    case BlockSource::kOtherParts:
      if (const unsigned got = mixed_.take_from_others(refill))
        ask_for_lines(refill.size_class, refill.next, got);
      return;
    case BlockSource::kEmptySpans:
      if (LOAM_LIKELY(!has_more_bins_.load(std::memory_order_relaxed))) return;
      while (release_some_empty_spans(refill)) {
        if (take_from_bin(refill, Bin::From::kBacked) != 0) return;
      }
      return;
    case BlockSource::kOtherBins:
      if (LOAM_UNLIKELY(has_more_bins_.load(std::memory_order_relaxed)))
        take_from_other_bins(refill);
      return;
    case BlockSource::kLender:
      return take_lent(refill, refused);
    case BlockSource::kFreshPages:
      take_from_bin(refill, Bin::From::kAnywhere);
      return;
  }
}

LOAM_NOINLINE unsigned SmallHeap::take_from_bin(Refill& refill, Bin::From from) {
  Bin& bin = bin_of(refill.size_class, refill.home);
  unsigned got;
  bool is_crowded;
  in_drained(bin, refill.size_class, [&] {
    got = bin.take_locked(pages(), refill, from);
    is_crowded = bin.is_crowded_locked();
  });
  if (LOAM_UNLIKELY(is_crowded)) use_more_bins(refill.size_class);
  return got;
}

// This source fills a refill from its beginning, and no other source adds to it. Returns the number
// of blocks.
unsigned SmallHeap::take_stashed(const Refill& refill) {
  const unsigned size_class = refill.size_class, wanted = refill.wanted;
  const unsigned room = refill.room < wanted ? wanted : refill.room;
  Bin& bin = bins_[size_class];
  unsigned got = 0;
  // Batches may be small. The loop takes further batches only until half of the refill is there.
  while (got < (wanted + 1) / 2) {
    const unsigned more = bin.stash().take(refill.out + got, wanted - got, room - got);
    if (more == 0) break;
    got += more;
  }
  if (got != 0) {
    ask_for_lines(size_class, refill.out, got);  // from the cache of the freeing thread
    bin.remote().discount_others(got);
    stash_room_.give(got * size_t{class_info(size_class).bytes});
  }
  return got;
}

void SmallHeap::take_mixed(Refill& refill, MixedHeap::From from) {
  if (const unsigned got = mixed_.take(refill, from))
    ask_for_lines(refill.size_class, refill.next, got);
}

// Takes slots from one other bin of the class, if it has enough free slots to be worth its lock.
void SmallHeap::take_from_other_bins(Refill& refill) {
  const unsigned count = bins_in_use(refill.size_class);
  const unsigned missing = refill.missing();
  for (unsigned i = 1; i < count; ++i) {
    Bin& bin = bin_of(refill.size_class, refill.home + i);
    if (bin.free_slots_hint() < missing) continue;
    unsigned got = 0;
    in_drained(bin, refill.size_class, [&] {
      const size_t free = bin.free_slots_locked();
      const unsigned here = free < missing ? static_cast<unsigned>(free) : missing;
      if (here == 0) return;
      // Not more than the bin has, so it asks for no page.
      Refill part = refill.part(here);
      got = bin.take_locked(pages(), part, Bin::From::kBacked);
      refill.next = part.next;
    });
    if (got != 0) return ask_for_lines(refill.size_class, refill.next, got);
  }
}

// Gives the page heap as many empty spans of one bin as the refill needs. Bins of the refill's
// class come first. True if there were some.
bool SmallHeap::release_some_empty_spans(const Refill& refill) {
  const unsigned size_class = refill.size_class, wanted = refill.missing();
  const SizeClassInfo& info = class_info(size_class);
  const size_t pages_wanted = size_t{(wanted + info.slots - 1) / info.slots} * info.pages;
  const unsigned classes = split_classes.end();
  for (unsigned i = 0; i < classes; ++i) {
    const unsigned c = (size_class + i) % classes;
    const unsigned count = bins_in_use(c);
    if (count == 1) continue;
    const unsigned length = class_info(c).pages;
    for (unsigned s = 1; s <= count; ++s) {
      Bin& bin = bin_of(c, refill.home + s);
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

// The bin for which hint(bin, size_class) is largest; none if it is 0 for all.
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

// Makes sparse spans of another class mixed, unless a search a few growths ago found none. False if
// no span became mixed.
bool SmallHeap::donate(unsigned size_class, unsigned home) {
  if (pure_) return false;
  // Smaller blocks may fit where larger ones did not.
  const bool fits_more = size_class < searches_.refused_class.load(std::memory_order_relaxed);
  if (!fits_more && !is_time(searches_.growths_skipped)) return false;
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
  searches_.growths_skipped.store(0, std::memory_order_relaxed);
  searches_.refused_class.store(static_cast<uint8_t>(size_class), std::memory_order_relaxed);
  return false;
}

void SmallHeap::take_donated(Refill& refill, bool refused) {
  if (refused) searches_.growths_skipped.store(kGrowthsBetweenSearches, std::memory_order_relaxed);
  if (!donate(refill.size_class, refill.home)) return;
  // First the pages that the donor's spans gave the page heap, then the free ranges of the new
  // mixed spans. Both may be gone if other threads of the home were faster.
  if (take_from_bin(refill, Bin::From::kBacked) != 0) return;
  // A short span of large slots serves them faster than a mixed one, and loses no more at its end.
  if (class_info(refill.size_class).bytes > kFineLimit && may_be_partial() &&
      take_from_bin(refill, Bin::From::kShortRuns) != 0)
    return;
  take_mixed(refill, MixedHeap::From::kLent);
}

// Makes the bin that can lend most, or the mixed spans, give the page heap whole free pages, unless
// a search a few growths ago found none. `of_all`: bins of every class; otherwise only of classes
// that mixed spans do not serve, because donate() uses the free memory of the others. False if no
// page was given.
bool SmallHeap::lend_pages(bool of_all, unsigned home) {
  // The search reads bins that a small program never touched. A heap of one slab has little to
  // lend.
  if (!may_be_partial() || pages().hints().used_bytes() < kSlabBytes) return false;
  if (!is_time(searches_.lends_skipped)) return false;
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
  if (lent == Pages(0)) searches_.lends_skipped.store(0, std::memory_order_relaxed);
  return lent != Pages(0);
}

void SmallHeap::take_lent(Refill& refill, bool refused) {
  if (refused) searches_.lends_skipped.store(kGrowthsBetweenSearches, std::memory_order_relaxed);
  const bool is_large = !MixedHeap::serves(refill.size_class);
  if (!lend_pages(is_large, refill.home)) return;
  // If mixed spans do not serve the class, a run that is shorter than a span becomes a short span.
  take_from_bin(refill, is_large ? Bin::From::kShortRuns : Bin::From::kBacked);
}

}  // namespace loam
