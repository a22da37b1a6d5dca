// The options that a user sets in the environment, in one table; ignored in setuid and setgid
// programs.
#pragma once

#include "base/config.h"
#include "hardening/plain_heap.h"

namespace loam {

// Arrays, because the dynamic linker would have to relocate pointers at every program's start.
struct Option {
  char name[24];
  char values[20];
  char initial[8];
  char meaning[132];
};

inline constexpr Option kOptions[] = {
    {"LOAM_BACKGROUND_PURGE", "off|on", "off",
     "on: a thread gives memory back in a process that has gone quiet as well"},
    {"LOAM_HUGE_PAGES", "auto|on|off", "auto",
     "auto: a heap of 32 MiB or more asks the system for huge pages; on: from 16 MiB on, and for "
     "large blocks; off: never"},
    {"LOAM_ON_CORRUPTION", "abort|report", "abort",
     "what to do when a double free or another misuse of a pointer is found"},
    {"LOAM_CHECK_FREE", "fast|full", "fast",
     "full: check every free and the size that it says, exactly and at once; slower"},
    {"LOAM_HARDEN", "off|all|LIST", "off",
     "catch overflows, uses after free, wrong frees; LIST of canary, quarantine[=BYTES], zero, "
     "random, guards, trace; or sample"},
    {"LOAM_DEEP_BINDING", "ignore|keep", "ignore",
     "keep: a library that is loaded with RTLD_DEEPBIND is bound so, and may use the system's "
     "heap"},
    {"LOAM_SAMPLE", "off|N", "off",
     "count all calls, time one in N on average and follow its block: for rates, times and "
     "rounding; slower"},
    {"LOAM_PUBLISH", "off|1|PATH", "off",
     "keep an image of the counters in a file, for readers that may not look into the process; 1: "
     "in the user's runtime folder"},
};

}  // namespace loam

/// True with LOAM_DEEP_BINDING=keep. For src/api/dlopen.c.
extern "C" __attribute__((visibility("hidden"))) bool loam_keeps_deep_binding;

namespace loam {

/// Reads the environment. An unknown value is reported on standard error. In an option that
/// protects it counts as the value that protects most, in any other option as the default. `plain`
/// returns the functions on which the hardened heap is built; it is called only if an option needs
/// them.
void apply_options(PlainHeap (*plain)());

}  // namespace loam
