// The first pages of a heap: blocks of all classes side by side, so that a heap of a few KiB takes a page
// or two and not one a class. See heap_run.h for the record. A heap that gets busy, or has had its share
// of them, goes on with spans of one class; blocks stay where they are.
#include "heap/private_heap.h"
#include "map/metadata.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

constexpr unsigned kGranules = kPageBytes / LOAM_ALIGNMENT;
// Larger blocks would leave holes that nothing fits; a span of theirs is not much larger than they are.
constexpr size_t kLargestStarterBlock = 512;
// Pages of this kind that a heap makes in its life. Chosen: with more classes in use than this spans of
// their own cost no more than the first-fit search here, which looks at four words.
constexpr uint32_t kMostStarters = 4;
// Blocks of one class that a heap allocates before its front end comes on, as Windows counts them.
constexpr uint64_t kBusyAfter = 18;

// The first of `count` set bits in a row, or kGranules. pre: count <= 32
unsigned find_run(const uint64_t* words, unsigned count) {
  for (unsigned from = 0; from + count <= kGranules;) {
    const unsigned word = from / 64, shift = from % 64;
    uint64_t bits = words[word] >> shift;
    if (shift != 0 && word + 1 < kGranules / 64) bits |= words[word + 1] << (64 - shift);
    // Bit i is set when bits i .. i + count - 1 are; the window shows 64 of them.
    uint64_t starts = bits;
    for (unsigned have = 1; have < count;) {
      const unsigned more = have < count - have ? have : count - have;
      starts &= starts >> more;
      have += more;
    }
    if (starts != 0) {
      const unsigned first = from + lowest_bit(starts);
      return first + count <= kGranules ? first : kGranules;
    }
    from += 64 - count + 1;
  }
  return kGranules;
}

void set_granules(uint64_t* words, unsigned first, unsigned count, bool free) {
  for (unsigned i = first; i < first + count; ++i) {
    const uint64_t bit = uint64_t{1} << (i % 64);
    words[i / 64] = free ? words[i / 64] | bit : words[i / 64] & ~bit;
  }
}

}  // namespace

void PrivateHeap::note_busy(const HeapBin* bin) {
  if (LOAM_LIKELY(mode() != LOAM_MODE_STANDARD) || bin->taken < kBusyAfter) return;
  mode_.store(LOAM_MODE_LOW_FRAGMENTATION, std::memory_order_relaxed);
}

HeapRun* PrivateHeap::add_starter() {
  if (starters_made_ == kMostStarters) return nullptr;
  const size_t record_bytes = HeapRun::record_bytes(kGranules, exact(), true);
  use_set_aside(Pages(1));
  if (!charge(kPageBytes)) return nullptr;
  HeapRun* run = static_cast<HeapRun*>(allocate_record(record_bytes));
  Span* span = run == nullptr ? nullptr
                              : page_heap.allocate_span(Pages(1), SizeClass(1), kNoClass, kPrivateHeap);
  if (span == nullptr) {
    if (run != nullptr) free_record(run, record_bytes);
    uncharge(kPageBytes);
    return nullptr;
  }
  run->heap = this;
  run->base = span_base(span);
  run->slot_bytes = kSizeClasses[1].bytes;
  run->reciprocal = kSizeClasses[1].reciprocal;
  run->slots = run->free_slots = kGranules;
  run->use = RunUse::kStarter;
  run->exact = exact();
  run->span = span;
  run->bytes = kPageBytes;
  for (unsigned word = 0; word < kGranules / 64; ++word) run->free_bits()[word] = ~uint64_t{0};
  span->unbacked_pages = 0;
  // release: pairs with the acquire in private_run_at()
  __atomic_store_n(&span->owned.run, run, __ATOMIC_RELEASE);
  add_run(run);
  ++starters_;
  ++starters_made_;
  starter_ = run;
  return run;
}

void* PrivateHeap::take_from_starter(unsigned size_class, size_t bytes) {
  const SizeClassInfo& info = kSizeClasses[size_class];
  if (info.bytes > kLargestStarterBlock) return nullptr;
  HeapBin* bin = make_bin(size_class);
  if (bin == nullptr || bin->spans != 0) return nullptr;
  const unsigned count = info.bytes / LOAM_ALIGNMENT;
  HeapRun* run = starter_;
  unsigned granule = run == nullptr ? kGranules : find_run(run->free_bits(), count);
  if (granule == kGranules) {
    run = add_starter();
    if (run == nullptr) return nullptr;
    granule = 0;
  }
  set_granules(run->free_bits(), granule, count, false);
  run->free_slots = static_cast<uint16_t>(run->free_slots - count);
  run->class_of(granule) = static_cast<uint8_t>(size_class);
  store_state(run->state_of(granule), run->exact, live_state(run->exact, bytes));
  ++bin->in_starters;
  ++bin->taken;
  note_busy(bin);
  return run->slot_address(granule);
}

void PrivateHeap::give_to_starter(HeapRun* run, void* block) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(block) - run->base;
  const unsigned granule = static_cast<unsigned>(offset / LOAM_ALIGNMENT);
  const unsigned size_class = run->class_of(granule);
  const unsigned count = kSizeClasses[size_class].bytes / LOAM_ALIGNMENT;
  HeapBin* bin = bin_of(size_class);
  store_state(run->state_of(granule), run->exact, kSlotFree);
  set_granules(run->free_bits(), granule, count, true);
  run->free_slots = static_cast<uint16_t>(run->free_slots + count);
  --bin->in_starters;
  ++bin->given;
  // The newest is kept while the heap is small: a heap at its edge would churn the page heap.
  if (run->free_slots != kGranules || (run == starter_ && mode() == LOAM_MODE_STANDARD)) return;
  release_starter(run);
}

void PrivateHeap::release_starter(HeapRun* run) {
  if (run == starter_) starter_ = nullptr;
  // One that goes may be made again.
  --starters_made_;
  --starters_;
  forget_run(run);
  release_run(run);
}

bool PrivateHeap::starter_is_valid(HeapRun* run) {
  unsigned free_granules = 0;
  for (unsigned i = 0; i < kGranules;) {
    const bool bit = ((run->free_bits()[i / 64] >> (i % 64)) & 1) != 0;
    if (bit) {
      if (load_state(run->state_of(i), run->exact) != kSlotFree) return false;
      ++free_granules;
      ++i;
      continue;
    }
    if (load_state(run->state_of(i), run->exact) < kSlotLive) return false;
    const unsigned end = i + kSizeClasses[run->class_of(i)].bytes / LOAM_ALIGNMENT;
    for (++i; i < end; ++i) {
      const bool free_inside = ((run->free_bits()[i / 64] >> (i % 64)) & 1) != 0;
      if (free_inside || load_state(run->state_of(i), run->exact) != kSlotFree) return false;
    }
  }
  return free_granules == run->free_slots;
}

}  // namespace loam
