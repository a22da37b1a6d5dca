// Puts the heap's fork handlers around those of the rest of the process.
//
// pthread_atfork() of the GNU C library is a piece of code in each program and library, which calls
// this function. Only so does the heap learn of a handler that is registered before its constructor
// runs. The heap's handlers are registered first (os/linux_fork.cpp). The function is weak, since a
// static program has the C library's own; there the heap's constructor runs first (malloc.cpp).
// Other C libraries never call it.
//
// Thread-safe.
#include <dlfcn.h>

#include <atomic>

#include "base/config.h"
#include "heap/all_locks.h"

namespace {

using Handler = void (*)();
using Register = int (*)(Handler, Handler, Handler, void*);
constinit std::atomic<Register> next_register{nullptr};

// Apart from the other texts: src/api/layout.ld puts it beside the other data that a start reads.
constexpr char kRegisterName[] = "__register_atfork";

// musl has pthread_atfork() itself: a library that was linked with the GNU C library works there.
using OthersRegister = int (*)(Handler, Handler, Handler);
constinit OthersRegister others_register = nullptr;
int register_without_library(Handler prepare, Handler parent, Handler child, void*) {
  return others_register(prepare, parent, child);
}

LOAM_COLD Register find_others() {
  others_register = reinterpret_cast<OthersRegister>(dlsym(RTLD_NEXT, "pthread_atfork"));
  return others_register != nullptr ? &register_without_library : nullptr;
}

// Null if nothing in the program forks.
Register find_next() {
  auto found = reinterpret_cast<Register>(dlsym(RTLD_NEXT, kRegisterName));
  if (LOAM_UNLIKELY(found == nullptr)) found = find_others();
  next_register.store(found, std::memory_order_relaxed);  // relaxed: every thread finds the same
  return found;
}

}  // namespace

extern "C" LOAM_EXPORT __attribute__((weak)) int __register_atfork(Handler prepare, Handler parent,
                                                                   Handler child, void* library) {
  loam::heap::register_fork();
  Register next = next_register.load(std::memory_order_relaxed);
  if (next == nullptr) next = find_next();
  return next != nullptr ? next(prepare, parent, child, library) : 0;
}
