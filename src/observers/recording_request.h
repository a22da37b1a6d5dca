// The requests of `loam record --pid` and `loam trim` to this process, and the heap's answers. The
// tool writes into this process's memory (formats/counters.md has the layout). All bytes are zero
// until the tool asks, and in a program that is not recorded no page of it is touched.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

/// The version of this layout and of the states' meanings.
inline constexpr uint32_t kRecordingVersion = 1;
/// The version of `trim`.
inline constexpr uint32_t kTrimVersion = 1;

struct RecordingRequest {
  /// The tool sets kAsked and kStopAsked; the heap sets the others.
  enum State : uint32_t {
    kIdle,
    kAsked,
    kStarting,
    kRecording,
    kStopAsked,
    kStopping,
    kRefused,  ///< `why` says why
  };
  std::atomic<uint32_t> state;
  /// The tool sets kTrimAsked, where kTrimIdle or kTrimRefused is; the heap sets the others.
  enum Trim : uint32_t {
    kTrimIdle,
    kTrimAsked,
    kTrimming,
    kTrimRefused,  ///< the system refuses a thread
  };
  std::atomic<uint32_t> trim;
  char recorder[1024];  ///< libloam-record.so
  char folder[512];     ///< the folder for the rings
  char why[248];
};
static_assert(sizeof(RecordingRequest) == 8 + 1024 + 512 + 248);

extern RecordingRequest recording_request;

}  // namespace loam
