// A block_source for tests. It counts the blocks that are out, checks those that come back, and
// fails on request.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include <gtest/gtest.h>

#include "loam/block_source.hpp"

namespace loam::test {

class CountingSource {
 public:
  ~CountingSource() { EXPECT_EQ(out_.size(), 0u) << "blocks were not given back"; }

  loam::block_source source() { return {kOperations, this}; }
  operator loam::block_source() { return source(); }

  /// Serves this many more requests, and then none.
  void fail_after(uint64_t requests) { left_ = requests; }
  void never_fail() { left_ = UINT64_MAX; }

  uint64_t blocks() const { return out_.size(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t requests() const { return requests_; }
  uint64_t largest() const { return largest_; }

 private:
  struct Block {
    size_t bytes, alignment;
  };
  void* allocate(size_t bytes, size_t alignment) noexcept {
    const std::lock_guard lock(mutex_);
    if (left_ == 0) return nullptr;
    if (left_ != UINT64_MAX) --left_;
    void* p = ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
    if (p == nullptr) return nullptr;
    out_[p] = {bytes, alignment};
    bytes_ += bytes;
    largest_ = bytes > largest_ ? bytes : largest_;
    ++requests_;
    return p;
  }
  void deallocate(void* p, size_t bytes, size_t alignment) noexcept {
    {
      const std::lock_guard lock(mutex_);
      const auto found = out_.find(p);
      if (found == out_.end()) {
        ADD_FAILURE() << "a block came back that is not out";
        return;
      }
      EXPECT_EQ(found->second.bytes, bytes);
      EXPECT_EQ(found->second.alignment, alignment);
      bytes_ -= found->second.bytes;
      out_.erase(found);
    }
    ::operator delete (p, std::align_val_t{alignment});
  }

  static void* allocate_for(void* self, size_t bytes, size_t alignment) noexcept {
    return static_cast<CountingSource*>(self)->allocate(bytes, alignment);
  }
  static void deallocate_for(void* self, void* p, size_t bytes, size_t alignment) noexcept {
    static_cast<CountingSource*>(self)->deallocate(p, bytes, alignment);
  }
  static bool same(const void* a, const void* b) noexcept { return a == b; }
  static constexpr loam::block_source::operations kOperations{allocate_for, deallocate_for, same};

  std::mutex mutex_;
  std::map<void*, Block> out_;
  uint64_t left_ = UINT64_MAX, bytes_ = 0, requests_ = 0, largest_ = 0;
};

/// Counts its live instances; may be told to throw when it is made.
struct Tracked {
  static inline int live = 0;
  static inline int throw_at = -1;  // the constructor call that throws, counted down
  explicit Tracked(int v = 0) : value(v) {
    if (throw_at >= 0 && throw_at-- == 0) throw std::bad_alloc();
    ++live;
  }
  Tracked(const Tracked& other) : Tracked(other.value) {}
  Tracked(Tracked&& other) : Tracked(other.value) { other.value = -1; }
  Tracked& operator=(const Tracked&) = default;
  ~Tracked() { --live; }
  friend bool operator==(const Tracked& a, const Tracked& b) { return a.value == b.value; }
  friend auto operator<=>(const Tracked& a, const Tracked& b) { return a.value <=> b.value; }
  int value;
};

}  // namespace loam::test
