// The blocks of sh6 and sh8: passes over rising sizes, each block with one of three fates.
//
// One pass allocates `count` blocks of every size step. A third of them are freed at the end of
// their step, last first. A third are freed at the end of the pass, in the order of allocation. A
// third outlive the pass and are freed at the end of a later one, in reverse. So at any time young
// blocks lie among old ones, and frees come in both orders.
#pragma once

#include "shapes/shape.h"

namespace bench {

struct Block {
  void* memory;
  uint32_t bytes;
};

// A growable stack of blocks in mapped memory of fixed capacity.
class Stack {
 public:
  Stack() = default;
  explicit Stack(size_t capacity) : blocks_(capacity) {}
  void push(Block b) { blocks_[used_++] = b; }
  Block pop() { return blocks_[--used_]; }
  size_t size() const { return used_; }
  Block& operator[](size_t i) { return blocks_[i]; }
  void clear() { used_ = 0; }

 private:
  Table<Block> blocks_;
  size_t used_ = 0;
};

// One thread's blocks.
class Lifetimes {
 public:
  // Sizes step from `least` to `most` by a third each time.
  Lifetimes(Random random, uint32_t least, uint32_t most, uint32_t count, Tally& tally)
      : random_(random), least_(least), most_(most), count_(count), tally_(&tally) {
    const size_t a_pass = size_t{steps()} * count;
    step_ = Stack(count);
    pass_ = Stack(a_pass);
    old_ = Stack(a_pass);
    young_ = Stack(a_pass);
  }

  uint32_t steps() const {
    uint32_t n = 0;
    for (uint32_t size = least_; size <= most_; size = next(size)) ++n;
    return n;
  }

  // `release(stack)` frees the pass's middle third, or passes it on; it empties the stack.
  template <typename Release>
  void pass(Release release) {
    for (uint32_t size = least_; size <= most_; size = next(size)) {
      for (uint32_t i = 0; i < count_; ++i) {
        const Block block = allocate(size + random_.below(size / 3 + 1));
        switch (i % 3) {
          case 0:
            step_.push(block);
            break;
          case 1:
            pass_.push(block);
            break;
          default:
            young_.push(block);
        }
      }
      while (step_.size()) free(step_.pop());
    }
    release(pass_);
    while (old_.size()) free(old_.pop());
    std::swap(old_, young_);
  }

  // The last pass's survivors.
  uint64_t free_all() {
    const uint64_t freed = old_.size();
    while (old_.size()) free(old_.pop());
    return freed;
  }

  void free(Block block) {
    std::free(block.memory);
    tally_->live_bytes -= block.bytes;
  }

 private:
  static uint32_t next(uint32_t size) { return size + size / 3 + 1; }

  Block allocate(uint32_t bytes) {
    void* memory = must(std::malloc(bytes), bytes);
    touch(memory, bytes);
    tally_->live_bytes += bytes;
    ++tally_->operations;
    tally_->checksum.add(bytes);
    return {memory, bytes};
  }

  Random random_;
  uint32_t least_, most_, count_;
  Tally* tally_;
  Stack step_, pass_, old_, young_;
};

}  // namespace bench
