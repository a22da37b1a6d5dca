#include "heap/recording.h"

#include <loam/loam.h>

#include <cstring>

#include "base/bits.h"
#include "cache/cache_registry.h"
#include "hardening/hardening.h"
#include "heap/default_heap.h"
#include "heap/heap.h"
#include "observers/detours.h"
#include "observers/recording_request.h"
#include "observers/sampler.h"
#include "os/os.h"

namespace loam {

constinit Recording recording;

namespace {

void tell(const char* why) {
  size_t length = 0;
  while (why[length] != '\0' && length + 1 < sizeof recording_request.why) ++length;
  memcpy(recording_request.why, why, length);
  recording_request.why[length] = '\0';
}

// The addresses of blocks that caches hold: a walk of the heap shows them as live.
class HeldBlocks {
 public:
  ~HeldBlocks() {
    if (places_ != nullptr) os::release(places_, bytes());
  }
  // False when memory is refused.
  bool collect() {
    size_t count = 0;
    cache_registry.visit_held([&](void* const*, size_t blocks) { count += blocks; });
    bits_ = 10;
    while ((size_t{1} << bits_) < 2 * count) ++bits_;
    places_ = static_cast<uintptr_t*>(os::map_block(bytes(), os::granularity()));
    if (places_ == nullptr) return false;
    cache_registry.visit_held([&](void* const* blocks, size_t more) {
      for (size_t i = 0; i < more && count != 0; ++i, --count)
        *place_of(blocks[i]) = address(blocks[i]);
    });
    return true;
  }
  [[nodiscard]] bool has(const void* block) const { return *place_of(block) != 0; }

 private:
  static uintptr_t address(const void* block) { return reinterpret_cast<uintptr_t>(block); }
  size_t bytes() const { return sizeof(uintptr_t) << bits_; }
  // The place of the block, or the empty place where it may go. Half of the places are empty.
  uintptr_t* place_of(const void* block) const {
    const size_t last = (size_t{1} << bits_) - 1;
    size_t at = (address(block) >> 4) * 0x9e3779b97f4a7c15u >> (64 - bits_);
    while (places_[at] != 0 && places_[at] != address(block)) at = (at + 1) & last;
    return &places_[at];
  }

  uintptr_t* places_ = nullptr;
  unsigned bits_ = 0;
};

}  // namespace

bool Recording::enter() {
  // acquire: pairs with the tool's store, which follows its stores of the texts
  const uint32_t asked = recording_request.state.load(std::memory_order_acquire);
  if (LOAM_UNLIKELY(asked == RecordingRequest::kAsked || asked == RecordingRequest::kStopAsked))
    answer(asked);
  // acquire: nothing is read that the tool wrote before, but each request is answered once
  if (LOAM_UNLIKELY(recording_request.trim.load(std::memory_order_acquire) ==
                    RecordingRequest::kTrimAsked))
    answer_trim();
  if (state_.load(std::memory_order_relaxed) == State::kOff) {
    if (is_on_slow_path()) {
      leave_slow_path();
      // Recording may have begun meanwhile, and may have switched this thread before
      // leave_slow_path().
      if (LOAM_UNLIKELY(state_.load() != State::kOff)) take_slow_path();
    }
    return false;
  }
  for (;;) {
    if (!is_on_slow_path()) return false;
    mark_inside();
    // seq_cst, as in close(): either this thread sees that it must wait, or close() sees that it is
    // inside
    if (state_.load() != State::kClosed) return true;
    take_slow_path();
    os::sleep_ms(1);
    if (state_.load() == State::kOff) return enter();
  }
}

void Recording::leave() {
  const State state = state_.load(std::memory_order_relaxed);
  // The tool no longer drains the rings, so the recording ends although no stop was requested.
  if (LOAM_UNLIKELY(state == State::kOn && recorder_->is_on() == 0)) {
    uint32_t recorded = RecordingRequest::kRecording;
    recording_request.state.compare_exchange_strong(recorded, RecordingRequest::kStopAsked);
  }
  take_slow_path();
}

// The calling thread may hold locks of the program, and malloc_trim() takes long in a large heap.
void Recording::answer_trim() {
  uint32_t asked = RecordingRequest::kTrimAsked;
  if (!recording_request.trim.compare_exchange_strong(asked, RecordingRequest::kTrimming) ||
      os::start_thread(&trim))
    return;
  recording_request.trim.store(RecordingRequest::kTrimRefused);
}

void Recording::trim() {
  mark_inside();
  heap::trim_all();
  // The tool may have asked again.
  uint32_t trimming = RecordingRequest::kTrimming;
  recording_request.trim.compare_exchange_strong(trimming, RecordingRequest::kTrimIdle);
}

void Recording::answer(uint32_t asked) {
  const bool starts = asked == RecordingRequest::kAsked;
  // acq_rel: the new thread sees the texts
  if (!recording_request.state.compare_exchange_strong(
          asked, starts ? RecordingRequest::kStarting : RecordingRequest::kStopping,
          std::memory_order_acq_rel))
    return;
  if (os::start_thread(starts ? &begin : &end)) return;
  tell("the system refuses a thread");
  recording_request.state.store(starts ? RecordingRequest::kRefused : RecordingRequest::kRecording,
                                std::memory_order_release);
}

void Recording::begin() {
  // This thread's allocations are not calls of the program, and they must not wait.
  mark_inside();
  const char* const why = recording.try_begin();
  if (why != nullptr) {
    recording.state_.store(State::kOff);
    cache_registry.open_fast_paths();
    tell(why);
  }
  // release: pairs with the tool's reading of `why`
  recording_request.state.store(
      why != nullptr ? RecordingRequest::kRefused : RecordingRequest::kRecording,
      std::memory_order_release);
}

const char* Recording::load() {
  if (load_recorder == nullptr) return "this heap is built without the recorder";
  if (hardening.on() || sampler.on()) return "the heap is hardened, or samples its calls";
  if (recorder_ != nullptr) return nullptr;
  const char* why = nullptr;
  const Recorder* const found = load_recorder(recording_request.recorder, &why);
  if (found == nullptr) return why;
  if (found->version != Recorder::kVersion) return "the recorder is of another version";
  recorder_ = found;
  return nullptr;
}

const char* Recording::try_begin() {
  if (const char* why = load()) return why;
  state_.store(State::kSettling);
  if (!cache_registry.close_fast_paths()) return "this system can not switch threads over";
  os::sleep_ms(kSettleMs);
  // Blocks in stashes and queues would look like live blocks.
  static_cast<void>(default_small_heap.compact());
  if (!close()) return "a thread stays inside a call of the heap";
  if (const char* why = recorder_->begin(recording_request.folder)) return why;
  tell_live_blocks();
  state_.store(State::kOn);
  return nullptr;
}

// From here on no thread is inside a call. False: one thread stays inside.
bool Recording::close() {
  state_.store(State::kClosed);
  for (unsigned waited = 0; cache_registry.any_inside(); ++waited) {
    if (waited == kMostWaitMs) return false;
    os::sleep_ms(1);
  }
  return true;
}

void Recording::end() {
  mark_inside();
  // If a thread stays inside, the rings stay mapped, and it goes on writing records that are not
  // read.
  if (recording.close()) recording.recorder_->end();
  cache_registry.open_fast_paths();
  recording.state_.store(State::kOff);
  recording_request.state.store(RecordingRequest::kIdle, std::memory_order_release);
}

void Recording::tell_live_blocks() {
  HeldBlocks held;
  if (!held.collect()) return;
  loam_walk_entry entry{};
  entry.size = sizeof entry;
  while (default_heap::walk_next(&entry) == LOAM_OK) {
    if (entry.kind < LOAM_ENTRY_SMALL) continue;
    if (entry.kind == LOAM_ENTRY_SMALL && held.has(entry.address)) continue;
    recorder_->exists(entry.address, entry.bytes);
  }
}

void Recording::reset_after_fork() {
  // The thread that trims is not in the child.
  if (recording_request.trim.load(std::memory_order_relaxed) != RecordingRequest::kTrimIdle)
    recording_request.trim.store(RecordingRequest::kTrimIdle, std::memory_order_relaxed);
  if (state_.load(std::memory_order_relaxed) == State::kOff &&
      recording_request.state.load(std::memory_order_relaxed) == RecordingRequest::kIdle)
    return;
  state_.store(State::kOff, std::memory_order_relaxed);
  recording_request.state.store(RecordingRequest::kIdle, std::memory_order_relaxed);
  cache_registry.open_fast_paths();
}

}  // namespace loam
