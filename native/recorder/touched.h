// How many pages of a block are resident, asked of the system just before it is freed.
//
// Always from 64 KiB on, for one in eight between two pages and that, and never for more than about
// 3 % of the time since the process began.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { kTouchedFrom = 8192 };

// Pages + 1; 0: not asked.
uint64_t touched_pages(const void* block, size_t bytes);
