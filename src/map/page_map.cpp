#include "map/page_map.h"

#include <cstring>

#include "os/os.h"

namespace loam {

constinit DirectoryEntry directory[kDirectoryEntries];
constinit const Span no_span = {};

namespace {

// Records become accessible in steps: one mprotect() for 4,096 spans, so that overcommit_memory=2
// is charged only for used records. Smaller steps cost calls, larger ones commit charge.
constexpr uint32_t kSpanStep = 4096;
// The step where memory is locked, and so backed at once: one page of the system, of the largest
// size that there is.
constexpr uint32_t kLockedSpanStep = 1024;

uint32_t span_step() { return LOAM_LIKELY(os::is_reserving()) ? kSpanStep : kLockedSpanStep; }

bool commit_spans(Region* region, uint32_t count) {
  char* begin = reinterpret_cast<char*>(&region->spans[region->spans_committed]);
  char* end = reinterpret_cast<char*>(&region->spans[count]);
  const size_t grain = os::granularity();
  begin = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(begin), grain));
  end = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(end), grain));
  if (begin != end &&
      os::commit_more(begin, static_cast<size_t>(end - begin)) != os::Committed::kYes)
    return false;
  region->spans_committed = count;
  return true;
}

}  // namespace

Region* add_region(uintptr_t base) {
  LOAM_ASSERT((base & (kRegionBytes - 1)) == 0);
  LOAM_ASSERT(directory[base >> kRegionShift].read() == 0);
  char* reserved = static_cast<char*>(os::reserve_metadata(kHeaderBytes, kHeaderAlignment));
  if (reserved == nullptr) return nullptr;
  Region* region = reinterpret_cast<Region*>(reserved + kHeaderGuard);
  const size_t fixed = round_up(sizeof(Region) - (kRecordsPerRegion - span_step()) * sizeof(Span),
                                os::granularity());
  if (os::commit_more(region, fixed) != os::Committed::kYes) {
    os::give_up(reserved, kHeaderBytes);
    return nullptr;
  }
  region->base = base;
  region->spans_committed = span_step();
  region->spans_used = 1;  // number 0 means "none" in page_span
  LOAM_ASSERT(static_cast<void*>(region->page_class) ==
              region);  // region_at() uses the two addresses as one
  const uintptr_t classes = reinterpret_cast<uintptr_t>(region->page_class) - (base >> kPageShift);
  // No layout of an address space lets a header lie at the address that equals the number of its
  // region's first page.
  LOAM_CHECK(classes != 0, "page map: a region's entry would say that there is none");
  directory[base >> kRegionShift].publish(classes);
  return region;
}

namespace {

// A page that holds a record in use again holds memory from here on, and so does the rest of the
// system's page.
LOAM_COLD void note_record_used(Region* region, const Span* span) {
  const unsigned page = region->number_of_page(span);
  if (!region->purged_record_pages.test(page)) return;
  const auto grain = static_cast<unsigned>(os::granularity() >> kPageShift);
  const uintptr_t address = reinterpret_cast<uintptr_t>(span);
  const unsigned first = page - static_cast<unsigned>(address / kPageBytes % grain);
  region->purged_record_pages.clear_range(first, grain);
  region->records_purged -= static_cast<uint32_t>(grain * kPageBytes);
}

}  // namespace

size_t purge_free_records(Region* region, size_t most) {
  if (region->free_records.empty()) return 0;
  const size_t grain = os::granularity();
  const uintptr_t spans = reinterpret_cast<uintptr_t>(region->spans);
  // Only whole pages below the records that were handed out at least once: further pages hold no
  // memory, or records that were never used.
  const uintptr_t end =
      reinterpret_cast<uintptr_t>(&region->spans[region->spans_used]) / grain * grain;
  const auto may_go = [&](uintptr_t place) {
    const auto number = static_cast<uint32_t>((place - spans) / sizeof(Span));
    return !region->purged_record_pages.test(region->number_of_page(&region->spans[number])) &&
           region->free_records.has_all(region->free_record_bits, number,
                                        static_cast<uint32_t>(grain / sizeof(Span)));
  };
  size_t purged = 0;
  for (uintptr_t begin = round_up(reinterpret_cast<uintptr_t>(&region->spans[1]), grain);
       begin < end && purged < most;) {
    uintptr_t past = begin;
    while (past < end && past - begin < most - purged && may_go(past)) past += grain;
    const size_t bytes = past - begin;
    if (bytes != 0 && os::purge(reinterpret_cast<void*>(begin), bytes)) {
      region->purged_record_pages.set_range(
          region->number_of_page(reinterpret_cast<const Span*>(begin)),
          static_cast<unsigned>(bytes / kPageBytes));
      purged += bytes;
    }
    begin = past + grain;
  }
  region->records_purged += static_cast<uint32_t>(purged);
  return purged;
}

namespace {

// One of the maps with an entry for each page.
struct MapOfPages {
  char* begin;
  size_t slab_bytes;  // bytes of the map for each slab
  unsigned group;     // slabs whose part is one page of the system
  Bitmap<kSlabsPerRegion>* purged;

  template <class Entry>
  MapOfPages(Entry (&entries)[kPagesPerRegion], Bitmap<kSlabsPerRegion>* its_purged)
      : begin(reinterpret_cast<char*>(entries)),
        slab_bytes(kPagesPerSlab * sizeof(Entry)),
        group(static_cast<unsigned>(os::granularity() / (kPagesPerSlab * sizeof(Entry)))),
        purged(its_purged) {
    static_assert(kPagesPerSlab * sizeof(Entry) <= kPageBytes,
                  "a page of the system is of one slab or more");
  }
};

template <class Visit>
void for_each_map(Region* region, Visit visit) {
  visit(MapOfPages(region->page_class, &region->purged_classes));
  visit(MapOfPages(region->page_span, &region->purged_names));
}

size_t purge_map(Region* region, const MapOfPages& map) {
  // True if a part of the system's pages may go, and some of it is backed.
  const auto may_go = [&](unsigned first) {
    bool some = false;
    for (unsigned b = first; b < first + map.group; ++b) {
      if (region->slabs[b].state == SlabState::kUncommitted) continue;
      if (!region->whole.test(b) || region->whole_backed.test(b)) return false;
      some = some || !map.purged->test(b);
    }
    return some;
  };
  size_t purged = 0;
  for (unsigned first = 0; first < kSlabsPerRegion;) {
    unsigned end = first;
    while (end < kSlabsPerRegion && may_go(end)) end += map.group;
    if (end != first &&
        os::purge(map.begin + first * map.slab_bytes, (end - first) * map.slab_bytes)) {
      for (unsigned b = first; b < end; ++b) {
        if (region->slabs[b].state == SlabState::kUncommitted || map.purged->test(b)) continue;
        map.purged->set(b);
        purged += map.slab_bytes;
      }
    }
    first = end + map.group;
  }
  return purged;
}

}  // namespace

size_t purge_idle_maps(Region* region, unsigned least) {
  unsigned candidates = 0;
  for (unsigned w = 0; w < Bitmap<kSlabsPerRegion>::kWords; ++w) {
    candidates += count_bits(region->whole.words[w] & ~region->whole_backed.words[w] &
                             ~region->purged_names.words[w]);
  }
  if (candidates < least) return 0;
  size_t purged = 0;
  for_each_map(region, [&](const MapOfPages& map) { purged += purge_map(region, map); });
  region->maps_purged += static_cast<uint32_t>(purged);
  return purged;
}

void note_maps_used(Region* region, unsigned slab) {
  for_each_map(region, [&](const MapOfPages& map) {
    if (!map.purged->test(slab)) return;
    const unsigned first = slab / map.group * map.group;
    region->maps_purged -=
        static_cast<uint32_t>(map.purged->count_range(first, map.group) * map.slab_bytes);
    map.purged->clear_range(first, map.group);
  });
}

void return_reserved_records(Region* region) {
  const size_t grain = os::granularity();
  const uintptr_t begin =
      round_up(reinterpret_cast<uintptr_t>(&region->spans[region->spans_used]), grain);
  // Records that were never used go too.
  region->spans_committed =
      static_cast<uint32_t>((begin - reinterpret_cast<uintptr_t>(region->spans)) / sizeof(Span));
  const uintptr_t end =
      reinterpret_cast<uintptr_t>(region) + kHeaderBytes - 2 * kHeaderGuard;  // the guard stays
  if (begin < end) os::release(reinterpret_cast<void*>(begin), end - begin);
}

namespace {

// True if no slab of the group is in use.
bool is_untouched(const Region* region, unsigned first, unsigned group) {
  for (unsigned b = first; b < first + group; ++b) {
    if (region->slabs[b].state != SlabState::kUncommitted) return false;
  }
  return true;
}

}  // namespace

void for_each_idle_map(Region* region, VisitPart visit) {
  for_each_map(region, [&](const MapOfPages& map) {
    for (unsigned first = 0; first < kSlabsPerRegion;) {
      unsigned end = first;
      while (end < kSlabsPerRegion && is_untouched(region, end, map.group)) end += map.group;
      if (end != first) visit(map.begin + first * map.slab_bytes, (end - first) * map.slab_bytes);
      first = end + map.group;
    }
  });
}

bool lock_maps(Region* region, unsigned first, unsigned slabs) {
  bool done = true;
  for_each_map(region, [&](const MapOfPages& map) {
    for (unsigned b = first / map.group * map.group; b < first + slabs; b += map.group) {
      // A new mapping replaces the old one and reads as zero; it is locked as the program wants new
      // memory to be.
      if (is_untouched(region, b, map.group))
        done = done && os::commit(map.begin + b * map.slab_bytes, map.group * map.slab_bytes);
    }
  });
  return done;
}

void for_each_idle_directory(const Region* regions, VisitPart visit) {
  const size_t grain = os::granularity();
  const auto is_used = [&](uintptr_t page) {
    for (const Region* region = regions; region != nullptr; region = region->next) {
      if (reinterpret_cast<uintptr_t>(&directory[region->base >> kRegionShift]) / grain * grain ==
          page)
        return true;
    }
    return false;
  };
  const uintptr_t end = reinterpret_cast<uintptr_t>(directory + kDirectoryEntries) / grain * grain;
  for (uintptr_t first = round_up(reinterpret_cast<uintptr_t>(directory), grain); first < end;) {
    uintptr_t past = first;
    while (past < end && !is_used(past)) past += grain;
    if (past != first) visit(reinterpret_cast<void*>(first), past - first);
    first = past + grain;
  }
}

bool purged_maps_are_valid(const Region* region) {
  size_t bytes = 0;
  bool valid = true;
  for_each_map(const_cast<Region*>(region), [&](const MapOfPages& map) {
    for (unsigned b = 0; b < kSlabsPerRegion; ++b) {
      if (!map.purged->test(b)) continue;
      bytes += map.slab_bytes;
      valid = valid && region->whole.test(b);
      for (size_t i = 0; i < map.slab_bytes; ++i)
        valid = valid && map.begin[b * map.slab_bytes + i] == 0;
    }
  });
  return valid && bytes == region->maps_purged;
}

bool purged_records_are_valid(const Region* region) {
  size_t pages = 0;
  for (uint32_t number = 1; number < region->spans_used; ++number) {
    const Span* const span = &region->spans[number];
    if (reinterpret_cast<uintptr_t>(span) % kPageBytes != 0) continue;
    if (!region->purged_record_pages.test(region->number_of_page(span))) continue;
    ++pages;
    if (!region->free_records.has_all(region->free_record_bits, number, kPageBytes / sizeof(Span)))
      return false;
  }
  return pages * kPageBytes == region->records_purged;
}

Span* take_span_record(Region* region) {
  uint32_t number;
  if (LOAM_LIKELY(!region->free_records.empty())) {
    number = region->free_records.take(region->free_record_bits);
  } else {
    number = region->spans_used;
    if (LOAM_UNLIKELY(number == kRecordsPerRegion)) return nullptr;
    if (number == region->spans_committed) {
      const uint32_t more = number + span_step();
      if (!commit_spans(region, more < kRecordsPerRegion ? more : kRecordsPerRegion))
        return nullptr;
    }
    region->spans_used = number + 1;
  }
  Span* span = &region->spans[number];
  if (LOAM_UNLIKELY(region->records_purged != 0)) note_record_used(region, span);
  memset(static_cast<void*>(span), 0, sizeof *span);
  return span;
}

void return_span_record(Region* region, Span* span) {
  span->kind = SpanKind::kNone;
  region->free_records.add(region->free_record_bits, static_cast<uint32_t>(span - region->spans));
}

namespace {

// Sets every page's entry. It writes whole words that split no entry, so a concurrent reader sees
// each entry whole.
template <class Entry>
LOAM_INLINE void fill(Entry* entry, Pages pages, Entry value) {
  using Word [[gnu::may_alias]] = uint64_t;
  constexpr size_t kHere = sizeof(Word) / sizeof(Entry);
  const Word word = ~uint64_t{0} / static_cast<Entry>(~Entry{0}) * value;  // the value, repeated
  Entry* const end = entry + pages.count;
  for (; entry != end && reinterpret_cast<uintptr_t>(entry) % sizeof(Word) != 0; ++entry) {
    __atomic_store_n(entry, value, __ATOMIC_RELAXED);
  }
  for (; static_cast<size_t>(end - entry) >= kHere; entry += kHere) {
    __atomic_store_n(reinterpret_cast<Word*>(entry), word, __ATOMIC_RELAXED);
  }
  for (; entry != end; ++entry) __atomic_store_n(entry, value, __ATOMIC_RELAXED);
}

}  // namespace

void publish_span(Region* region, Span* span, Pages pages, SizeClass size_class) {
  publish_pages(region, span, PageId(span->first_page), pages, size_class);
}

void publish_pages(Region* region, Span* span, PageId first, Pages pages, SizeClass size_class) {
  fill(&region->page_span[first.index], pages, static_cast<uint32_t>(span - region->spans));
  fill(&region->page_class[first.index], pages, static_cast<uint8_t>(size_class));
}

void unpublish_span(Region* region, Span* span, Pages pages) {
  unpublish_pages(region, PageId(span->first_page), pages);
}

void unpublish_pages(Region* region, PageId first, Pages pages) {
  fill(&region->page_class[first.index], pages, uint8_t{0});
  fill(&region->page_span[first.index], pages, uint32_t{0});
}

size_t metadata_bytes(const Region* region) {
  size_t slabs = 0;
  for (uint32_t i = 0; i < region->extent_count; ++i) slabs += region->extents[i].committed_slabs;
  return slabs * kMapBytesPerSlab - region->maps_purged + region->spans_used * sizeof(Span) -
         region->records_purged;
}

}  // namespace loam
