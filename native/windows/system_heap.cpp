// The workloads' malloc() on a heap of the system. LOAM_LAB_HEAP selects the heap: `process` (the
// process heap), `lfh` (the same, with its low-fragmentation front end requested) or `private`
// (made by HeapCreate()). `loam lab --windows` measures these beside Loam.
//
// It is linked before the C run-time, so that everything that is linked statically allocates here.
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <windows.h>

namespace {

HANDLE open_heap() {
  char which[16] = "";
  GetEnvironmentVariableA("LOAM_LAB_HEAP", which, sizeof which);
  if (strcmp(which, "private") == 0) return HeapCreate(0, 0, 0);
  const HANDLE heap = GetProcessHeap();
  ULONG low_fragmentation = 2;
  if (strcmp(which, "lfh") == 0)
    HeapSetInformation(heap, HeapCompatibilityInformation, &low_fragmentation,
                       sizeof low_fragmentation);
  return heap;
}

// The first call may come before this program's constructors, so any caller can open the heap.
HANDLE heap() {
  static constinit HANDLE opened = nullptr;
  HANDLE now = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
  if (now != nullptr) return now;
  now = open_heap();
  HANDLE before = nullptr;
  if (__atomic_compare_exchange_n(&opened, &before, now, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return now;
  if (now != before && now != GetProcessHeap()) HeapDestroy(now);
  return before;
}

void* or_no_memory(void* block) {
  if (block == nullptr) errno = ENOMEM;
  return block;
}

// In front of an aligned block: the address of the heap's block.
void*& begin_of(void* aligned) { return static_cast<void**>(aligned)[-1]; }

}  // namespace

extern "C" {

void* malloc(size_t bytes) { return or_no_memory(HeapAlloc(heap(), 0, bytes)); }
void free(void* block) {
  if (block != nullptr) HeapFree(heap(), 0, block);
}
void* calloc(size_t count, size_t bytes) {
  size_t all;
  if (__builtin_mul_overflow(count, bytes, &all)) return or_no_memory(nullptr);
  return or_no_memory(HeapAlloc(heap(), HEAP_ZERO_MEMORY, all));
}
void* realloc(void* block, size_t bytes) {
  if (block == nullptr) return malloc(bytes);
  return or_no_memory(HeapReAlloc(heap(), 0, block, bytes));
}
size_t _msize(void* block) { return HeapSize(heap(), 0, block); }

// The system's heap has no aligned blocks. So they are made as the C run-time makes them: a larger
// block, with a note of its address in front of the aligned part. Windows programs that need
// aligned blocks have this cost.
void* _aligned_malloc(size_t bytes, size_t alignment) {
  size_t all;
  if (__builtin_add_overflow(bytes, alignment + sizeof(void*), &all)) return or_no_memory(nullptr);
  char* const begin = static_cast<char*>(malloc(all));
  if (begin == nullptr) return nullptr;
  const uintptr_t place = reinterpret_cast<uintptr_t>(begin) + sizeof(void*) + alignment - 1;
  void* const aligned = reinterpret_cast<void*>(place & ~(alignment - 1));
  begin_of(aligned) = begin;
  return aligned;
}
void _aligned_free(void* block) {
  if (block != nullptr) free(begin_of(block));
}

int malloc_trim(size_t) {
  HeapCompact(heap(), 0);
  return 1;
}

// Calls through the import table reach these.
#define LOAM_LAB_IMPORT(name) \
  void* loam_lab_##name asm("__imp_" #name) = reinterpret_cast<void*>(&name)
LOAM_LAB_IMPORT(malloc);
LOAM_LAB_IMPORT(free);
LOAM_LAB_IMPORT(calloc);
LOAM_LAB_IMPORT(realloc);
LOAM_LAB_IMPORT(_msize);
LOAM_LAB_IMPORT(_aligned_malloc);
LOAM_LAB_IMPORT(_aligned_free);

}  // extern "C"
