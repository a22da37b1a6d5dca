// Windows: the C allocation family in place of the C run-time's, for programs that are linked with
// libloam.a before their run-time. These definitions then serve all code that is linked statically.
// A run-time's DLL also allocates blocks itself, in getcwd() for instance. When they reach free()
// here, it hands them back (os/system_heap.h). src/api/win32_crt.cpp has the names with an
// underscore.
//
// All functions are thread-safe. Failure sets errno to ENOMEM; free() keeps errno and the last
// error.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cwchar>

#include "api/c_family.h"
#include "loam/win32.h"
#include "os/system_heap.h"

namespace {

using namespace loam;

template <class Char>
Char* duplicate(const Char* text, size_t length) {
  if (text == nullptr) return nullptr;
  const size_t bytes = (length + 1) * sizeof(Char);
  void* const copy = c_family::or_out_of_memory(heap::allocate(bytes));
  return copy == nullptr ? nullptr : static_cast<Char*>(memcpy(copy, text, bytes));
}

}  // namespace

extern "C" {

LOAM_EXPORT void* malloc(size_t bytes) { return heap::allocate(bytes); }
LOAM_EXPORT void free(void* block) { heap::free(block); }

LOAM_EXPORT void* calloc(size_t count, size_t bytes) {
  return c_family::allocate_zeroed(count, bytes);
}

LOAM_EXPORT void* realloc(void* block, size_t bytes) { return c_family::reallocate(block, bytes); }

LOAM_EXPORT char* _strdup(const char* text) {
  return duplicate(text, text != nullptr ? strlen(text) : 0);
}
LOAM_EXPORT char* strdup(const char* text) { return _strdup(text); }
LOAM_EXPORT wchar_t* _wcsdup(const wchar_t* text) {
  return duplicate(text, text != nullptr ? wcslen(text) : 0);
}
LOAM_EXPORT wchar_t* wcsdup(const wchar_t* text) { return _wcsdup(text); }

}  // extern "C"

namespace {

// As early as the heap's own beginning. What the DLL has allocated until then is freed as a block
// of the C run-time.
__attribute__((constructor(102))) void serve_cxx_runtime() {
  const os::Replacement list[] = {
      {"malloc", reinterpret_cast<void*>(&malloc)},
      {"calloc", reinterpret_cast<void*>(&calloc)},
      {"realloc", reinterpret_cast<void*>(&realloc)},
      {"free", reinterpret_cast<void*>(&free)},
      {"_aligned_malloc", reinterpret_cast<void*>(&_aligned_malloc)},
      {"_aligned_free", reinterpret_cast<void*>(&_aligned_free)},
  };
  os::serve_cxx_runtime(list, sizeof list / sizeof *list);
}

}  // namespace
