#include "scheduler.h"

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace cores {

Scheduler::Scheduler(unsigned threads, unsigned quantum, uint64_t seed)
    : seats_(threads), random_(seed), quantum_(quantum) {
  for (Seat& seat : seats_) sem_init(&seat.turn, 0, 0);
}

unsigned Scheduler::choose() {
  runnable_.clear();
  for (unsigned i = 0; i < seats_.size(); ++i) {
    Seat& seat = seats_[i];
    if (seat.ended) continue;
    if (seat.word != nullptr && __atomic_load_n(seat.word, __ATOMIC_SEQ_CST) == seat.value)
      continue;
    runnable_.push_back(i);
  }
  if (runnable_.empty()) {
    fprintf(stderr,
            "coherence: every thread waits for another; the model misses a way to wake one\n");
    abort();
  }
  const unsigned next = runnable_[random_.below(static_cast<uint32_t>(runnable_.size()))];
  seats_[next].word = nullptr;
  seats_[next].left = 1 + random_.below(2 * quantum_);
  return next;
}

void Scheduler::hand_over(unsigned me) {
  const unsigned next = choose();
  if (next == me) return;
  sem_post(&seats_[next].turn);
  sem_wait(&seats_[me].turn);
}

void Scheduler::wait_while_equal(unsigned me, const uint32_t* word, uint32_t value) {
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) return;
  seats_[me].word = word;
  seats_[me].value = value;
  hand_over(me);
}

void Scheduler::wake(const uint32_t* word, unsigned most) {
  for (Seat& seat : seats_) {
    if (most == 0) return;
    if (seat.word != word) continue;
    seat.word = nullptr;
    --most;
  }
}

void Scheduler::meet(unsigned me, const std::function<void()>& last) {
  const uint32_t meeting = meeting_;
  if (++arrived_ == seats_.size()) {
    arrived_ = 0;
    last();
    ++meeting_;
  }
  while (meeting_ == meeting) wait_while_equal(me, &meeting_, meeting);
}

void Scheduler::run(const std::function<void(unsigned)>& body, const std::function<void()>& leave) {
  std::vector<std::thread> threads;
  sem_t all_left;
  sem_init(&all_left, 0, 0);
  unsigned running = static_cast<unsigned>(seats_.size());
  for (unsigned i = 0; i < seats_.size(); ++i) {
    threads.emplace_back([&, i] {
      sem_wait(&seats_[i].turn);
      body(i);
      leave();
      seats_[i].ended = true;
      sem_post(--running != 0 ? &seats_[choose()].turn : &all_left);
      sem_wait(&seats_[i].turn);
    });
  }
  sem_post(&seats_[choose()].turn);
  sem_wait(&all_left);
  for (unsigned i = 0; i < seats_.size(); ++i) {
    sem_post(&seats_[i].turn);
    threads[i].join();
  }
}

}  // namespace cores
