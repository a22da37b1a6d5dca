// Caches of variable-sized buffers in front of the heap, by the policies of article 003. Each keeps
// up to `depth` buffers (a bucketed one this many in each bucket). One thread uses a cache.
//
//   none      every buffer comes from the heap and goes back to it
//   heap      the same, but a buffer counts as malloc_usable_size() says: the allocator's own
//             thread cache as a policy, with the rounding that it costs
//   largest   flawed: a returned buffer is kept, and when the cache is full the smallest one goes.
//             Large buffers serve small requests and rarely leave
//   cure      no buffer above the cut-off is cached, and a buffer that is returned to a full cache
//             is freed
//   buckets   a cached buffer serves only requests of its own 100 bytes: at most 99 are wasted
//   loam      loam::buffer_cache as a program would use it, with this depth: eight classes a
//             doubling
//
// A cached buffer serves a request if it is large enough. The first such buffer is taken, as the
// article's single entry was. A new policy is a class here and a line in buffer-cache.cpp.
#pragma once

#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "harness/block.h"
#include "loam/buffer_cache.hpp"

namespace buffers {

struct Buffer {
  void* address = nullptr;
  uint32_t bytes = 0;  // the allocated size, whatever the buffer serves now
};

inline Buffer from_heap(uint32_t bytes) { return {lab::must(std::malloc(bytes), bytes), bytes}; }
inline void to_heap(Buffer b) { std::free(b.address); }

constexpr uint32_t kMostDepth = 64;

class None {
 public:
  None(uint32_t, uint32_t) {}
  Buffer get(uint32_t bytes) { return from_heap(bytes); }
  void give_back(Buffer b) { to_heap(b); }
  uint64_t cached_bytes() const { return 0; }
  void clear() {}
};

class Heap {
 public:
  Heap(uint32_t, uint32_t) {}
  Buffer get(uint32_t bytes) {
    Buffer b = from_heap(bytes);
    b.bytes = static_cast<uint32_t>(malloc_usable_size(b.address));
    return b;
  }
  void give_back(Buffer b) { to_heap(b); }
  uint64_t cached_bytes() const { return 0; }  // only the allocator knows the size
  void clear() {}
};

// The entries that several policies keep, in no order.
class Entries {
 public:
  bool take(uint32_t bytes, Buffer& out) {
    for (uint32_t i = 0; i < count_; ++i) {
      if (entries_[i].bytes < bytes) continue;
      out = std::exchange(entries_[i], entries_[--count_]);
      return true;
    }
    return false;
  }
  void add(Buffer b) { entries_[count_++] = b; }
  uint32_t count() const { return count_; }
  Buffer& smallest() {
    Buffer* least = entries_;
    for (uint32_t i = 1; i < count_; ++i) {
      if (entries_[i].bytes < least->bytes) least = &entries_[i];
    }
    return *least;
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count_; ++i) sum += entries_[i].bytes;
    return sum;
  }
  void clear() {
    while (count_ != 0) to_heap(entries_[--count_]);
  }

 private:
  Buffer entries_[kMostDepth];
  uint32_t count_ = 0;
};

class Largest {
 public:
  Largest(uint32_t depth, uint32_t) : depth_(depth) {}
  Buffer get(uint32_t bytes) {
    Buffer b;
    return entries_.take(bytes, b) ? b : from_heap(bytes);
  }
  void give_back(Buffer b) {
    if (entries_.count() < depth_) return entries_.add(b);
    Buffer& smallest = entries_.smallest();
    if (b.bytes > smallest.bytes) std::swap(b, smallest);
    to_heap(b);
  }
  uint64_t cached_bytes() const { return entries_.bytes(); }
  void clear() { entries_.clear(); }

 private:
  Entries entries_;
  uint32_t depth_;
};

class Cure {
 public:
  Cure(uint32_t depth, uint32_t cutoff) : depth_(depth), cutoff_(cutoff) {}
  Buffer get(uint32_t bytes) {
    Buffer b;
    return entries_.take(bytes, b) ? b : from_heap(bytes);
  }
  void give_back(Buffer b) {
    if (entries_.count() < depth_ && b.bytes <= cutoff_) return entries_.add(b);
    to_heap(b);
  }
  uint64_t cached_bytes() const { return entries_.bytes(); }
  void clear() { entries_.clear(); }

 private:
  Entries entries_;
  uint32_t depth_, cutoff_;
};

class Buckets {
 public:
  Buckets(uint32_t depth, uint32_t) : depth_(depth) {}
  Buffer get(uint32_t bytes) {
    Buffer b;
    Entries* bucket = of(bytes);
    return bucket && bucket->take(bytes, b) ? b : from_heap(bytes);
  }
  void give_back(Buffer b) {
    Entries* bucket = of(b.bytes);
    if (bucket && bucket->count() < depth_) return bucket->add(b);
    to_heap(b);
  }
  uint64_t cached_bytes() const {
    uint64_t sum = 0;
    for (const Entries& e : buckets_) sum += e.bytes();
    return sum;
  }
  void clear() {
    for (Entries& e : buckets_) e.clear();
  }

 private:
  static constexpr uint32_t kWidth = 100, kCount = 16;  // larger ones are rare: not cached
  Entries* of(uint32_t bytes) {
    const uint32_t i = (bytes - 1) / kWidth;
    return i < kCount ? &buckets_[i] : nullptr;
  }
  Entries buckets_[kCount];
  uint32_t depth_;
};

class Loam {
 public:
  Loam(uint32_t depth, uint32_t) : cache_(loam::bucketed({.depth = depth})) {}
  Buffer get(uint32_t bytes) {
    const loam::buffer b = cache_.try_get(bytes);
    return {lab::must(b.data, bytes), static_cast<uint32_t>(b.capacity)};
  }
  // The cache's own sums would need the requested size; the workload keeps the sums here.
  void give_back(Buffer b) { cache_.give_back({b.address, b.bytes, b.bytes}); }
  uint64_t cached_bytes() const { return cache_.statistics().cached_bytes; }
  void clear() { cache_.clear(); }

 private:
  loam::buffer_cache<> cache_;
};

}  // namespace buffers
