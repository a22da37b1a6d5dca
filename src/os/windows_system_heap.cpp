// Windows: other allocators of the process beside this heap (os/system_heap.h).
//
// A process may have several run-times, each with a heap of the system. If a run-time allocated a
// block, in getcwd() or _wcsdup() for instance, its heap knows the block, and the run-time frees
// it. Other modules may contain a heap as this one does. They are found by a section of their
// files, and each is asked.
#if defined(_WIN32)

#include "os/windows.h"

#include <psapi.h>

#include <atomic>
#include <cstring>

#include "os/os.h"
#include "os/system_heap.h"

extern "C" const IMAGE_DOS_HEADER __ImageBase;  // of this module; the linker defines it

namespace loam::os {

namespace {

struct Runtime {
  HANDLE heap;
  void (*free)(void*);
  void (*aligned_free)(void*);
};

bool find_runtime(const wchar_t* module, Runtime* out) {
  const auto heap = function_of<intptr_t (*)()>(module, "_get_heap_handle");
  out->free = function_of<void (*)(void*)>(module, "free");
  out->aligned_free = function_of<void (*)(void*)>(module, "_aligned_free");
  if (out->free == nullptr) return false;
  out->heap = heap != nullptr ? reinterpret_cast<HANDLE>(heap()) : GetProcessHeap();
  return out->heap != nullptr;
}

// Finds the run-time that allocated this live block.
bool find_owner(const void* block, Runtime* out) {
  for (const wchar_t* module : kCRuntimes) {
    if (find_runtime(module, out) && HeapValidate(out->heap, 0, block)) return true;
  }
  return false;
}

// ---- other modules with a heap
// --------------------------------------------------------------------

// Modules that were found. An entry may be of a module that is gone, so it is looked at before it
// is used. With more modules, each question about a block of the others looks at all modules.
constexpr unsigned kKnown = 16;
constinit std::atomic<const ModuleHeap*> known[kKnown];

const ModuleHeap* heap_in(HMODULE module) {
  const auto* const base = reinterpret_cast<const char*>(module);
  const auto* const head = reinterpret_cast<const IMAGE_NT_HEADERS*>(
      base + reinterpret_cast<const IMAGE_DOS_HEADER*>(base)->e_lfanew);
  const IMAGE_SECTION_HEADER* section = IMAGE_FIRST_SECTION(head);
  for (unsigned i = 0; i < head->FileHeader.NumberOfSections; ++i, ++section) {
    if (memcmp(section->Name, LOAM_MODULE_HEAP_SECTION, sizeof LOAM_MODULE_HEAP_SECTION) != 0)
      continue;
    const auto* found = reinterpret_cast<const ModuleHeap*>(base + section->VirtualAddress);
    return found->magic == ModuleHeap::kMagic ? found : nullptr;
  }
  return nullptr;
}

// Whether the entry still lies in a module that is loaded, and still is one.
bool is_there(const ModuleHeap* heap) {
  HMODULE module;
  return GetModuleHandleExW(
             GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
             reinterpret_cast<const wchar_t*>(heap), &module) != 0 &&
         heap_in(module) == heap;
}

bool owns(const ModuleHeap* heap, const void* block) { return heap->size(block) != SIZE_MAX; }

// The other module whose heap has this live block; null if there is none.
const ModuleHeap* find_module(const void* block) {
  // relaxed throughout: an entry is a constant of its module
  for (const auto& entry : known) {
    const ModuleHeap* const heap = entry.load(std::memory_order_relaxed);
    if (heap != nullptr && is_there(heap) && owns(heap, block)) return heap;
  }
  // With more, the frame is longer than a page, and needs a function of the run-time.
  HMODULE modules[480];
  DWORD bytes = 0;
  if (!EnumProcessModules(GetCurrentProcess(), modules, sizeof modules, &bytes)) return nullptr;
  const DWORD count = (bytes < sizeof modules ? bytes : sizeof modules) / sizeof *modules;
  unsigned places = 0;
  for (DWORD i = 0; i < count; ++i) {
    if (reinterpret_cast<const void*>(modules[i]) == &__ImageBase) continue;
    const ModuleHeap* const heap = heap_in(modules[i]);
    if (heap == nullptr) continue;
    if (places < kKnown) known[places++].store(heap, std::memory_order_relaxed);
    if (owns(heap, block)) return heap;
  }
  return nullptr;
}

// The block in which a run-time's _aligned_malloc() placed `block`: its address lies in front of
// `block`. The program says that this is such a block; what lies there is only compared.
const void* aligned_base(const void* block, Runtime* owner) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  const uintptr_t note = (address & ~(sizeof(void*) - 1)) - sizeof(void*);
  MEMORY_BASIC_INFORMATION memory;
  if (address < 2 * sizeof(void*) ||
      VirtualQuery(reinterpret_cast<const void*>(note), &memory, sizeof memory) == 0 ||
      memory.State != MEM_COMMIT || (memory.Protect & (PAGE_NOACCESS | PAGE_GUARD)) != 0)
    return nullptr;
  const void* base;
  memcpy(&base, reinterpret_cast<const void*>(note), sizeof base);
  if (reinterpret_cast<uintptr_t>(base) > note || !find_owner(base, owner)) return nullptr;
  const size_t bytes = HeapSize(owner->heap, 0, base);
  const bool is_inside = bytes != SIZE_MAX && address - reinterpret_cast<uintptr_t>(base) < bytes;
  return is_inside && owner->aligned_free != nullptr ? base : nullptr;
}

}  // namespace

size_t system_block_size(const void* block) {
  LastErrorGuard guard;
  if (const ModuleHeap* const heap = find_module(block)) return heap->size(block);
  Runtime owner;
  return find_owner(block, &owner) ? HeapSize(owner.heap, 0, block) : SIZE_MAX;
}

size_t system_block_bytes(const void* block) {
  const size_t bytes = system_block_size(block);
  return bytes == SIZE_MAX ? 0 : bytes != 0 ? bytes : 1;
}

void free_system_block(void* block) {
  LastErrorGuard guard;
  if (const ModuleHeap* const heap = find_module(block)) return heap->free(block);
  Runtime owner;
  if (find_owner(block, &owner)) owner.free(block);
}

size_t aligned_system_block_bytes(const void* block) {
  LastErrorGuard guard;
  Runtime owner;
  const void* const base = aligned_base(block, &owner);
  if (base == nullptr) return 0;
  return HeapSize(owner.heap, 0, base) -
         (reinterpret_cast<uintptr_t>(block) - reinterpret_cast<uintptr_t>(base));
}

void free_aligned_system_block(void* block) {
  LastErrorGuard guard;
  Runtime owner;
  if (aligned_base(block, &owner) != nullptr) owner.aligned_free(block);
}

}  // namespace loam::os

#endif  // _WIN32
