#include "model.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace fuzz {

namespace {

// The model's own memory comes from a mapping, because malloc may be the tested heap.
class Pages : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t) override {
    const size_t padded = (bytes + 4095) / 4096 * 4096;
    void* p = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    return p;
  }
  void do_deallocate(void* p, size_t bytes, size_t) override {
    munmap(p, (bytes + 4095) / 4096 * 4096);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

Pages pages;

// Looks where the pattern would be: at the whole block, or at the start of each page and the end.
bool is_zero(const unsigned char* start, size_t bytes) {
  bool zero = true;
  stress::for_each_stretch(bytes, [&](size_t offset, size_t length) {
    for (size_t i = 0; i < length; ++i) zero = zero && start[offset + i] == 0;
  });
  return zero;
}

}  // namespace

Model::Model(const HeapCalls& calls) : calls_(calls), pool_({0, 65536}, &pages), ranges_(&pool_) {
  for (std::vector<Block>& group : groups) group.reserve(kGroupBlocks);
  heaps[0].handle = loam_default();
}

const char* Model::place(const Block& block) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(block.start);
  const auto after = ranges_.lower_bound(begin);
  if (after != ranges_.end() && begin + std::max<size_t>(block.usable, 1) > after->first)
    return "it overlaps the live block behind it";
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second > begin) return "it overlaps the live block before it";
  }
  ranges_.emplace_hint(after, begin, block.usable);
  ++live_blocks_;
  live_bytes_ += block.usable;
  ++heap_blocks_[block.heap];
  heap_bytes_[block.heap] += block.usable;
  return nullptr;
}

void Model::fill(Block& block) {
  block.id = ++ids_;
  // Every other block is filled to its last usable byte, unless that is forbidden (loam_zrealloc).
  block.filled = !block.zero_behind && block.id % 2 == 0 ? block.usable : block.asked;
  stress::write_pattern(block.start, block.filled, block.id);
}

const char* Model::add(Block& block, bool zero_asked, bool zero_usable) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(block.start);
  const size_t alignment = std::max<size_t>(block.alignment, LOAM_ALIGNMENT);
  if (begin % alignment != 0) return "it is not aligned";
  block.usable = calls_.usable_size(block.start);
  // With LOAM_HARDEN or LOAM_CHECK_FREE=full exactly the requested bytes are usable, which may be
  // none.
  if (block.usable < block.asked) return "fewer bytes are usable than were asked for";
  if (const char* wrong = place(block)) return wrong;
  if (loam_heap_of(block.start) != heaps[block.heap].handle) return "it belongs to another heap";
  if (zero_asked && !is_zero(block.start, zero_usable ? block.usable : block.asked))
    return "it is not zero";
  fill(block);
  return nullptr;
}

bool Model::intact(const Block& block, size_t bytes) const {
  return stress::first_difference(block.start, block.filled, std::min(bytes, block.filled),
                                  block.id) == stress::kIntact;
}

void Model::remove(Block& block) {
  ranges_.erase(reinterpret_cast<uintptr_t>(block.start));
  --live_blocks_;
  live_bytes_ -= block.usable;
  --heap_blocks_[block.heap];
  heap_bytes_[block.heap] -= block.usable;
  block.start = nullptr;
}

const char* Model::resized(Block& block, size_t asked) {
  unsigned char* start = block.start;
  remove(block);
  block.start = start;
  block.asked = asked;
  return add(block, false, false);
}

}  // namespace fuzz
