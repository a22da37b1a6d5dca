// The prepared replay, which `loam replay` makes of a trace and this program runs. It is a private
// interface between one version of the tool and this program (tool/loam-cli/src/replay/program.rs
// is the other side). Both check the version.
//
//   0       head (128 bytes)
//   128     segments, in the order in which the tool filled them:
//             | next (u64) | operations (u64) | operations, 16 bytes each |
//   ...     samples, 64 bytes each
//   ...     threads: the offset of each one's first segment (u64)
//
//   operation   word 0:   63     32 31        16 15 14 13       8 7      4 3    0
//                        +---------+------------+-----+----------+--------+------+
//                        |  slot   | generation | life| alignment| family | kind |
//                        +---------+------------+-----+----------+--------+------+
//               word 1:   63           40 39                                   0
//                        +---------------+--------------------------------------+
//                        | touched pages |  bytes                               |
//                        +---------------+--------------------------------------+
//
// alignment: its logarithm, 0: none. life: the block's class of lifetime, from 0 (short, or not
// requested) to 3 (to the end), in every operation of the block. touched pages: for blocks of two
// pages and more; all ones: all pages. Word 1 of a `time` is nanoseconds of the recording, and of a
// `trim` the bytes to keep. The slot of a `start` is the thread, and of a `sample` the sample. A
// `touch` has two numbers of pages in word 1: from the low half, up to the high half. A thread's
// stream is read with pread into a buffer of its own: a mapping would fault and count as memory.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "harness/system.h"

namespace replay {

inline constexpr char kMagic[8] = {'L', 'O', 'A', 'M', 'R', 'P', 'L', '\n'};
inline constexpr uint64_t kVersion = 3;

struct Head {
  char magic[8];
  uint64_t version;
  uint64_t slots;
  uint64_t threads;       // in all
  uint64_t most_threads;  // at once
  uint64_t samples;
  uint64_t samples_at;
  uint64_t threads_at;
  uint64_t operations;
  uint64_t allocations;  // blocks handed out, and resizes
  uint64_t page_bytes;   // of the recorded machine
  uint64_t has_times;
  uint64_t reserved[4];
};
static_assert(sizeof(Head) == 128, "the tool writes this many bytes");

struct SamplePoint {
  uint64_t time_ns;     // of the recording
  uint64_t events;      // of the trace before it
  uint64_t live_bytes;  // the expected sum over the threads
  uint64_t live_blocks;
  uint64_t recorded_heap;  // kUnknown: no look of the recorder
  uint64_t participants;   // threads that meet here
  uint64_t classify;       // whether the heap's mappings are told from other mappings
  uint64_t ended;          // threads that ended before it
};
static_assert(sizeof(SamplePoint) == 64, "the tool writes this many bytes");
inline constexpr uint64_t kUnknown = ~uint64_t{0};

enum class Kind : uint8_t {
  kAllocate = 1,
  kFree = 2,
  kResize = 3,  // the next operation is kOld: the bytes it had
  kOld = 4,
  kStart = 5,
  kSample = 6,
  kTime = 7,
  kEnd = 8,
  kTouch = 9,
  kTrim = 10,
};

struct Operation {
  uint64_t word0, word1;

  Kind kind() const { return static_cast<Kind>(word0 & 15); }
  unsigned family() const { return (word0 >> 4) & 15; }
  unsigned lifetime() const { return (word0 >> 14) & 3; }
  unsigned alignment_log() const { return (word0 >> 8) & 63; }
  uint64_t generation() const { return (word0 >> 16) & 0xffff; }
  uint32_t slot() const { return static_cast<uint32_t>(word0 >> 32); }
  uint64_t bytes() const { return word1 & ((uint64_t{1} << 40) - 1); }
  uint64_t touched() const { return word1 >> 40; }
};
inline constexpr uint64_t kAllTouched = (uint64_t{1} << 24) - 1;

// Reads `bytes` at `offset`, or ends the process.
inline void read_at(int file, void* to, uint64_t bytes, uint64_t offset) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(file, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      lab::fail(lab::kExitFailed, "replay: the prepared replay can not be read: ",
                n < 0 ? strerror(errno) : "it ends too early; run `loam replay` again");
    }
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
}

// A thread's operations, one after the other.
class Stream {
 public:
  static constexpr uint64_t kOperations = 1024;  // most of a segment

  void open(int file, uint64_t first_segment) {
    file_ = file;
    next_ = first_segment;
    at_ = count_ = 0;
  }

  // Null when the stream has ended.
  const Operation* next() {
    if (at_ == count_ && !refill()) return nullptr;
    return &buffer_[at_++];
  }

 private:
  bool refill() {
    if (next_ == 0) return false;
    uint64_t head[2];
    read_at(file_, head, sizeof head, next_);
    if (head[1] == 0 || head[1] > kOperations) {
      lab::fail(lab::kExitFailed,
                "replay: the prepared replay is damaged; run `loam replay` again");
    }
    read_at(file_, buffer_, head[1] * sizeof(Operation), next_ + sizeof head);
    next_ = head[0];
    count_ = head[1];
    at_ = 0;
    return true;
  }

  int file_ = -1;
  uint64_t next_ = 0, at_ = 0, count_ = 0;
  Operation buffer_[kOperations];
};

}  // namespace replay
