// Linux: the GNU C library's own allocator beside this heap (os/system_heap.h).
//
// A pointer is a live block of that allocator if two things hold. It lies where that allocator has
// its memory, and the words around it are those that the allocator writes (glibc's malloc/malloc.c,
// unchanged since 2.3):
//
//   chunk:       | size of the chunk before, if free | size, flags | block ... |
//   next chunk:  | ... | size, kBeforeInUse |
//
//   main arena        in the program's [heap]; the chunk that follows says that this one is in use
//   other arenas      the same in a heap of 64 MiB at a multiple of that, whose first words are its
//                     arena, the heap before, its size
//   mappings          the chunk fills whole pages of a private mapping
#if defined(__linux__)

#include "os/system_heap.h"

#include <cstdlib>

#if defined(__GLIBC__)

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "base/text.h"
#include "os/linux_maps.h"
#include "os/os.h"

namespace loam::os {

namespace {

constexpr size_t kBeforeInUse = 1, kIsMapping = 2, kIsInOtherArena = 4, kFlags = 7;
constexpr size_t kHeaderBytes = 2 * sizeof(size_t);
constexpr size_t kLeastChunk = 4 * sizeof(size_t);
constexpr uintptr_t kOtherHeapBytes =
    uintptr_t{64} << 20;  // HEAP_MAX_SIZE; with huge pages by glibc.malloc.hugetlb it differs

// Private, writable, anonymous memory around an address; as many mappings as follow each other.
struct Area {
  uintptr_t begin, end;
  bool is_program_heap;
};

// "55d0-55f1 rw-p 00000000 00:00 0     [heap]"
bool parse(const char* line, Area* out) {
  const char* at = line;
  out->begin = parse_hex(at);
  if (*at++ != '-') return false;
  out->end = parse_hex(at);
  if (!text::begins_with(at, " rw", 3) || at[4] != 'p') return false;
  for (int words = 0; words < 4 && *at != '\0'; ++words) {
    while (*at == ' ') ++at;
    while (*at != ' ' && *at != '\0') ++at;
  }
  while (*at == ' ') ++at;
  while (*at >= '0' && *at <= '9') ++at;
  while (*at == ' ') ++at;
  out->is_program_heap = text::same(at, "[heap]");
  return *at == '\0' || out->is_program_heap || text::begins_with(at, "[anon", 5);
}

// The beginning of the program's [heap], once it was seen. The end is asked of the system, because
// it grows.
constinit std::atomic<uintptr_t> program_heap{0};

bool find_area(uintptr_t address, Area* out) {
  // relaxed: it is written once, and never wrong
  const uintptr_t known = program_heap.load(std::memory_order_relaxed);
  if (known != 0 && address >= known) {
    *out = {known, static_cast<uintptr_t>(kernel::call(SYS_brk, 0)), true};
    if (address < out->end) return true;
  }
  MapsReader maps;
  *out = {};
  while (const char* line = maps.next()) {
    Area next;
    const bool fits = parse(line, &next);
    const bool found = address >= out->begin && address < out->end;
    if (found && (!fits || next.begin != out->end)) break;
    if (!fits) {
      *out = {};
    } else if (next.begin != out->end) {
      *out = next;
    } else {
      out->end = next.end;
      if (address >= next.begin && address < next.end) out->is_program_heap = next.is_program_heap;
    }
    if (next.is_program_heap) program_heap.store(next.begin, std::memory_order_relaxed);
  }
  return address >= out->begin && address < out->end;
}

size_t word_at(uintptr_t address) {
  size_t word;
  memcpy(&word, reinterpret_cast<const void*>(address), sizeof word);
  return word;
}

bool fills_pages(uintptr_t chunk, size_t bytes, const Area& area) {
  const size_t before = word_at(chunk), page = granularity();
  if (before > chunk - area.begin || bytes > area.end - chunk) return false;
  return (chunk - before) % page == 0 && (before + bytes) % page == 0;
}

// Whether the chunk lies in a heap of an arena of threads; *end is then the end of that heap.
bool lies_in_other_heap(uintptr_t chunk, const Area& area, uintptr_t* end) {
  const uintptr_t heap = chunk & ~(kOtherHeapBytes - 1);
  if (heap < area.begin) return false;
  const uintptr_t arena = word_at(heap), previous = word_at(heap + sizeof(size_t));
  const size_t bytes = word_at(heap + 2 * sizeof(size_t));
  if (arena % sizeof(size_t) != 0 || bytes > kOtherHeapBytes || bytes % granularity() != 0 ||
      bytes > area.end - heap)
    return false;
  *end = heap + bytes;
  // An arena's record is at the start of its first heap.
  return previous == 0 ? arena > heap && arena < heap + 16 * sizeof(size_t)
                       : previous % kOtherHeapBytes == 0;
}

bool is_in_use(uintptr_t chunk, size_t bytes, uintptr_t end) {
  if (chunk >= end || bytes > end - chunk || end - chunk - bytes < kHeaderBytes) return false;
  const size_t next = word_at(chunk + bytes + sizeof(size_t));
  return (next & kBeforeInUse) != 0 && (next & ~kFlags) >= kHeaderBytes &&
         (next & ~kFlags) <= end - chunk - bytes;
}

using Free = void (*)(void*);
constinit std::atomic<Free> system_free{nullptr};

// By the C library's own name for it, in the C library: not this heap's free(), and not that of
// another allocator behind this library.
Free find_system_free() {
  // relaxed: any thread finds the same
  Free found = system_free.load(std::memory_order_relaxed);
  if (found != nullptr) return found;
  void* library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  found = library != nullptr ? reinterpret_cast<Free>(dlsym(library, "__libc_free")) : nullptr;
  system_free.store(found, std::memory_order_relaxed);
  return found;
}

}  // namespace

size_t system_block_bytes(const void* block) {
  ErrnoGuard guard;
  const uintptr_t chunk = reinterpret_cast<uintptr_t>(block) - kHeaderBytes;
  Area area;
  if (chunk % kHeaderBytes != 0 || chunk > UINTPTR_MAX / 2 || !find_area(chunk, &area)) return 0;
  const size_t word = word_at(chunk + sizeof(size_t)), bytes = word & ~kFlags;
  if (bytes < kLeastChunk || bytes % kHeaderBytes != 0 || find_system_free() == nullptr) return 0;
  if ((word & kIsMapping) != 0) {
    return (word & kFlags) == kIsMapping && fills_pages(chunk, bytes, area) ? bytes - kHeaderBytes
                                                                            : 0;
  }
  uintptr_t end = area.end;
  const bool lies_there =
      (word & kIsInOtherArena) != 0 ? lies_in_other_heap(chunk, area, &end) : area.is_program_heap;
  return lies_there && is_in_use(chunk, bytes, end) ? bytes - sizeof(size_t) : 0;
}

void free_system_block(void* block) { find_system_free()(block); }

}  // namespace loam::os

extern "C" void loam_find_system_free() { loam::os::find_system_free(); }

#else  // another C library: its blocks are unknown here

size_t loam::os::system_block_bytes(const void*) { return 0; }
void loam::os::free_system_block(void*) { abort(); }
extern "C" void loam_find_system_free() {}

#endif

size_t loam::os::system_block_size(const void* block) {
  const size_t bytes = system_block_bytes(block);
  return bytes != 0 ? bytes : SIZE_MAX;
}
size_t loam::os::aligned_system_block_bytes(const void*) { return 0; }
void loam::os::free_aligned_system_block(void*) { abort_process(); }

#endif  // __linux__
