// The rules for moving a block that is resized. The default heap and private heaps share them.
#pragma once

#include "base/units.h"

namespace loam {

/// A block above this many bytes that realloc() makes longer moves to a mapping of its own. From
/// then on mremap() makes it longer: nothing is copied, no second copy is in memory, and no freed
/// place of an earlier copy is left behind. Chosen (decision 54): a shorter block is copied in the
/// time that a mapping takes.
inline constexpr size_t kMovesToMapping = kSlabBytes;

/// A program that makes a block longer by less than this part of it is likely to do so again, and
/// expects that to be cheap. The block that it moves to has as much room again, so growth is
/// geometric whatever its steps. A program that grows by an eighth or more (most containers do)
/// brings room of its own, and gets the requested bytes (decision 45).
inline constexpr size_t kSmallStepShare = 8;

/// Whether a small block that fits its slot stays there: moving costs a copy, staying costs the
/// slack. Chosen: a small block moves once it would waste more than 64 bytes, and a quarter of its
/// slot. The quarter is the room of a block that may grow again. A block that is cut has no use for
/// it (ThreadState::cuts).
[[nodiscard]] constexpr bool worth_staying(size_t slot_bytes, size_t bytes, bool is_cut = false) {
  return bytes + 64 >= slot_bytes || (!is_cut && bytes >= slot_bytes - slot_bytes / 4);
}

}  // namespace loam
