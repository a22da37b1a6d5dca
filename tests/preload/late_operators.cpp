// libloam is loaded late and locally into a C++ program with operators of its own. A caller that
// looks up the heap's forms by address gets matching forms, and the program keeps its own
// operators.
#include <dlfcn.h>

#include <new>

#include "check.h"

namespace {
unsigned long made, gone;
}

void* operator new(std::size_t n) {
  ++made;
  return static_cast<char*>(malloc(n + 32)) + 32;
}
void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  ++gone;
  free(static_cast<char*>(p) - 32);
}

namespace {

template <typename Function>
Function symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  CHECK(found != nullptr);
  return reinterpret_cast<Function>(found);
}

struct Thing {
  long words[9];
  ~Thing() { words[0] = 0; }
};

}  // namespace

int main(int argc, char** argv) {
  CHECK_EQUAL(argc, 2);
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) dprintf(2, "%s\n", dlerror());
  CHECK(library != nullptr);
  auto late_new = symbol<void* (*)(std::size_t)>(library, "_Znwm");
  auto late_array = symbol<void* (*)(std::size_t)>(library, "_Znam");
  auto late_sized = symbol<void (*)(void*, std::size_t)>(library, "_ZdlPvm");
  auto late_nothrow =
      symbol<void (*)(void*, const std::nothrow_t&)>(library, "_ZdlPvRKSt9nothrow_t");
  for (int i = 0; i < 1000; ++i) {
    const unsigned long before = made;
    late_sized(late_new(100), 100);
    late_nothrow(late_array(100), std::nothrow);
    CHECK_EQUAL(made, before);
    Thing* things = static_cast<Thing*>(opaque(new Thing[3]));
    delete[] things;
    CHECK_EQUAL(made, gone);
    CHECK_EQUAL(made, before + 1);
  }
  return 0;
}
