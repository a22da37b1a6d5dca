#include "small/mixed_heap.h"

#include "base/cpu.h"
#include "map/metadata.h"
#include "os/os.h"

namespace loam {

namespace {

constexpr uint8_t kFullList = 0xff;

// The two tables of a span, one after the other: `words` words each.
struct Tables {
  uint64_t* free;
  uint64_t* start;
  unsigned words;

  explicit Tables(const Span* span)
      : free(span->mixed.tables),
        start(span->mixed.tables + span->page_count * (kGranulesPerPage / 64)),
        words(span->page_count * (kGranulesPerPage / 64)) {}

  [[nodiscard]] unsigned granules() const { return words * 64; }
  [[nodiscard]] bool starts(unsigned i) const { return (start[i >> 6] >> (i & 63)) & 1; }

  // The first granule at or after `from` that ends a block: a start or a free one; granules() if none does.
  [[nodiscard]] unsigned block_end(unsigned from) const {
    unsigned w = from >> 6;
    if (w >= words) return granules();
    uint64_t word = (free[w] | start[w]) & (~uint64_t{0} << (from & 63));
    while (word == 0) {
      if (++w == words) return granules();
      word = free[w] | start[w];
    }
    return w * 64 + lowest_bit(word);
  }
  [[nodiscard]] unsigned find(const uint64_t* table, unsigned from, uint64_t invert) const {
    unsigned w = from >> 6;
    if (w >= words) return granules();
    uint64_t word = (table[w] ^ invert) & (~uint64_t{0} << (from & 63));
    while (word == 0) {
      if (++w == words) return granules();
      word = table[w] ^ invert;
    }
    return w * 64 + lowest_bit(word);
  }
  [[nodiscard]] unsigned find_free(unsigned from) const { return find(free, from, 0); }
  [[nodiscard]] unsigned free_end(unsigned from) const { return find(free, from, ~uint64_t{0}); }
  // Where the free range that ends at `from` (exclusive) begins.
  [[nodiscard]] unsigned free_begin(unsigned from) const {
    while (from != 0) {
      const unsigned w = (from - 1) >> 6;
      const uint64_t used = ~free[w] & (~uint64_t{0} >> (63 - ((from - 1) & 63)));
      if (used != 0) return w * 64 + highest_bit(used) + 1;
      from = w * 64;
    }
    return 0;
  }

  template <class Op>
  LOAM_INLINE void over_range(unsigned first, unsigned count, Op op) const {
    for (unsigned w = first >> 6, bit = first & 63; count != 0; ++w, bit = 0) {
      const unsigned here = count < 64 - bit ? count : 64 - bit;
      op(free[w], bit_range(bit, here));
      count -= here;
    }
  }
  void set_free(unsigned first, unsigned count) const {
    over_range(first, count, [](uint64_t& word, uint64_t mask) { word |= mask; });
  }
  void set_used(unsigned first, unsigned count) const {
    over_range(first, count, [](uint64_t& word, uint64_t mask) { word &= ~mask; });
  }
  void set_start(unsigned i) const { start[i >> 6] |= uint64_t{1} << (i & 63); }
  void clear_start(unsigned i) const { start[i >> 6] &= ~(uint64_t{1} << (i & 63)); }
};

size_t table_bytes(unsigned pages) { return pages * (kGranulesPerPage / 64) * 2 * sizeof(uint64_t); }

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

void MixedHeap::unlink(Span* span) {
  if (span->list == kFullList) return full_.remove(span);
  List<Span>& list = lists_[span->list];
  list.remove(span);
  if (list.empty()) {
    occupied_.store(occupied_.load(std::memory_order_relaxed) & ~(uint64_t{1} << span->list),
                    std::memory_order_relaxed);
  }
}

// `longest`: an upper bound of the longest free range, in granules; 0 = nothing free.
void MixedHeap::place(Span* span, unsigned longest) {
  const uint8_t list = longest == 0 ? kFullList : static_cast<uint8_t>((longest < kLists ? longest : kLists) - 1);
  if (list == span->list) return;
  unlink(span);
  span->list = list;
  if (list == kFullList) return full_.push_front(span);
  lists_[list].push_front(span);
  occupied_.store(occupied_.load(std::memory_order_relaxed) | uint64_t{1} << list, std::memory_order_relaxed);
}

// A mixed span without a block, in the list of those without a free range.
void MixedHeap::open(Span* span, uint64_t* tables) {
  span->mixed.tables = tables;
  const Tables t(span);
  t.set_free(0, t.granules());
  span->free_slots = static_cast<uint16_t>(t.granules());
  span->kind = SpanKind::kMixed;
  span->list = kFullList;
  full_.push_front(span);
  ++spans_;
  ++converted_;
  span_pages_ += span->page_count;
  free_granules_ += t.granules();
  unbacked_pages_ += count_bits(span->unbacked_pages);
}

bool MixedHeap::convert(Span* span) {
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
bool MixedHeap::add_backed(unsigned size_class) {
  if (!pages().wants_ticks()) return false;  // little is free: not worth a search
  for (unsigned count = kSizeClasses[size_class].pages / 2u; count != 0; count /= 2) {
    Span* span = pages().allocate_span(Pages(count), kNoClass, SizeClass(kMixedClass), 0, PageHeap::Source::kBacked);
    if (span == nullptr) continue;
    uint64_t* tables = static_cast<uint64_t*>(metadata.allocate(table_bytes(count)));
    if (tables == nullptr) {
      pages().free(span);
      return false;
    }
    open(span, tables);
    place(span, kLists);
    return true;
  }
  return false;
}

// Cuts blocks from the free ranges of one span, lowest address first, and learns its longest range on the way.
unsigned MixedHeap::carve(Span* span, unsigned granules, void** next, unsigned wanted) {
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

unsigned MixedHeap::take(unsigned size_class, void** out, unsigned wanted, From from) {
  const unsigned granules = kSizeClasses[size_class].bytes >> kGranuleShift;
  if (granules > kLists || (from == From::kSpans && !may_serve(size_class))) return 0;
  Lock lock(mutex_);
  unsigned got = 0;
  void** next = out + wanted;
  while (got < wanted) {
    const uint64_t fitting = occupied_.load(std::memory_order_relaxed) & (~uint64_t{0} << (granules - 1));
    if (fitting == 0) {
      if (from == From::kSpans || !add_backed(size_class)) break;
      continue;
    }
    const unsigned here = carve(lists_[lowest_bit(fitting)].front(), granules, next, wanted - got);
    got += here;
    next -= here;
  }
  if (got == 0) return 0;  // adding nothing would touch a page
  blocks_[size_class] += got;
  taken_ += got;
  if (got != wanted) __builtin_memmove(out, next, got * sizeof(void*));
  return got;
}

void MixedHeap::give_one(void* pointer) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  Span* span = span_at(address);
  if (LOAM_UNLIKELY(span == nullptr || span->kind != SpanKind::kMixed)) {
    report_misuse("free of a block that is free already, or of memory that is no block", pointer);
    return;
  }
  const Tables t(span);
  const unsigned first = static_cast<unsigned>((address - span_base(span)) >> kGranuleShift);
  if (LOAM_UNLIKELY(!t.starts(first))) {
    report_misuse((t.free[first >> 6] >> (first & 63)) & 1 ? "double free"
                                                            : "free of a pointer into the middle of a block",
                  pointer);
    return;
  }
  const unsigned end = t.block_end(first + 1);
  const unsigned granules = end - first;
  t.clear_start(first);
  t.set_free(first, granules);
  --blocks_[class_for(size_t{granules} << kGranuleShift)];
  ++given_;
  span->free_slots = static_cast<uint16_t>(span->free_slots + granules);
  free_granules_ += granules;
  if (LOAM_UNLIKELY(span->free_slots == t.granules())) {
    unlink(span);
    --spans_;
    span_pages_ -= span->page_count;
    free_granules_ -= t.granules();
    unbacked_pages_ -= count_bits(span->unbacked_pages);
    metadata.free(t.free, table_bytes(span->page_count));
    pages().free(span);
    return;
  }
  const unsigned bound = span->list == kFullList ? 0 : span->list + 1u;
  if (bound == kLists) return;
  const unsigned range = t.free_end(end) - t.free_begin(first);
  if (range > bound) place(span, range);
}

void MixedHeap::give(void* const* pointers, unsigned count) {
  // A free at random misses the cache twice, at the record and at the tables: all misses at once, not one after
  // the other.
  for (unsigned i = 0; i < count; ++i) {
    prefetch_for_write(span_at(reinterpret_cast<uintptr_t>(pointers[i])));
  }
  Lock lock(mutex_);
  for (unsigned i = 0; i < count; ++i) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointers[i]);
    const Span* span = span_at(address);
    if (LOAM_UNLIKELY(span == nullptr || span->kind != SpanKind::kMixed)) continue;
    const Tables t(span);
    const unsigned word = static_cast<unsigned>((address - span_base(span)) >> (kGranuleShift + 6));
    prefetch_for_write(&t.free[word]);
    if (span->page_count != 1) prefetch_for_write(&t.start[word]);  // else in the same line
  }
  for (unsigned i = 0; i < count; ++i) give_one(pointers[i]);
}

size_t MixedHeap::block_bytes(uintptr_t address) {
  Lock lock(mutex_);
  // Pages get and lose this class byte under the lock only, so what it says holds until we leave, whatever
  // becomes of the pointer. (Misaligned addresses have no class.)
  if (class_at(reinterpret_cast<const void*>(address)) != kMixedClass) return 0;
  const Span* span = span_at(address);
  const Tables t(span);
  const unsigned first = static_cast<unsigned>((address - span_base(span)) >> kGranuleShift);
  return t.starts(first) ? size_t{t.block_end(first + 1) - first} << kGranuleShift : 0;
}

Pages MixedHeap::compact() {
  Lock lock(mutex_);
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

MixedStats MixedHeap::stats() {
  Lock lock(mutex_);
  MixedStats s{};
  s.spans = spans_;
  s.span_bytes = Pages(span_pages_).bytes();
  s.free_bytes = free_granules_ << kGranuleShift;
  s.unbacked_pages = unbacked_pages_;
  s.converted = converted_;
  s.taken = taken_;
  s.given = given_;
  s.lock_acquisitions = mutex_.acquisitions();
  s.lock_contentions = mutex_.contentions();
  return s;
}

size_t MixedHeap::blocks(unsigned size_class) {
  Lock lock(mutex_);
  return blocks_[size_class];
}

bool MixedHeap::is_valid() {
  Lock lock(mutex_);
  size_t spans = 0, pages = 0, free_granules = 0, unbacked = 0;
  size_t blocks[kSizeClassCount] = {};
  const auto span_is_valid = [&](const Span* span, unsigned list) {
    const Tables t(span);
    if (span->kind != SpanKind::kMixed || span->list != list) return false;
    unsigned free_here = 0, longest = 0;
    for (unsigned w = 0; w < t.words; ++w) {
      if ((t.free[w] & t.start[w]) != 0) return false;
      free_here += count_bits(t.free[w]);
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
    const unsigned bound = list == kFullList ? 0 : list + 1;
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
