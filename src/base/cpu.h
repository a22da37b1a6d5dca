// Processor instructions without a portable spelling: a pause in a spin loop, a prefetch.
#pragma once

#include <atomic>

#include "base/config.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace loam {

/// Tells the core that it spins, so that a sibling thread gets the pipeline.
LOAM_INLINE void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile(
      "isb" ::
          : "memory");  // `yield` is a no-op on most cores; isb stalls about as long as pause
#endif
}

/// Decrements a counter that only its owner writes and other threads may read; true when it became
/// 0. The load and the store are relaxed. x86-64 has one instruction for both, but compilers emit
/// three.
[[nodiscard]] LOAM_INLINE bool count_down(uint32_t& counter) {
#if defined(__x86_64__) && !LOAM_THREAD_SANITIZER
  bool zero;
  asm("subl $1, %1" : "=@ccz"(zero), "+m"(counter));
  return zero;
#else
  const uint32_t left = __atomic_load_n(&counter, __ATOMIC_RELAXED) - 1;
  __atomic_store_n(&counter, left, __ATOMIC_RELAXED);
  return left == 0;
#endif
}

/// `pointer`, or `instead` where `pointer` is above `limit`. There is no branch, because no branch
/// predictor would learn it.
template <class T>
[[nodiscard]] LOAM_INLINE T* if_below(T* pointer, T* limit, T* instead) {
#if defined(__x86_64__)
  asm("cmpq %2, %0\n\tcmovaeq %1, %0"
      : "+r"(pointer)
      : "r"(instead), "r"(limit)
      : "cc");  // the compiler makes a branch of ?:
  return pointer;
#else
  return pointer < limit ? pointer : instead;
#endif
}

/// True if the word, loaded with acquire order, is `value`. x86-64 compares with memory in one
/// instruction, but compilers emit two.
template <class T>
[[nodiscard]] LOAM_INLINE bool equals_acquire(T* const* word, T* value) {
#if defined(__x86_64__) && !LOAM_THREAD_SANITIZER
  bool equal;
  asm volatile("cmpq %2, %1" : "=@ccz"(equal) : "m"(*word), "r"(value) : "memory");
  return equal;
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value;
#endif
}

template <class T>
[[nodiscard]] LOAM_INLINE bool equals_acquire(const std::atomic<T*>& word, T* value) {
  static_assert(sizeof word == sizeof value && std::atomic<T*>::is_always_lock_free);
  return equals_acquire(reinterpret_cast<T* const*>(&word), value);
}

/// The same for a byte, in relaxed order.
[[nodiscard]] LOAM_INLINE bool equals_relaxed(const uint8_t* byte, uint8_t value) {
#if defined(__x86_64__) && !LOAM_THREAD_SANITIZER
  bool equal;
  asm volatile("cmpb %2, %1" : "=@ccz"(equal) : "m"(*byte), "ri"(value));
  return equal;
#else
  return __atomic_load_n(byte, __ATOMIC_RELAXED) == value;
#endif
}

LOAM_INLINE void prefetch_for_write(const void* address) { __builtin_prefetch(address, 1, 3); }

}  // namespace loam
