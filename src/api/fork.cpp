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

// Null if nothing in the program forks.
Register find_next() {
  const auto found = reinterpret_cast<Register>(dlsym(RTLD_NEXT, kRegisterName));
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
