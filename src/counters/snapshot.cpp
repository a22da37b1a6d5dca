// The heap's figures at one moment, from every layer.
#include "counters/snapshot.h"

#include "cache/cache_registry.h"
#include "map/metadata.h"
#include "observers/sampler.h"
#include "pages/huge_map.h"

namespace loam {

namespace {

// `cached_mixed`: blocks of mixed spans that threads keep, for each class.
LOAM_NOINLINE ClassSnapshot look_at(unsigned c, const uint32_t cached_mixed[kSizeClassCount]) {
  ClassSnapshot s{};
  static_cast<BinStats&>(s) = default_small_heap.stats(c);
  const SizeClassInfo& info = class_info(c);
  s.mixed = c < kSizeClassCount ? default_small_heap.mixed().blocks(c) : 0;
  const size_t outside = s.slots - s.free_slots + s.mixed;
  const size_t held =
      cache_registry.held_blocks(c) + s.queued + (c < kSizeClassCount ? cached_mixed[c] : 0);
  s.cached = held < outside ? held : outside;
  s.live = outside - s.cached;
  s.tail_bytes = Pages(s.spans * info.pages - s.absent_pages).bytes() - s.slots * info.bytes;
  return s;
}

}  // namespace

ClassSnapshot look_at_class(unsigned size_class) {
  uint32_t cached_mixed[kSizeClassCount] = {};
  cache_registry.count_mixed(cached_mixed);
  return look_at(size_class, cached_mixed);
}

void take_snapshot(Snapshot* out, VisitClass visit, void* context) {
  *out = Snapshot{};
  MixedHeap& mixed_heap = default_small_heap.mixed();
  uint32_t cached_mixed[kSizeClassCount] = {};
  cache_registry.count_mixed(cached_mixed);
  const unsigned classes = class_count();
  for (unsigned i = 0; i < classes; ++i) {
    const unsigned c = class_number(i);
    const ClassSnapshot s = look_at(c, cached_mixed);
    const size_t bytes = class_info(c).bytes;
    out->live_small_bytes += s.live * bytes;
    out->cached_bytes += s.cached * bytes;
    out->span_free_bytes += s.free_slots * bytes;
    out->span_tail_bytes += s.tail_bytes;
    out->unbacked_bytes += Pages(s.unbacked_pages).bytes();
    visit(context, c, s);
  }
  const MixedStats mixed = mixed_heap.stats();
  out->mixed_spans = mixed.spans;
  out->mixed_span_bytes = mixed.span_bytes;
  out->mixed_free_bytes = mixed.free_bytes;
  out->mixed_conversions = mixed.converted;
  out->span_free_bytes += mixed.free_bytes;
  out->unbacked_bytes += Pages(mixed.unbacked_pages).bytes();
  const CacheRegistry::Runs runs = cache_registry.runs();
  PageStats pages = page_heap.stats();
  runs.complete(&pages);
  out->cached_run_bytes = runs.held.bytes();
  out->cached_bytes += out->cached_run_bytes;
  out->used_bytes = pages.used.bytes();
  out->live_large_bytes = pages.large_pages.bytes();
  out->dirty_bytes = pages.dirty.bytes();
  out->committed_bytes = pages.committed_bytes;
  out->reserved_bytes = pages.reserved_bytes;
  out->metadata_bytes = pages.metadata_bytes + metadata.held_bytes() + sampler.table_bytes();
  out->peak_used_bytes = pages.peak_used.bytes();
  out->largest_free_bytes = pages.longest_backed_run_bytes;
  out->purged_bytes = Pages(pages.purged_pages).bytes();
  out->refused_calls = pages.refused_calls;
  const HugeMap::Totals huge = huge_map.totals();
  out->live_huge_bytes = huge.mapped_bytes;
  out->huge_blocks = huge.blocks;
  const CacheRegistry::Totals caches = cache_registry.totals();
  out->threads = caches.threads;
}

}  // namespace loam
