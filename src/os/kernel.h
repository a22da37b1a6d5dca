// Calls of Linux without the C library between. A program, or a tool that is loaded before the
// heap, may have its own mmap(), syscall() or clock, which may allocate. The heap calls the kernel
// while it holds locks (decision 64).
//
// A result from -4095 to -1 is the negated errno; errno itself stays as it is. On processors
// without code below, and where the heap itself is compiled for a sanitizer, the calls go through
// the C library, where the sanitizer listens.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <ctime>
#include <type_traits>

#include "base/config.h"

#if defined(__has_feature)
#define LOAM_OS_FEATURE(name) __has_feature(name)
#else
#define LOAM_OS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) ||           \
    LOAM_OS_FEATURE(thread_sanitizer) || LOAM_OS_FEATURE(address_sanitizer) || \
    LOAM_OS_FEATURE(memory_sanitizer)
#define LOAM_OS_DIRECT 0
#elif defined(__x86_64__) && defined(__LP64__)
#define LOAM_OS_DIRECT 1
#elif defined(__aarch64__) && defined(__LP64__)
#define LOAM_OS_DIRECT 1
#else
#define LOAM_OS_DIRECT 0
#endif

namespace loam::os::kernel {

#if LOAM_OS_DIRECT

LOAM_INLINE long enter(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result;
  // The kernel leaves its return address in rcx and the flags in r11.
  asm volatile("syscall"
               : "=a"(result)
               : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#endif
}

#else

inline long enter(long number, long a, long b, long c, long d, long e, long f) {
  const int saved = errno;
  const long result = number == SYS_munmap
                          ? munmap(reinterpret_cast<void*>(a), static_cast<size_t>(b))
                          : syscall(number, a, b, c, d, e, f);
  const int why = errno;
  errno = saved;
  return result == -1 ? -why : result;
}

#endif

template <class Argument>
LOAM_INLINE long word(Argument argument) {
  if constexpr (std::is_pointer_v<Argument> || std::is_null_pointer_v<Argument>) {
    return reinterpret_cast<long>(argument);
  } else {
    return static_cast<long>(argument);
  }
}

template <class... Arguments>
LOAM_INLINE long call(long number, Arguments... arguments) {
  static_assert(sizeof...(Arguments) <= 6, "Linux takes six");
  const long words[6] = {word(arguments)...};
  return enter(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

/// Null when refused.
LOAM_INLINE void* as_pointer(long result) {
  return result < 0 && result >= -4095 ? nullptr : reinterpret_cast<void*>(result);
}

/// Null when refused.
inline void* map(void* hint, size_t bytes, int protection, int flags) {
#if LOAM_OS_DIRECT
  return as_pointer(call(SYS_mmap, hint, bytes, protection, flags, -1, 0));
#else
  const int saved = errno;
  void* const p = mmap(hint, bytes, protection, flags, -1, 0);
  errno = saved;
  return p == MAP_FAILED ? nullptr : p;
#endif
}

inline void unmap(void* address, size_t bytes) { call(SYS_munmap, address, bytes); }

/// Finds the clock that needs no system call. Before this call the clocks are system calls. The C
/// library must be ready.
void find_clock();

/// Sixteen random bytes that the kernel gives a process; null before start().
extern const unsigned char* boot_random;

}  // namespace loam::os::kernel
