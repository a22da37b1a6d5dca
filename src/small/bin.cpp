#include "small/bin.h"

#include "base/cpu.h"
#include "os/os.h"
#include "small/bin_lists.h"
#include "small/partial_span.h"
#include "small/pointer_run.h"
#include "small/slot_bits.h"

namespace loam {

namespace {

using bin_lists::kEmptyList;
using bin_lists::kLeaving;
using bin_lists::kListShift;
using bin_lists::kNoList;
using bin_lists::list_of;
using bin_lists::list_of_partial;
using bin_lists::scaled_list;

// A bin with fewer than IdleSlots::kStep bytes of free slots keeps its sparse spans. Its free slots
// are then churn, not the rest of a past phase. One in this many of its slots must be free too.
// Chosen: a span has few large slots, so a class of large slots has more of them free when its
// blocks come and go at random (decision 43).
constexpr size_t donor_share(const SizeClassInfo& info) { return info.bytes > kFineLimit ? 3 : 4; }

}  // namespace

void Bin::unlink(Span* span) {
  if (span->list == kEmptyList) {
    empty_.remove(span);
    counts_.empty_spans -= 1;
    --occupancy_[0];
    return;
  }
  lists_[span->list].remove(span);
  --occupancy_[span->list];
  if (lists_[span->list].empty()) occupied_ &= ~(1u << span->list);
}

// pre: the span is in no list
void Bin::push_empty(Span* span) {
  span->set_list(kEmptyList);
  empty_.push_front(span);
  counts_.empty_spans += 1;
  ++occupancy_[0];
}

void Bin::place(Span* span) {
  const SizeClassInfo& info = class_info(index_of(span->size_class));
  unsigned list = kNoList;
  if (LOAM_UNLIKELY(is_partial(span))) {
    if (span->free_slots != 0) list = list_of_partial(span);
  } else if (span->free_slots != 0) {
    list = list_of(info.slots - span->free_slots, info);
  }
  if (list == span->list) return;
  if (span->list != kNoList) unlink(span);
  span->set_list(static_cast<uint8_t>(list));
  if (list != kNoList) {
    lists_[list].push_front(span);
    ++occupancy_[list];
    occupied_ |= 1u << list;
  }
}

// Removes the span from the bin, and adds it to the front of `gone`. pre: it is in no list
void Bin::release_span(Span* span, unsigned slots, Span** gone) {
  counts_.spans -= 1;
  if (LOAM_UNLIKELY(is_partial(span))) {
    counts_.absent_slots -= slots - span->free_slots;
    counts_.absent_pages -= count_bits(span->partial.absent_pages);
    slots = span->free_slots;
  }
  counts_.free_slots -= slots;
  idle_.note(counts_.free_slots);
  if (LOAM_UNLIKELY(span->unbacked_pages != 0))
    counts_.unbacked_pages -= count_bits(span->unbacked_pages);
  span->next = *gone;
  *gone = span;
}

// Reports what is wrong with a free that the loop below refused.
static LOAM_COLD void report_bad_free(const SizeClassInfo& info, size_t offset, const void* pointer,
                                      Mutex* held) {
  const size_t slot = offset / info.bytes;
  report_misuse(offset % info.bytes != 0 || slot >= info.slots
                    ? "free of a pointer into the middle of a block"
                    : "double free",
                pointer, held);
}

// The data of a flush of one class.
struct Bin::Giving {
  PageHeap& pages;
  MixedHeap& mixed;
  const SizeClassInfo info;
  const unsigned size_class;
  Span* gone;  // spans that left the bin, linked through `next`
};

// Moves spans with more free slots than before between lists; empty spans go back. `spans` may name
// a span more than once.
void Bin::move(Giving& giving, Span** spans, unsigned count) {
  unsigned leaving = 0;
  for (unsigned i = 0; i < count; ++i) {
    Span* const span = spans[i];
    if (LOAM_LIKELY(span->free_slots != giving.info.slots)) {
      place(span);
    } else if (span->list != kLeaving && span->list != kEmptyList) {
      if (LOAM_LIKELY(span->list != kNoList)) unlink(span);
      span->set_list(kLeaving);
      spans[leaving++] = span;
    }
  }
  // Only now, because the loop above may name such a span again.
  for (unsigned i = 0; i < leaving; ++i) {
    if (counts_.empty_spans < most_empty_) {
      push_empty(spans[i]);
    } else {
      release_span(spans[i], giving.info.slots, &giving.gone);
    }
  }
}

// The label of the bin's spans, except for their list.
LOAM_INLINE uint32_t Bin::own_label(unsigned size_class) const {
  return Span::label_of(SizeClass(size_class), number_, SpanKind::kSmall, 0);
}

LOAM_INLINE bool Bin::is_own(const Span* span, unsigned size_class) const {
  return (span->label() - own_label(size_class)) << (32 - kListShift) == 0;
}

LOAM_INLINE bool Bin::is_own_partial(const Span* span, unsigned size_class) const {
  return (span->label() - Span::label_of(SizeClass(size_class), number_, SpanKind::kPartial, 0))
             << (32 - kListShift) ==
         0;
}

// Marks the slot at the offset as free. False if no slot begins there, or if it is free already.
LOAM_INLINE bool mark_slot(Span* span, uint32_t offset, uint32_t reciprocal, uint32_t slots) {
  const uint64_t quotient = uint64_t{offset} * reciprocal;
  // The offset of a slot's beginning leaves no fraction beyond the reciprocal's error. The span's
  // tail is no slot.
  if (LOAM_UNLIKELY(static_cast<uint32_t>(quotient) >= reciprocal)) return false;
  const uint64_t slot = quotient >> 32;
  if (LOAM_UNLIKELY(slot >= slots)) return false;
  uint64_t* const word = &span->free_bits[slot >> 6];
  const uint64_t bits = *word, bit = uint64_t{1} << (slot & 63);
  if (LOAM_UNLIKELY((bits & bit) != 0)) return false;
  store_word(word, bits | bit);
  return true;
}

// Gives a pointer that mark_slot() refused, or that lies in no span of the class.
void Bin::give_other(Giving& giving, void* const* pointer, Span* span) {
  if (is_own_partial(span, giving.size_class) && give_partial(giving, *pointer, span)) return;
  refuse(giving, pointer, span);
}

// Gives a slot of a partial span of the bin. False if no used slot begins there; so for every slot
// of a span that is about to leave.
bool Bin::give_partial(Giving& giving, void* pointer, Span* span) {
  const SizeClassInfo& info = giving.info;
  const uint32_t offset = offset_in(span, pointer);
  const unsigned slot = offset / info.bytes;
  if (slot >= info.slots || is_absent(span, slot, info)) return false;
  if (!mark_slot(span, offset, info.reciprocal, info.slots)) return false;
  span->free_slots = static_cast<uint16_t>(span->free_slots + 1);
  if (span->free_slots != span->partial.own_slots) {
    place(span);
    return true;
  }
  if (span->list != kNoList) unlink(span);
  span->set_list(kLeaving);
  release_span(span, info.slots, &giving.gone);
  return true;
}

LOAM_COLD void Bin::refuse(const Giving& giving, void* const* pointer, const Span* span) {
  counts_.free_slots -= 1;
  totals_.given -= 1;
  if (is_own(span, giving.size_class) || is_own_partial(span, giving.size_class)) {
    return report_bad_free(giving.info, offset_in(span, *pointer), *pointer, &mutex_);
  }
  if (span->kind == SpanKind::kMixed) return giving.mixed.give_one(*pointer, &mutex_);
  // The span went back, in this flush or long ago. It has no owner now, or belongs to another
  // class.
  report_misuse("free of a block that is free already, or of memory that is no block", *pointer,
                &mutex_);
}

// Gives the first pointer, for which the map names `span`, right or wrong. Returns 1, the number of
// given pointers.
unsigned Bin::give_one(Giving& giving, void* const* pointers, Span* span) {
  Span* found[] = {span, nullptr};
  give_scattered(giving, pointers, found, 1);
  return 1;
}

// Gives pointers that are one slot apart, in either direction, up to the end of one word of free
// bits. The first one is in `span`. Returns the number of given pointers. pre: 1 <= run
LOAM_INLINE unsigned Bin::give_run(Giving& giving, void* const* pointers, Span* span,
                                   unsigned run) {
  if (LOAM_LIKELY(run != 1) && LOAM_LIKELY(is_own(span, giving.size_class))) {
    const SizeClassInfo& info = giving.info;
    const uint32_t offset = offset_in(span, pointers[0]);
    const unsigned slot = static_cast<unsigned>((uint64_t{offset} * info.reciprocal) >> 32);
    const bool upwards = pointers[1] > pointers[0];
    const unsigned bit = slot & 63, left = info.slots - slot;
    const unsigned room = !upwards ? bit + 1 : left < 64 - bit ? left : 64 - bit;
    if (run > room) run = room;
    const uint64_t bits = bit_range(upwards ? bit : bit + 1 - run, run);
    uint64_t* const word = &span->free_bits[slot >> 6];
    if (LOAM_LIKELY(slot * info.bytes == offset) && LOAM_LIKELY(slot < info.slots) &&
        LOAM_LIKELY((*word & bits) == 0)) {
      store_word(word, *word | bits);
      span->free_slots = static_cast<uint16_t>(span->free_slots + run);
      move(giving, &span, 1);
      return run;
    }
  }
  return give_one(giving, pointers, span);
}

// Whether the next pointers most likely belong to one span, because some of them are at most
// kNearSlots slots from the first.
constexpr unsigned kNearPointers = 4, kNearSlots = 16;
LOAM_INLINE bool stand_near(void* const* pointers, size_t left, size_t bytes) {
  if (left < kNearPointers) return false;
  const size_t reach = kNearSlots * bytes;
  const uintptr_t from = reinterpret_cast<uintptr_t>(pointers[0]) - reach;
  const auto is_near = [&](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) - from < 2 * reach;
  };
  static_assert(kNearPointers == 4, "the first, and these");
  // No branch for each pointer, because it is unpredictable which pointers are near.
  return (unsigned{is_near(pointers[1])} & unsigned{is_near(pointers[2])} &
          unsigned{is_near(pointers[3])}) != 0;
}

// The distance between the next pointers, if it is most likely one slot in either direction,
// because the last one of kShortestRun is where it should be. Otherwise 0: to handle a shorter row
// separately costs no less.
constexpr unsigned kShortestRun = 16;
LOAM_INLINE ptrdiff_t step_of_row(void* const* pointers, size_t left, ptrdiff_t bytes) {
  if (left < kShortestRun) return 0;
  const ptrdiff_t step = static_cast<char*>(pointers[1]) - static_cast<char*>(pointers[0]);
  const ptrdiff_t reach =
      static_cast<char*>(pointers[kShortestRun - 1]) - static_cast<char*>(pointers[0]);
  return (step == bytes || step == -bytes) && reach == step * ptrdiff_t{kShortestRun - 1} ? step
                                                                                          : 0;
}

// Marks slots of one span as free. The span's slots begin at `base` and take `bytes` bytes. It
// stops at the first pointer that is no slot of the span, or a free one. Returns the number of
// marked slots. Not inline, so that its loop has all registers.
static LOAM_NOINLINE unsigned mark_slots(uint64_t* words, void* const* pointers, unsigned count,
                                         uintptr_t base, uintptr_t bytes, uint32_t reciprocal) {
  uint64_t* word = words;
  uint64_t bits = *word;
  void* const* next = pointers;
  void* const* const end = pointers + count;
  do {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(*next) - base;
    if (offset >= bytes) break;
    const uint64_t quotient = offset * reciprocal;
    if (LOAM_UNLIKELY(static_cast<uint32_t>(quotient) >= reciprocal)) break;  // as mark_slot()
    const uint64_t slot = quotient >> 32;
    if (uint64_t* const its = words + (slot >> 6); its != word) {
      store_word(word, bits);
      word = its;
      bits = *word;
    }
    const uint64_t more = bits | uint64_t{1} << (slot & 63);
    if (LOAM_UNLIKELY(more == bits)) break;
    bits = more;
  } while (++next != end);
  store_word(word, bits);
  return static_cast<unsigned>(next - pointers);
}

// Gives pointers, in any order, up to the first one outside of `span`, the span of the first
// pointer. Returns the number of given pointers. pre: 1 <= count
LOAM_INLINE unsigned Bin::give_near(Giving& giving, void* const* pointers, Span* span,
                                    unsigned count) {
  if (LOAM_LIKELY(is_own(span, giving.size_class))) {
    const SizeClassInfo& info = giving.info;
    const uintptr_t base = reinterpret_cast<uintptr_t>(pointers[0]) - offset_in(span, pointers[0]);
    const unsigned marked = mark_slots(span->free_bits, pointers, count, base,
                                       size_t{info.slots} * info.bytes, info.reciprocal);
    if (LOAM_LIKELY(marked != 0)) {
      span->free_slots = static_cast<uint16_t>(span->free_slots + marked);
      move(giving, &span, 1);
      return marked;
    }
  }
  return give_one(giving, pointers, span);
}

// Takes back spans at the beginning of the pointers whose slots all come now, and of which no slot
// was free before. Returns the number of pointers. This costs less than to mark and unmark slots,
// and is the usual case in a program that frees in order.
LOAM_INLINE unsigned Bin::give_whole_spans(unsigned size_class, void* const* pointers,
                                           unsigned count, Span** gone) {
  const SizeClassInfo& info = class_info(size_class);
  const unsigned slots = info.slots;
  const ptrdiff_t bytes = info.bytes;
  SpanFinder spans;
  unsigned done = 0;
  for (; count - done >= slots; done += slots) {
    void* const* const here = pointers + done;
    const uintptr_t first = reinterpret_cast<uintptr_t>(here[0]);
    const ptrdiff_t step = static_cast<char*>(here[1]) - static_cast<char*>(here[0]);
    if (step != bytes && step != -bytes) break;
    Span* const span = spans.at(first);
    if (!is_own(span, size_class) || span->free_slots != 0) break;
    if ((step > 0 ? first : reinterpret_cast<uintptr_t>(here[slots - 1])) != span_base(span)) break;
    if (run_length(here, slots, step) != slots) break;
    span->free_slots = static_cast<uint16_t>(slots);
    if (LOAM_UNLIKELY(counts_.empty_spans < most_empty_)) {
      mark_all_free(span, slots);
      counts_.free_slots += slots;
      push_empty(span);
      continue;
    }
    // Marked as free, so that a pointer that comes twice is still detected.
    for (unsigned slot = 0; slot < slots; slot += 64)
      store_word(&span->free_bits[slot / 64], ~uint64_t{0});
    if (LOAM_UNLIKELY(span->unbacked_pages != 0))
      counts_.unbacked_pages -= count_bits(span->unbacked_pages);
    span->set_list(kLeaving);
    span->next = *gone;
    *gone = span;
    counts_.spans -= 1;
  }
  totals_.given += done;
  return done;
}

// Gives pointers that lie in the spans in found[]. The function overwrites found[], which has room
// for one more. Not inline, so that its loop has all registers.
LOAM_NOINLINE void Bin::give_scattered(Giving& giving, void* const* pointers, Span** found,
                                       unsigned count) {
  const uint32_t reciprocal = giving.info.reciprocal, slots = giving.info.slots;
  const uint32_t scale = giving.info.list_scale, none_free = scaled_list(slots, scale);
  const uint32_t label = own_label(giving.size_class);
  unsigned moving = 0;
  found[count] = nullptr;
  for (unsigned i = 0; i != count;) {
    Span* const span = found[i];
    const uint32_t difference = span->label() - label;
    if (LOAM_UNLIKELY(difference << (32 - kListShift) != 0)) {
      give_other(giving, pointers + i++, span);
      continue;
    }
    uint32_t free_slots = span->free_slots;
    do {
      if (LOAM_LIKELY(mark_slot(span, offset_in(span, pointers[i]), reciprocal, slots))) {
        ++free_slots;
      } else {
        give_other(giving, pointers + i, span);
      }
    } while (found[++i] == span);
    span->free_slots = static_cast<uint16_t>(free_slots);
    // No branch, because it is unpredictable when a span leaves its list.
    found[moving] = span;
    moving += (none_free - free_slots * scale) >> kListShift != difference >> kListShift;
  }
  move(giving, found, moving);
}

void Bin::give_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class, void* const* pointers,
                      unsigned count) {
  Giving giving{pages, mixed, class_info(size_class), size_class, nullptr};
  if (const unsigned whole = give_whole_spans(size_class, pointers, count, &giving.gone)) {
    if (LOAM_LIKELY(whole == count)) {
      if (giving.gone != nullptr) pages.free_spans(giving.gone);
      if (LOAM_UNLIKELY(most_empty_ != 0) && idle_.begin_watch(backed_bytes(giving.info.bytes)))
        pages.hints().set_spans_wait(true);
      return;
    }
    pointers += whole;
    count -= whole;
  }
  give_some_locked(giving, pointers, count);
}

// Gives scattered pointers, up to the next ones that are near each other, and then these. The
// records of scattered pointers are all looked up first, so that the cache misses overlap. Near
// pointers are searched for only now and then. Free slots are counted before anything else: a child
// that is forked in the middle then counts more than there are, and never fewer than will be taken
// from it.
void Bin::give_some_locked(Giving& giving, void* const* pointers, unsigned count) {
  const ptrdiff_t bytes = giving.info.bytes;
  const unsigned slots = giving.info.slots;
  void* const* const end = pointers + count;
  counts_.free_slots += count;
  totals_.given += count;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  SpanFinder spans;
  while (pointers != end) {
    constexpr unsigned kPiece = 64, kStride = 8;
    static_assert(kPiece % kStride == 0, "strides fill a piece");
    Span* found[kPiece + 1];
    void* const* const scattered = pointers;
    Span** last = found;
    const auto look_up = [&]() __attribute__((always_inline)) {
      Span* const span = spans.at(reinterpret_cast<uintptr_t>(*pointers++));
      prefetch_for_write(span);
      *last++ = span;
    };
    const auto are_near = [&]() __attribute__((always_inline)) {
      return stand_near(pointers, static_cast<size_t>(end - pointers), size_t(bytes));
    };
    bool near;
    do {
      near = are_near();
      if (near) break;
      if (LOAM_LIKELY(static_cast<size_t>(end - pointers) >= kStride)) {
        static_assert(kStride == 8, "as often as here");
        look_up(), look_up(), look_up(), look_up();
        look_up(), look_up(), look_up(), look_up();
      } else {
        while (pointers != end) look_up();
      }
    } while (pointers != end && last != found + kPiece);
    if (last != found)
      give_scattered(giving, scattered, found, static_cast<unsigned>(last - found));
    for (; near; near = are_near()) {
      const unsigned left = static_cast<unsigned>(end - pointers);
      // Prefetches the next span's record while this span's slots are marked.
      if (left > slots) prefetch_for_write(spans.at(reinterpret_cast<uintptr_t>(pointers[slots])));
      const ptrdiff_t step = step_of_row(pointers, left, bytes);
      if (step == 0) {
        pointers +=
            give_near(giving, pointers, spans.at(reinterpret_cast<uintptr_t>(*pointers)), left);
        continue;
      }
      for (unsigned run = run_length(pointers, left, step); run != 0;) {
        const unsigned done =
            give_run(giving, pointers, spans.at(reinterpret_cast<uintptr_t>(*pointers)), run);
        pointers += done;
        run -= done;
      }
    }
  }
  if (giving.gone != nullptr) giving.pages.free_spans(giving.gone);
  if (LOAM_UNLIKELY(idle_.begin_watch(backed_bytes(giving.info.bytes))))
    giving.pages.hints().set_spans_wait(true);
}

size_t Bin::lendable_bytes_hint(unsigned size_class) const {
  const SizeClassInfo& info = class_info(size_class);
  const size_t free_slots = counts_.free_slots;
  const size_t bytes = backed_bytes(info.bytes);
  return bytes >= IdleSlots::kStep &&
                 free_slots >= (counts_.spans * info.slots - counts_.absent_slots) / 4
             ? bytes
             : 0;
}

void Bin::keep_empty_locked(size_t bytes, unsigned size_class) {
  most_empty_ = static_cast<uint16_t>(bytes / Pages(class_info(size_class).pages).bytes());
}

unsigned Bin::release_empty_locked(PageHeap& pages, unsigned size_class, unsigned most) {
  Span* gone = nullptr;
  unsigned released = 0;
  for (; released != most && !empty_.empty(); ++released) {
    Span* const span = empty_.back();
    unlink(span);
    release_span(span, class_info(size_class).slots, &gone);
  }
  if (gone != nullptr) pages.free_spans(gone);
  return released;
}

RemoteBatch* Bin::drain_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class) {
  if (LOAM_LIKELY(remote_.empty())) return nullptr;
  RemoteBatch* taken = remote_.take_all();
  for (RemoteBatch* batch = taken; batch != nullptr; batch = batch->next) {
    const unsigned count = static_cast<unsigned>(batch->count);
    give_locked(pages, mixed, size_class, batch->pointers, count);
    ++totals_.remote_batches;
    totals_.remote_blocks += count;
  }
  return taken;
}

size_t Bin::donatable_bytes_hint(unsigned size_class) const {
  const SizeClassInfo& info = class_info(size_class);
  if (!MixedHeap::serves(size_class)) return 0;
  const size_t free_slots = counts_.free_slots;
  const size_t slots = counts_.spans * info.slots - counts_.absent_slots;
  const size_t bytes = free_slots * info.bytes;
  return bytes >= IdleSlots::kStep && free_slots >= slots / donor_share(info) ? bytes : 0;
}

// False when the system refuses memory for the span's tables; the span is then the last of its
// list.
bool Bin::make_mixed(MixedHeap& mixed, Span* span, const SizeClassInfo& info, unsigned home,
                     Pages* lent) {
  // Read before the span is mixed, because other threads may change it from then on.
  const unsigned list = span->list, free_slots = span->free_slots,
                 unbacked = count_bits(span->unbacked_pages);
  const unsigned absent = count_bits(absent_pages(span));
  const unsigned own_slots =
      is_partial(span) ? static_cast<unsigned>(span->partial.own_slots) : info.slots;
  unlink(span);
  if (!mixed.convert(span, home, lent)) {
    lists_[list].push_back(span);
    ++occupancy_[list];
    occupied_ |= 1u << list;
    return false;
  }
  counts_.spans -= 1;
  counts_.free_slots -= free_slots;
  idle_.note(counts_.free_slots);
  counts_.unbacked_pages -= unbacked;
  counts_.absent_slots -= info.slots - own_slots;
  counts_.absent_pages -= absent;
  // totals_.taken - totals_.given counts the slots handed out from the bin's own spans. These slots
  // no longer belong to the bin.
  totals_.given += own_slots - free_slots;
  return true;
}

unsigned Bin::donate_locked(MixedHeap& mixed, unsigned size_class, size_t block_bytes,
                            size_t wanted_bytes, unsigned home) {
  const SizeClassInfo& info = class_info(size_class);
  const unsigned enough = static_cast<unsigned>((block_bytes + info.bytes - 1) / info.bytes);
  unsigned converted = 0, looked_at = 0;
  size_t gained = 0;
  for (unsigned list = 0; list < kSparseLists; ++list) {
    // Emptiest spans first, because a conversion costs the same whatever it brings. Spans that do
    // not fit go to the end of their list, so that the next search visits others.
    for (Span* last = lists_[list].back();
         last != nullptr && gained < wanted_bytes && looked_at < kSpansVisited;) {
      Span* span = lists_[list].front();
      const bool was_last = span == last;
      ++looked_at;
      const unsigned free_slots = span->free_slots;
      if (longest_free_run(span, info.slots, enough) < enough) {
        lists_[list].remove(span);
        lists_[list].push_back(span);
      } else {
        Pages lent;
        if (make_mixed(mixed, span, info, home, info.bytes > kFineLimit ? &lent : nullptr)) {
          gained += size_t{free_slots} * info.bytes;
          ++converted;
        }
      }
      if (was_last) break;
    }
  }
  return converted;
}

void Bin::add_stats_locked(BinStats* sum) const {
  sum->spans += counts_.spans;
  sum->free_slots += counts_.free_slots;
  sum->unbacked_pages += counts_.unbacked_pages;
  sum->absent_slots += counts_.absent_slots;
  sum->absent_pages += counts_.absent_pages;
  sum->taken += totals_.taken;
  sum->given += totals_.given;
  sum->queued += remote_.queued();
  sum->remote_batches += totals_.remote_batches;
  sum->remote_blocks += totals_.remote_blocks;
  for (unsigned k = 0; k < kLists; ++k) sum->occupancy[k] += occupancy_[k];
  sum->lock_acquisitions += mutex_.acquisitions();
  sum->lock_contentions += mutex_.contentions();
  sum->lock_refusals += mutex_.refusals();
}

bool Bin::partial_is_valid(const Span* span, unsigned size_class) const {
  const SizeClassInfo& info = class_info(size_class);
  unsigned own = 0;
  for (unsigned slot = 0; slot < info.slots; ++slot) {
    const bool absent = is_absent(span, slot, info);
    if (absent && slot_is_free(span, slot)) return false;
    own += !absent;
  }
  for (unsigned page = 0; page < info.pages; ++page) {
    const bool absent = ((span->partial.absent_pages >> page) & 1) != 0;
    if (absent ? ((span->unbacked_pages >> page) & 1) != 0
               : span_at(span_base(span) + Pages(page).bytes()) != span)
      return false;
  }
  return own == span->partial.own_slots && own != span->free_slots &&
         is_own_partial(span, size_class);
}

bool Bin::is_valid_locked(unsigned size_class) const {
  const SizeClassInfo& info = class_info(size_class);
  size_t free_slots = 0, unbacked = 0;
  for (unsigned k = 0; k < kLists; ++k) {
    size_t spans = 0;
    if (((occupied_ >> k) & 1) == lists_[k].empty() || !lists_[k].is_valid()) return false;
    for (const Span* span : lists_[k]) {
      const unsigned bits = count_free(span);
      if (bits != span->free_slots || bits == 0 || span->list != k) return false;
      if (is_partial(span)) {
        if (!partial_is_valid(span, size_class) || list_of_partial(span) != k) return false;
      } else if (list_of(info.slots - bits, info) != k || !is_own(span, size_class)) {
        return false;
      }
      free_slots += bits;
      unbacked += count_bits(span->unbacked_pages);
      ++spans;
    }
    if (k == 0) spans += counts_.empty_spans;
    if (spans != occupancy_[k]) return false;
  }
  size_t empty = 0;
  for (const Span* span : empty_) {
    const unsigned bits = count_free(span);
    if (bits != info.slots || span->free_slots != bits || span->list != kEmptyList ||
        !is_own(span, size_class))
      return false;
    free_slots += bits;
    unbacked += count_bits(span->unbacked_pages);
    ++empty;
  }
  if (!empty_.is_valid() || empty != counts_.empty_spans || empty > most_empty_) return false;
  return free_slots == counts_.free_slots && unbacked == counts_.unbacked_pages &&
         totals_.taken - totals_.given ==
             counts_.spans * info.slots - counts_.absent_slots - counts_.free_slots;
}

}  // namespace loam
