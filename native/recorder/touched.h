// The number of resident pages of a block, read from the system just before the block is freed.
//
// The system is always asked for blocks from 64 KiB on, and for one in eight between two pages and
// 64 KiB. The recorder spends at most about 3 % of the time since the process began on these
// questions.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { kTouchedFrom = 8192 };

// The resident pages plus 1; 0 if the system was not asked.
uint64_t touched_pages(const void* block, size_t bytes);
