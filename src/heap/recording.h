// Recording a process that runs already (`loam record --pid`), decision 87.
//
//   off -> settling -> closed -> on -> closed -> off
//
//   settling   all threads take the slow path; nothing is recorded. Calls that were in a fast path end
//   closed     each thread waits in front of its next call; live blocks are told, or the rings go
//   on         each call is recorded
//
// While the state is not `off`, every thread's `fast_cache` is `unused_cache`, which serves
// nothing: so each call takes the slow path, which sees detours() and comes here. In a call
// `fast_cache` is another cache: then calls that the heap makes of itself are parts of that call,
// and others see that the thread is inside.
//
//   inside(thread) = its fast_cache != &unused_cache        in the states closed and on
//
// The fast paths know nothing of this, and the slow paths read detours(), as they do anyway. A
// thread of the heap's own does the work. libloam-record.so, which that thread loads, writes the
// rings.
#pragma once

#include <atomic>

#include "cache/thread_cache.h"

namespace loam {

/// What libloam-record.so offers: native/recorder/attach.c has the same.
struct Recorder {
  static constexpr uint32_t kVersion = 1;
  uint32_t version;
  /// Null: it records from now on. Else why not. pre: no thread is in one of the others
  const char* (*begin)(const char* folder);
  void (*end)();
  /// Whether there is still somebody who records.
  int (*is_on)();
  void (*exists)(const void* block, size_t bytes);
  /// Alignment 0: none was asked for.
  void (*allocated)(const void* block, size_t bytes, size_t alignment);
  void (*frees)(void* block);
  void (*resize_begins)(void* block);
  void (*resize_ends)(void* block, size_t bytes);
};

class Recording {
 public:
  constexpr Recording() = default;

  /// A call of the program begins. False: it is a part of another one, or nothing is recorded. Then
  /// leave() must not be called. pre: (detours() & kRecorded) != 0
  [[nodiscard]] bool enter();
  void leave();
  /// What to tell of the call. pre: enter()
  [[nodiscard]] const Recorder* recorder() const {
    // relaxed: enter() saw the state, and whoever changes it waits for this call
    return state_.load(std::memory_order_relaxed) == State::kOn ? recorder_ : nullptr;
  }

  /// In the child of a fork(), which is not recorded.
  void reset_after_fork();

  /// How long calls may take that began in a fast path. Chosen: a thread that the system has taken
  /// the processor from goes on within some milliseconds; one that does not may have one call
  /// missing in the trace.
  static constexpr unsigned kSettleMs = 20;
  /// How long the heap waits for the calls of other threads. Chosen: no call takes a second.
  static constexpr unsigned kMostWaitMs = 5000;

 private:
  enum class State : uint8_t { kOff, kSettling, kClosed, kOn };
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
  /// Null: nothing is to be told.
  [[nodiscard]] const Recorder* recorder() const {
    return is_outer_ ? recording.recorder() : nullptr;
  }

 private:
  bool is_outer_;
};

/// The api's, if it is linked. Null: `*why` says why not.
__attribute__((weak)) const Recorder* load_recorder(const char* file, const char** why);

}  // namespace loam
