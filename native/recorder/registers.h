// The registers with which the unwinding of a stack begins.
#pragma once

#include <stdint.h>

typedef struct Registers {
  uint64_t instruction;
  uint64_t stack;
  uint64_t frame;
  uint64_t link;  // the return address, where a register holds it; else 0
} Registers;

// The registers of the function into which this one is inlined.
static inline __attribute__((always_inline)) Registers registers_now(void) {
  Registers now = {0, 0, 0, 0};
#if defined(__x86_64__)
  __asm__ volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"
                   : "=&r"(now.instruction), "=&r"(now.stack), "=&r"(now.frame));
#elif defined(__aarch64__)
  __asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30"
                   : "=&r"(now.instruction), "=&r"(now.stack), "=&r"(now.frame), "=&r"(now.link));
#else
#error "the recorder knows the registers of x86-64 and aarch64 only"
#endif
  return now;
}
