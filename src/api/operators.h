// Shared by the files with forms of operator new and delete.
#pragma once

#include <cstddef>
#include <new>

#include "base/units.h"
#include "heap/heap.h"

/// Weak, for a program that has the form itself and is linked with libloam.a.
#define LOAM_REPLACEABLE LOAM_EXPORT __attribute__((weak))

namespace loam::operators {

/// Finds out, before a second thread runs, which forms the program has replaced. Later, a thread
/// could wait in dlsym() for a dlopen() that waits for the thread.
void start();

/// The slow part of serves_itself(). An ordinary program takes it at a thread's first derived form;
/// a program with forms of its own takes it at every one.
[[nodiscard]] LOAM_NOINLINE bool attach_thread();

/// True if a form that the standard defines by another form may serve the heap itself.
LOAM_INLINE bool serves_itself() {
  return LOAM_LIKELY(os::load_pointer(operators_cache) != &unused_cache) || attach_thread();
}

[[nodiscard]] LOAM_INLINE void* try_aligned(size_t bytes, std::align_val_t alignment) {
  const size_t value = static_cast<size_t>(alignment);
  if (!is_power_of_two(value) || bytes > kLargestRequest - value) return nullptr;
  return heap::allocate_aligned(value, bytes);
}

/// Linux: a symbol of the C++ runtime that the module of `caller` uses, or of any that is loaded;
/// null if there is none. No runtime is loaded.
[[nodiscard]] void* symbol_of_runtime(const char* name, const void* caller);

// These call the C++ run-time, which each system finds in its own way. `caller`: where the operator
// was called, because a module may have a run-time of its own.
[[noreturn]] LOAM_COLD void throw_bad_alloc(const void* caller);
/// Null if there is none.
[[nodiscard]] std::new_handler new_handler(const void* caller);

template <class Allocate>
LOAM_COLD void* retry(Allocate allocate, const void* caller) {
  // [new.delete.single]: call the handler until memory appears, it throws, or there is none.
  for (;;) {
    const std::new_handler call = new_handler(caller);
    if (call == nullptr) throw_bad_alloc(caller);
    call();
    if (void* block = allocate()) return block;
  }
}

// Inlined into the operators: the return address is where the operator was called.
LOAM_INLINE void* allocate_or_throw(size_t bytes) {
  void* block = heap::allocate(bytes);
  if (LOAM_LIKELY(block != nullptr)) return block;
  return retry([bytes] { return heap::allocate(bytes); }, __builtin_return_address(0));
}

LOAM_INLINE void* aligned_or_throw(size_t bytes, std::align_val_t alignment) {
  void* block = try_aligned(bytes, alignment);
  if (LOAM_LIKELY(block != nullptr)) return block;
  return retry([=] { return try_aligned(bytes, alignment); }, __builtin_return_address(0));
}

}  // namespace loam::operators
