#include "small/mixed_shard.h"

#include "base/cpu.h"
#include "map/metadata.h"
#include "os/os.h"

namespace loam {

namespace {

constexpr uint8_t kFullList = 0xff;
constexpr uint8_t kGoing = 0xfe;  // in no list: empty, and about to go back

// 64 granules of both tables. The words of a page are one line: a free looks at one.
struct Word {
  uint64_t free;
  uint64_t start;

  [[nodiscard]] uint64_t borders() const { return free | start; }  // where a block ends
};
constexpr unsigned kWordsPerPage = kGranulesPerPage / 64;
static_assert(kWordsPerPage * sizeof(Word) == kCacheLine, "a page's words");

// What is before and behind a span's words: nothing free, and no block goes on.
constexpr Word kOutside = {0, ~uint64_t{0}};

// 64 bits of two words one after the other, from that bit of the first on; and those up to that bit of the second.
// pre: bit < 64
LOAM_INLINE uint64_t bits_from(uint64_t word, uint64_t next, unsigned bit) {
  return word >> bit | next << 1 << (63 - bit);
}
LOAM_INLINE uint64_t bits_before(uint64_t previous, uint64_t word, unsigned bit) {
  return previous >> bit | word << 1 << (63 - bit);
}
static_assert(MixedShard::kLargestBlock / kGranuleBytes <= 64, "a block's end is among the next 64 granules");

// The tables of a span.
struct Tables {
  Word* word;
  unsigned words;

  explicit Tables(const Span* span)
      : word(reinterpret_cast<Word*>(span->mixed.tables)), words(span->page_count * kWordsPerPage) {}

  [[nodiscard]] unsigned granules() const { return words * 64; }
  [[nodiscard]] bool starts(unsigned i) const { return (word[i >> 6].start >> (i & 63)) & 1; }
  [[nodiscard]] bool is_free(unsigned i) const { return (word[i >> 6].free >> (i & 63)) & 1; }

  // The first granule at or after `from` whose bit is set in what `of` makes of its word; granules() if none is.
  template <class Of>
  [[nodiscard]] LOAM_INLINE unsigned find(unsigned from, Of of) const {
    unsigned w = from >> 6;
    if (w >= words) return granules();
    uint64_t bits = of(word[w]) & (~uint64_t{0} << (from & 63));
    while (bits == 0) {
      if (++w == words) return granules();
      bits = of(word[w]);
    }
    return w * 64 + lowest_bit(bits);
  }
  [[nodiscard]] unsigned block_end(unsigned from) const {
    return find(from, [](const Word& w) { return w.borders(); });
  }
  [[nodiscard]] unsigned find_free(unsigned from) const {
    return find(from, [](const Word& w) { return w.free; });
  }
  [[nodiscard]] unsigned free_end(unsigned from) const {
    return find(from, [](const Word& w) { return ~w.free; });
  }

  template <class Op>
  LOAM_INLINE void over_range(unsigned first, unsigned count, Op op) const {
    for (unsigned w = first >> 6, bit = first & 63; count != 0; ++w, bit = 0) {
      const unsigned here = count < 64 - bit ? count : 64 - bit;
      op(word[w].free, bit_range(bit, here));
      count -= here;
    }
  }
  void set_free(unsigned first, unsigned count) const {
    over_range(first, count, [](uint64_t& bits, uint64_t mask) { bits |= mask; });
  }
  void set_used(unsigned first, unsigned count) const {
    over_range(first, count, [](uint64_t& bits, uint64_t mask) { bits &= ~mask; });
  }
  void set_start(unsigned i) const { word[i >> 6].start |= uint64_t{1} << (i & 63); }

  // Of the block that begins there. No branch: blocks end, and ranges reach into other words, as chance has it.
  [[nodiscard]] LOAM_INLINE unsigned block_granules(unsigned first) const {
    const unsigned w = first >> 6, bit = first & 63;
    const Word* const next = w + 1 == words ? &kOutside : &word[w + 1];
    // Of the granules behind the first one. The last bit for a block that is whole only so, and against damage.
    const uint64_t rest = word[w].borders() >> bit >> 1 | next->borders() << (63 - bit);
    return lowest_bit(rest | uint64_t{1} << 63) + 1;
  }

  // Makes a block's granules free. Returns how many the free range has that they are now in, up to 64. No branch.
  // pre: starts(first), granules == block_granules(first)
  [[nodiscard]] LOAM_INLINE unsigned free_block(unsigned first, unsigned granules) const {
    const unsigned w = first >> 6, bit = first & 63;
    Word* const here = &word[w];
    const bool is_last = w + 1 == words;
    const Word* const next = is_last ? &kOutside : here + 1;
    const Word* const previous = w == 0 ? &kOutside : here - 1;
    const uint64_t block = ~uint64_t{0} >> (64 - granules);
    const uint64_t low = here->free | block << bit, high = next->free | block >> 1 >> (63 - bit);
    const uint64_t before = bits_before(previous->free, here->free, bit);
    here->start &= ~(uint64_t{1} << bit);
    here->free = low;
    here[is_last ? 0 : 1].free = is_last ? low : high;
    const uint64_t used_before = ~before, used_from = ~bits_from(low, high, bit);
    const unsigned range = (used_before != 0 ? 63 - highest_bit(used_before) : 64) +
                           (used_from != 0 ? lowest_bit(used_from) : 64);
    return range < 64 ? range : 64;
  }
};

size_t table_bytes(unsigned pages) { return pages * kWordsPerPage * sizeof(Word); }

LOAM_INLINE unsigned granule_in(const Span* span, const void* address) {
  return offset_in(span, address) >> kGranuleShift;
}

// An upper bound of the span's longest free range, in granules; the last list's spans may have longer ones.
LOAM_INLINE unsigned bound_of(const Span* span) { return static_cast<uint8_t>(span->list + 1); }
static_assert(static_cast<uint8_t>(kFullList + 1) == 0, "full spans have no free range");

uint32_t pages_of_granules(unsigned first, unsigned count) {
  const unsigned page = first / kGranulesPerPage;
  return static_cast<uint32_t>(bit_range(page, (first + count - 1) / kGranulesPerPage - page + 1));
}

}  // namespace

Pages purge_idle_pages(Span* span, uint32_t idle) {
  const unsigned grain = static_cast<unsigned>(os::granularity() >> kPageShift);
  size_t purged = 0;
  idle &= ~span->unbacked_pages;
  while (idle != 0) {
    const unsigned first = lowest_bit(idle);
    const unsigned length = lowest_bit(~(uint64_t{idle} >> first));
    idle &= ~static_cast<uint32_t>(bit_range(first, length));
    const uintptr_t page = (span_base(span) >> kPageShift) + first;
    const uintptr_t begin = (page + grain - 1) / grain * grain;
    const uintptr_t end = (page + length) / grain * grain;
    if (begin >= end) continue;
    if (!os::purge(reinterpret_cast<void*>(begin << kPageShift), (end - begin) << kPageShift)) continue;
    const unsigned count = static_cast<unsigned>(end - begin);
    span->unbacked_pages |= static_cast<uint32_t>(bit_range(first + unsigned(begin - page), count));
    purged += count;
  }
  return Pages(purged);
}

void MixedShard::unlink(Span* span) {
  if (span->list == kFullList) return full_.remove(span);
  List<Span>& list = lists_[span->list];
  list.remove(span);
  if (list.empty()) {
    occupied_.store(occupied_.load(std::memory_order_relaxed) & ~(uint64_t{1} << span->list),
                    std::memory_order_relaxed);
  }
}

// `longest`: an upper bound of the longest free range, in granules; 0 = nothing free.
void MixedShard::place(Span* span, unsigned longest) {
  const uint8_t list = longest == 0 ? kFullList : static_cast<uint8_t>((longest < kLists ? longest : kLists) - 1);
  if (list == span->list) return;
  unlink(span);
  span->set_list(list);
  if (list == kFullList) return full_.push_front(span);
  lists_[list].push_front(span);
  occupied_.store(occupied_.load(std::memory_order_relaxed) | uint64_t{1} << list, std::memory_order_relaxed);
}

// A mixed span without a block, in the list of those without a free range.
void MixedShard::open(Span* span, uint64_t* tables) {
  // First of all, and release: heap::seems_live() looks without a lock at live blocks' bits, in whose place the tables'
  // address now stands.
  span->set_run_kind(SpanKind::kMixed);
  __atomic_store_n(&span->mixed.shard, this, __ATOMIC_RELEASE);
  __atomic_store_n(&span->mixed.tables, tables, __ATOMIC_RELEASE);
  const Tables t(span);
  t.set_free(0, t.granules());
  span->free_slots = static_cast<uint16_t>(t.granules());
  span->set_list(kFullList);
  full_.push_front(span);
  ++spans_;
  ++converted_;
  span_pages_ += span->page_count;
  free_granules_ += t.granules();
  unbacked_pages_ += count_bits(span->unbacked_pages);
}

bool MixedShard::convert(Span* span) {
  const unsigned pages = span->page_count;
  uint64_t* tables = static_cast<uint64_t*>(metadata.allocate(table_bytes(pages)));
  if (tables == nullptr) return false;
  uint64_t free_slots[kMaxSlots / 64];
  for (unsigned i = 0; i < kMaxSlots / 64; ++i) free_slots[i] = span->free_bits[i];
  const unsigned size_class = index_of(span->size_class);
  const SizeClassInfo& info = kSizeClasses[size_class];
  const unsigned granules = info.bytes >> kGranuleShift;

  Lock lock(mutex_);
  open(span, tables);
  const Tables t(span);
  unsigned used = 0;
  for (unsigned slot = 0; slot < info.slots; ++slot) {
    if ((free_slots[slot >> 6] >> (slot & 63)) & 1) continue;
    t.set_start(slot * granules);
    t.set_used(slot * granules, granules);
    ++used;
  }
  span->free_slots = static_cast<uint16_t>(t.granules() - used * granules);
  free_granules_ -= used * granules;
  // Blocks that were handed out under the old class byte may be freed under it until this is seen: their
  // bin sends them on.
  publish_span(region_of(span), span, Pages(pages), SizeClass(kMixedClass));
  blocks_[size_class] += used;
  place(span, kLists);
  return true;
}

// Halves of a span's length: longer pieces leave less behind their last block, and a page serves every class that comes
// here.
bool MixedShard::add_backed(PageHeap& pages, unsigned size_class) {
  if (!pages.pages_wait()) return false;  // little is free: not worth a search
  for (unsigned count = kSizeClasses[size_class].pages / 2u; count != 0; count /= 2) {
    Span* span = pages.allocate_span(Pages(count), kNoClass, SizeClass(kMixedClass), 0, PageHeap::Source::kBacked);
    if (span == nullptr) continue;
    uint64_t* tables = static_cast<uint64_t*>(metadata.allocate(table_bytes(count)));
    if (tables == nullptr) {
      pages.free(span);
      return false;
    }
    open(span, tables);
    place(span, kLists);
    return true;
  }
  return false;
}

// Cuts blocks from the free ranges of one span, lowest address first, and learns its longest range on the way.
unsigned MixedShard::carve(Span* span, unsigned granules, void** next, unsigned wanted) {
  const Tables t(span);
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
          span->unbacked_pages & pages_of_granules(static_cast<unsigned>(offset >> kGranuleShift), granules);
      unbacked_pages_ -= count_bits(back);
      span->unbacked_pages &= ~back;
    }
  }
  span->free_slots = static_cast<uint16_t>(span->free_slots - got * granules);
  free_granules_ -= size_t{got} * granules;
  // Stopped early, the old bound still holds; nothing free needs no bound.
  if (complete) {
    place(span, longest);
  } else if (span->free_slots == 0) {
    place(span, 0);
  }
  return got;
}

// What comes after a span in its list is likely next: its tables, and the record behind it, are on their way meanwhile.
LOAM_INLINE void ask_for_next(const Span* span) {
  const Span* const next = List<Span>::next(span);
  if (next == nullptr) return;
  prefetch_for_write(next->mixed.tables);
  if (const Span* const after = List<Span>::next(next)) prefetch_for_write(after);
}

unsigned MixedShard::take_locked(PageHeap& pages, unsigned size_class, void** out_end, unsigned wanted, From from) {
  const unsigned granules = kSizeClasses[size_class].bytes >> kGranuleShift;
  unsigned got = 0;
  while (got < wanted) {
    const uint64_t fitting = occupied_.load(std::memory_order_relaxed) & (~uint64_t{0} << (granules - 1));
    if (fitting == 0) {
      if (from == From::kSpans || !add_backed(pages, size_class)) break;
      continue;
    }
    Span* const span = lists_[lowest_bit(fitting)].front();
    ask_for_next(span);
    got += carve(span, granules, out_end - got, wanted - got);
  }
  if (got == 0) return 0;  // adding nothing would touch a page
  blocks_[size_class] += got;
  taken_ += got;
  return got;
}

// A pointer into a mixed span at which no block begins.
LOAM_COLD void MixedShard::refuse(const Span* span, const void* pointer) {
  const bool is_free = Tables(span).is_free(granule_in(span, pointer));
  report_misuse(is_free ? "double free" : "free of a pointer into the middle of a block", pointer);
}

// Moves spans with a longer free range than before between lists, and takes empty ones out. A span may be named more than
// once.
void MixedShard::move(Span* const* spans, const uint8_t* ranges, unsigned count, Span** gone) {
  // The lists' neighbours lie anywhere: all misses at once.
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
    } else if (ranges[i] > bound_of(span)) {
      place(span, ranges[i]);
    }
  }
}

unsigned MixedShard::give_locked(PageHeap& pages, void** pointers, Span** spans, unsigned count, Kept* kept) {
  Span* moved[kPiece];
  uint8_t ranges[kPiece];
  unsigned moving = 0, strangers = 0;
  for (unsigned i = 0; i < count; ++i) {
    Span* const span = spans[i];
    const Tables t(span);
    const unsigned first = granule_in(span, pointers[i]);
    // A block that was free already keeps no span: since it was looked up, its record may have become one of other pages.
    if (LOAM_UNLIKELY(!holds_locked(span)) || LOAM_UNLIKELY(first >= t.granules())) {
      pointers[strangers++] = pointers[i];
      continue;
    }
    if (LOAM_UNLIKELY(!t.starts(first))) {
      refuse(span, pointers[i]);
      continue;
    }
    const unsigned granules = t.block_granules(first);
    const unsigned size_class = class_for(size_t{granules} << kGranuleShift);
    if (kept != nullptr && kept->wanted[size_class] != 0) {
      --kept->wanted[size_class];
      kept->size_class[kept->count] = static_cast<uint8_t>(size_class);
      kept->block[kept->count++] = pointers[i];
      continue;
    }
    const unsigned range = t.free_block(first, granules);
    --blocks_[size_class];
    ++given_;
    const unsigned free_here = span->free_slots + granules;
    span->free_slots = static_cast<uint16_t>(free_here);
    free_granules_ += granules;
    // No branch: when a range is the longest no branch predictor learns.
    moved[moving] = span;
    ranges[moving] = static_cast<uint8_t>(range);
    moving += unsigned{range > bound_of(span)} | unsigned{free_here == t.granules()};
  }
  Span* gone = nullptr;  // linked through `next`
  move(moved, ranges, moving, &gone);
  if (gone != nullptr) release(pages, gone);
  return strangers;
}

// The spans without a block go back to the page heap.
LOAM_NOINLINE void MixedShard::release(PageHeap& pages, Span* gone) {
  for (Span* span = gone; span != nullptr; span = List<Span>::next(span)) {
    --spans_;
    span_pages_ -= span->page_count;
    free_granules_ -= span->free_slots;
    unbacked_pages_ -= count_bits(span->unbacked_pages);
    metadata.free(span->mixed.tables, table_bytes(span->page_count));
  }
  pages.free_spans(gone);
}

size_t MixedShard::block_bytes_locked(const Span* span, uintptr_t address) {
  const Tables t(span);
  const unsigned first = granule_in(span, reinterpret_cast<const void*>(address));
  return t.starts(first) ? size_t{t.block_granules(first)} << kGranuleShift : 0;
}

Pages MixedShard::compact_locked() {
  Pages purged;
  // Only the last list's spans can have a whole free page.
  static_assert(kGranulesPerPage >= kLists);
  for (Span* span = lists_[kLists - 1].front(); span != nullptr; span = List<Span>::next(span)) {
    const Tables t(span);
    uint32_t idle = 0;
    for (unsigned page = 0; page < span->page_count; ++page) {
      const unsigned first = page * kGranulesPerPage;
      const bool is_free = t.find_free(first) == first && t.free_end(first) >= first + kGranulesPerPage;
      idle |= uint32_t{is_free} << page;
    }
    const Pages here = purge_idle_pages(span, idle);
    unbacked_pages_ += here.count;
    purged += here;
  }
  return purged;
}

void MixedShard::add_stats_locked(MixedStats* sum) const {
  sum->spans += spans_;
  sum->span_bytes += Pages(span_pages_).bytes();
  sum->free_bytes += free_granules_ << kGranuleShift;
  sum->unbacked_pages += unbacked_pages_;
  sum->converted += converted_;
  sum->taken += taken_;
  sum->given += given_;
  sum->lock_acquisitions += mutex_.acquisitions();
  sum->lock_contentions += mutex_.contentions();
}

bool MixedShard::is_valid_locked() const {
  size_t spans = 0, pages = 0, free_granules = 0, unbacked = 0;
  size_t blocks[kSizeClassCount] = {};
  const auto span_is_valid = [&](const Span* span, unsigned list) {
    const Tables t(span);
    if (!holds_locked(span) || span->list != list) return false;
    unsigned free_here = 0, longest = 0;
    for (unsigned w = 0; w < t.words; ++w) {
      if ((t.word[w].free & t.word[w].start) != 0) return false;
      free_here += count_bits(t.word[w].free);
    }
    for (unsigned i = 0; i < t.granules();) {
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
    pages += span->page_count;
    free_granules += free_here;
    unbacked += count_bits(span->unbacked_pages);
    const unsigned bound = bound_of(span);
    return free_here == span->free_slots && free_here != t.granules() && (longest <= bound || bound == kLists);
  };
  for (unsigned k = 0; k < kLists; ++k) {
    if (((occupied_.load(std::memory_order_relaxed) >> k) & 1) == lists_[k].empty()) return false;
    for (const Span* span = lists_[k].front(); span != nullptr; span = List<Span>::next(span)) {
      if (!span_is_valid(span, k)) return false;
    }
  }
  for (const Span* span = full_.front(); span != nullptr; span = List<Span>::next(span)) {
    if (!span_is_valid(span, kFullList)) return false;
  }
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    if (blocks[c] != blocks_[c]) return false;
  }
  return spans == spans_ && pages == span_pages_ && free_granules == free_granules_ && unbacked == unbacked_pages_;
}

}  // namespace loam
