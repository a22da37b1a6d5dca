// What must be true of the heap: the live blocks, and each block's address, length, heap and
// content.
//
// A block's bytes follow from its number (tests/stress/block.h), and no number is used twice. So
// every overwritten, lost or mixed block shows, and all usable bytes of live blocks are disjoint.
#ifndef LOAM_TESTS_FUZZ_MODEL_H
#define LOAM_TESTS_FUZZ_MODEL_H

#include <loam/loam.h>

#include <map>
#include <memory_resource>
#include <vector>

#include "../stress/block.h"
#include "heap_calls.h"
#include "program.h"

namespace fuzz {

/// Which frees a block may see: those of C and C++ that belong to the call that made it.
enum class Family : uint8_t {
  kPlain,
  kAligned,
  kOther,
  kNew,
  kNewArray,
  kNewAligned,
  kNewArrayAligned,
  kPrivate
};

struct Block {
  unsigned char* start = nullptr;
  size_t asked = 0;
  size_t usable = 0;
  size_t filled = 0;  ///< bytes that hold the pattern
  size_t alignment = LOAM_ALIGNMENT;
  uint64_t id = 0;
  uint8_t heap = 0;
  Family family = Family::kPlain;
  bool zero_behind =
      false;  ///< the bytes behind the requested size are still zero, as loam_zrealloc() requires
};

struct ModelHeap {
  loam_heap* handle = nullptr;
  unsigned flags = 0;
  size_t maximum = 0;
  uint64_t serial = 0;
  int locked_by = -1;  ///< thread
  unsigned depth = 0;

  [[nodiscard]] bool exact() const { return (flags & LOAM_HEAP_EXACT_SIZES) != 0; }
  [[nodiscard]] bool unsynchronized() const { return (flags & LOAM_HEAP_UNSYNCHRONIZED) != 0; }
};

class Model {
 public:
  static constexpr size_t kGroupBlocks = 4096;

  explicit Model(const HeapCalls& calls);

  /// Notes, checks and fills a new block. Returns what is wrong with it, or null.
  [[nodiscard]] const char* add(Block& block, bool zero_asked, bool zero_usable);
  /// Checks the content of `bytes` bytes from the start.
  [[nodiscard]] bool intact(const Block& block, size_t bytes) const;
  [[nodiscard]] bool intact(const Block& block) const { return intact(block, block.filled); }
  /// The block ends, and is removed from all ranges.
  void remove(Block& block);
  /// Fills the block again, after a resize that kept its start.
  [[nodiscard]] const char* resized(Block& block, size_t asked);

  [[nodiscard]] bool starts_at(const void* address) const {
    return ranges_.count(reinterpret_cast<uintptr_t>(address)) != 0;
  }
  [[nodiscard]] uint64_t live_blocks() const { return live_blocks_; }
  [[nodiscard]] uint64_t live_bytes() const { return live_bytes_; }
  [[nodiscard]] uint64_t blocks_of(unsigned heap) const { return heap_blocks_[heap]; }
  [[nodiscard]] uint64_t bytes_of(unsigned heap) const { return heap_bytes_[heap]; }

  Block blocks[kBlocks];
  Block last[kBlocks];  ///< the last block that was freed here
  uint64_t last_serial[kBlocks] = {};
  std::vector<Block> groups[kGroups];
  ModelHeap heaps[kHeaps];
  uint64_t heap_serials = 0;

 private:
  const char* place(const Block& block);
  void fill(Block& block);

  const HeapCalls& calls_;
  std::pmr::unsynchronized_pool_resource pool_;
  std::pmr::map<uintptr_t, size_t> ranges_;  // usable bytes by start
  uint64_t live_blocks_ = 0;
  uint64_t live_bytes_ = 0;
  uint64_t heap_blocks_[kHeaps] = {};
  uint64_t heap_bytes_[kHeaps] = {};
  uint64_t ids_ = 0;
};

}  // namespace fuzz

#endif
