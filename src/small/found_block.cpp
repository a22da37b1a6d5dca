#include "small/found_block.h"

namespace loam {

FoundBlock find_block(const void* block) {
  return find_block_in(span_at(reinterpret_cast<uintptr_t>(block)), block);
}

}  // namespace loam
