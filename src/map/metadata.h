// Memory for Loam's own records (caches, magazines, remote batches, tables of mixed spans):
// power-of-two pieces with free lists, cut from chunks between inaccessible pages. Freed pieces are
// reused. purge() gives pages that hold only free pieces back to the system; such pages are cut
// anew before never-used memory is.
//
//   chunk, 1 MiB, aligned:  | guard | Chunk | piece | piece | ...   | guard |
//
//   in a chunk, a piece of n bytes begins at a multiple of n: so it lies in one of the system's
//   pages, or is whole pages
//   Chunk::free_units[p] = units of page p in free pieces
//   idle_pages_ = pages that hold only free pieces
//   Chunk::gone[p] <=> page p was given back; no piece lies in it
//
// Thread-safe by its own lock, the last in the lock order. allocate() returns zeroed pieces.
#pragma once

#include "base/bitmap.h"
#include "base/units.h"
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

  /// Gives pages that hold only free pieces back to the system, until it gave `most` bytes or more.
  /// Returns the bytes.
  size_t purge(size_t most);
  /// Returns memory that is reserved and not committed, and calls os::stop_reserving(). pre: the
  /// page heap's lock is held, and the page heap has done the same
  void stop_reserving();
  /// Bytes of the heap's pages that hold only free pieces, read without the lock. purge() would
  /// give back that much if the system's pages are no larger than the heap's.
  [[nodiscard]] size_t idle_bytes() const {
    return Pages(idle_pages_.load(std::memory_order_relaxed)).bytes();
  }

  /// Bytes in pieces, used or free, that may hold memory.
  [[nodiscard]] size_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
  /// Bytes in used pieces.
  [[nodiscard]] size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] Mutex& mutex() { return mutex_; }

 private:
  friend struct CounterFields;
  struct FreePiece {
    FreePiece* next;
    FreePiece* previous;
    size_t index;  // size_index()
  };
  static constexpr size_t kChunk = size_t{1} << 20;
  static constexpr size_t kGuard = size_t{64} << 10;
  static constexpr unsigned kChunkPages = kChunk >> kPageShift;  // of the heap
  struct Chunk {
    Chunk* next;
    Bitmap<kChunkPages> gone;
    uint8_t free_units[kChunkPages];  ///< of kSmallestPiece
  };
  // The first pieces come from the library's own memory. Most programs need no more, which saves
  // two system calls at their start. Measured (decision 12): the caches of two threads, half of
  // which is never touched, and their contents.
  static constexpr size_t kFirstChunk = size_t{96} << 10;
  static char first_chunk_[kFirstChunk];
  static constexpr unsigned kSizes = 11;  // 64 B << 0 .. 10
  static unsigned size_index(size_t bytes);
  [[nodiscard]] bool add_chunk();
  [[nodiscard]] bool make_room(size_t size);
  void push(void* place, unsigned index);
  void take_out(FreePiece* piece);
  [[nodiscard]] Chunk* chunk_of(const void* piece) const;
  void count_free(const FreePiece* piece, bool is_free);
  void cut(char* begin, size_t bytes, unsigned index);
  void use_gone(unsigned index);
  void change(std::atomic<size_t>& count, size_t more) {
    count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  [[nodiscard]] size_t purge_run(Chunk* chunk, unsigned first, unsigned count);

  Mutex mutex_;
  FreePiece* free_[kSizes] = {};
  char* bump_ = nullptr;
  char* committed_ = nullptr;
  char* end_ = nullptr;
  std::atomic<size_t> used_bytes_{0};
  std::atomic<size_t> held_bytes_{0};
  Chunk* chunks_ = nullptr;
  std::atomic<uint32_t> idle_pages_{0};
  uint32_t gone_pages_ = 0;
};

extern MetadataArena metadata;

}  // namespace loam
