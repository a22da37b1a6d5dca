// Recording a process that runs already (`loam record --pid`), decision 87; and a trim that the
// tool asks for in the same way (`loam trim`), which a thread of the heap makes.
//
//   off -> settling -> closed -> on -> closed -> off
//
//   settling   all threads take the slow path; nothing is recorded. Calls in a fast path end
//   closed     each thread waits before its next call; live blocks are recorded, or rings removed
//   on         each call is recorded
//
// While the state is not `off`, every thread's `fast_cache` is `unused_cache`, which serves
// nothing. So each call takes the slow path, which sees detours() and comes here. During a call
// `fast_cache` is another cache. This marks the heap's own calls as parts of that call, and shows
// other threads that this thread is inside.
//
//   inside(thread) = its fast_cache != &unused_cache        in the states closed and on
//
// The fast paths do nothing for recording, and the slow paths read detours() anyway. A thread of
// the heap begins and ends the recording. It loads libloam-record.so, which writes the rings.
#pragma once

#include <atomic>

#include "cache/thread_cache.h"

namespace loam {

/// The functions of libloam-record.so. native/recorder/attach.c has the same structure.
struct Recorder {
  static constexpr uint32_t kVersion = 1;
  uint32_t version;
  /// Begins to record, and returns null; else the reason for the refusal. pre: no thread is in one
  /// of the other functions
  const char* (*begin)(const char* folder);
  void (*end)();
  /// Whether the recording still goes on.
  int (*is_on)();
  void (*exists)(const void* block, size_t bytes);
  /// Alignment 0: the call requested none.
  void (*allocated)(const void* block, size_t bytes, size_t alignment);
  void (*frees)(void* block);
  void (*resize_begins)(void* block);
  void (*resize_ends)(void* block, size_t bytes);
};

class Recording {
 public:
  constexpr Recording() = default;

  /// Call at the begin of a program's call. False where the call is a part of another one, or
  /// nothing is recorded; then leave() must not be called. pre: (detours() & kRecorded) != 0
  [[nodiscard]] bool enter();
  void leave();
  /// The recorder of this call; null when the call is not recorded. pre: enter()
  [[nodiscard]] const Recorder* recorder() const {
    // relaxed: enter() saw the state, and the thread that changes it waits for this call
    return state_.load(std::memory_order_relaxed) == State::kOn ? recorder_ : nullptr;
  }

  /// In the child of a fork(), which is not recorded.
  void reset_after_fork();

  /// Bound: the time for calls that began in a fast path to end. A thread that lost the processor
  /// goes on within some milliseconds. If it does not, the trace may miss one of its calls.
  static constexpr unsigned kSettleMs = 20;
  /// Bound: the longest wait for the calls of other threads, until the recording is refused. No
  /// call takes a second.
  static constexpr unsigned kMostWaitMs = 5000;

 private:
  enum class State : uint8_t { kOff, kSettling, kClosed, kOn };
  static void answer_trim();
  static void trim();
  void answer(uint32_t asked);
  static void begin();
  static void end();
  [[nodiscard]] const char* load();
  [[nodiscard]] const char* try_begin();
  [[nodiscard]] bool close();
  void tell_live_blocks();

  std::atomic<State> state_{State::kOff};
  const Recorder* recorder_ = nullptr;
};

extern Recording recording;

/// A call of the program, from its begin to its end. pre: (detours() & kRecorded) != 0
class RecordedCall {
 public:
  RecordedCall() : is_outer_(recording.enter()) {}
  ~RecordedCall() {
    if (is_outer_) recording.leave();
  }
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;
  /// Null when the call is not recorded.
  [[nodiscard]] const Recorder* recorder() const {
    return is_outer_ ? recording.recorder() : nullptr;
  }

 private:
  bool is_outer_;
};

/// The api layer defines it, if that layer is linked. Null: `*why` has the reason.
__attribute__((weak)) const Recorder* load_recorder(const char* file, const char** why);

}  // namespace loam
