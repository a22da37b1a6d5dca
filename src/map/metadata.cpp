#include "map/metadata.h"

#include <cstring>

#include "base/bits.h"
#include "base/check.h"
#include "base/units.h"

namespace loam {

constinit MetadataArena metadata;

unsigned MetadataArena::size_index(size_t bytes) {
  if (bytes <= kSmallestPiece) return 0;
  return highest_bit(bytes - 1) + 1 - 6;
}

alignas(kPageBytes) constinit char MetadataArena::first_chunk_[kFirstChunk] = {};

bool MetadataArena::add_chunk() {
  if (this == &metadata && bump_ == nullptr) {
    bump_ = first_chunk_;
    committed_ = end_ = bump_ + kFirstChunk;
    return true;
  }
  const size_t guard = size_t{64} << 10;
  char* chunk = static_cast<char*>(os::reserve_metadata(kChunk + 2 * guard, os::granularity()));
  if (chunk == nullptr) return false;
  bump_ = committed_ = chunk + guard;
  end_ = bump_ + kChunk;
  return true;
}

void* MetadataArena::allocate(size_t bytes) {
  const unsigned index = size_index(bytes);
  LOAM_ASSERT(index < kSizes);
  const size_t size = kSmallestPiece << index;
  Lock lock(mutex_);
  void* piece = free_[index];
  if (piece != nullptr) {
    free_[index] = free_[index]->next;
    memset(piece, 0, size);
  } else {
    if (static_cast<size_t>(end_ - bump_) < size && !add_chunk()) return nullptr;
    while (static_cast<size_t>(committed_ - bump_) < size) {
      // In steps, so that overcommit_memory=2 is charged for what is used only.
      const size_t step = size_t{64} << 10;
      if (!os::commit(committed_, step)) return nullptr;
      committed_ += step;
    }
    piece = bump_;  // the system's pages read as zero
    bump_ += size;
  }
  used_bytes_.store(used_bytes_.load(std::memory_order_relaxed) + size, std::memory_order_relaxed);
  return piece;
}

void MetadataArena::free(void* piece, size_t bytes) {
  const unsigned index = size_index(bytes);
  Lock lock(mutex_);
  FreePiece* free_piece = static_cast<FreePiece*>(piece);
  free_piece->next = free_[index];
  free_[index] = free_piece;
  used_bytes_.store(used_bytes_.load(std::memory_order_relaxed) - (kSmallestPiece << index),
                    std::memory_order_relaxed);
}

}  // namespace loam
