// The part of one thread: random calls on the default heap and on private ones, each checked.
#ifndef LOAM_TESTS_STRESS_HEAP_WORKER_H
#define LOAM_TESTS_STRESS_HEAP_WORKER_H

#include "places.h"

namespace stress {

class HeapWorker {
 public:
  HeapWorker(HeapsShared& shared, uint64_t number)
      : shared_(shared),
        number_(number),
        random_(mix(shared.seed) + number * kGolden),
        next_id_(number << 40) {}

  // The thread's part of the present phase.
  void run();

  // No other thread runs. Every block must hold its bytes, every heap's records must agree with
  // each other and with the model, and the process's figures must add up.
  void check_everything();
  void end_heaps();    // of all places except the default heap's
  void free_blocks();  // all remaining ones

  [[noreturn, gnu::format(printf, 2, 3)]] void fail(const char* format, ...);

 private:
  void step();
  void use_place(Place& place);
  void use_slot(Place& place);
  void use_heap(Place& place);

  void create(Place& place);
  void destroy(Place& place);
  void lock_and_look(Place& place);
  void walk(Place& place, bool step_by_step);
  void ask_wrongly(Place& place, Slot& slot);
  void fork_child();
  [[noreturn]] void live_as_child(uint64_t seed);

  void make(Place& place, Slot& slot);
  void resize(Place& place, Slot& slot);
  void free_block(Place& place, Slot& slot);
  void adopt(Place& place, Slot& slot, Block block, bool zero);
  void verify(const Place& place, const Block& block);
  void may_fail(const Place& place, size_t bytes);
  static int on_failure(void* place, loam_heap* heap, size_t bytes);
  size_t pick_size();

  HeapsShared& shared_;
  const uint64_t number_;
  Random random_;
  uint64_t next_id_;
  uint64_t done_ = 0;
  AddressSet live_;
};

}  // namespace stress

#endif
