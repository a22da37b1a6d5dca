// Shared by the C++ headers: how they fail without exceptions, and how AddressSanitizer learns
// which bytes no code may touch. Not for users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#if defined(__cpp_exceptions)
#define LOAM_CXX_EXCEPTIONS 1
#else
#define LOAM_CXX_EXCEPTIONS 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define LOAM_CXX_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOAM_CXX_ASAN 1
#endif
#endif
#if !defined(LOAM_CXX_ASAN)
#define LOAM_CXX_ASAN 0
#endif

#if LOAM_CXX_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace loam::detail {

/// The alignment of malloc and operator new.
inline constexpr std::size_t kNaturalAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

/// Most bytes of an object: a difference of pointers must fit.
inline constexpr std::size_t kLargestRequest = PTRDIFF_MAX;

/// Two cache lines, since processors fetch lines in pairs.
inline constexpr std::size_t kNoSharing = 128;

[[noreturn]] inline void out_of_memory(std::size_t bytes) {
#if LOAM_CXX_EXCEPTIONS
  static_cast<void>(bytes);
  throw std::bad_alloc();
#else
  std::fprintf(stderr, "loam: out of memory for %zu bytes, and the program has no exceptions\n",
               bytes);
  std::abort();
#endif
}

[[nodiscard]] constexpr bool is_power_of_two(std::size_t n) noexcept {
  return n != 0 && (n & (n - 1)) == 0;
}

/// pre: to is a power of two, n + to does not overflow
[[nodiscard]] constexpr std::size_t round_up(std::size_t n, std::size_t to) noexcept {
  return (n + to - 1) & ~(to - 1);
}

/// Bytes from p to the next multiple of alignment, a power of two.
[[nodiscard]] inline std::size_t padding(const void* p, std::size_t alignment) noexcept {
  return (std::size_t{0} - reinterpret_cast<std::uintptr_t>(p)) & (alignment - 1);
}

/// Marks memory that its owner holds but no code may touch. Tools that look for overruns cannot see
/// into private allocators; this lets them.
inline void poison([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) noexcept {
#if LOAM_CXX_ASAN
  if (bytes != 0) __asan_poison_memory_region(p, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) noexcept {
#if LOAM_CXX_ASAN
  if (bytes != 0) __asan_unpoison_memory_region(p, bytes);
#endif
}

}  // namespace loam::detail
