// Every form of operator new and delete.
//
// The throwing forms need the C++ runtime's new-handler and bad_alloc. Loam must not depend on that runtime,
// so both are weak: a program that can throw has brought them. When they were loaded where the dynamic
// linker did not show them to us (a C program with a C++ plugin), dlsym finds them at the moment of need.
#include <dlfcn.h>

#include <cstddef>
#include <new>

#include "base/check.h"
#include "base/units.h"
#include "heap/heap.h"

namespace std {
// Exported by libstdc++ and libc++ alike under these names.
__attribute__((noreturn, weak)) void __throw_bad_alloc();  // as libstdc++ declares it: clang minds
__attribute__((weak)) new_handler get_new_handler() noexcept;
}  // namespace std

namespace {

using namespace loam;

using GetHandler = std::new_handler (*)();
using Throw = void (*)();

// Looks in the C++ runtime that is loaded somewhere, without loading one.
void* symbol_of_runtime(const char* name) {
  if (void* found = dlsym(RTLD_DEFAULT, name)) return found;
  for (const char* library : {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"}) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void* found = handle != nullptr ? dlsym(handle, name) : nullptr;
    if (found != nullptr) return found;
  }
  return nullptr;
}

[[noreturn]] LOAM_COLD void throw_bad_alloc() {
  if (&std::__throw_bad_alloc != nullptr) std::__throw_bad_alloc();
  if (auto* thrower = reinterpret_cast<Throw>(symbol_of_runtime("_ZSt17__throw_bad_allocv"))) thrower();
  fatal("operator new: out of memory, and no C++ runtime to throw bad_alloc");
}

std::new_handler handler() {
  if (&std::get_new_handler != nullptr) return std::get_new_handler();
  auto* get = reinterpret_cast<GetHandler>(symbol_of_runtime("_ZSt15get_new_handlerv"));
  return get != nullptr ? get() : nullptr;
}

template <class Allocate>
LOAM_COLD void* retry(Allocate allocate) {
  // [new.delete.single]: call the handler until memory appears, it throws, or there is none.
  for (;;) {
    const std::new_handler call = handler();
    if (call == nullptr) throw_bad_alloc();
    call();
    if (void* block = allocate()) return block;
  }
}

LOAM_INLINE void* allocate_or_throw(size_t bytes) {
  void* block = heap::allocate(bytes);
  if (LOAM_LIKELY(block != nullptr)) return block;
  return retry([bytes] { return heap::allocate(bytes); });
}

using NothrowNew = void* (*)(size_t, const std::nothrow_t&);
using NothrowAlignedNew = void* (*)(size_t, std::align_val_t, const std::nothrow_t&);

// The nothrow forms must call the handler too, and swallow what it throws. Code without exceptions cannot
// catch, but the runtime's own nothrow form can: it calls our throwing form inside a try block.
LOAM_COLD void* nothrow_by_runtime(const char* form, size_t bytes) {
  auto* runtime = reinterpret_cast<NothrowNew>(dlsym(RTLD_NEXT, form));
  return runtime != nullptr ? runtime(bytes, std::nothrow_t{}) : nullptr;
}

LOAM_COLD void* nothrow_by_runtime(const char* form, size_t bytes, std::align_val_t alignment) {
  auto* runtime = reinterpret_cast<NothrowAlignedNew>(dlsym(RTLD_NEXT, form));
  return runtime != nullptr ? runtime(bytes, alignment, std::nothrow_t{}) : nullptr;
}

void* try_aligned(size_t bytes, std::align_val_t alignment) {
  const size_t value = static_cast<size_t>(alignment);
  if (!is_power_of_two(value) || bytes > kLargestRequest - value) return nullptr;
  return heap::allocate_aligned(value, bytes);
}

void* aligned_or_throw(size_t bytes, std::align_val_t alignment) {
  void* block = try_aligned(bytes, alignment);
  if (LOAM_LIKELY(block != nullptr)) return block;
  return retry([=] { return try_aligned(bytes, alignment); });
}

}  // namespace

// NOLINTBEGIN: the forms are the standard's
LOAM_EXPORT void* operator new(size_t n) { return allocate_or_throw(n); }
LOAM_EXPORT void* operator new[](size_t n) { return allocate_or_throw(n); }
LOAM_EXPORT void* operator new(size_t n, const std::nothrow_t&) noexcept {
  void* block = heap::allocate(n);
  return LOAM_LIKELY(block != nullptr) ? block : nothrow_by_runtime("_ZnwmRKSt9nothrow_t", n);
}
LOAM_EXPORT void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  void* block = heap::allocate(n);
  return LOAM_LIKELY(block != nullptr) ? block : nothrow_by_runtime("_ZnamRKSt9nothrow_t", n);
}
LOAM_EXPORT void* operator new(size_t n, std::align_val_t a) { return aligned_or_throw(n, a); }
LOAM_EXPORT void* operator new[](size_t n, std::align_val_t a) { return aligned_or_throw(n, a); }
LOAM_EXPORT void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  void* block = try_aligned(n, a);
  return block != nullptr ? block : nothrow_by_runtime("_ZnwmSt11align_val_tRKSt9nothrow_t", n, a);
}
LOAM_EXPORT void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  void* block = try_aligned(n, a);
  return block != nullptr ? block : nothrow_by_runtime("_ZnamSt11align_val_tRKSt9nothrow_t", n, a);
}

LOAM_EXPORT void operator delete(void* p) noexcept { loam::heap::free(p); }
LOAM_EXPORT void operator delete[](void* p) noexcept { loam::heap::free(p); }
LOAM_EXPORT void operator delete(void* p, const std::nothrow_t&) noexcept { loam::heap::free(p); }
LOAM_EXPORT void operator delete[](void* p, const std::nothrow_t&) noexcept { loam::heap::free(p); }
LOAM_EXPORT void operator delete(void* p, size_t n) noexcept { loam::heap::free_sized(p, n); }
LOAM_EXPORT void operator delete[](void* p, size_t n) noexcept { loam::heap::free_sized(p, n); }
LOAM_EXPORT void operator delete(void* p, std::align_val_t) noexcept { loam::heap::free(p); }
LOAM_EXPORT void operator delete[](void* p, std::align_val_t) noexcept { loam::heap::free(p); }
LOAM_EXPORT void operator delete(void* p, size_t n, std::align_val_t) noexcept { loam::heap::free_sized(p, n); }
LOAM_EXPORT void operator delete[](void* p, size_t n, std::align_val_t) noexcept { loam::heap::free_sized(p, n); }
LOAM_EXPORT void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { loam::heap::free(p); }
LOAM_EXPORT void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { loam::heap::free(p); }
// NOLINTEND
