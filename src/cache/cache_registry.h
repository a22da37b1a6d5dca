// The registry of thread caches: starts a cache on a thread's first slow call, flushes it when the
// thread ends, and adopts the caches of threads that do not exist in a fork()ed child.
//
// Lock: mutex_, above every bin's lock. Thread-safe.
#pragma once

#include "cache/thread_cache.h"

namespace loam {

class CacheRegistry {
 public:
  constexpr CacheRegistry() = default;

  /// Gives the calling thread a cache and returns it; null when memory is refused.
  [[nodiscard]] ThreadCache* start_thread();

  /// Calls `callback` at the end of every thread that has a cache, before its cache is flushed.
  /// There is one callback.
  void at_thread_end(void (*callback)()) {
    at_thread_end_.store(callback, std::memory_order_relaxed);
  }

  /// Flushes the calling thread's cache (trim, and before a heap walk).
  void flush_current();

  struct Totals {
    size_t threads;
    size_t held_bytes;
    uint64_t refills;
    uint64_t flushes;
    uint64_t pushed;
  };
  [[nodiscard]] Totals totals();
  struct Runs {
    RunCounts counts;  ///< includes ended threads
    Pages held;
    size_t held_runs;
    /// Corrects the page heap's figures of live large blocks. pre: `pages` was read after these
    /// counts
    void complete(PageStats* pages) const;
  };
  /// The number of live caches, without the lock: a recent value.
  [[nodiscard]] size_t threads_hint() const { return threads_; }
  /// The counts of blocks above the largest class.
  [[nodiscard]] Runs runs();
  /// The counts of sampling, of ended and live threads.
  void sum_calls(CallCounts* out);
  /// Adds the counts of a thread that has no cache yet, or that has ended.
  void count_uncached(const CallCounts& calls);
  /// Adds the blocks of mixed spans in all caches to counts[class], by their size.
  void count_mixed(uint32_t counts[kSizeClassCount]);
  /// Blocks of a class in all caches; exact when no other thread allocates.
  [[nodiscard]] size_t held_blocks(unsigned size_class);

  /// True when a live cache holds the block. O(threads * blocks held): for full checking only.
  /// Another thread's magazine may change at this moment; this can hide a block, but never invent
  /// one.
  [[nodiscard]] bool any_holds(unsigned size_class, const void* block);

  /// Soon every call of every other thread takes the slow path; a call that has begun ends as it
  /// would have. False where threads cannot be reached.
  [[nodiscard]] bool close_fast_paths();
  /// Threads that begin take fast paths again. The other threads must return to them by themselves
  /// (leave_slow_path()).
  void open_fast_paths();
  /// True while another thread that has a cache is inside a call. pre: fast paths are closed
  [[nodiscard]] bool any_inside();
  /// Calls visit(blocks, count) for each magazine that holds some. pre: no other thread allocates
  template <class Visit>
  void visit_held(Visit visit) {
    Lock lock(mutex_);
    for (ThreadCache* cache : live_) {
      cache->visit_held(visit);
    }
  }

  [[nodiscard]] const Mutex& mutex() const { return mutex_; }
  void lock() LOAM_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  void unlock() LOAM_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  /// In the child of fork(), once every lock is reset: returns the blocks in the caches of dead
  /// threads.
  void adopt_after_fork();

 private:
  friend struct CounterFields;
  static void end_thread(void* cache);
  void retire(ThreadCache* cache);
  [[nodiscard]] unsigned emptiest_home() const;

  Mutex mutex_;
  List<ThreadCache> live_;
  ThreadCache* spare_ = nullptr;  // linked through next
  LockedCount threads_;
  bool fast_paths_are_closed_ = false;
  uint32_t at_home_[MixedHeap::kHomes] = {};  // threads, by their home
  uint64_t ended_refills_ = 0;
  uint64_t ended_flushes_ = 0;
  uint64_t ended_pushed_ = 0;
  CallCounts ended_calls_ = {};
  RunCounts ended_runs_ = {};
  std::atomic<void (*)()> at_thread_end_{nullptr};
};

extern CacheRegistry cache_registry;

/// The heap defines it, if the heap is linked. It is called before a thread gets a cache, with no
/// lock held. At the first call at the latest, the heap must register its handlers of fork(),
/// because a child would otherwise find locks that a thread of the parent held.
__attribute__((weak)) void before_first_thread();

}  // namespace loam
