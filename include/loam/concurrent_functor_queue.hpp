// loam::concurrent_functor_queue: functor_queue for many producers and consumers.
//
// Design. The queue is a row of lanes. A lane is a chain of blocks with functors written one after
// another, as in functor_queue, and has two locks, one for its tail and one for its head:
//
//   lane 0   tail lock, pushed | head lock, claimed, seen     a line each: producers, consumers
//              |                   |
//   [header| f f f f f f | jump]-->[header| f f f f . . . ]
//                  ^ head                       ^ tail
//
// - A thread always pushes to the same lane (threads are numbered in the order in which they come).
//   So producers rarely meet, and a producer's functors stay in order. There are at least as many
//   lanes as cores.
// - A push writes the functor where it will be run and then publishes it by counting `pushed` up.
//   It allocates only when a block is full; it makes no node; a functor never moves.
// - A pop takes a lane's head lock (or goes on to the next lane if another consumer holds it),
//   steps over the first record, and releases the lock before it runs the functor, where it lies.
//   Functors have different sizes, so a claim by compare-and-swap would have to read a record that
//   may be gone; under the lock a claim is two loads and two stores.
// - A block is free when the head has left it and all its functors have been destroyed. One counter
//   a block tells: each consumer counts it down when its functor is destroyed, and the consumer
//   that leaves the block adds the number of functors claimed in it. The consumer that brings the
//   sum to zero recycles the block. Before the head leaves, the sum is not positive, so it cannot
//   become zero too early.
// - A consumer stays in a lane for 64 functors, then looks at the next lane: so every producer's
//   functors are run.
// - Sleeping consumers are counted. A push that sees one wakes it; a push that sees none, which is
//   the common case, only reads that count.
//
// A push without contention costs two locked instructions, and so does a pop. An allocation costs
// more than both, and queues of std::function pay one for every functor above two words.
//
// Ordering. Functors that one thread pushed are *started* in the order in which it pushed them;
// with several consumers their runs may overlap. There is no order between producers. All that a
// thread does before a push happens before the functor's run.
//
// The queue is not lock-free: a thread that is stopped inside push() delays the producers of its
// lane (one in lane_count() threads) and the consumers of the functor that it was about to publish,
// but no other thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "loam/block_source.hpp"
#include "loam/detail/config.hpp"
#include "loam/detail/functor_record.hpp"
#include "loam/detail/queue_thread.hpp"
#include "loam/detail/spin_lock.hpp"

namespace loam {

template <typename Signature = void()>
class concurrent_functor_queue;

/// A queue of functors callable with `Arguments`, for any number of threads at once; results are
/// discarded. Any thread may call all functions at any time, except the constructor and the
/// destructor. `concurrent_functor_queue<>` takes functors without arguments.
///
/// A running functor may do anything with its queue except destroy it. A functor's constructor that
/// may throw runs under the lane's lock: it may not use the queue.
///
/// Memory: each lane in use holds a block of options.block_bytes or more; the queue keeps
/// options.retained_blocks empty blocks for all lanes together.
template <typename... Arguments>
class concurrent_functor_queue<void(Arguments...)> {
 public:
  using options = functor_queue_options;
  static constexpr unsigned kMostLanes = 64;

  /// `lanes` is rounded up to a power of two, 64 at most; 0 means as many as the machine has cores.
  /// Throws std::bad_alloc. Any thread that uses the queue may call the source.
  explicit concurrent_functor_queue(block_source source = {}, options how = {}, unsigned lanes = 0)
      : source_(source),
        block_bytes_(std::max<std::size_t>(
            detail::round_up(how.block_bytes, detail::kRecordAlignment), kLeastBlock)),
        retained_(how.retained_blocks) {
    if (lanes == 0) lanes = std::max(2u, std::thread::hardware_concurrency());
    lane_count_ = std::bit_ceil(std::min(lanes, kMostLanes));
    void* memory = source_.allocate(lane_count_ * sizeof(lane), alignof(lane));
    if (memory == nullptr) detail::out_of_memory(lane_count_ * sizeof(lane));
    lanes_ = static_cast<lane*>(memory);
    std::uninitialized_value_construct_n(lanes_, lane_count_);
  }
  explicit concurrent_functor_queue(options how) : concurrent_functor_queue(block_source(), how) {}
  concurrent_functor_queue(const concurrent_functor_queue&) = delete;
  concurrent_functor_queue& operator=(const concurrent_functor_queue&) = delete;
  /// Destroys the functors that were not run. pre: no thread uses the queue any more
  ~concurrent_functor_queue() {
    clear();
    for (unsigned i = 0; i < lane_count_; ++i) {
      lane& l = lanes_[i];
      if (l.head_block == nullptr) l.head_block = l.first.load(std::memory_order_relaxed);
      while (l.head_block != nullptr) leave_head_block(l);
    }
    trim();
    std::destroy_n(lanes_, lane_count_);
    source_.deallocate(lanes_, lane_count_ * sizeof(lane), alignof(lane));
  }

  /// Puts a copy of `functor` (or an object that it is moved into) at the end of this thread's
  /// lane. Returns false after close() and leaves `functor` as it was. Amortised O(1); takes at
  /// most one block from the source. Throws std::bad_alloc, and what the functor's constructor
  /// throws; the queue is then as before.
  template <typename F>
  bool push(F&& functor) {
    using type = std::decay_t<F>;
    if constexpr (std::is_nothrow_constructible_v<type, F> ||
                  !std::is_nothrow_move_constructible_v<type>) {
      return emplace<type>(std::forward<F>(functor));
    } else {
      // A copy may take long and may throw: it is made before the lane is locked.
      if (state_.load(std::memory_order_relaxed) != kOpen) return false;
      type copy(std::forward<F>(functor));
      return emplace<type>(std::move(copy));
    }
  }

  /// Makes an F from `initial` at the end; as push().
  template <typename F, typename... Initial>
  bool emplace(Initial&&... initial) {
    static_assert(std::is_invocable_v<F, Arguments...> || std::is_invocable_v<F&, Arguments...>,
                  "the functor cannot be called with the queue's arguments");
    constexpr std::size_t most = detail::kMostRecordBytes<F>;
    const unsigned number = (detail::current_queue_thread().number - 1) & (lane_count_ - 1);
    lane& l = lanes_[number];
    // Acquire: a push that sees the bit set comes after the push that set it; pairs with the
    // fetch_or below.
    if ((used_.load(std::memory_order_acquire) >> number & 1) == 0) {
      used_.fetch_or(std::uint64_t{1} << number);
    }
    {
      const std::lock_guard lock(l.tail_lock);
      // The state is read under the lock: after close() has held the lock too, no push succeeds.
      if (state_.load(std::memory_order_relaxed) != kOpen) return false;
      if (most > static_cast<std::size_t>(l.tail_end - l.tail)) [[unlikely]]
        add_block(l, most);
      l.tail = detail::write_functor<F, Arguments...>(l.tail, std::forward<Initial>(initial)...);
      // Publishes the record. Four operations are sequentially consistent: this store, the load of
      // sleepers_ below, the count of a consumer that goes to sleep, and its look at `pushed` after
      // that. So the producer sees the sleeper, or the sleeper sees the record.
      l.pushed.store(l.pushed.load(std::memory_order_relaxed) + 1);
    }
    if (sleepers_.load() != 0) [[unlikely]]
      wake_one();
    return true;
  }

  /// Runs a functor and removes it; false if it saw all lanes empty. It never waits for longer than
  /// another thread's step over a record. O(lanes in use) beside the functor. An exception of the
  /// functor is passed on; the functor is removed and destroyed all the same.
  bool run_one(Arguments... arguments) {
    claim c(*this);
    if (!c.take()) return false;
    c.functor->consume(static_cast<Arguments&&>(arguments)...);
    return true;
  }

  /// The same, but waits for a functor as long as the queue is open; false after the queue is
  /// closed and empty.
  bool wait_run_one(Arguments... arguments) {
    claim c(*this);
    if (!take_or_wait(c, [&](auto& lock) {
          wake_.wait(lock);
          return true;
        })) {
      return false;
    }
    c.functor->consume(static_cast<Arguments&&>(arguments)...);
    return true;
  }

  /// The same, but waits for `most` at the longest; false also after that time.
  template <typename Rep, typename Period>
  bool wait_run_one_for(const std::chrono::duration<Rep, Period>& most, Arguments... arguments) {
    const auto end = std::chrono::steady_clock::now() + most;
    claim c(*this);
    if (!take_or_wait(c, [&](auto& lock) {
          return wake_.wait_until(lock, end) == std::cv_status::no_timeout;
        })) {
      return false;
    }
    c.functor->consume(static_cast<Arguments&&>(arguments)...);
    return true;
  }

  /// Runs functors until it sees all lanes empty; returns how many. A functor that throws is gone,
  /// and the rest stay.
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

  /// Destroys functors without running them until it sees all lanes empty.
  void clear() noexcept {
    for (;;) {
      claim c(*this);
      if (!c.take()) return;
      c.functor->destroy();
    }
  }

  /// Ends pushing: after its return no push succeeds, and the functors that were pushed are still
  /// run. Wakes all waiting consumers. It cannot be undone.
  void close() {
    state_.store(kClosing, std::memory_order_relaxed);
    // Pushes under way end; a later push locks its lane and sees the state.
    for (unsigned i = 0; i < lane_count_; ++i) {
      const std::lock_guard wait_for_push(lanes_[i].tail_lock);
    }
    const std::lock_guard lock(sleep_);
    state_.store(kClosed, std::memory_order_release);  // pairs with the acquire in take_or_wait()
    wake_.notify_all();
  }
  [[nodiscard]] bool closed() const noexcept {
    return state_.load(std::memory_order_acquire) != kOpen;
  }

  /// Functors waiting: exact while no other thread uses the queue. O(lanes).
  [[nodiscard]] std::size_t size() const noexcept {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < lane_count_; ++i) {
      // In this order: a claimed functor was pushed before, so the difference is not negative.
      const std::uint64_t claimed = lanes_[i].claimed.load(std::memory_order_acquire);
      sum += lanes_[i].pushed.load(std::memory_order_acquire) - claimed;
    }
    return static_cast<std::size_t>(sum);
  }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

  /// Gives kept blocks back to the source; returns the bytes.
  std::size_t trim() noexcept {
    block* list;
    {
      const std::lock_guard lock(spare_lock_);
      list = std::exchange(spare_, nullptr);
      spare_count_ = 0;
    }
    std::size_t bytes = 0;
    while (list != nullptr) {
      block* b = std::exchange(list, list->next);
      bytes += b->bytes;
      give_back(b);
    }
    return bytes;
  }

  /// Bytes of blocks held from the source.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] unsigned lane_count() const noexcept { return lane_count_; }
  [[nodiscard]] block_source source() const noexcept { return source_; }

 private:
  using record = detail::functor_record<Arguments...>;
  struct alignas(detail::kRecordAlignment) block {
    explicit block(std::size_t size) noexcept : bytes(size) {}
    block* next = nullptr;
    std::size_t bytes;
    std::atomic<std::int64_t> balance{0};  // claimed (added when the head leaves) less destroyed
    char* begin() noexcept { return reinterpret_cast<char*>(this + 1); }
    // The last record says that the block ends here.
    char* end() noexcept { return reinterpret_cast<char*>(this) + bytes - sizeof(record); }
  };
  static constexpr std::size_t kLeastBlock = sizeof(block) + 5 * detail::kRecordAlignment;

  struct lane {
    // Producers.
    alignas(detail::kNoSharing) detail::spin_lock tail_lock;
    char *tail = nullptr, *tail_end = nullptr;
    block* tail_block = nullptr;
    std::atomic<std::uint64_t> pushed{0};
    // Consumers. `seen` is the last `pushed` that they read: while it is ahead of `claimed`, they
    // do not touch the producers' line.
    alignas(detail::kNoSharing) detail::spin_lock head_lock;
    char* head = nullptr;
    block* head_block = nullptr;
    std::int64_t claimed_here = 0;  // in the head block
    std::atomic<std::uint64_t> claimed{0}, seen{0};
    // The first producer writes it once, before it publishes a functor.
    std::atomic<block*> first{nullptr};
  };

  enum : unsigned { kOpen, kClosing, kClosed };
  static constexpr unsigned kMostInARow = 64;

  // A functor that was taken out of the queue and still lies in its block. The claim's end releases
  // the block.
  struct claim {
    explicit claim(concurrent_functor_queue& q) noexcept : queue(q) {}
    claim(const claim&) = delete;
    claim& operator=(const claim&) = delete;
    ~claim() {
      // Release: the functor's end comes before the block's reuse. Acquire: the thread that reuses
      // the block comes after all such ends. Pairs with itself and with leave_head_block().
      if (home != nullptr && home->balance.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        queue.recycle(home);
      }
    }

    // False if all lanes were seen empty.
    bool take() noexcept {
      detail::queue_thread& self = detail::current_queue_thread();
      for (detail::backoff b;; b.wait()) {
        const unsigned count = queue.lane_count_;
        const unsigned first = (self.lane + (self.taken >= kMostInARow)) & (count - 1);
        bool in_the_way = false;
        std::uint64_t used = queue.used_.load();
        // Lanes from `first` on, then those before it.
        for (std::uint64_t part : {used >> first << first, used & ~(~std::uint64_t{0} << first)}) {
          for (; part != 0; part &= part - 1) {
            const auto at = static_cast<unsigned>(std::countr_zero(part));
            if (!take_from(queue.lanes_[at], in_the_way)) continue;
            self.taken = at == self.lane ? self.taken + 1 : 1;
            if (self.taken > kMostInARow) self.taken = 1;
            self.lane = at;
            return true;
          }
        }
        if (!in_the_way) return false;
      }
    }

    bool take_from(lane& l, bool& in_the_way) noexcept {
      if (l.claimed.load(std::memory_order_relaxed) == l.seen.load(std::memory_order_relaxed) &&
          l.pushed.load() == l.claimed.load(std::memory_order_relaxed)) {
        return false;
      }
      if (!l.head_lock.try_lock()) {
        in_the_way = true;
        return false;
      }
      const std::lock_guard lock(l.head_lock, std::adopt_lock);
      const std::uint64_t number = l.claimed.load(std::memory_order_relaxed);
      if (number == l.seen.load(std::memory_order_relaxed)) {
        // Acquire (and more): pairs with the producer's store, so the records may be read.
        const std::uint64_t pushed = l.pushed.load();
        if (pushed == number) return false;
        l.seen.store(pushed, std::memory_order_relaxed);
      }
      if (l.head_block == nullptr) {
        l.head_block = l.first.load(std::memory_order_relaxed);
        l.head = l.head_block->begin();
      }
      functor = reinterpret_cast<record*>(l.head);
      while (functor->operations == nullptr) {
        queue.leave_head_block(l);
        functor = reinterpret_cast<record*>(l.head);
      }
      home = l.head_block;
      l.head += functor->next;
      ++l.claimed_here;
      // Release: pairs with the acquire in size().
      l.claimed.store(number + 1, std::memory_order_release);
      return true;
    }

    concurrent_functor_queue& queue;
    block* home = nullptr;
    record* functor = nullptr;
  };

  // `wait` sleeps under the lock and returns false when its time is over.
  template <typename Wait>
  bool take_or_wait(claim& c, Wait wait) {
    for (int i = 0; i < 16; ++i) {  // a functor may come soon: sleeping costs microseconds
      if (c.take()) return true;
      detail::pause();
    }
    std::unique_lock lock(sleep_);
    struct sleeper {
      std::atomic<unsigned>& count;
      ~sleeper() { count.fetch_sub(1, std::memory_order_relaxed); }
    } counted{sleepers_};
    sleepers_.fetch_add(1);
    for (bool in_time = true;;) {
      // The state is read first: a functor that was pushed before the close is then found.
      const bool last = state_.load(std::memory_order_acquire) == kClosed;
      if (c.take()) return true;
      if (last || !in_time) return false;
      in_time = wait(lock);
    }
  }

  void wake_one() {
    // Under the lock a consumer that has counted itself is asleep, or has not looked yet.
    const std::lock_guard lock(sleep_);
    wake_.notify_one();
  }

  // pre: the tail lock is held
  void add_block(lane& l, std::size_t most) {
    const std::size_t size = std::max(block_bytes_, sizeof(block) + most + sizeof(record));
    void* memory = size == block_bytes_ ? take_spare() : nullptr;
    if (memory == nullptr) {
      memory = source_.allocate(size);
      if (memory == nullptr) detail::out_of_memory(size);
      bytes_.fetch_add(size, std::memory_order_relaxed);
    }
    block* b = std::construct_at(static_cast<block*>(memory), size);
    if (l.tail_block == nullptr) {
      l.first.store(b, std::memory_order_relaxed);  // published with the first functor
    } else {
      l.tail_block->next = b;
      std::construct_at(reinterpret_cast<record*>(l.tail), record{nullptr, 0, 0});
    }
    l.tail_block = b;
    l.tail = b->begin();
    l.tail_end = b->end();
  }

  // pre: the head lock is held
  void leave_head_block(lane& l) noexcept {
    block* left = l.head_block;
    l.head_block = left->next;
    l.head = l.head_block != nullptr ? l.head_block->begin() : nullptr;
    const std::int64_t claimed = std::exchange(l.claimed_here, 0);
    if (left->balance.fetch_add(claimed, std::memory_order_acq_rel) + claimed == 0) recycle(left);
  }

  block* take_spare() noexcept {
    const std::lock_guard lock(spare_lock_);
    if (spare_ == nullptr) return nullptr;
    --spare_count_;
    return std::exchange(spare_, spare_->next);
  }
  void recycle(block* b) noexcept {
    if (b->bytes == block_bytes_) {
      const std::lock_guard lock(spare_lock_);
      if (spare_count_ < retained_) {
        b->next = spare_;
        spare_ = b;
        ++spare_count_;
        return;
      }
    }
    give_back(b);
  }
  void give_back(block* b) noexcept {
    const std::size_t size = b->bytes;
    bytes_.fetch_sub(size, std::memory_order_relaxed);
    std::destroy_at(b);
    source_.deallocate(b, size);
  }

  // All threads read these; writes are rare.
  const block_source source_;
  const std::size_t block_bytes_, retained_;
  lane* lanes_ = nullptr;
  unsigned lane_count_ = 0;
  std::atomic<unsigned> state_{kOpen};
  std::atomic<std::uint64_t> used_{0};  // lanes that were ever pushed to, a bit each
  std::atomic<unsigned> sleepers_{0};

  alignas(detail::kNoSharing) detail::spin_lock spare_lock_;
  block* spare_ = nullptr;
  std::size_t spare_count_ = 0;
  std::atomic<std::size_t> bytes_{0};

  std::mutex sleep_;
  std::condition_variable wake_;
};

}  // namespace loam
