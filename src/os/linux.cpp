// Linux. The heap calls the kernel directly (os/kernel.h): this keeps errno, and calls no code of a
// program or a tool while the heap holds locks. Some work must be done by the C library: threads,
// their ends, fork. It is done without a lock.
#if defined(__linux__)

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/text.h"
#include "base/units.h"
#include "os/kernel.h"
#include "os/os.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // Linux 5.18; older kernels answer EINVAL
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000  // Linux 4.17; older kernels take the address as a wish
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE \
  23  // Linux 5.14; older kernels answer EINVAL, and each page takes a fault
#endif

extern "C" __attribute__((weak)) char __libc_single_threaded;  // glibc 2.32

namespace loam::os {

namespace {

// Without MAP_NORESERVE. Inaccessible memory is never counted as promised memory, and memory that a
// program may write must be: otherwise the system grants more than the machine has. Sandboxes
// refuse the flag too (OpenSSH since 9.4).
void* map(void* hint, size_t bytes, int protection, int flags = 0) {
  return kernel::map(hint, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags);
}

bool protect(void* address, size_t bytes, int protection) {
  return kernel::call(SYS_mprotect, address, bytes, protection) == 0;
}

bool advise(void* address, size_t bytes, int advice) {
  return kernel::call(SYS_madvise, address, bytes, advice) == 0;
}

void* remap(void* from, size_t from_bytes, size_t to_bytes, int flags) {
  return kernel::as_pointer(kernel::call(SYS_mremap, from, from_bytes, to_bytes, flags, 0));
}

// A large aligned mapping may fit below this library's own data, and later below the last one. This
// is only a guess: it saves the four calls of the search in map_aligned(), and is as random as the
// address of the library. Where address space is scarce (RLIMIT_AS), guesses would spread the
// little there is over many GiB, each of which needs its records.
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
  kernel::unmap(p, bytes);
  // Reserve more and trim: the kernel aligns mappings to pages only.
  const size_t padded = bytes + alignment;
  p = map(nullptr, padded, protection);
  if (p == nullptr) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
  const uintptr_t aligned = round_up(begin, alignment);
  if (aligned != begin) kernel::unmap(p, aligned - begin);
  const size_t tail = begin + padded - (aligned + bytes);
  if (tail != 0) kernel::unmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<void*>(aligned);
}

constinit std::atomic<bool> stopped_reserving{false};  // zero at the start, because the file has no
                                                       // room for another initial value

}  // namespace

// The kernel refuses this advice for locked memory. All kernels know it, and so do the sandboxes
// that let a malloc give memory back; others (MADV_COLD) a sandbox may answer with the same EINVAL.
bool is_new_memory_locked(const void* address, size_t bytes) {
  return kernel::call(SYS_madvise, address, bytes, MADV_DONTNEED) == -EINVAL;
}

namespace {

// The program may want new memory to be locked, and a new mapping is then locked too. Addresses
// that hold nothing must not count.
void unlock_held(void* address, size_t bytes) {
  if (!is_reserving() && is_new_memory_locked(address, bytes))
    kernel::call(SYS_munlock, address, bytes);
}

Committed map_where_nothing_is(void* address, size_t bytes, int protection) {
  const long got = kernel::call(SYS_mmap, address, bytes, protection,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  void* const p = kernel::as_pointer(got);
  if (p == address) return Committed::kYes;
  if (p == nullptr) return got == -EEXIST ? Committed::kTaken : Committed::kRefused;
  kernel::unmap(p, bytes);
  return Committed::kTaken;
}

// Bound: the places below the last one that are tried, each by its first page, until the reserve is
// refused. More libraries and large blocks are rarely in the way.
constexpr unsigned kPlacesTried = 64;

// A place below the last one where at least the first page is free. Other mappings may come to lie
// there later; commit_more() then answers kTaken.
void* find_place(size_t bytes, size_t alignment) {
  if (guess_place(bytes, alignment) ==
      0) {  // a program at a low fixed address: below where the kernel maps now
    void* const page = map(nullptr, granularity(), PROT_NONE);
    if (page == nullptr) return nullptr;
    __atomic_store_n(&last_place, reinterpret_cast<uintptr_t>(page), __ATOMIC_RELAXED);
    kernel::unmap(page, granularity());
  }
  for (unsigned i = 0; i < kPlacesTried; ++i) {
    const uintptr_t place = guess_place(bytes, alignment);
    if (place == 0) return nullptr;
    __atomic_store_n(&last_place, place, __ATOMIC_RELAXED);
    void* const address = reinterpret_cast<void*>(place);
    if (map_where_nothing_is(address, granularity(), PROT_NONE) != Committed::kYes) continue;
    kernel::unmap(address, granularity());
    return address;
  }
  return nullptr;
}

}  // namespace

ErrnoGuard::ErrnoGuard() : saved_(errno) {}
ErrnoGuard::~ErrnoGuard() { errno = saved_; }
void set_errno_out_of_memory() { errno = ENOMEM; }
void set_errno_invalid() { errno = EINVAL; }

constinit const unsigned char* kernel::boot_random = nullptr;

size_t granularity() {
#if defined(__x86_64__)
  return 4096;
#else
  static constinit size_t cached = 0;
  const size_t known =
      __atomic_load_n(&cached, __ATOMIC_RELAXED);  // idempotent: any thread may store it
  if (known != 0) return known;
  // Advice about zero bytes is refused unless the address is at the beginning of a page. Linux has
  // no page size above 64 KiB.
  size_t bytes = 4096;
  while (bytes < 65536 && kernel::call(SYS_madvise, bytes, 0, MADV_NORMAL) == -EINVAL) bytes *= 2;
  __atomic_store_n(&cached, bytes, __ATOMIC_RELAXED);
  return bytes;
#endif
}

void* reserve(size_t bytes, size_t alignment) {
  if (alignment > granularity() && !is_reserving()) return find_place(bytes, alignment);
  return map_aligned(bytes, alignment, PROT_NONE);
}

void* reserve_metadata(size_t bytes, size_t alignment) { return reserve(bytes, alignment); }

void* reserve_held(size_t bytes, size_t alignment) {
  void* const held = map_aligned(bytes, alignment, PROT_NONE);
  if (held != nullptr) unlock_held(held, bytes);
  return held;
}

// A new mapping over the reserved one, because the kernel locks a new mapping if the program wants
// this. mprotect() would keep the state of the reservation.
bool commit(void* address, size_t bytes) {
  return map(address, bytes, PROT_READ | PROT_WRITE, MAP_FIXED) != nullptr;
}

Committed commit_more(void* address, size_t bytes) {
  if (!is_reserving()) return map_where_nothing_is(address, bytes, PROT_READ | PROT_WRITE);
  return commit(address, bytes) ? Committed::kYes : Committed::kRefused;
}

void give_up(void* address, size_t bytes) {
  if (is_reserving()) release(address, bytes);
}

// relaxed, both: a thread that reserves and commits holds the lock under which the caller returned
// the reserved memory
void stop_reserving() { stopped_reserving.store(true, std::memory_order_relaxed); }
bool can_stop_reserving() { return true; }
bool is_reserving() { return !stopped_reserving.load(std::memory_order_relaxed); }

bool locks_new_memory() {
  const long got =
      kernel::call(SYS_mmap, 0, granularity(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* const page = kernel::as_pointer(got);
  if (page == nullptr) return got == -EAGAIN;  // no further page may be locked
  const bool locked = is_new_memory_locked(page, granularity());
  kernel::unmap(page, granularity());
  return locked;
}

void unlock_zeros(void* address, size_t bytes) {
  if (!is_new_memory_locked(address, bytes)) return;
  if (kernel::call(SYS_munlock, address, bytes) == 0)
    static_cast<void>(advise(address, bytes, MADV_DONTNEED));
}

// The memory is unlocked first, because locked memory that becomes writable is backed at once. Its
// state is read before that, because a filter of system calls may allow only madvise().
bool commit_sparse(void* address, size_t bytes) {
  if (is_new_memory_locked(address, granularity())) kernel::call(SYS_munlock, address, bytes);
  return protect(address, bytes, PROT_READ | PROT_WRITE);
}

bool lock_all_memory(int flags, Locked which) {
  if (which == Locked::kPresent) {
    if ((flags & MCL_CURRENT) == 0) return false;
    flags &= ~MCL_FUTURE;
  }
  if (which == Locked::kFuture) {
    if ((flags & MCL_FUTURE) == 0) return true;
    flags &= ~MCL_CURRENT;
  }
  const long refusal = kernel::call(SYS_mlockall, flags);
  if (refusal != 0) errno = static_cast<int>(-refusal);
  return refusal == 0;
}

// One call instead of madvise() and mprotect(). A system that counts promised memory (overcommit)
// also counts less.
bool decommit(void* address, size_t bytes) {
  if (map(address, bytes, PROT_NONE, MAP_FIXED) == nullptr) return false;
  unlock_held(address, bytes);
  return true;
}

bool purge(void* address, size_t bytes) {
  if (LOAM_UNLIKELY(is_watched())) return false;
  const long refusal = kernel::call(SYS_madvise, address, bytes, MADV_DONTNEED);
  // Memory that the program locked stays locked: the next touch brings a locked page.
  return refusal == 0 || (refusal == -EINVAL && advise(address, bytes, MADV_DONTNEED_LOCKED));
}

bool populate(void* address, size_t bytes) { return advise(address, bytes, MADV_POPULATE_WRITE); }

bool advise_huge(void* address, size_t bytes, bool allow) {
  return advise(address, bytes, allow ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void release(void* address, size_t bytes) { kernel::unmap(address, bytes); }

// Such libraries replace the first instructions of the C library's function by a jump (UCX,
// libfabric, Open MPI), put their own function into the tables of the dynamic linker (UCX), or
// define the symbol (MVAPICH2), at any moment of a program's life. The function of glibc is made of
// its list of system calls and begins with the call. No function of another C library begins with a
// jump.
bool is_watched() {
#if LOAM_OS_DIRECT
  // The address is in the table of the dynamic linker, which the hook may have changed.
  const auto function = reinterpret_cast<const unsigned char*>(&::munmap);
#if defined(__x86_64__)
  const unsigned char* code = function;
  constexpr unsigned char kLandingPad[] = {0xf3, 0x0f, 0x1e, 0xfa};
  const auto skip_landing_pad = [&] {
    if (memcmp(code, kLandingPad, sizeof kLandingPad) == 0) code += sizeof kLandingPad;
  };
  skip_landing_pad();
#if defined(__GLIBC__)
  constexpr unsigned char kCall[] = {0xb8, SYS_munmap, 0, 0, 0, 0x0f, 0x05};  // mov, syscall
  if (LOAM_LIKELY(memcmp(code, kCall, sizeof kCall) == 0)) return false;
  // In a program that is not position-independent the function's address is that of a jump by way
  // of the program's table, and what the table has at first is the next instruction.
  if (code[0] == 0xf2) ++code;
  if (code[0] == 0xff && code[1] == 0x25) {
    int32_t distance;
    memcpy(&distance, code + 2, sizeof distance);
    memcpy(&code, code + 6 + distance, sizeof code);
    skip_landing_pad();
    if (code[0] == 0x68) return false;  // push: the dynamic linker has not looked for it yet
  }
  return memcmp(code, kCall, sizeof kCall) != 0;
#else
  // jmp near; or mov $address,%register and jmp *%register
  return code[0] == 0xe9 || ((code[0] & 0xfe) == 0x48 && (code[1] & 0xf8) == 0xb8);
#endif
#else
  uint32_t code[2];
  memcpy(code, function, sizeof code);
#if defined(__GLIBC__)
  constexpr uint32_t kNop = 0xd503201f, kLandingPad = 0xd503245f;
  if (code[0] == kNop || code[0] == kLandingPad) memcpy(code, function + 4, sizeof code);
  constexpr uint32_t kNumber = 0xd2800008 | SYS_munmap << 5, kCall = 0xd4000001;  // mov, svc
  // adrp of x16: a jump by way of the program's table, if it is not position-independent
  const bool leads_on = (code[0] & 0x9f00001f) == 0x90000010;
  return !(code[0] == kNumber && code[1] == kCall) && !leads_on;
#else
  // b; or movz and ldr (literal) of x9 to x17, by which a jump over any distance begins
  const uint32_t number = code[0] & 31;
  const bool is_scratch = number >= 9 && number <= 17;
  return code[0] >> 26 == 5 || (is_scratch && (code[0] >> 23 == 0x1a5 || code[0] >> 24 == 0x58));
#endif
#endif
#else
  return false;  // all calls go through the C library
#endif
}

void unmap_block(void* address, size_t bytes) {
  if (LOAM_LIKELY(!is_watched())) return kernel::unmap(address, bytes);
  ErrnoGuard guard;
  ::munmap(address, bytes);
}

void* map_block(size_t bytes, size_t alignment) {
  if (alignment <= granularity()) return map(nullptr, bytes, PROT_READ | PROT_WRITE);
  // Only the block itself becomes writable: what is mapped more for its alignment is no promise.
  void* p = map_aligned(bytes, alignment, PROT_NONE);
  if (p == nullptr || commit(p, bytes)) return p;
  kernel::unmap(p, bytes);
  return nullptr;
}

// A sandbox may know one set of flags only, that of realloc() (tor). A mapping that shrinks stays.
void* remap_block(void* address, size_t old_bytes, size_t new_bytes, bool in_place) {
  const bool may_move = !in_place || new_bytes <= old_bytes;
  return remap(address, old_bytes, new_bytes, may_move ? MREMAP_MAYMOVE : 0);
}

// The flag that would keep the old place mapped (MREMAP_DONTUNMAP) is refused by old kernels, by
// sandboxes and by Valgrind. So the place is free for a moment, and a mapping of another thread may
// take it.
Moved move_to_block(void* address, size_t bytes, size_t new_bytes) {
  void* const moved = remap(address, bytes, new_bytes, MREMAP_MAYMOVE);
  if (moved == nullptr) return {};
  if (moved ==
      address) {  // there was room behind it, where other parts of the heap may come to lie
    static_cast<void>(remap(address, new_bytes, bytes, MREMAP_MAYMOVE));
    return {};
  }
  const bool has_place =
      map_where_nothing_is(address, bytes, PROT_READ | PROT_WRITE) == Committed::kYes;
  return {moved, has_place};
}

void count_faults(uint64_t* minor, uint64_t* major) {
  rusage usage{};
  kernel::call(SYS_getrusage, RUSAGE_SELF, &usage);
  *minor = static_cast<uint64_t>(usage.ru_minflt);
  *major = static_cast<uint64_t>(usage.ru_majflt);
}

void wait_while_equal(const uint32_t* word, uint32_t expected) {
  kernel::call(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void wake_one(const uint32_t* word) {
  kernel::call(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool barrier_all_threads() {
  if (is_single_threaded()) return true;
  if (kernel::call(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return true;
  // The process is not registered yet (Linux 4.14 requires that once), or the kernel lacks the
  // call.
  return kernel::call(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
         kernel::call(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

// A sandbox that lets a program lock a mutex allows this call.
void yield() {
  const timespec moment{0, 50'000};
  const uint32_t word = 0;
  kernel::call(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &moment, nullptr, 0);
}

namespace {

// Enough for a tick, and for the hook of a debugger or profiler. A C library may take the program's
// static TLS out of the stack, and then refuses a stack that is too short. So it is tried with
// longer ones, of which only the touched pages are memory. Bound: more static TLS is unheard of;
// with more there is no thread.
constexpr size_t kStackBytes = size_t{128} << 10;
constexpr size_t kMostStackBytes = size_t{64} << 20;

void* call_body(void* body) {
  kernel::call(SYS_prctl, PR_SET_NAME, "loam-purge", 0, 0, 0);
  reinterpret_cast<void (*)()>(body)();
  return nullptr;
}

}  // namespace

bool start_thread(void (*body)()) {
  ErrnoGuard guard;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // A new thread inherits the mask, so the program's signals stay with the program's threads. The
  // mask leaves out the signals from 32 on, which the C library sends itself to cancel threads and
  // to change their user.
  const uint64_t all = ~(uint64_t{7} << (32 - 1));
  uint64_t before = 0;
  kernel::call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  pthread_t thread;
  int refusal = EINVAL;
  for (size_t stack = kStackBytes; stack <= kMostStackBytes && refusal == EINVAL; stack *= 2) {
    pthread_attr_setstacksize(&attributes, stack);
    refusal = pthread_create(&thread, &attributes, &call_body, reinterpret_cast<void*>(body));
  }
  kernel::call(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
  return refusal == 0;
}

extern "C" [[gnu::visibility("hidden")]] long loam_set_signal_mask(const uint64_t* mask,
                                                                   uint64_t* before);
long loam_set_signal_mask(const uint64_t* mask, uint64_t* before) {
  return kernel::call(SYS_rt_sigprocmask, SIG_SETMASK, mask, before, sizeof *mask);
}

void sleep_ms(unsigned ms) {
  const timespec span{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  kernel::call(SYS_nanosleep, &span,
               nullptr);  // never woken early: the thread has its signals blocked
}

void start() {
  single_thread_flag = &__libc_single_threaded;
  kernel::boot_random = reinterpret_cast<const unsigned char*>(getauxval(AT_RANDOM));
  kernel::find_clock();
}

const char* variable(const char* name) {
  if (environ == nullptr) return nullptr;  // cleared by the program
  const size_t length = text::length(name);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (text::begins_with(*entry, name, length) && (*entry)[length] == '=')
      return *entry + length + 1;
  }
  return nullptr;
}

const char* option(const char* name) {
  if (getauxval(AT_SECURE) != 0) return nullptr;
  return variable(name);
}

namespace {

// Apart from the other texts: src/api/layout.ld puts it beside the other data of a start.
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
  while (length != 0) {
    const long written = kernel::call(SYS_write, STDERR_FILENO, text, length);
    if (written <= 0) return;
    text += written;
    length -= static_cast<size_t>(written);
  }
}

// Does the same as abort(). The program may replace abort(), and the heap may hold locks when it
// finds a fault.
void abort_process() {
  const uint64_t only = uint64_t{1} << (SIGABRT - 1);
  const long process = kernel::call(SYS_getpid), thread = kernel::call(SYS_gettid);
  kernel::call(SYS_rt_sigprocmask, SIG_UNBLOCK, &only, nullptr, sizeof only);
  kernel::call(SYS_tgkill, process, thread, SIGABRT);
  // The signal is ignored, or a handler returned. In the kernel's struct sigaction, all zero is the
  // default action.
  const uint64_t none[8] = {};
  kernel::call(SYS_rt_sigaction, SIGABRT, none, nullptr, sizeof only);
  kernel::call(SYS_tgkill, process, thread, SIGABRT);
  for (;;) __builtin_trap();
}

}  // namespace loam::os

#endif  // __linux__
