// Windows: the C run-times' own allocators beside this heap (os/system_heap.h).
//
// A process may have several run-times, each with a heap of the system. If a run-time allocated a
// block, in getcwd() or _wcsdup() for instance, its heap knows the block, and the run-time frees
// it.
#if defined(_WIN32)

#include "os/windows.h"

#include "os/os.h"
#include "os/system_heap.h"

namespace loam::os {

namespace {

constexpr const wchar_t* kRuntimes[] = {L"ucrtbase.dll", L"msvcrt.dll"};

struct Runtime {
  HANDLE heap;
  void (*free)(void*);
};

bool find_runtime(const wchar_t* module, Runtime* out) {
  const auto heap = function_of<intptr_t (*)()>(module, "_get_heap_handle");
  out->free = function_of<void (*)(void*)>(module, "free");
  if (out->free == nullptr) return false;
  out->heap = heap != nullptr ? reinterpret_cast<HANDLE>(heap()) : GetProcessHeap();
  return out->heap != nullptr;
}

// Finds the run-time that allocated this live block.
bool find_owner(const void* block, Runtime* out) {
  for (const wchar_t* module : kRuntimes) {
    if (find_runtime(module, out) && HeapValidate(out->heap, 0, block)) return true;
  }
  return false;
}

}  // namespace

size_t system_block_bytes(const void* block) {
  LastErrorGuard guard;
  Runtime owner;
  if (!find_owner(block, &owner)) return 0;
  const size_t bytes = HeapSize(owner.heap, 0, block);
  return bytes == static_cast<size_t>(-1) ? 0 : bytes != 0 ? bytes : 1;
}

void free_system_block(void* block) {
  LastErrorGuard guard;
  Runtime owner;
  if (find_owner(block, &owner)) owner.free(block);
}

}  // namespace loam::os

#endif  // _WIN32
