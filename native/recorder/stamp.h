// The stamp of an event: the processor's counter, which all of its cores share.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
static inline uint64_t stamp_now(void) { return __builtin_ia32_rdtsc(); }
static inline uint64_t stamp_rate(void) { return 0; }  // the drainer computes it
static inline void stamp_pause(void) { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
static inline uint64_t stamp_now(void) {
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}
static inline uint64_t stamp_rate(void) {
  uint64_t rate;
  __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(rate));
  return rate;
}
static inline void stamp_pause(void) { __asm__ volatile("yield"); }
#else
#error "the recorder knows the counters of x86-64 and aarch64 only"
#endif
