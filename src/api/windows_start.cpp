// Windows: the library's beginning and end, whichever of the other files a program is linked with.
#include "api/win32_state.h"
#include "heap/heap.h"

namespace {

using namespace loam;

// What people and tools read out of the file.
__attribute__((used)) const char identification[] = "libloam " LOAM_VERSION;

// Before the program's own constructors. What allocates earlier gets the default options.
__attribute__((constructor(101))) void start_library() { heap::start(); }

__attribute__((destructor(101))) void end_library() { heap::stop(); }

}  // namespace

namespace loam::win32 {

// malloc's own heap: here the functions of win32_crt.cpp and malloc() share their blocks.
loam_heap* get_process_heap() { return loam_default(); }

}  // namespace loam::win32
