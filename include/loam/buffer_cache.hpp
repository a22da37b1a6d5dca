// loam::buffer_cache<Policy>: a cache of variable-sized buffers in front of a heap.
//
// "A cache with a bad policy is another name for a memory leak" (2006): a cache that keeps the
// largest buffers hands them out for small requests and ends with 2 % of its memory in use. So the
// policy is a parameter, the waste of the default policy is bounded, and every cache reports its
// waste.
//
//   bucketed       the default: a kept buffer serves only requests of its own class of sizes
//   cut_off        the article's cure: it keeps no large buffer, and none when the cache is full
//   keep_largest   the article's flawed policy, to compare with
//   no_cache       every buffer comes from the heap and goes back to it
//
// Kept buffers are linked through their own first bytes, so a cache of any depth takes no further
// memory. A cache belongs to one thread; buffers do not: see buffer_cache::give_back().
//
// Loam's heap itself caches small blocks, per thread and within bounds. A buffer cache pays where
// buffers are large or expensive to get: in front of a fixed private heap or of another allocator,
// or where the program wants the statistics.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "loam/block_source.hpp"
#include "loam/detail/config.hpp"
#include "loam/detail/size_steps.hpp"
#include "loam/request_histogram.hpp"

namespace loam {

/// Header of a kept buffer, in the buffer's own memory.
struct kept_buffer {
  kept_buffer* next;
  std::size_t capacity;
};

/// The policies. A policy of your own has the same four functions; it never allocates or frees, and
/// only its cache's thread calls it.
///
///   capacity_for(bytes)   bytes to allocate when no kept buffer serves: `bytes` or more
///   take(bytes)           removes and returns a kept buffer with room for `bytes`, or null
///   offer(buffer)         keeps a returned buffer or not; returns the buffer to free: this one,
///                         one that was kept before, or null
///   evict()               removes and returns any kept buffer, or null

/// Keeps no buffer.
class no_cache {
 public:
  [[nodiscard]] std::size_t capacity_for(std::size_t bytes) const noexcept { return bytes; }
  [[nodiscard]] kept_buffer* take(std::size_t) noexcept { return nullptr; }
  [[nodiscard]] kept_buffer* offer(kept_buffer* returned) noexcept { return returned; }
  [[nodiscard]] kept_buffer* evict() noexcept { return nullptr; }
};

namespace detail {

/// Kept buffers of any capacity; the first that is large enough serves the request.
class kept_list {
 public:
  kept_buffer* take_first_fit(std::size_t bytes) noexcept {
    for (kept_buffer** at = &first_; *at != nullptr; at = &(*at)->next) {
      if ((*at)->capacity >= bytes) return remove(at);
    }
    return nullptr;
  }
  kept_buffer** smallest() noexcept {
    kept_buffer** least = &first_;
    for (kept_buffer** at = least; *at != nullptr; at = &(*at)->next) {
      if ((*at)->capacity < (*least)->capacity) least = at;
    }
    return least;
  }
  void add(kept_buffer* b) noexcept {
    b->next = first_;
    first_ = b;
    ++count_;
  }
  // pre: *at is not null
  kept_buffer* remove(kept_buffer** at) noexcept {
    --count_;
    return std::exchange(*at, (*at)->next);
  }
  kept_buffer* remove_any() noexcept { return first_ != nullptr ? remove(&first_) : nullptr; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  kept_buffer* first_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace detail

/// Flawed, here for comparison: keeps the `depth` largest of the returned buffers. O(depth).
class keep_largest {
 public:
  explicit keep_largest(std::size_t depth = 1) noexcept : depth_(depth) {}
  [[nodiscard]] std::size_t capacity_for(std::size_t bytes) const noexcept { return bytes; }
  [[nodiscard]] kept_buffer* take(std::size_t bytes) noexcept {
    return list_.take_first_fit(bytes);
  }
  [[nodiscard]] kept_buffer* offer(kept_buffer* returned) noexcept {
    if (list_.count() < depth_) {
      list_.add(returned);
      return nullptr;
    }
    if (depth_ == 0) return returned;
    kept_buffer** smallest = list_.smallest();
    if (returned->capacity <= (*smallest)->capacity) return returned;
    kept_buffer* evicted = list_.remove(smallest);
    list_.add(returned);
    return evicted;
  }
  [[nodiscard]] kept_buffer* evict() noexcept { return list_.remove_any(); }

 private:
  detail::kept_list list_;
  std::size_t depth_;
};

/// The article's cure: keeps up to `depth` buffers of at most `cutoff` bytes, and frees a buffer
/// that returns to a full cache. A kept buffer serves any smaller request, so only the cut-off
/// bounds the waste. O(depth). buffer_cache::suggested_cutoff() computes a cut-off from the
/// program's requests.
class cut_off {
 public:
  explicit cut_off(std::size_t cutoff, std::size_t depth = 1) noexcept
      : cutoff_(cutoff), depth_(depth) {}
  [[nodiscard]] std::size_t capacity_for(std::size_t bytes) const noexcept { return bytes; }
  [[nodiscard]] kept_buffer* take(std::size_t bytes) noexcept {
    return list_.take_first_fit(bytes);
  }
  [[nodiscard]] kept_buffer* offer(kept_buffer* returned) noexcept {
    if (returned->capacity > cutoff_ || list_.count() >= depth_) return returned;
    list_.add(returned);
    return nullptr;
  }
  [[nodiscard]] kept_buffer* evict() noexcept { return list_.remove_any(); }

 private:
  detail::kept_list list_;
  std::size_t cutoff_, depth_;
};

/// Classes of sizes, `Steps` per doubling; a kept buffer serves only requests of its own class. So
/// a buffer is larger than its request by less than max(16 bytes, request / Steps), for 8 steps
/// 12.5 %, whatever buffers returned before. Requests above `largest` are neither rounded nor kept;
/// a buffer that returns to a full class or a full cache is freed. O(1).
template <unsigned Steps = 8>
class bucketed_by {
  using steps = detail::size_steps<Steps>;

 public:
  /// The most that `largest` may be.
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;

  struct options {
    std::size_t largest = std::size_t{64} << 10;    // bytes of a buffer that may be kept
    std::size_t depth = 8;                          // buffers of a class
    std::size_t most_bytes = std::size_t{1} << 20;  // of all kept buffers together
  };

  bucketed_by() noexcept : bucketed_by(options()) {}
  explicit bucketed_by(options how) noexcept : options_(how) {
    if (options_.largest > kMostBytes) options_.largest = kMostBytes;
  }

  [[nodiscard]] std::size_t capacity_for(std::size_t bytes) const noexcept {
    return bytes > options_.largest ? bytes : steps::most(steps::index(bytes));
  }
  [[nodiscard]] kept_buffer* take(std::size_t bytes) noexcept {
    if (bytes > options_.largest) return nullptr;
    bucket& b = buckets_[steps::index(bytes)];
    if (b.first == nullptr) return nullptr;
    return remove(b);
  }
  [[nodiscard]] kept_buffer* offer(kept_buffer* returned) noexcept {
    const std::size_t bytes = returned->capacity;
    if (bytes > kMostBytes || bytes > options_.most_bytes - bytes_) return returned;
    const std::size_t index = steps::index(bytes);
    bucket& b = buckets_[index];
    // The capacity lies between two classes: the buffer served a large request, or another policy
    // allocated it.
    if (steps::most(index) != bytes || b.count >= options_.depth) return returned;
    returned->next = b.first;
    b.first = returned;
    ++b.count;
    bytes_ += bytes;
    return nullptr;
  }
  [[nodiscard]] kept_buffer* evict() noexcept {
    for (bucket& b : buckets_) {
      if (b.first != nullptr) return remove(b);
    }
    return nullptr;
  }

 private:
  struct bucket {
    kept_buffer* first = nullptr;
    std::size_t count = 0;
  };
  kept_buffer* remove(bucket& b) noexcept {
    --b.count;
    bytes_ -= b.first->capacity;
    return std::exchange(b.first, b.first->next);
  }

  bucket buckets_[steps::index(kMostBytes) + 1];
  options options_;
  std::size_t bytes_ = 0;
};
using bucketed = bucketed_by<8>;

/// A buffer in its user's hands. Hand it back whole.
struct buffer {
  void* data = nullptr;
  std::size_t size = 0;      // bytes asked for
  std::size_t capacity = 0;  // bytes that may be used
};

/// What a cache did. bytes_needed and bytes_allocated are of buffers in users' hands.
struct buffer_cache_statistics {
  std::uint64_t hits = 0, misses = 0;  // requests served from the cache, and by the source
  std::uint64_t kept = 0, freed = 0;   // buffers that went into the cache, and to the source
  /// Bytes that users asked for, and bytes behind them. A buffer that one cache gave and another
  /// took back makes one sum too high and the other too low (as unsigned numbers they wrap); the
  /// totals over all caches are exact.
  std::size_t bytes_needed = 0, bytes_allocated = 0;
  std::size_t cached_buffers = 0, cached_bytes = 0;  // in the cache now

  /// Needed of allocated, in per cent; 100 when nothing is out.
  [[nodiscard]] double percent_used() const noexcept {
    if (bytes_allocated == 0) return 100;
    return 100.0 * static_cast<double>(bytes_needed) / static_cast<double>(bytes_allocated);
  }
};

/// A cache of buffers; see the top of the file. One thread's: other threads must not call it, which
/// builds with assertions check. Neither copied nor moved.
template <typename Policy = bucketed>
class buffer_cache {
 public:
  /// Every buffer has at least this capacity: a kept one is linked through itself.
  static constexpr std::size_t kLeastCapacity = sizeof(kept_buffer);

  /// Takes no memory until the first request.
  explicit buffer_cache(Policy policy = Policy(), block_source source = {}) noexcept
      : policy_(std::move(policy)), source_(source) {}
  buffer_cache(const buffer_cache&) = delete;
  buffer_cache& operator=(const buffer_cache&) = delete;
  /// Frees what is kept. Buffers in users' hands stay good: any cache on this source takes them
  /// back.
  ~buffer_cache() { clear(); }

  /// A buffer of `bytes` bytes or more, aligned for any ordinary type; its content is unspecified.
  /// The policy's cost on a hit, the source's on a miss. Throws std::bad_alloc (without exceptions:
  /// ends the program with a message).
  [[nodiscard]] buffer get(std::size_t bytes) {
    const buffer b = try_get(bytes);
    if (b.data == nullptr) [[unlikely]]
      detail::out_of_memory(bytes);
    return b;
  }

  /// The same, but a buffer without data when there is no memory even after freeing what is kept.
  [[nodiscard]] buffer try_get(std::size_t bytes) noexcept {
    assert(is_mine() && "a buffer_cache belongs to the first thread that used it");
    if (bytes > detail::kLargestRequest / 2) return {};
    histogram_.add(bytes);
    const std::size_t room = bytes < kLeastCapacity ? kLeastCapacity : bytes;
    buffer b{nullptr, bytes, 0};
    if (kept_buffer* kept = policy_.take(room)) {
      b.capacity = kept->capacity;
      b.data = kept;
      detail::unpoison(kept, b.capacity);
      ++statistics_.hits;
      --statistics_.cached_buffers;
      statistics_.cached_bytes -= b.capacity;
    } else {
      b.capacity = policy_.capacity_for(room);
      b.data = source_.allocate(b.capacity);
      if (b.data == nullptr && statistics_.cached_buffers != 0) {
        clear();
        b.data = source_.allocate(b.capacity);
      }
      if (b.data == nullptr) return {};
      ++statistics_.misses;
    }
    statistics_.bytes_needed += bytes;
    statistics_.bytes_allocated += b.capacity;
    return b;
  }

  /// Takes a buffer back, from whichever cache on the same source it came; without data: nothing.
  /// So a buffer may be passed to another thread, which returns it to its own cache.
  void give_back(buffer b) noexcept {
    assert(is_mine() && "a buffer_cache belongs to the first thread that used it");
    if (b.data == nullptr) return;
    statistics_.bytes_needed -= b.size;
    statistics_.bytes_allocated -= b.capacity;
    auto* kept =
        std::construct_at(static_cast<kept_buffer*>(b.data), kept_buffer{nullptr, b.capacity});
    ++statistics_.cached_buffers;
    statistics_.cached_bytes += b.capacity;
    kept_buffer* out = policy_.offer(kept);
    if (out != kept) {
      ++statistics_.kept;
      detail::poison(kept + 1, b.capacity - sizeof(kept_buffer));
    }
    if (out != nullptr) free(out);
  }

  /// Frees all that is kept. O(kept buffers).
  void clear() noexcept {
    while (kept_buffer* kept = policy_.evict()) free(kept);
  }

  /// Lets the next thread that uses the cache be its thread. pre: the present one is done with it
  void detach() noexcept { owner_ = std::thread::id(); }

  [[nodiscard]] const buffer_cache_statistics& statistics() const noexcept { return statistics_; }
  /// Every request so far, by size.
  [[nodiscard]] const request_histogram& requests() const noexcept { return histogram_; }
  /// See request_histogram::suggested_cutoff().
  [[nodiscard]] std::size_t suggested_cutoff(double share = 0.75) const noexcept {
    return histogram_.suggested_cutoff(share);
  }
  [[nodiscard]] block_source source() const noexcept { return source_; }

 private:
  void free(kept_buffer* b) noexcept {
    const std::size_t capacity = b->capacity;
    ++statistics_.freed;
    --statistics_.cached_buffers;
    statistics_.cached_bytes -= capacity;
    detail::unpoison(b, capacity);
    source_.deallocate(b, capacity);
  }
  bool is_mine() noexcept {
    if (owner_ == std::thread::id()) owner_ = std::this_thread::get_id();
    return owner_ == std::this_thread::get_id();
  }

  Policy policy_;
  block_source source_;
  request_histogram histogram_;
  buffer_cache_statistics statistics_;
  std::thread::id owner_;  // used by assertions only
};

/// The calling thread's own cache for this policy, in front of operator new; made at the first
/// call, and emptied when the thread ends.
template <typename Policy = bucketed>
[[nodiscard]] buffer_cache<Policy>& this_thread_buffer_cache() {
  static thread_local buffer_cache<Policy> cache;
  return cache;
}

/// Gives its buffer back at the end of a scope, to the cache that it came from. Movable.
template <typename Policy = bucketed>
class borrowed_buffer {
 public:
  /// As buffer_cache::get(). The cache must outlive it, and the thread be the cache's.
  borrowed_buffer(buffer_cache<Policy>& cache, std::size_t bytes)
      : cache_(&cache), buffer_(cache.get(bytes)) {}
  borrowed_buffer(borrowed_buffer&& other) noexcept
      : cache_(other.cache_), buffer_(std::exchange(other.buffer_, {})) {}
  borrowed_buffer& operator=(borrowed_buffer&& other) noexcept {
    std::swap(cache_, other.cache_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~borrowed_buffer() { cache_->give_back(buffer_); }

  [[nodiscard]] void* data() const noexcept { return buffer_.data; }
  [[nodiscard]] std::size_t size() const noexcept { return buffer_.size; }
  [[nodiscard]] std::size_t capacity() const noexcept { return buffer_.capacity; }
  /// Ends the responsibility: the caller gives the buffer back.
  [[nodiscard]] buffer release() noexcept { return std::exchange(buffer_, {}); }

 private:
  buffer_cache<Policy>* cache_;
  buffer buffer_;
};

}  // namespace loam
