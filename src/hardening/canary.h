// Bytes behind a block that no code may write: a secret pattern from the end of the requested bytes
// to the end of the slot or page. A write past the block's end shows when the block is freed,
// resized or validated.
//
//   | bytes asked for | canary: at least kCanaryBytes ...... | the next slot
//
// The pattern depends on a secret of the process and on the address, so a canary that was read
// elsewhere is of no use. No byte of it is zero, so the terminator of a string that is one byte too
// long always shows.
#pragma once

#include "base/config.h"
#include "os/mutex.h"

namespace loam {

/// The fewest canary bytes behind a block. Chosen: one word, so that an index that is off by one
/// shows for every element type.
inline constexpr size_t kCanaryBytes = 8;

/// Draws the secret; further calls do nothing. Call before the first block with a canary;
/// thread-safe.
void start_canaries();

/// Writes the canary of `block` to its bytes [from, to). pre: here and below, `block` and `to` are
/// multiples of 8
void write_canary(void* block, size_t from, size_t to);

/// The offset of the first byte of [from, to) that was overwritten; `to` when none was.
[[nodiscard]] size_t first_overwritten(const void* block, size_t from, size_t to);

/// "overflow: byte 24 of a block of 24 bytes was overwritten", through report_misuse(); `held` as
/// there.
void report_overflow(const void* block, size_t offset, size_t requested, Mutex* held = nullptr);

}  // namespace loam
