// mallinfo and its relatives, from one snapshot. A field has glibc's meaning where Loam has such a
// thing; a field about a thing that Loam does not have (fast bins, mmap threshold) is zero or holds
// the nearest figure.
#include <malloc.h>

#include <cstdarg>
#include <cstdio>

#include <loam/stats.h>

#include "counters/snapshot.h"
#include "counters/stats.h"
#include "os/os.h"

namespace {

using namespace loam;

// As glibc counts them, without blocks in mappings of their own. The bytes in regions that may be
// resident:
size_t bytes_of_system(const Snapshot& s) { return s.used_bytes + s.dirty_bytes; }
size_t live_bytes(const Snapshot& s) { return s.live_small_bytes + s.live_large_bytes; }

#if defined(M_MMAP_THRESHOLD)  // other C libraries have neither this nor mallinfo

int clamp_to_int(size_t n) { return n > 0x7fffffffu ? 0x7fffffff : static_cast<int>(n); }

struct mallinfo2 info2() {
  Snapshot s;
  take_snapshot(&s, [](unsigned, const ClassSnapshot&) {});
  struct mallinfo2 info {};
  info.arena = bytes_of_system(s);
  info.ordblks = s.reserved_bytes >> kSlabShift;
  info.smblks = 0;
  info.hblks = s.huge_blocks;
  info.hblkhd = s.live_huge_bytes;
  info.usmblks = s.peak_used_bytes;
  info.fsmblks = s.cached_bytes;
  info.uordblks = live_bytes(s);
  info.fordblks = info.arena - info.uordblks;
  info.keepcost = s.dirty_bytes;  // malloc_trim() would give back at least this much
  return info;
}

#endif

// The smallest request that the class serves, with the classes that there are now.
unsigned least_request(unsigned size_class) {
  const unsigned bytes = class_info(size_class).bytes, classes = class_count();
  unsigned below = 0;
  for (unsigned i = 0; i < classes; ++i) {
    const unsigned other = class_info(class_number(i)).bytes;
    if (other < bytes && other > below) below = other;
  }
  return below + 1;
}

// The elements that glibc prints for each arena, and again at the root for all of them together.
// Readers subtract: current - fast - rest = live bytes.
void print_totals(FILE* out, const Snapshot& s, size_t cached_blocks, size_t free_slots,
                  bool at_root) {
  const size_t current = bytes_of_system(s);
  fprintf(out, "<total type=\"fast\" count=\"%zu\" size=\"%zu\"/>\n", cached_blocks,
          s.cached_bytes);
  fprintf(out, "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n", free_slots,
          current - live_bytes(s) - s.cached_bytes);
  if (at_root) {
    fprintf(out, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", s.huge_blocks,
            s.live_huge_bytes);
  }
  fprintf(out, "<system type=\"current\" size=\"%zu\"/>\n", current);
  fprintf(out, "<system type=\"max\" size=\"%zu\"/>\n",
          s.peak_used_bytes > current ? s.peak_used_bytes : current);
  fprintf(out, "<aspace type=\"total\" size=\"%zu\"/>\n", s.reserved_bytes);
  fprintf(out, "<aspace type=\"mprotect\" size=\"%zu\"/>\n", current);
}

// The list's counters as elements, where the glibc format leaves room for more.
void print_counters(FILE* out) {
  stats::Values values;
  if (!stats::read(nullptr, &values)) return;
  fprintf(out, "<counters>\n");
  for (unsigned i = 0; i < stats::kCounterCount; ++i) {
    const stats::CounterInfo& counter = stats::kCounters[i];
    if (values.of[i] == stats::kUnknown || counter.kind == stats::CounterKind::kRatio) continue;
    fprintf(out, "<counter id=\"%s\" unit=\"%s\" value=\"%llu\"/>\n", counter.id, counter.unit,
            static_cast<unsigned long long>(values.of[i]));
  }
  fprintf(out, "</counters>\n");
}

}  // namespace

extern "C" {

#if defined(M_MMAP_THRESHOLD)

LOAM_EXPORT struct mallinfo2 mallinfo2() { return info2(); }

LOAM_EXPORT struct mallinfo mallinfo() {
  const struct mallinfo2 wide = info2();
  struct mallinfo info {};
  info.arena = clamp_to_int(wide.arena);
  info.ordblks = clamp_to_int(wide.ordblks);
  info.hblks = clamp_to_int(wide.hblks);
  info.hblkhd = clamp_to_int(wide.hblkhd);
  info.usmblks = clamp_to_int(wide.usmblks);
  info.fsmblks = clamp_to_int(wide.fsmblks);
  info.uordblks = clamp_to_int(wide.uordblks);
  info.fordblks = clamp_to_int(wide.fordblks);
  info.keepcost = clamp_to_int(wide.keepcost);
  return info;
}

#endif

// Accepts every parameter and does nothing: Loam has no trim or mmap threshold to set.
LOAM_EXPORT int mallopt(int, int) { return 1; }

LOAM_EXPORT void malloc_stats() {
  os::ErrnoGuard guard;
  loam_stats_print(
      nullptr, [](void*, const char* text, size_t length) { os::write_error(text, length); },
      nullptr);
}

LOAM_EXPORT int malloc_info(int options, FILE* out) {
  if (options != 0 || out == nullptr) {
    os::set_errno_invalid();
    return -1;
  }
  fprintf(out, "<malloc version=\"loam-%s\">\n<heap nr=\"0\">\n<sizes>\n", LOAM_VERSION);
  Snapshot s;
  size_t cached_blocks = 0, free_slots = 0;
  // `total` and `count` are of the free blocks, as in glibc.
  take_snapshot(&s, [&](unsigned c, const ClassSnapshot& k) {
    if (k.spans == 0) return;
    const size_t count = k.cached + k.free_slots;
    cached_blocks += k.cached;
    free_slots += k.free_slots;
    fprintf(out,
            "<size from=\"%u\" to=\"%u\" total=\"%zu\" count=\"%zu\" live=\"%zu\" "
            "cached=\"%zu\" free=\"%zu\" spans=\"%zu\"/>\n",
            least_request(c), class_info(c).bytes, count * class_info(c).bytes, count, k.live,
            k.cached, k.free_slots, k.spans);
  });
  fprintf(out, "</sizes>\n");
  print_totals(out, s, cached_blocks, free_slots, false);
  fprintf(out, "</heap>\n");
  print_totals(out, s, cached_blocks, free_slots, true);
  print_counters(out);
  fprintf(out, "</malloc>\n");
  return 0;
}

}  // extern "C"
