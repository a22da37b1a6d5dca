// Publishing (LOAM_PUBLISH): images of the counters (formats/counters.md) in a file, for readers
// that the system does not allow to read the process's memory. It is an option: a thread writes an
// image every kPeriodMs, whatever the program does.
//
//   FOLDER/PID.image     FOLDER: the option's value if it begins with "/", else
//                        $XDG_RUNTIME_DIR/loam, else /tmp/loam-UID
//
// On Windows it is a named mapping instead (os/windows_publish.cpp), and Performance Monitor shows
// the process's figures.
//
// The folder must be the user's own and closed to other users, no link may lead to it, and no other
// user may be able to replace it; otherwise nothing is published. Each image is written beside the
// old one and then takes its name in one step. A lock on the image says that its process lives;
// publishing processes remove images without a lock (decision 70). All of the heap's locks are held
// while figures are copied, and none while they are written.
#pragma once

#include <atomic>

#include "base/config.h"
#include "os/os.h"

namespace loam {

class Publisher {
 public:
  constexpr Publisher() = default;

  /// Chosen: a view that is drawn ten times a second looks alive at half of that. A shorter period
  /// costs more of a core.
  static constexpr unsigned kPeriodMs = 200;

  /// All figures stand still between its two functions, which take and release every lock of every
  /// heap, in order. The heap layer provides them.
  struct Pause {
    void (*begin)();
    void (*end)();
  };

  /// Publishes from now on, if `where` (the option's value) leads to a folder of the user;
  /// otherwise it writes a line and returns false.
  void enable(const char* where, const Pause& pause);

  /// Call from slow paths that hold no lock: starts the thread in the child of a fork().
  LOAM_INLINE void poke() {
    // relaxed: start() decides again with an exchange
    if (LOAM_LIKELY(!is_idle())) return;
    start();
  }

  /// True if poke() starts the thread.
  [[nodiscard]] LOAM_INLINE bool is_idle() const {
    return state_.load(std::memory_order_relaxed) == State::kIdle;
  }

  /// For the child of fork(), which has another process number and no such thread.
  void reset_after_fork() {
    if (state_.load(std::memory_order_relaxed) == State::kOff) return;
    is_child_ = true;
    writes_.store(false, std::memory_order_relaxed);
    os::forget_files_after_fork();
    state_.store(State::kIdle, std::memory_order_relaxed);
  }

  /// Call at the program's end: removes the image, and the images that ended processes left behind.
  void stop();

 private:
  enum class State : uint8_t { kOff, kIdle, kStarted, kFailed };
  LOAM_NOINLINE void start();
  static void run();
  void write_one();
  bool make_room(size_t bytes);
  void name_file();

  std::atomic<State> state_{State::kOff};
  std::atomic<bool> writes_{false};  // the thread is writing now
  bool is_child_ = false;            // of a fork()
  // Apart from the data that every program reads at its end.
  static char folder_[256];
  static char name_[32];
  static Pause pause_;
  char* buffer_ = nullptr;
  size_t room_ = 0;
  uint64_t generation_ = 0;
};

extern Publisher publisher;

}  // namespace loam
