// frontier: one point of the plane of speed and memory, for given live bytes, sizes, threads and
// order of frees.
//
// A thread keeps its share of --live bytes in a table. An operation draws a size, frees blocks
// until the new block fits, and allocates it: the live bytes stay at the target, whatever the
// sizes. --order says which block is freed next:
//   random   any block
//   fifo     the oldest one
//   hot      nine times in ten one of the youngest tenth, else any block
//   lifo     the youngest ones: the table shrinks to a random share from half of its bytes on, and
//            grows back
//   burst    a random half of the blocks at once, then the table grows back
//   shared   any block of all threads: each thread frees what others allocated
//
// Series "fill", one checkpoint, then "steady": --samples checkpoints of equal parts of
// --operations, which all threads share. bench/frontier takes speed and average overhead from the
// later ones.
//
// Before the fill, twice the live bytes are touched and given back: the host of a virtual machine
// may have taken them.
//
// --write ends writes the first and last byte and one each 4 KiB, as `touch()` does; all writes
// every byte. A block's first word says its size, and is checked when the block is freed.
#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "crew.h"
#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/recorder.h"
#include "slots.h"

namespace {

using namespace lab;

constexpr unsigned kMostSeats = 64;
constexpr uint64_t kLeastSize = 16, kLargestSize = uint64_t{1} << 30;

// The sizes to draw from: so many quantiles of the distribution. A draw is then one load, and every
// allocator sees exactly the same mean.
constexpr size_t kQuantiles = 4096;

class Sizes {
 public:
  explicit Sizes(std::string_view text) : table_(kQuantiles) {
    if (text == "nine") {
      nine();
    } else if (text.starts_with("log:")) {
      range(text.substr(4), text);
      const double ratio = static_cast<double>(most_) / static_cast<double>(least_);
      each([&](double q) { return static_cast<double>(least_) * std::pow(ratio, q); });
    } else if (text.starts_with("lognormal:")) {
      double median = 0;
      const char* end = text.data() + text.size();
      const auto [at, error] = std::from_chars(text.data() + 10, end, median);
      if (error != std::errc() || at != end || !(median >= 16 && median <= 1e6)) wrong(text);
      each([&](double q) { return std::clamp(median * std::exp(normal(q)), 16.0, 1048576.0); });
    } else {
      range(text, text);
      each([&](double q) {
        return static_cast<double>(least_) + q * static_cast<double>(most_ + 1 - least_);
      });
    }
    for (const uint32_t size : table_) {
      sum_ += size;
      largest_ = std::max<uint64_t>(largest_, size);
    }
  }

  uint32_t draw(Random& random) const {
    return table_[random.below(static_cast<uint32_t>(kQuantiles))];
  }
  uint64_t mean() const { return sum_ / kQuantiles; }
  uint64_t largest() const { return largest_; }

 private:
  [[noreturn]] static void wrong(std::string_view text) {
    fail(kExitUsage, "frontier: --sizes takes LOW-HIGH, log:LOW-HIGH (bytes from 16 to 1 GiB, ",
         "K or M may follow), lognormal:MEDIAN (16 to 1000000) or nine, not '", text, "'");
  }

  static uint64_t number(std::string_view text, std::string_view whole) {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc()) wrong(whole);
    if (at + 1 == end && (*at == 'K' || *at == 'M')) value <<= *at++ == 'K' ? 10 : 20;
    if (at != end || value < kLeastSize || value > kLargestSize) wrong(whole);
    return value;
  }
  void range(std::string_view text, std::string_view whole) {
    const size_t dash = text.find('-');
    if (dash == std::string_view::npos) wrong(whole);
    least_ = number(text.substr(0, dash), whole);
    most_ = number(text.substr(dash + 1), whole);
    if (least_ > most_) wrong(whole);
  }

  template <typename Of>
  void each(Of of) {
    for (size_t i = 0; i < kQuantiles; ++i) {
      const double q = (static_cast<double>(i) + 0.5) / static_cast<double>(kQuantiles);
      table_[i] = static_cast<uint32_t>(of(q));
    }
  }
  // The lab's `lfh` has them as often.
  void nine() {
    uint64_t total = 0;
    for (const auto& s : kSlotSizes) total += s.count;
    each([&](double q) {
      double rest = q * static_cast<double>(total);
      for (const auto& s : kSlotSizes) {
        if ((rest -= s.count) < 0) return s.bytes;
      }
      return kSlotSizes[0].bytes;
    });
  }
  // The quantile of the normal distribution: bisection of its distribution function.
  static double normal(double q) {
    double low = -6, high = 6;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < q ? low : high) = middle;
    }
    return low;
  }

  Table<uint32_t> table_;
  uint64_t least_ = 0, most_ = 0, sum_ = 0, largest_ = 0;
};

enum class Order { kRandom, kFifo, kHot, kLifo, kBurst, kShared };

struct Plan {
  const Sizes& sizes;
  Order order;
  bool write_all;
};

uint64_t& size_of(void* block) { return *static_cast<uint64_t*>(block); }

void* make(const Plan& plan, uint32_t size) {
  void* block = must(std::malloc(size), size);
  if (plan.write_all) {
    memset(block, 1, size);
  } else {
    touch(block, size);
  }
  size_of(block) = size;
  return block;
}

// Returns the bytes that the block no longer keeps live.
uint64_t drop(void* block) {
  const uint64_t size = size_of(block);
  if (size < kLeastSize || size > kLargestSize) {
    fail(kExitFailed, "frontier: a live block was overwritten: two blocks overlap");
  }
  size_of(block) = 0;
  std::free(block);
  return size;
}

// One thread's blocks, in a ring with the oldest first. Orders that free other blocks than the
// oldest use it as a stack. No other thread reads it while this one works.
class alignas(128) Holder {
 public:
  void set(const Plan& plan, uint64_t target, uint64_t seed, unsigned me) {
    plan_ = &plan;
    target_ = target;
    random_ = stream(seed, me);
    // At least twice as many entries as fit on average. If the ring is full, a block is freed for
    // each new one.
    ring_ = Table<void*>(std::bit_ceil(2 * target / plan.sizes.mean() + 64));
  }

  void fill() {
    while (live_ < target_ - std::min(target_, plan_->sizes.mean())) put();
  }

  // `operations` blocks are allocated.
  void work(uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i) put();
  }

  uint64_t live() const { return live_; }
  uint64_t peak_live() const { return peak_live_; }
  uint64_t checksum() const { return checksum_.value(); }

 private:
  void*& at(uint64_t i) { return ring_[(first_ + i) & (ring_.size() - 1)]; }

  void put() {
    const uint32_t size = plan_->sizes.draw(random_);
    checksum_.add(size);
    if (live_ + size > target_ || count_ == ring_.size()) make_room(size);
    at(count_++) = make(*plan_, size);
    live_ += size;
    peak_live_ = std::max(peak_live_, live_);
  }

  void make_room(uint64_t size) {
    if (plan_->order == Order::kLifo) {
      const uint64_t rest = target_ / 2 + random_.below(1024) * (target_ / 2) / 1024;
      while (count_ != 0 && live_ > rest) remove(count_ - 1);
    } else if (plan_->order == Order::kBurst) {
      for (uint64_t i = count_; i-- > 0;) {
        if (random_.below(2) == 0) remove(i);
      }
    }
    while (count_ != 0 && (live_ + size > target_ || count_ == ring_.size())) remove(victim());
  }

  uint64_t victim() {
    const auto count = static_cast<uint32_t>(count_);
    switch (plan_->order) {
      case Order::kFifo:
        return 0;
      case Order::kLifo:
        return count - 1;
      case Order::kHot:
        if (random_.below(10) != 0) return count - 1 - random_.below(count / 10 + 1);
        return random_.below(count);
      default:
        return random_.below(count);
    }
  }

  void remove(uint64_t i) {
    live_ -= drop(at(i));
    if (i == 0 && plan_->order == Order::kFifo) {
      ++first_;
    } else {
      at(i) = at(count_ - 1);
    }
    --count_;
  }

  const Plan* plan_ = nullptr;
  Table<void*> ring_;
  Random random_{0};
  Checksum checksum_;
  uint64_t target_ = 0, live_ = 0, peak_live_ = 0, first_ = 0, count_ = 0;
};

// Slots of all threads. A new block replaces the block in a slot, and the thread of the new block
// frees the old one.
struct alignas(128) Visitor {
  Random random{0};
  Checksum checksum;
  uint64_t live = 0;  // may wrap below zero; the sum over threads is right
};

class Shared {
 public:
  void set(const Plan& plan, uint64_t target, uint64_t seed, unsigned threads) {
    plan_ = &plan;
    threads_ = threads;
    slots_ = Table<std::atomic<void*>>(std::max<uint64_t>(threads, target / plan.sizes.mean()));
    visitors_ = Table<Visitor>(threads);
    for (unsigned t = 0; t < threads; ++t) visitors_[t].random = stream(seed, t);
  }
  void fill(unsigned me) {
    for (size_t i = me; i < slots_.size(); i += threads_) put(me, i);
  }
  void work(unsigned me, uint64_t operations) {
    Visitor& visitor = visitors_[me];
    for (uint64_t i = 0; i < operations; ++i) {
      put(me, visitor.random.below(static_cast<uint32_t>(slots_.size())));
    }
  }
  uint64_t live() {
    uint64_t sum = 0;
    for (auto& v : visitors_) sum += v.live;
    return sum;
  }
  uint64_t checksum() {
    Checksum all;
    for (auto& v : visitors_) all.add(v.checksum.value());
    return all.value();
  }

 private:
  void put(unsigned me, uint64_t slot) {
    Visitor& visitor = visitors_[me];
    const uint32_t size = plan_->sizes.draw(visitor.random);
    visitor.checksum.add(size);
    void* block = make(*plan_, size);
    visitor.live += size;
    // release: the block's first word was written; acquire: pairs with it for the old block
    void* old = slots_[slot].exchange(block, std::memory_order_acq_rel);
    if (old != nullptr) visitor.live -= drop(old);
  }

  const Plan* plan_ = nullptr;
  unsigned threads_ = 1;
  Table<std::atomic<void*>> slots_;
  Table<Visitor> visitors_;
};

Order order_of(std::string_view word) {
  constexpr std::pair<std::string_view, Order> kWords[] = {{"fifo", Order::kFifo},
                                                           {"hot", Order::kHot},
                                                           {"lifo", Order::kLifo},
                                                           {"burst", Order::kBurst},
                                                           {"shared", Order::kShared}};
  for (const auto& [name, order] : kWords) {
    if (name == word) return order;
  }
  return Order::kRandom;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("frontier", "speed and memory at a live size, a mix of sizes, an order of frees",
                 argc, argv);
  const uint64_t live = args.bytes("live", 16 << 20, 16 << 20, 64 << 10, uint64_t{1} << 40,
                                   "bytes that are live, of all threads together");
  const std::string_view sizes_text = args.text(
      "sizes", "16-512", "LOW-HIGH, log:LOW-HIGH, lognormal:MEDIAN, or nine as the lab's lfh");
  const Order order = order_of(args.choice(
      "order", {"random", "fifo", "hot", "lifo", "burst", "shared"}, "which block is freed next"));
  const bool write_all =
      args.choice("write", {"ends", "all"}, "what is written of a block") == "all";
  const auto threads =
      static_cast<unsigned>(args.number("threads", 1, 1, 1, kMostSeats, "how many threads"));
  const uint64_t operations =
      args.number("operations", 2'000'000, 8'000'000, 1, uint64_t{1} << 40,
                  "blocks allocated after the fill, of all threads together");
  const uint64_t samples = args.number("samples", 16, 16, 1, 10'000, "checkpoints after the fill");
  args.done();

  const Sizes sizes(sizes_text);
  const Plan plan{sizes, order, write_all};
  if (live / threads < 2 * sizes.largest()) {
    fail(kExitUsage, "frontier: --live is less than two of the largest blocks a thread");
  }
  Table<Holder> holders(threads);
  Shared shared;
  const bool is_shared = order == Order::kShared;
  if (is_shared) {
    shared.set(plan, live, args.seed(), threads);
  } else {
    for (unsigned t = 0; t < threads; ++t) holders[t].set(plan, live / threads, args.seed(), t);
  }

  const uint64_t part = std::max<uint64_t>(1, operations / samples / threads);
  bool filled = false;
  bench::Crew crew(threads, [&](unsigned me) {
    if (is_shared) {
      filled ? shared.work(me, part) : shared.fill(me);
    } else {
      filled ? holders[me].work(part) : holders[me].fill();
    }
  });
  const auto live_now = [&] {
    if (is_shared) return shared.live();
    uint64_t sum = 0;
    for (auto& h : holders) sum += h.live();
    return sum;
  };

  Recorder recorder(args);
  const Heat touch = heat(2 * live);
  recorder.start()
      .add("mean_size", sizes.mean())
      .add("touch_ns", touch.first_ns)
      .add("touch_again_ns", touch.again_ns);
  recorder.resume();
  crew.phase();
  recorder.checkpoint({.series = "fill", .x_unit = "samples", .live_bytes = live_now()});
  filled = true;
  uint64_t peak_live = live_now();
  for (uint64_t i = 0; i < samples; ++i) {
    recorder.resume();
    crew.phase();
    recorder.pause();
    peak_live = std::max(peak_live, live_now());
    recorder.checkpoint({.series = "steady",
                         .index = i,
                         .x = i + 1,
                         .x_unit = "samples",
                         .operations = part * threads,
                         .live_bytes = live_now()});
  }
  recorder.resume();
  Checksum all;
  if (!is_shared) {
    // A table that shrinks and grows has a peak of its own between two checkpoints.
    uint64_t sum = 0;
    for (auto& h : holders) {
      sum += h.peak_live();
      all.add(h.checksum());
    }
    peak_live = sum;
  } else {
    all.add(shared.checksum());
  }
  recorder.finish().add("peak_live_bytes", peak_live).hex("checksum", all.value());
  crew.end();
}
