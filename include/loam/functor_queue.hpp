// loam::functor_queue: callables of any type and size, written one after another into large blocks,
// run first in, first out.
//
// A queue of std::function allocates for every functor that is larger than two or three words, and
// again for the container's node. Here a push constructs the functor where the last one ended:
//
//   head block                                   tail block
//   +------+----+-------+------------+------+    +------+--------+----+-----------------+
//   |header| f1 |  f2   |     f3     | rest |--->|header|   f4   | f5 | free            |
//   +------+----+-------+------------+------+    +------+--------+----+-----------------+
//                ^ head                                               ^ tail
//
// One indirect call runs a functor and destroys it, where it lies. A functor never moves, so it may
// be move-only, immovable after construction, or over-aligned. A queue that becomes empty starts
// its block afresh, so a queue that is filled and emptied by turns stays in the same few cache
// lines.
//
// loam/concurrent_functor_queue.hpp is the queue for many threads.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "loam/block_source.hpp"
#include "loam/detail/config.hpp"
#include "loam/detail/functor_record.hpp"

namespace loam {

template <typename Signature = void()>
class functor_queue;

/// A queue of functors callable with `Arguments`; results are discarded. One thread at a time may
/// use it. `functor_queue<>` takes functors without arguments.
///
/// A running functor may push to its queue, run other functors of it (the next in order) and
/// clear() it; it may not move, swap or destroy the queue. The constructor of a functor that push()
/// or emplace() makes may not use the queue.
///
/// Memory: blocks of options.block_bytes. An emptied block is reused; it goes back to the source if
/// the queue keeps options.retained_blocks already. A functor larger than a block gets a block of
/// its own, which is never kept.
template <typename... Arguments>
class functor_queue<void(Arguments...)> {
 public:
  using options = functor_queue_options;

  /// Takes no memory until the first push.
  explicit functor_queue(block_source source = {}, options how = {}) noexcept
      : source_(source), options_(how) {
    options_.block_bytes = std::max<std::size_t>(
        detail::round_up(how.block_bytes, detail::kRecordAlignment), kLeastBlock);
  }
  explicit functor_queue(options how) noexcept : functor_queue(block_source(), how) {}
  /// Takes the functors and blocks of `other`, which is then empty and may be used again. O(1).
  functor_queue(functor_queue&& other) noexcept : source_(other.source_), options_(other.options_) {
    swap(other);
  }
  /// Destroys this queue's functors, then does the same.
  functor_queue& operator=(functor_queue&& other) noexcept {
    if (this != &other) {
      clear();
      trim();
      swap(other);
    }
    return *this;
  }
  functor_queue(const functor_queue&) = delete;
  functor_queue& operator=(const functor_queue&) = delete;
  /// Destroys the functors that were not run, in order. O(functors + blocks).
  ~functor_queue() {
    assert(running_ == 0 && "a functor destroys the queue that runs it");
    clear();
    trim();
  }

  /// Exchanges everything, sources included. O(1).
  void swap(functor_queue& other) noexcept {
    assert(running_ == 0 && other.running_ == 0 && "a functor moves the queue that runs it");
    std::swap(source_, other.source_);
    std::swap(options_, other.options_);
    std::swap(head_, other.head_);
    std::swap(head_block_, other.head_block_);
    std::swap(tail_, other.tail_);
    std::swap(tail_end_, other.tail_end_);
    std::swap(tail_block_, other.tail_block_);
    std::swap(size_, other.size_);
    std::swap(spare_, other.spare_);
    std::swap(spare_count_, other.spare_count_);
    std::swap(bytes_, other.bytes_);
  }
  friend void swap(functor_queue& a, functor_queue& b) noexcept { a.swap(b); }

  /// Puts a copy of `functor` (or an object that it is moved into) at the end. Amortised O(1);
  /// takes at most one block from the source. Throws std::bad_alloc, and what the functor's
  /// constructor throws; the queue is then as before.
  template <typename F>
  void push(F&& functor) {
    emplace<std::decay_t<F>>(std::forward<F>(functor));
  }

  /// Makes an F from `initial` at the end; as push().
  template <typename F, typename... Initial>
  void emplace(Initial&&... initial) {
    static_assert(std::is_invocable_v<F, Arguments...> || std::is_invocable_v<F&, Arguments...>,
                  "the functor cannot be called with the queue's arguments");
    constexpr std::size_t most = detail::kMostRecordBytes<F>;
    if (most > static_cast<std::size_t>(tail_end_ - tail_)) [[unlikely]]
      add_block(most);
    tail_ = detail::write_functor<F, Arguments...>(tail_, std::forward<Initial>(initial)...);
    ++tail_block_->unfinished;
    ++size_;
  }

  /// Runs the first functor and removes it; false if there is none. O(1) beside the functor. An
  /// exception of the functor is passed on; the functor is removed and destroyed all the same.
  bool run_one(Arguments... arguments) {
    if (size_ == 0) return false;
    const claim c(*this);
    c.functor->consume(static_cast<Arguments&&>(arguments)...);
    return true;
  }

  /// Runs functors until the queue is empty, also those that are pushed meanwhile; returns how
  /// many. A functor that throws is gone, and the rest stay.
  std::size_t run_all(Arguments... arguments) {
    std::size_t count = 0;
    for (; run_one(arguments...); ++count) {
    }
    return count;
  }

  /// Runs `most` functors at most; otherwise as run_all().
  std::size_t run_some(std::size_t most, Arguments... arguments) {
    std::size_t count = 0;
    for (; count != most && run_one(arguments...); ++count) {
    }
    return count;
  }

  /// Destroys the first functor without running it; false if there is none. O(1).
  bool drop_one() noexcept {
    if (size_ == 0) return false;
    const claim c(*this);
    c.functor->destroy();
    return true;
  }

  /// Destroys all functors in order without running them. O(functors). Blocks are kept as usual.
  void clear() noexcept {
    while (drop_one()) {
    }
  }

  /// Gives kept blocks back to the source; returns the bytes. O(blocks kept).
  std::size_t trim() noexcept {
    const std::size_t before = bytes_;
    if (size_ == 0 && tail_block_ != nullptr && tail_block_->unfinished == 0) drop_last_block();
    while (spare_ != nullptr) give_back(std::exchange(spare_, spare_->next));
    spare_count_ = 0;
    return before - bytes_;
  }

  /// Functors that wait; a running functor is not counted.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// Bytes held from the source.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] block_source source() const noexcept { return source_; }

 private:
  using record = detail::functor_record<Arguments...>;
  struct alignas(detail::kRecordAlignment) block {
    block* next;
    char* filled;                   // where the records end, once the tail has gone on; null before
    std::size_t bytes, unfinished;  // functors not yet destroyed: waiting or running
    char* begin() noexcept { return reinterpret_cast<char*>(this + 1); }
    char* end() noexcept { return reinterpret_cast<char*>(this) + bytes; }
  };
  static constexpr std::size_t kLeastBlock = sizeof(block) + 4 * detail::kRecordAlignment;

  // The first functor, taken out of the queue; it still lies in its block. The claim's end releases
  // the block.
  struct claim {
    explicit claim(functor_queue& q) noexcept : queue(q) {
      while (q.head_ == q.head_block_->filled) q.leave_head_block();
      home = q.head_block_;
      functor = reinterpret_cast<record*>(q.head_);
      q.head_ += functor->next;
      --q.size_;
      ++q.running_;
    }
    ~claim() {
      --queue.running_;
      if (--home->unfinished == 0) queue.finish(home);
    }
    claim(const claim&) = delete;
    claim& operator=(const claim&) = delete;

    functor_queue& queue;
    block* home;
    record* functor;
  };

  void add_block(std::size_t most) {
    const std::size_t size = std::max(options_.block_bytes, sizeof(block) + most);
    block* b;
    if (size == options_.block_bytes && spare_ != nullptr) {
      b = std::exchange(spare_, spare_->next);
      --spare_count_;
    } else {
      void* memory = source_.allocate(size);
      if (memory == nullptr) detail::out_of_memory(size);
      b = static_cast<block*>(memory);
      bytes_ += size;
    }
    std::construct_at(b, block{nullptr, nullptr, size, 0});
    if (tail_block_ == nullptr) {
      head_block_ = b;
      head_ = b->begin();
    } else {
      tail_block_->next = b;
      tail_block_->filled = tail_;
    }
    tail_block_ = b;
    tail_ = b->begin();
    tail_end_ = b->end();
  }

  void leave_head_block() noexcept {
    block* left = std::exchange(head_block_, head_block_->next);
    head_ = head_block_->begin();
    // A functor of this block may still be running, if it runs other functors itself; its claim
    // then releases the block.
    if (left->unfinished == 0) recycle(left);
  }

  // The last functor of a block has been destroyed.
  void finish(block* b) noexcept {
    if (b == tail_block_) {
      // The queue is empty then, and the head stands in this block too.
      if (b->bytes != options_.block_bytes) return drop_last_block();
      head_block_ = b;
      head_ = tail_ = b->begin();
    } else if (b != head_block_) {
      recycle(b);
    }
  }

  // pre: the queue is empty, and nothing in the tail block is running
  void drop_last_block() noexcept {
    // A push whose functor could not be made may have added the tail block.
    while (head_block_ != tail_block_) leave_head_block();
    give_back(tail_block_);
    head_block_ = tail_block_ = nullptr;
    head_ = tail_ = tail_end_ = nullptr;
  }

  void recycle(block* b) noexcept {
    if (b->bytes != options_.block_bytes || spare_count_ >= options_.retained_blocks) {
      return give_back(b);
    }
    b->next = spare_;
    spare_ = b;
    ++spare_count_;
  }
  void give_back(block* b) noexcept {
    bytes_ -= b->bytes;
    source_.deallocate(b, b->bytes);
  }

  block_source source_;
  options options_;
  char* head_ = nullptr;
  block* head_block_ = nullptr;
  char *tail_ = nullptr, *tail_end_ = nullptr;
  block* tail_block_ = nullptr;
  std::size_t size_ = 0;
  block* spare_ = nullptr;
  std::size_t spare_count_ = 0, bytes_ = 0;
  std::size_t running_ = 0;
};

}  // namespace loam
