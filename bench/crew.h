// A crew of threads that works in phases. Every thread runs the same body once a phase, and the
// main thread measures between phases while all threads wait. With one thread no thread is started:
// the body runs on the main thread, as in a single-threaded program.
#pragma once

#include <pthread.h>

#include <type_traits>

#include "harness/system.h"
#include "harness/threads.h"

namespace bench {

template <typename Body>  // void body(unsigned me)
class Crew {
 public:
  Crew(unsigned threads, Body body)
      : threads_(threads), body_(body), barrier_(threads + 1), handles_(threads), seats_(threads) {
    for (unsigned t = 0; t < threads_; ++t) seats_[t] = {this, t};
    if (threads_ == 1) return;
    for (unsigned t = 0; t < threads_; ++t) {
      handles_[t] = lab::start_thread<Seat, &Crew::sit>(seats_[t]);
    }
  }
  Crew(const Crew&) = delete;
  ~Crew() { end(); }

  // Returns when every thread has run the body.
  void phase() {
    if (threads_ == 1) return body_(0);
    barrier_.wait();
    barrier_.wait();
  }

  // Threads end and are joined. The heap empties their caches.
  void end() {
    if (ended_ || threads_ == 1) return;
    ended_ = true;
    barrier_.wait();
    for (auto& h : handles_) lab::join_thread(h);
  }

 private:
  struct Seat {
    Crew* crew;
    unsigned me;
  };
  static_assert(std::is_trivially_copyable_v<Seat>, "it lives in mapped memory");

  static void sit(Seat& seat) {
    Crew& crew = *seat.crew;
    for (;;) {
      crew.barrier_.wait();
      if (crew.ended_) return;  // written before the barrier that this thread just left
      crew.body_(seat.me);
      crew.barrier_.wait();
    }
  }

  unsigned threads_;
  Body body_;
  lab::Barrier barrier_;
  lab::Table<pthread_t> handles_;
  lab::Table<Seat> seats_;
  bool ended_ = false;
};

}  // namespace bench
