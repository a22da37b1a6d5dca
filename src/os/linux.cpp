// Linux. Every call goes through ErrnoGuard, since free() must keep errno.
//
// Most system calls go through syscall(): the dynamic linker looks every imported name up when a program starts, which
// a short program notices (decision 18). mmap() and munmap() stay themselves: sanitizers and tracers listen there.
#if defined(__linux__)

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "os/os.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // Linux 5.7; older kernels answer EINVAL
#endif
#ifndef MADV_COLD
#define MADV_COLD 20  // Linux 5.4
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older kernels answer EINVAL and we fall back to faults
#endif

namespace loam::os {

namespace {

void* map(void* hint, size_t bytes, int protection) {
  void* p = mmap(hint, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

bool protect(void* address, size_t bytes, int protection) {
  return syscall(SYS_mprotect, address, bytes, long{protection}) == 0;
}

bool advise(void* address, size_t bytes, int advice) {
  return syscall(SYS_madvise, address, bytes, long{advice}) == 0;
}

void* remap(void* from, size_t from_bytes, size_t to_bytes, int flags, void* to = nullptr) {
  const long p = syscall(SYS_mremap, from, from_bytes, to_bytes, long{flags}, to);
  return p == -1 ? nullptr : reinterpret_cast<void*>(p);
}

// A large aligned mapping may well fit below this library's own data, then below the last one. A guess only, which
// saves the four calls of the search in map_aligned(); as random as the place of the library. Where address space
// is scarce (RLIMIT_AS) guesses would spread what little there is over many GiB, each of which needs its records.
constinit uintptr_t last_place = 0;
constexpr uintptr_t kNoGuess = 1;

uintptr_t guess_place(size_t bytes, size_t alignment) {
  uintptr_t top = __atomic_load_n(&last_place, __ATOMIC_RELAXED);  // a race costs a guess
  if (top == kNoGuess) return 0;
  if (top == 0) top = reinterpret_cast<uintptr_t>(&last_place);
  if (top < 4 * (bytes + alignment)) return 0;  // a program at a low fixed address
  return (top - bytes) & ~(alignment - 1);
}

void* map_aligned(size_t bytes, size_t alignment, int protection) {
  const uintptr_t guess = alignment > granularity() ? guess_place(bytes, alignment) : 0;
  void* p = map(reinterpret_cast<void*>(guess), bytes, protection);
  if (p == nullptr) {
    if (guess != 0) __atomic_store_n(&last_place, kNoGuess, __ATOMIC_RELAXED);
    return nullptr;
  }
  if ((reinterpret_cast<uintptr_t>(p) & (alignment - 1)) == 0) {
    if (guess != 0) __atomic_store_n(&last_place, reinterpret_cast<uintptr_t>(p), __ATOMIC_RELAXED);
    return p;
  }
  munmap(p, bytes);
  // Over-reserve and trim: the kernel places mappings at page granularity only.
  const size_t padded = bytes + alignment;
  p = map(nullptr, padded, protection);
  if (p == nullptr) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
  const uintptr_t aligned = round_up(begin, alignment);
  if (aligned != begin) munmap(p, aligned - begin);
  const size_t tail = begin + padded - (aligned + bytes);
  if (tail != 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<void*>(aligned);
}

uint64_t read_clock(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

pthread_key_t thread_exit_key;

}  // namespace

ErrnoGuard::ErrnoGuard() : saved_(errno) {}
ErrnoGuard::~ErrnoGuard() { errno = saved_; }
void set_errno_out_of_memory() { errno = ENOMEM; }
void set_errno_invalid() { errno = EINVAL; }

size_t granularity() {
  static constinit size_t cached = 0;
  const size_t known = __atomic_load_n(&cached, __ATOMIC_RELAXED);  // idempotent: any thread may store it
  if (known != 0) return known;
  const size_t bytes = getauxval(AT_PAGESZ);
  __atomic_store_n(&cached, bytes, __ATOMIC_RELAXED);
  return bytes;
}

void* reserve(size_t bytes, size_t alignment) {
  ErrnoGuard guard;
  return map_aligned(bytes, alignment, PROT_NONE);
}

void* reserve_metadata(size_t bytes, size_t alignment) { return reserve(bytes, alignment); }

bool commit(void* address, size_t bytes) {
  ErrnoGuard guard;
  return protect(address, bytes, PROT_READ | PROT_WRITE);
}

bool decommit(void* address, size_t bytes) {
  ErrnoGuard guard;
  // One call for what madvise() and mprotect() would take two; and a system that counts what it promised (overcommit) counts less.
  const long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return syscall(SYS_mmap, address, bytes, long{PROT_NONE}, flags, -1L, 0L) != -1;
}

bool purge(void* address, size_t bytes) {
  ErrnoGuard guard;
  return advise(address, bytes, MADV_DONTNEED);
}

bool populate(void* address, size_t bytes) {
  ErrnoGuard guard;
  return advise(address, bytes, MADV_POPULATE_WRITE);
}

bool holds_memory(const void* address) {
  ErrnoGuard guard;
  const uintptr_t page = reinterpret_cast<uintptr_t>(address) & ~(granularity() - 1);
  unsigned char answer = 0;
  return syscall(SYS_mincore, page, granularity(), &answer) != 0 || (answer & 1) != 0;
}

bool advise_huge(void* address, size_t bytes, bool allow) {
  ErrnoGuard guard;
  return advise(address, bytes, allow ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void release(void* address, size_t bytes) {
  ErrnoGuard guard;
  munmap(address, bytes);
}

void* map_block(size_t bytes, size_t alignment) {
  ErrnoGuard guard;
  void* p = map_aligned(bytes, alignment, PROT_NONE);
  if (p == nullptr) return nullptr;
  if (protect(p, bytes, PROT_READ | PROT_WRITE)) return p;
  munmap(p, bytes);
  return nullptr;
}

void* remap_block(void* address, size_t old_bytes, size_t new_bytes, bool in_place) {
  ErrnoGuard guard;
  return remap(address, old_bytes, new_bytes, in_place ? 0 : MREMAP_MAYMOVE);
}

void* move_to_block(void* address, size_t bytes, size_t new_bytes) {
  ErrnoGuard guard;
  // The kernel would unlock all memory around the place that it leaves mapped. Of locked memory it refuses this advice, which
  // does nothing else that shows.
  if (!advise(address, granularity(), MADV_COLD)) return nullptr;
  void* const moved = remap(address, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
  if (moved == nullptr) return nullptr;
  // Nothing to the kernel. An emulator that knows no such flag passed it on, and takes the memory for unmapped.
  if (!protect(address, bytes, PROT_READ | PROT_WRITE)) {
    mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  if (bytes == new_bytes) return moved;
  if (void* const grown = remap(moved, bytes, new_bytes, MREMAP_MAYMOVE)) return grown;
  if (remap(moved, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == nullptr) {
    memcpy(address, moved, bytes);
    munmap(moved, bytes);
  }
  return nullptr;
}

void count_faults(uint64_t* minor, uint64_t* major) {
  ErrnoGuard guard;
  rusage usage{};
  syscall(SYS_getrusage, long{RUSAGE_SELF}, &usage);
  *minor = static_cast<uint64_t>(usage.ru_minflt);
  *major = static_cast<uint64_t>(usage.ru_majflt);
}

uint64_t now_coarse_ns() { return read_clock(CLOCK_MONOTONIC_COARSE); }
uint64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }
uint64_t running_ms() { return read_clock(CLOCK_PROCESS_CPUTIME_ID) / 1'000'000; }

void wait_while_equal(const uint32_t* word, uint32_t expected) {
  ErrnoGuard guard;
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void wake_one(const uint32_t* word) {
  ErrnoGuard guard;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool barrier_all_threads() {
  ErrnoGuard guard;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return true;
  // Not registered yet (Linux 4.14 wants that once a process), or unknown here.
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void yield() {
  ErrnoGuard guard;
  syscall(SYS_sched_yield);
}

namespace {

// Enough for a tick and for a debugger's or profiler's hook; the C library adds what static TLS needs.
constexpr size_t kStackBytes = size_t{128} << 10;

void* call_body(void* body) {
  syscall(SYS_prctl, long{PR_SET_NAME}, "loam-purge", 0L, 0L, 0L);
  reinterpret_cast<void (*)()>(body)();
  return nullptr;
}

}  // namespace

bool start_thread(void (*body)()) {
  ErrnoGuard guard;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  const long least = sysconf(_SC_THREAD_STACK_MIN);
  pthread_attr_setstacksize(&attributes, kStackBytes + (least > 0 ? static_cast<size_t>(least) : 0));
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // A new thread inherits the mask: the program's signals stay with the program's threads. But not what the C library
  // sends itself from 32 on, to cancel threads and to change their user.
  const uint64_t all = ~(uint64_t{7} << (32 - 1));
  uint64_t before = 0;
  syscall(SYS_rt_sigprocmask, long{SIG_SETMASK}, &all, &before, sizeof all);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, &call_body, reinterpret_cast<void*>(body)) == 0;
  syscall(SYS_rt_sigprocmask, long{SIG_SETMASK}, &before, nullptr, sizeof before);
  return started;
}

void sleep_ms(unsigned ms) {
  ErrnoGuard guard;
  const timespec span{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  syscall(SYS_nanosleep, &span, nullptr);  // woken early by nobody: the thread has its signals blocked
}

bool register_thread_exit(void (*callback)(void*)) {
  return pthread_key_create(&thread_exit_key, callback) == 0;
}

void arm_thread_exit(void* argument) {
  ErrnoGuard guard;
  pthread_setspecific(thread_exit_key, argument);
}

namespace {

// glibc's fork() takes the list of open streams after it ran the prepare handlers. A thread that holds a
// stream and waits for the heap, while the forking thread holds the heap and waits for the streams, would be
// a deadlock; so the streams come first here too. The lock is recursive. The symbols are glibc's, exported
// for its own libraries; other C libraries lack them, and the problem.
extern "C" __attribute__((weak)) void _IO_list_lock();
extern "C" __attribute__((weak)) void _IO_list_unlock();
extern "C" __attribute__((weak)) void _IO_list_resetlock();
extern "C" __attribute__((weak)) char __libc_single_threaded;  // glibc 2.32

using Handler = void (*)();
constinit Handler heap_prepare = nullptr;
constinit Handler heap_parent = nullptr;
constinit Handler heap_child = nullptr;

// A process with one thread needs no locks to fork; taking none lets a signal handler that interrupted the
// heap fork, as with glibc's own malloc: both sides go on with what they held.
constinit std::atomic<bool> forking_alone{false};

void prepare_fork() {
  const bool alone = is_single_threaded();
  forking_alone.store(alone, std::memory_order_relaxed);  // one thread, or false whoever writes it
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

}  // namespace

void register_fork(void (*prepare)(), void (*parent)(), void (*child)()) {
  ErrnoGuard guard;
  heap_prepare = prepare;
  heap_parent = parent;
  heap_child = child;
  single_thread_flag = &__libc_single_threaded;
  pthread_atfork(&prepare_fork, &finish_fork_in_parent, &finish_fork_in_child);
}

const char* variable(const char* name) {
  if (environ == nullptr) return nullptr;  // cleared by the program
  const size_t length = text::length(name);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (text::begins_with(*entry, name, length) && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

const char* option(const char* name) {
  if (getauxval(AT_SECURE) != 0) return nullptr;
  return variable(name);
}

namespace {

// Not among the other texts: src/api/layout.ld puts it beside what else a start reads.
constexpr char kOptionPrefix[] = "LOAM_";

}  // namespace

bool has_options() {
  if (environ == nullptr) return false;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (text::begins_with(*entry, kOptionPrefix, sizeof kOptionPrefix - 1)) return true;
  }
  return false;
}

void write_error(const char* text, size_t length) {
  ErrnoGuard guard;
  while (length != 0) {
    const long written = syscall(SYS_write, long{STDERR_FILENO}, text, length);
    if (written <= 0) return;
    text += written;
    length -= static_cast<size_t>(written);
  }
}

void abort_process() { abort(); }

}  // namespace loam::os

#endif  // __linux__
