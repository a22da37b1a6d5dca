// Windows: the library's beginning and end, whichever of the other files a program is linked with.
#include "api/win32_state.h"
#include "heap/heap.h"

namespace {

using namespace loam;

// People and tools read this out of the file.
__attribute__((used)) const char identification[] = "libloam " LOAM_VERSION;

// Runs before the program's own constructors. Code that allocates earlier gets the default options.
__attribute__((constructor(101))) void start_library() { heap::start(); }

__attribute__((destructor(101))) void end_library() { heap::stop(); }

}  // namespace

namespace loam::win32 {

// The process heap is malloc's heap here, so the functions of win32_crt.cpp and malloc() share
// their blocks.
loam_heap* get_process_heap() { return loam_default(); }

}  // namespace loam::win32
