// One worker: a thread that makes random operations, each checked against the model.
#ifndef LOAM_TESTS_STRESS_WORKER_H
#define LOAM_TESTS_STRESS_WORKER_H

#include <cstddef>
#include <cstdint>

#include "random.h"
#include "shared.h"

namespace stress {

class Worker {
 public:
  Worker(Shared& shared, uint64_t number);

  // Performs `operations` operations, or fewer if the time is up.
  void run(uint64_t operations);

  // Verifies and frees all remaining blocks in the slots.
  void free_everything();

  // Ends the process with a line that says what went wrong and how to repeat it.
  [[noreturn, gnu::format(printf, 2, 3)]] void fail(const char* format, ...);

  uint64_t number() const { return number_; }
  uint64_t done() const { return done_; }
  const Shared& shared() const { return shared_; }

 private:
  void step();
  void allocate(Slot& slot);
  void use(Slot& slot);
  void resize(Slot& slot);
  void refuse_absurd(Slot& slot);
  void fork_child();
  [[noreturn]] void live_as_child(uint64_t seed);

  bool request(Block& block);  // makes a block; false if memory ran out and may do so
  void adopt(Slot& slot, Block block);
  void verify(const Block& block);
  void release_block(Slot& slot);
  void check_zero(const Block& block);
  bool refused(const char* what, int error, size_t size);
  size_t pick_size();
  size_t pick_alignment();
  void note(const char* what, size_t size, size_t alignment);

  Shared& shared_;
  const uint64_t number_;
  Random random_;
  uint64_t done_ = 0;
  uint64_t next_id_;
  uint64_t digest_ = 0;
  size_t slot_ = 0;  // of the present operation
};

// The worker that the calling thread runs, or null: for the message after a fatal signal.
Worker* current_worker();

}  // namespace stress

#endif
