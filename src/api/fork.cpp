// The fork handlers of everything else in the process.
//
// pthread_atfork() of the GNU C library is a piece of code in each program and library, which calls
// this function: the one way to hear of a handler that is registered before the heap's constructor
// runs. The heap's own come first (os/linux_fork.cpp). Weak, since a static program has the C
// library's own; there the heap's constructor is the first (malloc.cpp). Other C libraries never
// call it.
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

// Not among the other texts: src/api/layout.ld puts it beside what else a start reads.
constexpr char kRegisterName[] = "__register_atfork";

// Null where nothing in the program forks.
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
