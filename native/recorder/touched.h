// The number of resident pages of a block, read from the system just before the block is freed.
//
// The system is always asked for blocks from 64 KiB on, and for one in eight between two pages and
// 64 KiB. The recorder spends at most about 3 % of the time since the process began on these
// questions.
//
// Only the allocator knows a block's size, and it may have to read memory around the block that is
// in no cache. So a filter says which blocks are too small:
//
//   a block of at least two pages begins -> the bit of its address is set
//   a block is freed                     -> its bit says whether the allocator is asked
//
// Bits are never cleared. If such blocks began at very many addresses, the allocator is asked for
// all blocks. Blocks of the early area (real.h) have their bits too, so that free() finds them.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel.h"

enum { kTouchedFrom = 8192, kFilterBits = 65536 };

// Requests for fewer bytes get less than kTouchedFrom: no allocator hands out four times as much.
enum { kNotableFrom = kTouchedFrom / 4 };

extern LOAM_HIDDEN _Atomic uint64_t touched_filter[kFilterBits / 64];

LOAM_COLD void touched_add(void* block);
// Sets the bit without a question.
void touched_mark(const void* block);
// The process has a filter of system calls: only the calls of the heap are made from now on. Pages
// are not counted then, and stacks not copied.
void calls_forbid(void);
bool calls_are_filtered(void);

// Call for each block that is handed out. `block` may be null.
static inline void touched_begins(void* block, size_t size) {
  if (LOAM_UNLIKELY(size >= kNotableFrom)) touched_add(block);
}

static inline uint32_t touched_bit(const void* block) {
  return (uint32_t)((uintptr_t)block >> 4) * UINT32_C(2654435761) >> 16;
}

// False if the block is smaller than kTouchedFrom, and not of the early area.
static inline bool touched_may(const void* block) {
  const uint32_t bit = touched_bit(block);
  // The thread got the block from the thread that set the bit, so the bit is visible.
  return (atomic_load_explicit(&touched_filter[bit / 64], memory_order_relaxed) >> bit % 64 & 1) !=
         0;
}

// pre: touched_may(). The resident pages plus 1; 0 if the system was not asked.
uint64_t touched_pages(void* block);
