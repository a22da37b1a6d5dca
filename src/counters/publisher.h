// Publishing (LOAM_PUBLISH): images of the counters (formats/counters.md) in a file, for readers
// that the system does not let look into the process. An option: a thread writes one every
// kPeriodMs, whatever the program does.
//
//   FOLDER/PID.image     FOLDER: the option's value if it begins with "/", else $XDG_RUNTIME_DIR/loam, else /tmp/loam-UID
//
// The folder is the user's own and closed to others, no link leads to it, and nobody else can put
// another in its place: or nothing is published. Each image is written beside the old one and takes
// its name at once; a lock on it says that its process lives, and images without one are removed by
// whoever publishes there (decision 70). All of the heap's locks are held while figures are copied,
// and none while they are written.
#pragma once

#include <atomic>

#include "base/config.h"
#include "os/os.h"

namespace loam {

class Publisher {
 public:
  constexpr Publisher() = default;

  /// Chosen: a view that is drawn ten times a second looks alive at half of that. More often costs
  /// more of a core.
  static constexpr unsigned kPeriodMs = 200;

  /// Between the two all figures stand still: every lock of every heap, in order. The heap above
  /// has them.
  struct Pause {
    void (*begin)();
    void (*end)();
  };

  /// From now on, if `where` (the option's value) leads to a folder of ours; false, and a line, if
  /// not.
  void enable(const char* where, const Pause& pause);

  /// From slow paths that hold no lock: starts the thread in the child of a fork().
  LOAM_INLINE void poke() {
    // relaxed: start() decides again with an exchange
    if (LOAM_LIKELY(!is_idle())) return;
    start();
  }

  /// Whether poke() starts the thread.
  [[nodiscard]] LOAM_INLINE bool is_idle() const {
    return state_.load(std::memory_order_relaxed) == State::kIdle;
  }

  /// In the child of fork(): it has another number, and no such thread.
  void reset_after_fork() {
    if (state_.load(std::memory_order_relaxed) == State::kOff) return;
    is_child_ = true;
    writes_.store(false, std::memory_order_relaxed);
    os::forget_files_after_fork();
    state_.store(State::kIdle, std::memory_order_relaxed);
  }

  /// At the program's end: the file goes, and with it those of processes that could not remove
  /// theirs.
  void stop();

 private:
  enum class State : uint8_t { kOff, kIdle, kStarted, kFailed };
  LOAM_NOINLINE void start();
  static void run();
  void write_one();
  bool make_room(size_t bytes);
  void name_file();

  std::atomic<State> state_{State::kOff};
  std::atomic<bool> writes_{false};  // the thread, at this moment
  bool is_child_ = false;            // of a fork()
  // Not beside what every program reads at its end.
  static char folder_[256];
  static char name_[32];
  static Pause pause_;
  char* buffer_ = nullptr;
  size_t room_ = 0;
  uint64_t generation_ = 0;
};

extern Publisher publisher;

}  // namespace loam
