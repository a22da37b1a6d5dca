// Runs a program against the heap and the model, and checks after each operation. Ends the process
// with a line when something is wrong.
//
// One thread runs at a time: an operation is passed to its thread, and the runner waits for it. So
// a program always does the same. tests/interleaving and tests/stress test threads that meet within
// a call.
#ifndef LOAM_TESTS_FUZZ_RUNNER_H
#define LOAM_TESTS_FUZZ_RUNNER_H

#include <pthread.h>
#include <semaphore.h>

#include "model.h"

namespace fuzz {

class Runner {
 public:
  Runner(const HeapCalls& calls, const Program& program, bool trace);
  void run();

 private:
  struct Worker {
    Runner* runner = nullptr;
    pthread_t thread = {};
    sem_t wanted, done;
    void (*body)(Runner&, const Operation&) = nullptr;
    const Operation* operation = nullptr;
    bool exists = false;
    bool ends = false;
  };
  using Body = void (*)(Runner&, const Operation&);

  // runner.cpp: threads, the process, and the checks
  void settings();
  void run_from(size_t first);
  void step(const Operation& operation);
  void on_thread(unsigned thread, Body body, const Operation& operation);
  static void* live(void* worker);
  void give_up_locks();
  void end_thread(unsigned thread, const Operation& operation);
  void fork_child();
  void finish();
  void check(bool all);
  void check_figures();
  void check_contents(bool all);
  void check_heap(unsigned heap);
  template <class Action>
  void outside(Action action);
  [[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const char* format, ...);

  // operations.cpp
  static void perform(Runner& runner, const Operation& operation);
  void make(const Operation& operation);
  void end(const Operation& operation);
  void resize(const Operation& operation);
  void ask(const Block& block);
  void ask_anywhere(const Operation& operation);
  void bad_free(const Operation& operation);
  void stale_free(const Operation& operation);
  void fill_group(const Operation& operation);
  void thin_group(const Operation& operation);
  void drop_group(unsigned group);
  void free_block(Block& block, Op how, size_t bytes);
  void* call_resize(const Operation& operation, const Block& block, size_t bytes, size_t alignment);
  void end_slot(unsigned slot);
  void adopt(Block& to, Block block, bool zero_asked, bool zero_usable);
  [[nodiscard]] bool may_fail(unsigned heap, size_t bytes, size_t alignment) const;
  [[nodiscard]] bool blocked(unsigned heap) const;
  [[nodiscard]] bool has_room(size_t bytes) const;

  // windows_operations.cpp
  void perform_on_windows(const Operation& operation);
  void win_make_heap(const Operation& operation);
  void win_alloc(const Operation& operation);
  void win_ask(const Block& block);
  void win_use_heap(unsigned heap, uint64_t what);
  void win_aligned(const Operation& operation);

  // heap_operations.cpp
  void perform_on_heap(const Operation& operation);
  void make_heap(const Operation& operation);
  void destroy_heap(unsigned heap, bool windows = false);
  void lock_heap(unsigned heap, Op how);
  void walk(unsigned heap, bool step_by_step);
  void statistics();
  static int on_failure(void* context, loam_heap* heap, size_t bytes);

  const HeapCalls& calls_;
  const System* const system_;
  const Program& program_;
  const bool trace_;
  Model model_;
  Worker workers_[kThreads];
  unsigned home_ = 0;     // the thread that runs the program
  unsigned current_ = 0;  // the thread that operations run on
  size_t position_ = 0;
  unsigned forks_ = 0;
  bool in_child_ = false;
  bool contended_ = false;
  bool has_process_heap_ = false;  // Windows' process heap, which stays
  bool heavy_ = false;             // the present operation moved much: check all
  unsigned rotation_ = 0;
  uint64_t refusals_before_ = 0;
  bool refusing_ = false;
  const Block* busy_ = nullptr;  // the block that the present operation resizes
  uint64_t base_blocks_ = 0;     // blocks that were live before, on the shipped library
  uint64_t base_bytes_ = 0;
  size_t page_ = 4096;
  bool hardened_ = false;  // the default heap keeps more than the program has
  std::vector<const char*> options_;
  std::vector<std::string> option_texts_;
};

}  // namespace fuzz

#endif
