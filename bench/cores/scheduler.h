// Threads that run one at a time, each on a core of its own as far as the model knows.
//
// One thread holds the baton. step() counts its accesses; after a random number of them, drawn from
// a seed, the baton goes to a thread that is drawn among the runnable ones. A thread that waits
// gives the baton away at once, and is runnable again when the word that it waits for has another
// value or was woken. So the same seed gives the same order of accesses.
#pragma once

#include <semaphore.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "harness/random.h"

namespace cores {

class Scheduler {
 public:
  /// `quantum`: the mean number of accesses before another thread may run.
  Scheduler(unsigned threads, unsigned quantum, uint64_t seed);

  /// Runs body(core) and then leave() in each thread. Threads end one after the other after all
  /// have left, so that no count includes the end of a thread.
  void run(const std::function<void(unsigned)>& body, const std::function<void()>& leave);

  void step(unsigned me) {
    ++steps_;
    if (--seats_[me].left == 0) hand_over(me);
  }
  void yield(unsigned me) { hand_over(me); }
  void wait_while_equal(unsigned me, const uint32_t* word, uint32_t value);
  void wake(const uint32_t* word, unsigned most);
  /// Returns when every thread is here; `last` runs once before that.
  void meet(unsigned me, const std::function<void()>& last);

  /// The clock: each core makes an access in a nanosecond.
  uint64_t now_ns() const { return steps_ / seats_.size(); }

 private:
  struct Seat {
    sem_t turn;
    uint32_t left = 1;
    const uint32_t* word = nullptr;  // the thread waits while this word has `value`
    uint32_t value = 0;
    bool ended = false;
  };

  unsigned choose();
  void hand_over(unsigned me);

  std::vector<Seat> seats_;
  std::vector<unsigned> runnable_;
  lab::Random random_;
  unsigned quantum_;
  uint64_t steps_ = 0;
  uint32_t arrived_ = 0, meeting_ = 0;
};

}  // namespace cores
