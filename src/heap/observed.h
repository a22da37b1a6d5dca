// Calls that somebody watches, or that another heap than the plain one serves. The slow paths come
// here where detours() says so; in a program that asked for nothing it is zero.
//
//   program -> recorder -> probes -> who serves: hardened, guards, or plain -> counts -> the cache
//
// kObserverRows has for each observer what it watches; AroundCalls and AroundPlain have their
// order. To add an observer, write its class (observers/call.h), and give it a row and a place here
// (docs/walkthrough.md shows one).
#pragma once

#include "cache/thread_cache.h"
#include "heap/recording.h"
#include "observers/call.h"
#include "observers/memory_probes.h"
#include "os/os.h"
#include "private/private_heap.h"

namespace loam {

template <class... Each>
constexpr uint16_t operations(Each... each) {
  return static_cast<uint16_t>((0u | ... | (1u << static_cast<unsigned>(each))));
}

struct ObserverRow {
  Detour detour;
  bool serves;          ///< it may give or take the block itself, instead of the plain heap
  uint16_t operations;  ///< what it watches, or serves
  char name[10];
  char what[56];
};
using enum Operation;
/// From the program inwards.
inline constexpr ObserverRow kObserverRows[] = {
    {kRecorded, false,
     operations(kAllocate, kAllocatePages, kAllocateAligned, kFree, kFreePages, kReallocate,
                kTryResize),
     "recorder", "writes each call of the program into a trace"},
    {kProbed, false,
     operations(kAllocate, kAllocatePages, kFree, kFreePages, kStay, kResizeRun, kMove), "probes",
     "tells a profiler of a sample of blocks"},
    {kHardened, true,
     operations(kAllocate, kAllocatePages, kFree, kFreePages, kReallocate, kTryResize), "hardened",
     "the heap with canaries, quarantine and shadow"},
    {kGuarded, true, operations(kAllocate, kFreePages), "guards",
     "a sample of blocks between guards"},
    {kSampled, false, operations(kAllocate, kAllocatePages, kFree, kFreePages, kStay), "counts",
     "counts all calls, times and follows a sample"},
};
[[nodiscard]] constexpr bool watches(Detour detour, Operation operation) {
  for (const ObserverRow& row : kObserverRows) {
    if (row.detour == detour) return (row.operations & operations(operation)) != 0;
  }
  return false;
}

/// The bit of an observer if it watches the operation, else 0.
[[nodiscard]] constexpr unsigned bit_of(Detour detour, Operation operation) {
  return watches(detour, operation) ? detour : 0u;
}

/// The recorder sees a call of the program once, whatever it consists of.
class RecorderWatch {
 public:
  static constexpr Detour kDetour = kRecorded;
  template <Operation kOperation>
  void before(const Call& call) {
    os::ErrnoGuard guard;
    // Blocks of private heaps are not recorded.
    if (kOperation == kFreePages || kOperation == kReallocate || kOperation == kTryResize) {
      if (PrivateHeap::heap_of(call.block) != nullptr) return;
    }
    is_outer_ = recording.enter();
    recorder_ = is_outer_ ? recording.recorder() : nullptr;
    if (recorder_ == nullptr) return;
    if (is_free(kOperation)) recorder_->frees(call.block);
    if (kOperation == kReallocate) recorder_->resize_begins(call.block);
  }
  template <Operation kOperation>
  void after(const Call& call, void* result) {
    if (recorder_ != nullptr) {
      if (is_allocation(kOperation) || kOperation == kAllocateAligned)
        recorder_->allocated(result, call.bytes, call.alignment);
      // A block that stayed in place: no other thread could get its address meanwhile.
      if (kOperation == kTryResize && result != nullptr) recorder_->resize_begins(call.block);
      if (kOperation == kReallocate || (kOperation == kTryResize && result != nullptr))
        recorder_->resize_ends(result, call.bytes);
    }
    if (is_outer_) recording.leave();
  }

 private:
  bool is_outer_ = false;
  const Recorder* recorder_ = nullptr;
};

/// A profiler is told of a block's end before, because its address may be another block's as soon
/// as it has moved.
class ProbeWatch {
 public:
  static constexpr Detour kDetour = kProbed;
  template <Operation kOperation>
  void before(const Call& call) {
    if (is_free(kOperation) || kOperation == kMove) was_followed_ = memory_probes.freed(call.block);
  }
  template <Operation kOperation>
  void after(const Call& call, void* result) {
    if (kOperation == kMove && was_followed_ && result == nullptr)
      memory_probes.stays(call.block, call.old_bytes);
    if (is_allocation(kOperation) || kOperation == kMove)
      memory_probes.allocated(result, call.bytes, current_cache->observed());
    if ((kOperation == kStay || kOperation == kResizeRun) && result != nullptr)
      memory_probes.resized(call.block, call.bytes, current_cache->observed());
  }

 private:
  bool was_followed_ = false;
};

/// Serves a call by serve(), and lets those of the observers watch that are on. The first one is
/// the outermost.
template <class... Observers>
class Nest {
 public:
  template <Operation kOperation, class Serve>
  static LOAM_INLINE void* serve(Call call, Serve serve) {
    constexpr unsigned kWatching = (0u | ... | bit_of(Observers::kDetour, kOperation));
    if (LOAM_LIKELY((detours() & kWatching) == 0)) return serve();
    return Around<Observers...>::template serve<kOperation>(call, serve);
  }

 private:
  template <class... Each>
  struct Around {
    template <Operation kOperation, class Serve>
    static LOAM_INLINE void* serve(const Call&, Serve serve) {
      return serve();
    }
  };
  template <class Observer, class... Inner>
  struct Around<Observer, Inner...> {
    template <Operation kOperation, class Serve>
    static void* serve(const Call& call, Serve serve) {
      const auto go_on = [&] { return Around<Inner...>::template serve<kOperation>(call, serve); };
      if ((detours() & bit_of(Observer::kDetour, kOperation)) == 0) return go_on();
      Observer observer;
      observer.template before<kOperation>(call);
      void* const result = go_on();
      observer.template after<kOperation>(call, result);
      return result;
    }
  };
};
/// Around the program's calls, whoever serves.
using AroundCalls = Nest<RecorderWatch, ProbeWatch>;
/// Around what the plain heap serves, also to the hardened heap: CountWatch, for the counts.
using AroundPlain = Nest<class CountWatch>;

namespace heap {

/// The calls of heap.h themselves. pre: detours() != 0
namespace observed {

LOAM_COLD void* allocate(unsigned size_class, size_t bytes, os::Caller caller);
/// malloc() jumps here, so that the caller is the program. Sets errno.
LOAM_COLD void* allocate_for_caller(unsigned size_class, size_t bytes);
LOAM_COLD void* allocate_pages(size_t bytes, size_t alignment, bool* zero);
/// A block with a mapping of its own, for a block that moves.
LOAM_COLD void* allocate_mapping(size_t bytes);
LOAM_COLD void* allocate_aligned(size_t alignment, size_t bytes);
LOAM_COLD void free(unsigned size_class, void* block, const void* caller);
LOAM_COLD void free_pages(void* block, const void* caller);
LOAM_COLD void free_sized(void* block, size_t bytes, const void* caller);
LOAM_COLD void* reallocate(void* block, size_t bytes, const void* caller);
LOAM_COLD bool try_resize(void* block, size_t bytes);
LOAM_COLD void stay(void* block, size_t slot_bytes, size_t bytes);
LOAM_COLD void resize_run(void* block, size_t bytes);

/// A free that the thread's cache serves, and an allocation that it does not.
LOAM_COLD void free_cached(unsigned size_class, void* block);
LOAM_COLD void count_uncached(unsigned size_class);

}  // namespace observed

/// The paths of a heap that nobody watches.
namespace plain {

[[nodiscard]] void* allocate_own_slot(unsigned size_class);
/// With `extra` bytes behind the requested ones.
[[nodiscard]] void* allocate_pages(size_t bytes, size_t alignment, size_t extra, bool* zero);
/// pre: alignment > 16
[[nodiscard]] void* allocate_aligned(size_t alignment, size_t bytes);
LOAM_NOINLINE void free(unsigned size_class, void* block);
/// pre: span == span_at(block)
LOAM_NOINLINE void free_pages(Span* span, void* block);
[[nodiscard]] void* reallocate(void* block, size_t bytes);
/// For a block that is no slot of one class's span, or was freed a moment ago.
[[nodiscard]] LOAM_NOINLINE void* reallocate_found(void* block, size_t bytes);
[[nodiscard]] bool resize_in_place(void* block, size_t bytes);
/// True if `block` was between guards, is freed, and is remembered. pre: block != null
[[nodiscard]] bool is_held(const void* block);

}  // namespace plain
}  // namespace heap
}  // namespace loam
