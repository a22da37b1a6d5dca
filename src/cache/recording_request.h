// What `loam record --pid` asks of this process, and what the heap answers: the tool writes into
// this process's memory (formats/counters.md has the layout). All zero until somebody asks, and in
// a program that nobody records no page of it is touched.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

/// Of this layout and of what the states mean.
inline constexpr uint32_t kRecordingVersion = 1;

struct RecordingRequest {
  /// kAsked and kStopAsked are the tool's, the others the heap's.
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
  uint32_t reserved;
  char recorder[1024];  ///< libloam-record.so
  char folder[512];     ///< where the rings are to lie
  char why[248];
};
static_assert(sizeof(RecordingRequest) == 8 + 1024 + 512 + 248);

extern RecordingRequest recording_request;

}  // namespace loam
