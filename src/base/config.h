// Compiler attributes and build-time switches. Only this file may use #define for a number or a
// type.
//
// These are macros because attributes cannot be anything else. All have the LOAM_ prefix.
#pragma once

#include <cstddef>
#include <cstdint>

#define LOAM_INLINE inline __attribute__((always_inline))
#define LOAM_NOINLINE __attribute__((noinline))
#define LOAM_COLD __attribute__((noinline, cold))
#define LOAM_LIKELY(x) __builtin_expect(!!(x), 1)
#define LOAM_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LOAM_EXPORT __attribute__((visibility("default")))
#define LOAM_RETURNS_BLOCK __attribute__((malloc))

// ThreadSanitizer sees no memory access inside assembly.
#if defined(__SANITIZE_THREAD__)
#define LOAM_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOAM_THREAD_SANITIZER 1
#endif
#endif
#if !defined(LOAM_THREAD_SANITIZER)
#define LOAM_THREAD_SANITIZER 0
#endif

// Clang's thread-safety annotations; gcc has none of them.
#if defined(__clang__)
#define LOAM_CAPABILITY(x) __attribute__((capability(x)))
#define LOAM_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define LOAM_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define LOAM_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define LOAM_TRY_ACQUIRE(...) __attribute__((try_acquire_capability(__VA_ARGS__)))
#define LOAM_RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#define LOAM_NO_THREAD_SAFETY_ANALYSIS __attribute__((no_thread_safety_analysis))
#else
#define LOAM_CAPABILITY(x)
#define LOAM_GUARDED_BY(x)
#define LOAM_REQUIRES(...)
#define LOAM_ACQUIRE(...)
#define LOAM_TRY_ACQUIRE(...)
#define LOAM_RELEASE(...)
#define LOAM_NO_THREAD_SAFETY_ANALYSIS
#endif
