// Linux: the C library's threads: their end, and fork().
//
// The C library calls handlers in reverse order of registration before a fork, and in order after
// it. All other handlers may allocate, or wait for threads that allocate. So the heap's handlers
// are registered first, whichever library is started before it (decision 64).
#if defined(__linux__)

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <atomic>

#include "os/os.h"

// glibc's fork() takes the list of open streams after it ran the prepare handlers. A deadlock would
// need two threads: one holds a stream and waits for the heap, while the forking thread holds the
// heap and waits for the streams. So the heap takes the streams first too. The lock is recursive.
// The symbols are glibc's, exported for its own libraries; other C libraries have neither the
// symbols nor the problem.
extern "C" __attribute__((weak)) void _IO_list_lock();
extern "C" __attribute__((weak)) void _IO_list_unlock();
extern "C" __attribute__((weak)) void _IO_list_resetlock();

#if !defined(__x86_64__)
// link.h declares the name itself, and not as weak.
extern "C" __attribute__((weak, visibility("hidden")))
ElfW(Dyn) dynamic_table[] __asm__("_DYNAMIC");
#endif

namespace loam::os {

namespace {

// The linker's: what the file that the heap is part of tells the dynamic linker. Null in a static
// program.
const ElfW(Dyn) * dynamic_section() {
#if defined(__x86_64__)
  // A compiler would read the address from a table, which costs each start a relocation.
  const ElfW(Dyn) * section;
  __asm__(".weak _DYNAMIC\n\t.hidden _DYNAMIC\n\tleaq _DYNAMIC(%%rip), %0" : "=r"(section));
  return section;
#else
  return dynamic_table;
#endif
}

// Whether a dlclose() may unmap this code: it is part of a library that is not marked to stay
// (libloam.so is). Only programs have an entry for debuggers.
bool may_be_unloaded() {
  const ElfW(Dyn)* entry = dynamic_section();
  if (entry == nullptr) return false;
  for (; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_DEBUG) return false;
    if (entry->d_tag == DT_FLAGS_1 && (entry->d_un.d_val & (DF_1_NODELETE | DF_1_PIE)) != 0)
      return false;
  }
  return true;
}

// Blocks, the memory of threads and the callback at their end outlive every dlclose(), so the
// library must. The names are looked up, because a program whose own code the heap is may have
// neither.
LOAM_NOINLINE void stay_loaded() {
  const auto address_info =
      reinterpret_cast<int (*)(const void*, Dl_info*)>(dlsym(RTLD_DEFAULT, "dladdr"));
  const auto open = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_DEFAULT, "dlopen"));
  Dl_info library{};
  if (address_info == nullptr || open == nullptr || address_info(dynamic_section(), &library) == 0)
    return;
  static_cast<void>(open(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

// The key + 1; 0 = none yet.
constinit std::atomic<uint64_t> thread_exit_key{0};

bool find_thread_exit_key(void (*callback)(void*), pthread_key_t* out) {
  // acquire: pairs with the exchange of the thread that made the key
  uint64_t known = thread_exit_key.load(std::memory_order_acquire);
  if (known == 0) {
    pthread_key_t made;
    if (pthread_key_create(&made, callback) != 0) return false;
    if (thread_exit_key.compare_exchange_strong(known, uint64_t{made} + 1,
                                                std::memory_order_acq_rel)) {
      known = uint64_t{made} + 1;
      if (may_be_unloaded()) stay_loaded();
    } else {
      pthread_key_delete(made);  // another thread was faster
    }
  }
  *out = static_cast<pthread_key_t>(known - 1);
  return true;
}

// A program may take all keys. Then the callback is one of the thread's C++ destructors, of which
// there may be any number. The C library keeps the library loaded meanwhile. The name is looked up,
// because not every C library has it.
LOAM_NOINLINE bool arm_without_key(void (*callback)(void*), void* argument) {
  using Register = int (*)(void (*)(void*), void*, const void*);
  const auto add = reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "__cxa_thread_atexit_impl"));
  return add != nullptr && add(callback, argument, dynamic_section()) == 0;
}

using Handler = void (*)();
constinit Handler heap_prepare = nullptr;
constinit Handler heap_parent = nullptr;
constinit Handler heap_child = nullptr;

// A process with one thread needs no locks to fork. Because it takes none, a signal handler that
// interrupted the heap may fork, as with glibc's own malloc: both sides go on with what they held.
constinit std::atomic<bool> forking_alone{false};

void prepare_fork() {
  const bool alone = is_single_threaded();
  forking_alone.store(alone, std::memory_order_relaxed);  // one thread, or false from any thread
  if (alone) return;
  if (_IO_list_lock != nullptr) _IO_list_lock();
  heap_prepare();
}

void finish_fork_in_parent() {
  if (forking_alone.load(std::memory_order_relaxed)) return;
  heap_parent();
  if (_IO_list_unlock != nullptr) _IO_list_unlock();
}

void finish_fork_in_child() {
  if (forking_alone.load(std::memory_order_relaxed)) return;
  heap_child();
  if (_IO_list_resetlock != nullptr) _IO_list_resetlock();
}

constinit std::atomic<bool> fork_registered{false};

}  // namespace

bool arm_thread_exit(void (*callback)(void*), void* argument) {
  ErrnoGuard guard;
  pthread_key_t key;
  if (LOAM_LIKELY(find_thread_exit_key(callback, &key) && pthread_setspecific(key, argument) == 0))
    return true;
  return arm_without_key(callback, argument);
}

void register_fork(void (*prepare)(), void (*parent)(), void (*child)()) {
  // acq_rel: one thread registers the handlers, for all threads
  if (fork_registered.exchange(true, std::memory_order_acq_rel)) return;
  ErrnoGuard guard;
  heap_prepare = prepare;
  heap_parent = parent;
  heap_child = child;
  pthread_atfork(&prepare_fork, &finish_fork_in_parent, &finish_fork_in_child);
}

}  // namespace loam::os

#endif  // __linux__
