// The sources of the preprocessor's memory, one policy for each variant of article 000:
//
//   MallocPolicy   operator new and delete, i.e. the allocator under test
//   NullPolicy     one lump of 1 GiB taken from malloc at the start, frees ignored (the article's
//                  experiment); when the next run might not fit it starts from the front again,
//                  which is safe between runs since everything is "freed" there
//   PoolPolicy     a block pool for the nodes of token lists (the article's cure), malloc for all
//                  other requests; blocks are kept for the next run
//   ArenaPolicy    bump allocation in chunks, reset at the end of a run without destructors
//   (loam_heap.h)  a private heap with the low-fragmentation policy on
//
// A policy is stateless for the containers: its state is static, one a process. Every request goes
// through Tally, which counts it and samples its latency. Not thread-safe; one thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "harness/block.h"
#include "harness/latency.h"
#include "harness/system.h"

namespace tokens {

// The requests of the containers, whichever policy served them.
struct Tally {
  uint64_t operations = 0, live_bytes = 0, peak_live_bytes = 0;
  lab::LatencySampler sampler;

  void allocated(size_t n) {
    ++operations;
    live_bytes += n;
    if (live_bytes > peak_live_bytes) peak_live_bytes = live_bytes;
  }
  void freed(size_t n) {
    ++operations;
    live_bytes -= n;
  }
};
inline Tally tally;

struct MallocPolicy {
  static constexpr bool kResets = false;  // does end_run() drop everything at once?
  static void prepare() {}
  static void end_run() {}
  static void* allocate(size_t n) { return ::operator new(n); }
  static void free(void* p, size_t n) { ::operator delete(p, n); }
  static void* allocate_node(size_t n) { return allocate(n); }
  static void free_node(void* p, size_t n) { free(p, n); }
};

constexpr size_t round_up_16(size_t n) { return (n + 15) & ~size_t{15}; }

struct NullPolicy {
  static constexpr bool kResets = false;
  static constexpr size_t kLump = size_t{1} << 30;
  static void prepare() { lump_ = static_cast<char*>(lab::must(std::malloc(kLump), kLump)); }
  static void end_run() {
    const size_t run = used_ - run_began_;
    if (run > largest_run_) largest_run_ = run;
    if (kLump - used_ < largest_run_ + largest_run_ / 8) used_ = 0;
    run_began_ = used_;
  }
  static void* allocate(size_t n) {
    n = round_up_16(n);
    if (kLump - used_ < n) {
      lab::fail(lab::kExitFailed,
                "tokens: one run does not fit the null allocator's 1 GiB; "
                "lower --files or --repeat");
    }
    void* p = lump_ + used_;
    used_ += n;
    return p;
  }
  static void free(void*, size_t) {}
  static void* allocate_node(size_t n) { return allocate(n); }
  static void free_node(void*, size_t) {}

 private:
  static inline char* lump_ = nullptr;
  static inline size_t used_ = 0, run_began_ = 0, largest_run_ = 0;
};

struct PoolPolicy : MallocPolicy {
  static constexpr size_t kBlock = 64 * 1024;

  static void* allocate_node(size_t n) {
    if (n != node_bytes_) {  // one node type in this program; another would need its own list
      if (node_bytes_ != 0) lab::fail(lab::kExitFailed, "tokens: the pool serves one node size");
      node_bytes_ = n;
    }
    if (free_ == nullptr) refill();
    Node* node = free_;
    free_ = node->next;
    return node;
  }
  static void free_node(void* p, size_t) {
    auto* node = static_cast<Node*>(p);
    node->next = free_;
    free_ = node;
  }

 private:
  struct Node {
    Node* next;
  };
  static void refill() {
    char* block = static_cast<char*>(::operator new(kBlock));
    const size_t step = round_up_16(node_bytes_);
    for (size_t at = (kBlock / step) * step; at != 0; at -= step) {
      free_node(block + at - step, node_bytes_);
    }
  }
  static inline Node* free_ = nullptr;
  static inline size_t node_bytes_ = 0;
};

struct ArenaPolicy {
  static constexpr bool kResets = true;
  static constexpr size_t kChunk = 1 << 20;
  static void prepare() {}
  // Chunks are kept and filled again. A request too large for a chunk gets its own, which is freed.
  static void end_run() {
    current_ = first_;
    used_ = sizeof(Chunk);
    while (large_) {
      Chunk* next = large_->next;
      std::free(large_);
      large_ = next;
    }
  }
  static void* allocate(size_t n) {
    n = round_up_16(n);
    if (n > kChunk - sizeof(Chunk)) {
      large_ = new_chunk(n + sizeof(Chunk), large_);
      return large_ + 1;
    }
    if (current_ == nullptr || kChunk - used_ < n) advance();
    void* p = reinterpret_cast<char*>(current_) + used_;
    used_ += n;
    return p;
  }
  static void free(void*, size_t) {}
  static void* allocate_node(size_t n) { return allocate(n); }
  static void free_node(void*, size_t) {}

 private:
  struct alignas(16) Chunk {
    Chunk* next;
  };
  static Chunk* new_chunk(size_t bytes, Chunk* next) {
    auto* chunk = static_cast<Chunk*>(lab::must(std::malloc(bytes), bytes));
    chunk->next = next;
    return chunk;
  }
  static void advance() {
    if (current_ && current_->next) {
      current_ = current_->next;
    } else {
      Chunk* chunk = new_chunk(kChunk, nullptr);
      (current_ ? current_->next : first_) = chunk;
      current_ = chunk;
    }
    used_ = sizeof(Chunk);
  }
  static inline Chunk *first_ = nullptr, *current_ = nullptr, *large_ = nullptr;
  static inline size_t used_ = sizeof(Chunk);
};

// The allocator that the containers see. Nodes of token lists use `kNode`.
template <typename T, typename Policy, bool kNode = false>
struct Allocator {
  using value_type = T;
  template <typename U>
  struct rebind {
    using other = Allocator<U, Policy, kNode>;
  };
  Allocator() = default;
  template <typename U>
  Allocator(const Allocator<U, Policy, kNode>&) {}

  T* allocate(size_t n) {
    const size_t bytes = n * sizeof(T);
    void* p = nullptr;
    tally.sampler.run([&] { p = kNode ? Policy::allocate_node(bytes) : Policy::allocate(bytes); });
    tally.allocated(bytes);
    return static_cast<T*>(p);
  }
  void deallocate(T* p, size_t n) {
    const size_t bytes = n * sizeof(T);
    tally.sampler.run([&] { kNode ? Policy::free_node(p, bytes) : Policy::free(p, bytes); });
    tally.freed(bytes);
  }
  template <typename U>
  bool operator==(const Allocator<U, Policy, kNode>&) const {
    return true;
  }
};

}  // namespace tokens
