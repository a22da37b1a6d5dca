#include "small/mixed_part.h"

#include "base/cpu.h"
#include "map/metadata.h"
#include "os/fatal.h"
#include "os/os.h"
#include "pages/page_heap.h"
#include "small/partial_span.h"

namespace loam {

namespace {

constexpr uint8_t kFullList = 0xff;
// The first list whose spans may have a free page.
constexpr unsigned kPageList = class_for(kPageBytes) - 1;
constexpr uint8_t kGoing = 0xfe;  // in no list: empty, and about to go back

LOAM_INLINE unsigned granule_in(const Span* span, const void* address) {
  return offset_in(span, address) >> kGranuleShift;
}

// An upper bound of the level of the span's longest free range.
LOAM_INLINE unsigned level_of(const Span* span) { return static_cast<uint8_t>(span->list + 1); }
static_assert(static_cast<uint8_t>(kFullList + 1) == 0, "full spans have no free range");
static_assert(MixedPart::kLists <= kGoing);

unsigned absent_granules(const Span* span) {
  return count_bits(absent_pages(span)) * kGranulesPerPage;
}

// The free granules in the span's own pages.
unsigned own_free_granules(const Span* span) { return span->free_slots - absent_granules(span); }

uint32_t pages_of_granules(unsigned first, unsigned count) {
  const unsigned page = first / kGranulesPerPage;
  return static_cast<uint32_t>(bit_range(page, (first + count - 1) / kGranulesPerPage - page + 1));
}

}  // namespace

Pages purge_idle_pages(Span* span, uint32_t idle) {
  const unsigned grain = static_cast<unsigned>(os::granularity() >> kPageShift);
  size_t purged = 0;
  for_each_run(idle & ~span->unbacked_pages, [&](unsigned first, unsigned length, uint32_t) {
    const uintptr_t page = (span_base(span) >> kPageShift) + first;
    const uintptr_t begin = (page + grain - 1) / grain * grain;
    const uintptr_t end = (page + length) / grain * grain;
    if (begin >= end) return;
    void* const pages = reinterpret_cast<void*>(begin << kPageShift);
    PageHeap::keep_small_pages(span);
    if (!os::purge(pages, (end - begin) << kPageShift)) return;
    const unsigned count = static_cast<unsigned>(end - begin);
    span->unbacked_pages |= static_cast<uint32_t>(bit_range(first + unsigned(begin - page), count));
    purged += count;
  });
  return Pages(purged);
}

void MixedPart::unlink(Span* span) {
  if (LOAM_UNLIKELY(span == last_to_search_)) last_to_search_ = nullptr;
  if (span->list == kFullList) return full_.remove(span);
  List<Span>& list = lists_[span->list];
  list.remove(span);
  if (list.empty()) occupied_.clear(span->list);
}

// `level`: an upper bound of the level of the longest free range; 0 = no granule is free.
void MixedPart::place(Span* span, unsigned level) {
  const uint8_t list = static_cast<uint8_t>(level - 1);
  if (list == span->list) return;
  unlink(span);
  span->set_list(list);
  if (list == kFullList) return full_.push_front(span);
  lists_[list].push_front(span);
  occupied_.set(list);
}

// Makes a mixed span without a block, in the list of spans without a free range.
void MixedPart::open(Span* span, void* tables, uint32_t absent) {
  // These stores come first, and are release: seems_live() reads the bits of live blocks without a
  // lock, and the tables' address now takes the place of these bits.
  span->set_run_kind(SpanKind::kMixed);
  __atomic_store_n(&span->mixed.part, this, __ATOMIC_RELEASE);
  __atomic_store_n(&span->mixed.tables, reinterpret_cast<uintptr_t>(tables), __ATOMIC_RELEASE);
  __atomic_store_n(&span->mixed.absent_pages, absent, __ATOMIC_RELAXED);
  const MixedTables t(span);
  t.set_free(0, t.granules());
  if (LOAM_UNLIKELY(absent != 0)) t.mark_absent(absent);
  span->free_slots = static_cast<uint16_t>(t.granules());
  span->set_list(kFullList);
  full_.push_front(span);
  ++spans_;
  ++totals_.converted;
  span_pages_ += span->page_count - count_bits(absent);
  free_granules_ += own_free_granules(span);
  unbacked_pages_ += count_bits(span->unbacked_pages);
}

bool MixedPart::convert(PageHeap& heap, Span* span, Pages* lent) {
  const unsigned pages = span->page_count;
  void* const tables = metadata.allocate(mixed_table_bytes(pages));
  if (tables == nullptr) return false;
  uint64_t free_slots[kMaxSlots / 64];
  for (unsigned i = 0; i < kMaxSlots / 64; ++i) free_slots[i] = span->free_bits[i];
  const uint32_t absent = absent_pages(span);
  const unsigned size_class = index_of(span->size_class);
  const SizeClassInfo& info = kSizeClasses[size_class];
  const unsigned granules = info.bytes >> kGranuleShift;

  Lock lock(mutex_);
  open(span, tables, absent);
  const MixedTables t(span);
  unsigned used = 0;
  for (unsigned slot = 0; slot < info.slots; ++slot) {
    if ((free_slots[slot >> 6] >> (slot & 63)) & 1) continue;
    if ((absent & pages_of_slot(slot, info)) != 0) continue;
    t.set_start(slot * granules);
    t.set_used(slot * granules, granules);
    ++used;
  }
  span->free_slots = static_cast<uint16_t>(t.granules() - used * granules);
  free_granules_ -= used * granules;
  // Until other threads see this, they may free blocks under the old class byte. The bin of that
  // class then passes these blocks on.
  const uint32_t own = static_cast<uint32_t>(bit_range(0, pages)) & ~absent;
  for_each_run(own, [&](unsigned first, unsigned length, uint32_t) {
    publish_pages(region_of(span), span, PageId(span->first_page + first), Pages(length),
                  SizeClass(kMixedClass));
  });
  blocks_[size_class] += used;
  totals_.taken += used;  // their bin counts them as given
  if (lent != nullptr) *lent = lend_pages(heap, span);
  place(span, t.level());
  note_free(heap);
  return true;
}

// Call after ranges became free.
LOAM_INLINE void MixedPart::note_free(PageHeap& pages) {
  if (LOAM_UNLIKELY(idle_.begin_watch(backed_bytes()))) pages.hints().set_spans_wait(true);
}

// Makes a mixed span of a backed run. It tries half of a span's length, then half of that, and so
// on. Longer runs waste less behind their last block; one page serves every class of mixed spans.
bool MixedPart::add_backed(PageHeap& pages, unsigned size_class, From from) {
  if (from != From::kLent && !pages.hints().pages_wait())
    return false;  // little is free: not worth a search
  const unsigned least =
      static_cast<unsigned>((kSizeClasses[size_class].bytes + kPageBytes - 1) >> kPageShift);
  for (unsigned count = kSizeClasses[size_class].pages / 2u; count >= least; count /= 2) {
    Span* span = pages.allocate_span({Pages(count), kNoClass, SizeClass(kMixedClass), 0},
                                     PageHeap::Source::kBacked);
    if (span == nullptr) continue;
    void* const tables = metadata.allocate(mixed_table_bytes(count));
    if (tables == nullptr) {
      pages.free(span);
      return false;
    }
    open(span, tables, 0);
    place(span, kLists);
    return true;
  }
  return false;
}

// Cuts blocks from the free ranges of one span, lowest address first, and finds its longest range
// on the way.
unsigned MixedPart::carve(Span* span, unsigned granules, void** next, unsigned wanted) {
  const MixedTables t(span);
  const uintptr_t base = span_base(span);
  unsigned got = 0, longest = 0;
  bool complete = true;
  for (unsigned first = t.find_free(0); first < t.granules();) {
    const unsigned end = t.free_end(first);
    const unsigned range_begin = first;
    while (end - first >= granules && got < wanted) {
      t.set_start(first);
      *--next = reinterpret_cast<void*>(base + (size_t{first} << kGranuleShift));
      first += granules;
      ++got;
    }
    if (first != range_begin) t.set_used(range_begin, first - range_begin);
    if (end - first > longest) longest = end - first;
    if (got == wanted) {
      complete = false;
      break;
    }
    first = t.find_free(end);
  }
  if (got != 0 && LOAM_UNLIKELY(span->unbacked_pages != 0)) {
    for (unsigned i = 0; i < got; ++i) {
      const uintptr_t offset = reinterpret_cast<uintptr_t>(next[i]) - base;
      const uint32_t back =
          span->unbacked_pages &
          pages_of_granules(static_cast<unsigned>(offset >> kGranuleShift), granules);
      unbacked_pages_ -= count_bits(back);
      span->unbacked_pages &= ~back;
    }
  }
  span->free_slots = static_cast<uint16_t>(span->free_slots - got * granules);
  free_granules_ -= size_t{got} * granules;
  // If the loop stopped early, the old bound still holds. A span without a free granule gets bound
  // 0.
  if (complete) {
    place(span, level_of_range(longest));
  } else if (own_free_granules(span) == 0) {
    place(span, 0);
  }
  return got;
}

// The next span in the list is likely to be used next. Prefetches its tables, and the record behind
// it.
LOAM_INLINE void ask_for_next(const Span* span) {
  const Span* const next = List<Span>::next(span);
  if (next == nullptr) return;
  prefetch_for_write(MixedTables(next).word);
  if (const Span* const after = List<Span>::next(next)) prefetch_for_write(after);
}

unsigned MixedPart::take_locked(PageHeap& pages, Refill& refill, From from) {
  const unsigned size_class = refill.size_class;
  const unsigned granules = kSizeClasses[size_class].bytes >> kGranuleShift;
  unsigned got = 0;
  while (refill.missing() != 0) {
    const unsigned list = occupied_.find_set(size_class - 1);
    if (list == kNoList) {
      if (from == From::kSpans || !add_backed(pages, size_class, from)) break;
      continue;
    }
    Span* const span = lists_[list].front();
    if (LOAM_UNLIKELY(is_sealed(span)) && !unseal(span)) break;
    ask_for_next(span);
    const unsigned cut = carve(span, granules, refill.next, refill.missing());
    refill.next -= cut;
    got += cut;
  }
  if (got == 0) return 0;  // adding nothing would touch a page
  idle_.note(free_granules_);
  blocks_[size_class] += got;
  totals_.taken += got;
  return got;
}

// A pointer into a mixed span at which no block begins.
LOAM_COLD void MixedPart::refuse(const Span* span, const void* pointer) {
  const MixedView view(span);
  const unsigned granule = granule_in(span, pointer);
  Mutex* const held = outer_ != nullptr ? outer_ : &mutex_;
  if (view.tables.is_free(granule)) return report_misuse("double free", pointer, held);
  unsigned first = granule;
  while (first != 0 && !view.tables.starts(first)) --first;
  const size_t inside = size_t{granule - first} << kGranuleShift;
  // Described here, because the code that describes addresses for reports has no lock, and so
  // cannot read the tables.
  ReportLine what;
  what.add("free of a pointer into the middle of a block, ")
      .add_number(inside)
      .add(" bytes into the block at ");
  what.add_hex(reinterpret_cast<uintptr_t>(pointer) - inside).add(" of ");
  what.add_number(size_t{view.tables.block_granules(first)} << kGranuleShift).add(" bytes");
  report_misuse(what.text(), pointer, held);
}

// Moves spans with a longer free range than before between lists, and takes empty spans out.
// `spans` may name a span more than once.
void MixedPart::move(Span* const* spans, const uint8_t* levels, unsigned count, Span** gone) {
  // The neighbours in the lists are anywhere in memory, so they are prefetched together.
  for (unsigned i = 0; i < count; ++i) {
    prefetch_for_write(List<Span>::next(spans[i]));
    prefetch_for_write(List<Span>::previous(spans[i]));
  }
  for (unsigned i = 0; i < count; ++i) {
    Span* const span = spans[i];
    if (LOAM_UNLIKELY(span->free_slots == span->page_count * kGranulesPerPage)) {
      if (span->list == kGoing) continue;
      unlink(span);
      span->set_list(kGoing);
      span->next = *gone;
      *gone = span;
    } else if (levels[i] > level_of(span)) {
      place(span, levels[i]);
    }
  }
}

unsigned MixedPart::give_locked(PageHeap& pages, void** pointers, Span** spans, unsigned count,
                                Kept* kept) {
  Span* moved[kPiece];
  uint8_t levels[kPiece];
  unsigned moving = 0, strangers = 0;
  for (unsigned i = 0; i < count; ++i) {
    Span* const span = spans[i];
    const MixedTables t(span);
    const unsigned first = granule_in(span, pointers[i]);
    // A block that was free already does not keep its span. Since the look-up, the record may have
    // become that of other pages.
    if (LOAM_UNLIKELY(!holds_locked(span)) || LOAM_UNLIKELY(first >= t.granules())) {
      pointers[strangers++] = pointers[i];
      continue;
    }
    const bool sealed = LOAM_UNLIKELY(is_sealed(span));
    const unsigned granules = sealed            ? sealed_granules(span, first)
                              : t.starts(first) ? t.block_granules(first)
                                                : 0;
    if (LOAM_UNLIKELY(granules == 0)) {
      refuse(span, pointers[i]);
      continue;
    }
    const unsigned size_class = class_for(size_t{granules} << kGranuleShift);
    if (kept != nullptr && kept->wanted[size_class] != 0) {
      --kept->wanted[size_class];
      kept->size_class[kept->count] = static_cast<uint8_t>(size_class);
      kept->block[kept->count++] = pointers[i];
      continue;
    }
    const unsigned level = LOAM_UNLIKELY(sealed) ? free_sealed(span, first)
                                                 : t.free_block(first, granules, level_of(span));
    --blocks_[size_class];
    ++totals_.given;
    const unsigned free_here = span->free_slots + granules;
    span->free_slots = static_cast<uint16_t>(free_here);
    free_granules_ += granules;
    // No branch, because it is unpredictable when a range is the longest.
    moved[moving] = span;
    levels[moving] = static_cast<uint8_t>(level);
    moving += unsigned{level > level_of(span)} | unsigned{free_here == t.granules()};
  }
  Span* gone = nullptr;  // linked through `next`
  move(moved, levels, moving, &gone);
  if (gone != nullptr) release(pages, gone);
  note_free(pages);
  return strangers;
}

// Gives the spans without a block to the page heap.
LOAM_NOINLINE void MixedPart::release(PageHeap& pages, Span* gone) {
  for (Span* span = gone; span != nullptr; span = List<Span>::next(span)) {
    const uint32_t absent = absent_pages(span);
    --spans_;
    span_pages_ -= span->page_count - count_bits(absent);
    free_granules_ -= own_free_granules(span);
    unbacked_pages_ -= count_bits(span->unbacked_pages);
    if (LOAM_LIKELY(!is_sealed(span)))
      metadata.free(MixedTables(span).word, mixed_table_bytes(span->page_count));
    // Only the span's own pages go back, as those of a partial span.
    if (LOAM_UNLIKELY(absent != 0)) {
      span->partial.absent_pages = absent;
      span->set_run_kind(SpanKind::kPartial);
    }
  }
  pages.free_spans(gone);
}

size_t MixedPart::block_bytes_locked(const Span* span, uintptr_t address) {
  const unsigned first = granule_in(span, reinterpret_cast<const void*>(address));
  if (LOAM_UNLIKELY(is_sealed(span))) return size_t{sealed_granules(span, first)} << kGranuleShift;
  const MixedTables t(span);
  return t.starts(first) ? size_t{t.block_granules(first)} << kGranuleShift : 0;
}

// Gives the span's tables back, if its record has room for all of its blocks.
void MixedPart::seal(Span* span) {
  const MixedTables t(span);
  const uint32_t absent = span->mixed.absent_pages;
  SealedBlock blocks[SealedBlock::kMost] = {};
  unsigned count = 0;
  const auto next_start = [&](unsigned from) {
    return t.find(from, [](const GranuleWord& w) { return w.start; });
  };
  for (unsigned first = next_start(0); first != t.granules(); first = next_start(first + 1)) {
    if (((absent >> first / kGranulesPerPage) & 1) != 0) continue;  // never handed out
    if (count == SealedBlock::kMost) return;
    blocks[count++] = SealedBlock{first, t.block_granules(first)};
  }
  seal_with(span, blocks);
  metadata.free(t.word, mixed_table_bytes(span->page_count));
}

// Makes a sealed span's tables again. False when memory for them is refused; the span is then
// unchanged.
LOAM_NOINLINE bool MixedPart::unseal(Span* span) {
  void* const tables = metadata.allocate(mixed_table_bytes(span->page_count));
  if (tables == nullptr) return false;
  MixedTables(span, static_cast<GranuleWord*>(tables)).fill_from_sealed(span);
  __atomic_store_n(&span->mixed.tables, reinterpret_cast<uintptr_t>(tables),
                   __ATOMIC_RELEASE);  // as seal_with()
  return true;
}

// As MixedTables::free_block(), for a sealed span. The span stays sealed, so a free needs no
// memory.
LOAM_NOINLINE unsigned MixedPart::free_sealed(Span* span, unsigned first) {
  SealedBlock left[SealedBlock::kMost] = {};
  for (unsigned i = 0; i < SealedBlock::kMost; ++i) {
    const SealedBlock block = SealedBlock::in(span, i);
    if (block.first != first) left[i] = block;
  }
  seal_with(span, left);
  return MixedView(span).tables.level();
}

Pages MixedPart::compact_locked() {
  Pages purged;
  const auto compact_in = [&](List<Span>& list, bool may_have_pages) {
    for (Span* span : list) {
      if (may_have_pages) {
        const Pages here = purge_idle_pages(span, MixedView(span).tables.free_pages());
        unbacked_pages_ += here.count;
        purged += here;
      }
      if (!is_sealed(span)) seal(span);
    }
  };
  for (unsigned list = 0; list < kLists; ++list) compact_in(lists_[list], list >= kPageList);
  compact_in(full_, false);
  return purged;
}

size_t MixedPart::lendable_bytes_hint() const {
  const size_t backed = backed_bytes();
  return backed >= IdleSlots::kStep &&
                 free_granules_ << kGranuleShift >= Pages(span_pages_ / 4).bytes()
             ? backed
             : 0;
}

// Gives the idle pages of the span to the page heap. Returns how many of them are backed; if none
// is, it does nothing.
Pages MixedPart::lend_pages(PageHeap& pages, Span* span) {
  const MixedView view(span);
  const MixedTables& t = view.tables;
  const uint32_t idle = t.free_pages();
  const Pages backed(count_bits(idle & ~span->unbacked_pages));
  if (backed == Pages(0)) return backed;
  t.mark_absent(idle);
  __atomic_store_n(&span->mixed.absent_pages, span->mixed.absent_pages | idle, __ATOMIC_RELAXED);
  span_pages_ -= count_bits(idle);
  free_granules_ -= count_bits(idle) * kGranulesPerPage;
  unbacked_pages_ -= count_bits(span->unbacked_pages & idle);
  pages.free_pages_of(span, idle);
  span->unbacked_pages &= ~idle;
  return backed;
}

// Lends pages of the list's first span. The span then moves to its new list, or to the end of this
// list if it lent none.
Pages MixedPart::lend_front(PageHeap& pages, unsigned list) {
  Span* const span = lists_[list].front();
  const Pages lent = lend_pages(pages, span);
  if (lent != Pages(0)) {
    place(span, MixedView(span).tables.level());
  } else {
    lists_[list].remove(span);
    lists_[list].push_back(span);
  }
  return lent;
}

Pages MixedPart::lend_locked(PageHeap& pages, Pages wanted) {
  Pages lent;
  unsigned looked_at = 0;
  // The emptiest spans first.
  for (unsigned list = kLists; list-- != kPageList;) {
    for (const Span* last = lists_[list].back();
         last != nullptr && lent < wanted && looked_at < kSpansVisited; ++looked_at) {
      const bool was_last = lists_[list].front() == last;
      lent += lend_front(pages, list);
      if (was_last) break;
    }
  }
  idle_.note(free_granules_);
  return lent;
}

size_t MixedPart::fallen_bytes_hint() const {
  const size_t spans = Pages(span_pages_).bytes(), free = free_granules_ << kGranuleShift;
  return idle_.fallen(backed_bytes(), free < spans ? spans - free : 0);
}

void MixedPart::end_period_locked() {
  idle_.end_period(free_granules_);
  if (list_to_search_ == 0 && unwanted_pages() != Pages(0)) search_below(kLists);
}

// Starts a search of the next list in which a span may have a free page.
void MixedPart::search_below(unsigned list) {
  while (list != kPageList && lists_[list - 1].empty()) --list;
  list_to_search_ = static_cast<uint8_t>(list == kPageList ? 0 : list);
  last_to_search_ = list_to_search_ == 0 ? nullptr : lists_[list - 1].back();
}

unsigned MixedPart::lend_unwanted_locked(PageHeap& pages, unsigned looks) {
  while (list_to_search_ != 0) {
    if (unwanted_pages() == Pages(0)) {
      list_to_search_ = 0;
      break;
    }
    if (last_to_search_ == nullptr) {
      search_below(list_to_search_ - 1u);
      if (list_to_search_ == 0) idle_.end_watch(backed_bytes());
      continue;
    }
    if (looks < kLooksAPurge) break;
    const unsigned list = list_to_search_ - 1u;
    const bool was_last = lists_[list].front() == last_to_search_;
    const Pages lent = lend_front(pages, list);
    if (was_last) last_to_search_ = nullptr;
    idle_.give_away(lent.count * kGranulesPerPage);
    looks -= lent == Pages(0) ? 1 : kLooksAPurge;
  }
  return looks;
}

void MixedPart::add_stats_locked(MixedStats* sum) const {
  sum->spans += spans_;
  sum->span_bytes += Pages(span_pages_).bytes();
  sum->free_bytes += free_granules_ << kGranuleShift;
  sum->unbacked_pages += unbacked_pages_;
  sum->converted += totals_.converted;
  sum->taken += totals_.taken;
  sum->given += totals_.given;
}

bool MixedPart::is_valid_locked() const {
  size_t spans = 0, pages = 0, free_granules = 0, unbacked = 0;
  size_t blocks[kSizeClassCount] = {};
  const auto span_is_valid = [&](const Span* span, unsigned list) {
    if (!holds_locked(span) || span->list != list) return false;
    const MixedView view(span);
    const MixedTables& t = view.tables;
    unsigned free_here = 0, longest = 0;
    for (unsigned w = 0; w < t.words; ++w) {
      if ((t.word[w].free & t.word[w].start) != 0) return false;
      free_here += count_bits(t.word[w].free);
    }
    for (unsigned i = 0; i < t.granules();) {
      if (((absent_pages(span) >> i / kGranulesPerPage) & 1) != 0) {
        if (i % kGranulesPerPage != 0 || !t.starts(i)) return false;
        i += kGranulesPerPage;
        free_here += kGranulesPerPage;
        continue;
      }
      if (t.starts(i)) {
        const unsigned end = t.block_end(i + 1);
        const size_t bytes = size_t{end - i} << kGranuleShift;
        if (bytes > kLargestBlock || kSizeClasses[class_for(bytes)].bytes != bytes) return false;
        ++blocks[class_for(bytes)];
        i = end;
        continue;
      }
      const unsigned end = t.free_end(i);
      if (end == i) return false;  // used, and part of no block
      if (end - i > longest) longest = end - i;
      i = end;
    }
    ++spans;
    pages += span->page_count - count_bits(absent_pages(span));
    free_granules += free_here - absent_granules(span);
    unbacked += count_bits(span->unbacked_pages);
    return free_here == span->free_slots && free_here != t.granules() &&
           level_of_range(longest) <= level_of(span);
  };
  for (unsigned k = 0; k < kLists; ++k) {
    if (occupied_.test(k) == lists_[k].empty()) return false;
    for (const Span* span : lists_[k]) {
      if (!span_is_valid(span, k)) return false;
    }
  }
  for (const Span* span : full_) {
    if (!span_is_valid(span, kFullList)) return false;
  }
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    if (blocks[c] != blocks_[c]) return false;
  }
  return occupied_.is_valid() && spans == spans_ && pages == span_pages_ &&
         free_granules == free_granules_ && unbacked == unbacked_pages_;
}

}  // namespace loam
