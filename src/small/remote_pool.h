// Empty remote batches, kept for the next flush that needs one.
//
// Thread-safe and lock-free: a stack pushed by compare-and-swap and emptied whole by exchange, so that ABA
// cannot happen. A taker keeps one batch and puts the rest back.
#pragma once

#include "small/remote_queue.h"

namespace loam {

/// A batch with count 0, or null when memory is refused.
[[nodiscard]] RemoteBatch* take_batch();

/// Puts a list of batches (linked by next; may be null) back.
void return_batches(RemoteBatch* list);

}  // namespace loam
