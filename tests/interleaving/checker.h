// Every interleaving of a few short threads, over a model of the machine's memory.
//
//   each atomic operation is a step; a step may be any runnable thread's next operation, or the
//   oldest store that waits in a thread's store buffer reaching memory (as on x86-64; loads see
//   their own thread's buffer first)
//
//   plain data are Plain<T>: an access that no release/acquire pair orders with an earlier one is
//   a race (vector clocks), on whatever machine
//
// So a lost store-load order shows as a wrong result, a lost release or acquire as a race. Code
// under test is the real source, compiled with std::atomic replaced (real_code.h). A schedule is a
// list of choices; all are tried, depth first. weaken() takes an ordering away from the whole
// program, and the test that follows must then fail.
//
// Not modelled: loads that see older values than x86-64 would give (the race detector stands in for
// them), and spurious failures of compare_exchange_weak. Relaxed counters of 64 bits are no steps:
// nothing depends on them.
#ifndef LOAM_TESTS_INTERLEAVING_CHECKER_H
#define LOAM_TESTS_INTERLEAVING_CHECKER_H

#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace interleaving {

inline constexpr unsigned kMostThreads = 4;
using Clock = std::array<uint32_t, kMostThreads>;

struct Weakening {
  bool acquire = false;  ///< acquire loads are relaxed
  bool release = false;  ///< release stores are relaxed
  bool barrier = false;  ///< the barrier on all threads does nothing
};

class Checker {
 public:
  struct Result {
    uint64_t schedules = 0;
    std::string failure;  ///< empty: none
  };

  /// `make` builds the threads' bodies anew, and a check for the end. It is called for each
  /// schedule.
  using Make = std::function<std::vector<std::function<void()>>(std::function<void()>* at_end)>;
  static Result explore(const Make& make, Weakening weakening = {},
                        uint64_t most_schedules = 3'000'000) {
    Result result;
    std::vector<Choice> path;
    do {
      Checker checker(path, weakening);
      std::function<void()> at_end;
      checker.bodies_ = make(&at_end);
      checker.run();
      checker.over_ = true;
      if (checker.failure_.empty() && at_end) at_end();
      ++result.schedules;
      result.failure = checker.failure_;
      if (result.failure.empty() && result.schedules == most_schedules)
        result.failure = "too many schedules";
      current_ = nullptr;
      while (!path.empty() && ++path.back().taken == path.back().count) path.pop_back();
    } while (!path.empty() && result.failure.empty());
    return result;
  }

  static Checker& current() { return *current_; }
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  // ---- called by the threads
  // -------------------------------------------------------------------------

  template <class T>
  T load(const T* address, std::memory_order order) {
    yield();
    if (order != std::memory_order_relaxed && !weakening_.acquire)
      join(clock(), released_[address]);
    for (auto store = buffers_[running_].rbegin(); store != buffers_[running_].rend(); ++store) {
      if (store->address != address) continue;
      T value;
      memcpy(&value, &store->value, sizeof value);
      return value;
    }
    return *address;
  }

  template <class T>
  void store(T* address, T value, std::memory_order order) {
    yield();
    Store store{address, sizeof value, 0, publishes(order), clock()};
    memcpy(&store.value, &value, sizeof value);
    buffers_[running_].push_back(store);
    ++clock()[running_];
    if (order == std::memory_order_seq_cst) drain(running_);
  }

  /// Around a read-modify-write, which the caller does on memory.
  void before_change() {
    yield();
    drain(running_);
  }
  void changed(const void* address, std::memory_order order) {
    const bool acquires = order != std::memory_order_relaxed && order != std::memory_order_release;
    if (acquires && !weakening_.acquire) join(clock(), released_[address]);
    // The operation continues the release sequence of the store that it read.
    if (publishes(order)) join(released_[address], clock());
    ++clock()[running_];
    ++changes_;
  }

  void barrier_all() {
    yield();
    if (weakening_.barrier) return;
    for (unsigned t = 0; t < bodies_.size(); ++t) drain(t);
    // Every thread passes a full barrier: its earlier steps are before ours, and ours before its
    // later ones.
    for (unsigned t = 0; t < bodies_.size(); ++t) join(clock(), clocks_[t]);
    for (unsigned t = 0; t < bodies_.size(); ++t) join(clocks_[t], clock());
    ++clock()[running_];
  }

  /// Sleeps until another thread changes something.
  void pause() {
    waits_[running_] = changes_;
    yield();
  }
  /// Sleeps while the word holds the value, until woken.
  void sleep_while(const uint32_t* word, uint32_t value) {
    yield();
    if (*word != value) return;
    asleep_[running_] = word;
    yield();
  }
  void wake(const uint32_t* word) {
    yield();
    for (const uint32_t*& sleeper : asleep_) {
      if (sleeper != word) continue;
      sleeper = nullptr;
      return;
    }
  }

  void touch(Clock& reads, Clock& writes, bool write, const char* name) {
    const Clock& now = clock();
    for (unsigned t = 0; t < kMostThreads; ++t) {
      if (t == running_) continue;
      if (writes[t] > now[t] || (write && reads[t] > now[t]))
        fail(std::string("a race on ") + name);
    }
    (write ? writes : reads)[running_] = now[running_];
  }

 private:
  struct Choice {
    unsigned taken, count;
  };
  struct Store {
    void* address;
    size_t size;
    uint64_t value;
    bool publishes;
    Clock clock;
  };

  Checker(std::vector<Choice>& path, Weakening weakening) : path_(path), weakening_(weakening) {
    current_ = this;
    for (unsigned t = 0; t < kMostThreads; ++t) {
      clocks_[t][t] = 1;
      waits_[t] = kNotWaiting;
    }
  }

  bool publishes(std::memory_order order) const {
    return order != std::memory_order_relaxed && order != std::memory_order_acquire &&
           !weakening_.release;
  }
  Clock& clock() { return clocks_[running_]; }
  static void join(Clock& to, const Clock& from) {
    for (unsigned t = 0; t < kMostThreads; ++t) to[t] = std::max(to[t], from[t]);
  }

  void write_oldest(unsigned thread) {
    const Store store = buffers_[thread].front();
    buffers_[thread].pop_front();
    memcpy(store.address, &store.value, store.size);
    released_[store.address] = store.publishes ? store.clock : Clock{};
    ++changes_;
  }
  void drain(unsigned thread) {
    while (!buffers_[thread].empty()) write_oldest(thread);
  }

  bool runnable(unsigned t) const {
    return !done_[t] && asleep_[t] == nullptr &&
           (waits_[t] == kNotWaiting || waits_[t] != changes_);
  }

  unsigned choose(unsigned count) {
    if (count == 1) return 0;
    if (depth_ == path_.size()) path_.push_back({0, count});
    return path_[depth_++].taken;
  }

  void yield() {
    if (!over_) swapcontext(&contexts_[running_], &scheduler_);
  }

  void run() {
    const unsigned threads = static_cast<unsigned>(bodies_.size());
    for (unsigned t = 0; t < threads; ++t) {
      stacks_[t] = std::make_unique_for_overwrite<char[]>(kStack);
      getcontext(&contexts_[t]);
      contexts_[t].uc_stack.ss_sp = stacks_[t].get();
      contexts_[t].uc_stack.ss_size = kStack;
      contexts_[t].uc_link = &scheduler_;
      makecontext(&contexts_[t], reinterpret_cast<void (*)()>(&Checker::enter), 1, t);
    }
    for (;;) {
      unsigned steps[2 * kMostThreads], count = 0;
      for (unsigned t = 0; t < threads; ++t) {
        if (runnable(t)) steps[count++] = t;
      }
      for (unsigned t = 0; t < threads; ++t) {
        if (!buffers_[t].empty()) steps[count++] = kMostThreads + t;
      }
      if (count == 0) break;
      const unsigned step = steps[choose(count)];
      if (step >= kMostThreads) {
        write_oldest(step - kMostThreads);
        continue;
      }
      running_ = step;
      waits_[step] = kNotWaiting;
      swapcontext(&scheduler_, &contexts_[step]);
      if (!failure_.empty()) return;  // the stacks are released without being unwound
    }
    for (unsigned t = 0; t < threads; ++t) {
      if (!done_[t]) fail("thread " + std::to_string(t) + " waits for ever");
    }
  }
  static void enter(unsigned thread) {
    current_->bodies_[thread]();
    current_->done_[thread] = true;
  }

  static constexpr size_t kStack = 64 << 10;
  static constexpr uint64_t kNotWaiting = ~uint64_t{0};
  inline static Checker* current_ = nullptr;
  std::vector<Choice>& path_;
  size_t depth_ = 0;
  Weakening weakening_;
  std::vector<std::function<void()>> bodies_;
  std::unique_ptr<char[]> stacks_[kMostThreads];
  ucontext_t contexts_[kMostThreads], scheduler_;
  unsigned running_ = 0;
  bool over_ = false;  // the check at the end runs on no thread
  bool done_[kMostThreads] = {};
  const uint32_t* asleep_[kMostThreads] = {};
  uint64_t waits_[kMostThreads];
  uint64_t changes_ = 0;
  Clock clocks_[kMostThreads] = {};
  std::deque<Store> buffers_[kMostThreads];
  std::map<const void*, Clock> released_;
  std::string failure_;
};

/// Data that only the code's ordering protects.
template <class T>
class Plain {
 public:
  explicit Plain(const char* name, T value = T()) : name_(name), value_(value) {}
  void write(T value) {
    Checker::current().touch(reads_, writes_, true, name_);
    value_ = value;
  }
  T read() {
    Checker::current().touch(reads_, writes_, false, name_);
    return value_;
  }
  T after_all() const { return value_; }

 private:
  const char* name_;
  T value_;
  Clock reads_ = {}, writes_ = {};
};

}  // namespace interleaving

// In namespace std, because the code under test uses that name. Its size is that of T, because a
// futex waits on it.
namespace std {
template <class T>
class model_atomic {
 public:
  constexpr model_atomic(T value = T()) : value_(value) {}
  model_atomic(const model_atomic&) = delete;
  T load(memory_order order = memory_order_seq_cst) const {
    return is_step(order) ? checker().load(&value_, order) : value_;
  }
  void store(T value, memory_order order = memory_order_seq_cst) {
    if (!is_step(order)) {
      value_ = value;
    } else {
      checker().store(&value_, value, order);
    }
  }
  T exchange(T value, memory_order order) {
    return change(order, [&](T) { return value; });
  }
  T fetch_add(T more, memory_order order) {
    return change(order, [&](T old) { return static_cast<T>(old + more); });
  }
  T fetch_sub(T less, memory_order order) {
    return change(order, [&](T old) { return static_cast<T>(old - less); });
  }
  bool compare_exchange_strong(T& expected, T value, memory_order order) {
    return compare_exchange_strong(expected, value, order, order);
  }
  bool compare_exchange_strong(T& expected, T value, memory_order success, memory_order) {
    checker().before_change();
    if (value_ != expected) {
      expected = value_;
      return false;
    }
    value_ = value;
    checker().changed(&value_, success);
    return true;
  }
  bool compare_exchange_weak(T& expected, T value, memory_order success, memory_order failure) {
    return compare_exchange_strong(expected, value, success, failure);
  }
  bool compare_exchange_weak(T& expected, T value, memory_order order) {
    return compare_exchange_strong(expected, value, order, order);
  }
  T at_end() const { return value_; }

 private:
  static interleaving::Checker& checker() { return interleaving::Checker::current(); }
  static constexpr bool is_step(memory_order order) {
    return !(is_same_v<T, uint64_t> && order == memory_order_relaxed);
  }
  template <class Change>
  T change(memory_order order, Change next) {
    checker().before_change();
    const T old = value_;
    value_ = next(old);
    checker().changed(&value_, order);
    return old;
  }
  T value_;
};
}  // namespace std

#endif
