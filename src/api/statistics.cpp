// mallinfo and its relatives, from one snapshot. The field meanings are glibc's where Loam has the like;
// fields about things that Loam has not (fast bins, mmap threshold) are zero or map to the nearest.
#include <malloc.h>

#include <cstdarg>
#include <cstdio>

#include "heap/heap.h"
#include "os/os.h"

namespace {

using namespace loam;

int clamp_to_int(size_t n) { return n > 0x7fffffffu ? 0x7fffffff : static_cast<int>(n); }

struct mallinfo2 info2() {
  Snapshot s;
  heap::take_snapshot(&s);
  struct mallinfo2 info {};
  info.arena = s.used_bytes + s.dirty_bytes;  // bytes in regions that may be resident
  info.ordblks = s.reserved_bytes >> kBlockShift;
  info.smblks = 0;
  info.hblks = s.huge_blocks;
  info.hblkhd = s.live_huge_bytes;
  info.usmblks = s.peak_used_bytes;
  info.fsmblks = s.cached_bytes;
  info.uordblks = s.live_small_bytes + s.live_large_bytes;
  info.fordblks = info.arena - info.uordblks;
  info.keepcost = s.dirty_bytes;  // what malloc_trim() would give back at least
  return info;
}

void print(FILE* out, const char* label, size_t value) { fprintf(out, "%-28s %14zu\n", label, value); }

}  // namespace

extern "C" {

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

// Accepts every parameter and changes nothing: Loam has no trim or mmap threshold to set.
LOAM_EXPORT int mallopt(int, int) { return 1; }

LOAM_EXPORT void malloc_stats() {
  os::ErrnoGuard guard;
  Snapshot s;
  heap::take_snapshot(&s);
  fprintf(stderr, "loam %s, bytes\n", LOAM_VERSION);
  print(stderr, "live, small blocks", s.live_small_bytes);
  print(stderr, "live, runs of pages", s.live_large_bytes);
  print(stderr, "live, own mappings", s.live_huge_bytes);
  print(stderr, "cached by threads", s.cached_bytes);
  print(stderr, "free in spans", s.span_free_bytes);
  print(stderr, "span tails", s.span_tail_bytes);
  print(stderr, "unbacked in spans", s.unbacked_bytes);
  print(stderr, "free pages, backed", s.dirty_bytes);
  print(stderr, "committed address space", s.committed_bytes);
  print(stderr, "metadata", s.metadata_bytes);
  print(stderr, "purged since start", s.purged_bytes);
  print(stderr, "threads with a cache", s.threads);
  print(stderr, "page heap lock, waited", s.page_lock_contentions);
}

LOAM_EXPORT int malloc_info(int options, FILE* out) {
  if (options != 0 || out == nullptr) {
    os::set_errno_invalid();
    return -1;
  }
  Snapshot s;
  heap::take_snapshot(&s);
  fprintf(out, "<malloc version=\"loam-%s\">\n<heap nr=\"0\">\n<sizes>\n", LOAM_VERSION);
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const ClassSnapshot& k = s.classes[c];
    if (k.spans == 0) continue;
    fprintf(out, "<size from=\"%u\" to=\"%u\" live=\"%zu\" cached=\"%zu\" free=\"%zu\" spans=\"%zu\"/>\n",
            kSizeClasses[c - 1].bytes + 1, kSizeClasses[c].bytes, k.live, k.cached, k.free, k.spans);
  }
  fprintf(out, "</sizes>\n");
  fprintf(out, "<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n", s.span_free_bytes + s.cached_bytes);
  fprintf(out, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", s.huge_blocks, s.live_huge_bytes);
  fprintf(out, "<system type=\"current\" size=\"%zu\"/>\n", s.used_bytes + s.dirty_bytes);
  fprintf(out, "<system type=\"max\" size=\"%zu\"/>\n", s.peak_used_bytes);
  fprintf(out, "<aspace type=\"total\" size=\"%zu\"/>\n", s.reserved_bytes);
  fprintf(out, "</heap>\n</malloc>\n");
  return 0;
}

}  // extern "C"
