// OpenTelemetry's memory probes on systems with ELF. A note names the address of an instruction
// that does nothing, and the places of its operands. A profiler lets the system stop there. While
// the profiler listens, the system raises the note's semaphore, a number in the process's memory.
//
//   .note.stapsdt   place, base, semaphore, "otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx"
//
// https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation
#include "os/os.h"

#if defined(__linux__)

// A section of its own that is written to the file, because the system finds the semaphores by
// their place in the file.
extern "C" {
[[gnu::section(".probes"), gnu::used]] volatile uint16_t loam_allocation_listeners = 0;
[[gnu::section(".probes"), gnu::used]] volatile uint16_t loam_free_listeners = 0;
}

#define LOAM_PROBE(name, semaphore, operands)                             \
  "990: nop\n"                                                            \
  ".pushsection .note.stapsdt,\"\",\"note\"\n"                            \
  ".balign 4\n"                                                           \
  ".4byte 992f-991f, 994f-993f, 3\n"                                      \
  "991: .asciz \"stapsdt\"\n"                                             \
  "992: .balign 4\n"                                                      \
  "993: .8byte 990b, _.stapsdt.base, " semaphore                          \
  "\n"                                                                    \
  ".asciz \"otel_memory\"\n"                                              \
  ".asciz \"" name                                                        \
  "\"\n"                                                                  \
  ".asciz \"" operands                                                    \
  "\"\n"                                                                  \
  "994: .balign 4\n"                                                      \
  ".popsection\n"                                                         \
  ".ifndef _.stapsdt.base\n"                                              \
  ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
  ".weak _.stapsdt.base\n"                                                \
  ".hidden _.stapsdt.base\n"                                              \
  "_.stapsdt.base: .space 1\n"                                            \
  ".size _.stapsdt.base, 1\n"                                             \
  ".popsection\n"                                                         \
  ".endif\n"

namespace loam::os {

LOAM_NOINLINE void probe_allocation(const void* block, size_t bytes, uint64_t weight) {
  asm volatile(LOAM_PROBE("alloc", "loam_allocation_listeners", "8@%0 8@%1 8@%2")
               :
               : "r"(block), "r"(bytes), "r"(weight));
}

LOAM_NOINLINE void probe_free(const void* block) {
  asm volatile(LOAM_PROBE("free", "loam_free_listeners", "8@%0") : : "r"(block));
}

}  // namespace loam::os

#endif  // __linux__
