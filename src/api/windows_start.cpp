// Windows: the library's beginning and end, whichever of the other files a program is linked with.
#include "api/win32_state.h"
#include "heap/heap.h"
#include "os/system_heap.h"

namespace {

using namespace loam;

// People and tools read this out of the file.
__attribute__((used)) const char identification[] = "libloam " LOAM_VERSION;

size_t size_here(const void* block) {
  loam_heap* const heap = loam_heap_of(block);
  return heap != nullptr ? loam_size(heap, block) : SIZE_MAX;
}

// For other modules that contain a heap: free() there finds this.
__attribute__((used, section(LOAM_MODULE_HEAP_SECTION)))
const os::ModuleHeap module_heap = {os::ModuleHeap::kMagic, &size_here, &heap::free};

// Runs before the program's own constructors. Code that allocates earlier gets the default options.
__attribute__((constructor(101))) void start_library() { heap::start(); }

__attribute__((destructor(101))) void end_library() { heap::stop(); }

}  // namespace

namespace loam::win32 {

// The process heap is malloc's heap here, so the functions of win32_crt.cpp and malloc() share
// their blocks.
loam_heap* get_process_heap() { return loam_default(); }

}  // namespace loam::win32
