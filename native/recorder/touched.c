#define _GNU_SOURCE
#include "touched.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel.h"
#include "real.h"
#include "session.h"
#include "stamp.h"
#include "thread.h"

enum { kAlwaysFrom = 64 * 1024, kOneOf = 8, kAtOnce = 4096, kShare = 32 };

static _Atomic uint64_t spent;  // ticks
static size_t page_bytes;
_Atomic uint64_t touched_filter[kFilterBits / 64];

void touched_add(void* block) {
  if (block == NULL || touched_may(block) || real.malloc_usable_size == NULL ||
      real.malloc_usable_size(block) < kTouchedFrom)
    return;
  touched_mark(block);
}

void touched_mark(const void* block) {
  const uint32_t bit = touched_bit(block);
  // The program sends the block to other threads after this.
  atomic_fetch_or_explicit(&touched_filter[bit / 64], UINT64_C(1) << bit % 64,
                           memory_order_relaxed);
}

static bool is_chosen(size_t bytes) {
  if (bytes >= kAlwaysFrom) return true;
  // Multiplied, so that in a program with a period of eight the sample does not always choose the
  // same of its blocks.
  return (++self.medium * UINT32_C(2654435761)) >> 29 == 0;
}

static bool is_affordable(uint64_t stamp) {
  // A tenth of a second for the beginning, at a rate that is roughly right for both processors.
  const uint64_t beginning = stamp_rate() != 0 ? stamp_rate() / 10 : UINT64_C(300000000);
  return atomic_load_explicit(&spent, memory_order_relaxed) * kShare <=
         stamp - control->stamp + beginning;
}

static _Atomic bool is_forbidden;

void calls_forbid(void) { atomic_store_explicit(&is_forbidden, true, memory_order_relaxed); }

bool calls_are_filtered(void) {
  return atomic_load_explicit(&is_forbidden, memory_order_relaxed) || session_is_told(kIsFiltered);
}

static uint64_t count(uintptr_t begin, uintptr_t end) {
  unsigned char states[kAtOnce];
  uint64_t pages = 0;
  for (uintptr_t at = begin; at < end; at += kAtOnce * page_bytes) {
    const size_t bytes = end - at < kAtOnce * page_bytes ? end - at : kAtOnce * page_bytes;
    if (syscall(SYS_mincore, at, bytes, states) != 0) return 0;
    for (size_t i = 0; i < bytes / page_bytes; ++i) pages += states[i] & 1;
  }
  return pages + 1;
}

uint64_t touched_pages(void* block) {
  const size_t bytes = real.malloc_usable_size(block);
  if (bytes < kTouchedFrom) return 0;
  if (atomic_load_explicit(recording, memory_order_relaxed) == 0 || !is_chosen(bytes)) return 0;
  // A filter of system calls may know no mincore(), and end the process.
  if (calls_are_filtered()) return 0;
  const uint64_t before = stamp_now();
  if (!is_affordable(before)) return 0;
  const int saved = errno;
  if (page_bytes == 0) page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  const uintptr_t begin = (uintptr_t)block & ~(page_bytes - 1);
  const uintptr_t end = ((uintptr_t)block + bytes + page_bytes - 1) & ~(page_bytes - 1);
  const uint64_t pages = count(begin, end);
  atomic_fetch_add_explicit(&spent, stamp_now() - before, memory_order_relaxed);
  errno = saved;
  return pages;
}
