// Memory for Loam's own records (caches, magazines, remote batches): power-of-two pieces with free lists,
// cut from chunks between inaccessible pages. Never given back; what is freed is used again.
//
//   chunk:  | guard | piece | piece | ...                         | guard |
//
// Thread-safe by its own lock, the last in the lock order. Pieces are zeroed when handed out.
#pragma once

#include "os/mutex.h"

namespace loam {

class MetadataArena {
 public:
  constexpr MetadataArena() = default;

  static constexpr size_t kSmallestPiece = 64;
  static constexpr size_t kLargestPiece = size_t{64} << 10;

  /// At least `bytes` zeroed bytes, aligned to 64. Null when the system refuses.
  /// pre: bytes <= kLargestPiece
  [[nodiscard]] void* allocate(size_t bytes);

  /// pre: allocate(bytes) returned `piece`
  void free(void* piece, size_t bytes);

  [[nodiscard]] size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] Mutex& mutex() { return mutex_; }

 private:
  friend struct CounterFields;
  struct FreePiece {
    FreePiece* next;
  };
  static constexpr size_t kChunk = size_t{1} << 20;
  // The first pieces come from the library's own memory: most programs need no more, and that saves their start two
  // system calls. Chosen: caches of two threads, of which half is never touched, and what they hold.
  static constexpr size_t kFirstChunk = size_t{96} << 10;
  static char first_chunk_[kFirstChunk];
  static constexpr unsigned kSizes = 11;  // 64 B << 0 .. 10
  static unsigned size_index(size_t bytes);
  bool add_chunk();

  Mutex mutex_;
  FreePiece* free_[kSizes] = {};
  char* bump_ = nullptr;
  char* committed_ = nullptr;
  char* end_ = nullptr;
  std::atomic<size_t> used_bytes_{0};
};

extern MetadataArena metadata;

}  // namespace loam
