// A population of small objects that is filled to a size and thinned out at random, for `phase` and
// `sparse`.
//
// The table of live objects is mmap's. An entry is one word, so that the table of millions of
// objects stays small beside them:   | size : 16 | address : 48 |
#pragma once

#include <cstdint>
#include <cstdlib>

#include "harness/block.h"
#include "harness/latency.h"
#include "harness/random.h"
#include "harness/system.h"

namespace lab {

struct SizeRange {
  uint32_t least, most;  // bytes, both included
  constexpr uint64_t mean() const { return (uint64_t{least} + most) / 2; }
};

class Objects {
 public:
  Objects(size_t most, uint64_t seed, LatencySampler sampler)
      : entries_(most), random_(seed), sampler_(sampler) {}

  // Allocates objects of sizes in `range` until `bytes` are live. Returns how many.
  uint64_t fill_to(uint64_t bytes, SizeRange range) {
    const uint64_t before = count_;
    while (live_bytes_ < bytes) {
      if (count_ == entries_.size()) {
        fail(kExitFailed, "workload: the table of live objects is full; raise --live");
      }
      const uint32_t size = random_.between(range.least, range.most);
      checksum_.add(size);
      void* p = nullptr;
      sampler_.run([&] {
        p = must(std::malloc(size), size);
        touch(p, size);
      });
      const auto address = reinterpret_cast<uintptr_t>(p);
      if (address >> 48) fail(kExitFailed, "workload: an address needs more than 48 bits");
      entries_[count_++] = address | uint64_t{size} << 48;
      live_bytes_ += size;
    }
    return count_ - before;
  }

  // Frees objects in random order until `keep` are left. Returns the number of freed objects.
  uint64_t thin_to(uint64_t keep) {
    const uint64_t before = count_;
    while (count_ > keep) {
      const uint32_t victim = random_.below(static_cast<uint32_t>(count_));
      checksum_.add(victim);
      const uint64_t entry = entries_[victim];
      entries_[victim] = entries_[--count_];
      sampler_.run([&] { std::free(reinterpret_cast<void*>(entry & kAddress)); });
      live_bytes_ -= entry >> 48;
    }
    return before - count_;
  }

  uint64_t count() const { return count_; }
  uint64_t live_bytes() const { return live_bytes_; }
  uint64_t checksum() const { return checksum_.value(); }
  LatencySampler& sampler() { return sampler_; }

 private:
  static constexpr uint64_t kAddress = (uint64_t{1} << 48) - 1;

  Table<uint64_t> entries_;
  uint64_t count_ = 0, live_bytes_ = 0;
  Random random_;
  Checksum checksum_;
  LatencySampler sampler_;
};

}  // namespace lab
