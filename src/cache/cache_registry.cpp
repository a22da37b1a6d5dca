#include "cache/cache_registry.h"

#include <new>

#include "map/metadata.h"
#include "os/os.h"

namespace loam {

constinit CacheRegistry cache_registry;

constinit ThreadCache unused_cache;
constinit ThreadCache ended_cache;

LOAM_DEFINE_THREAD_POINTER(ThreadCache, current_cache, &unused_cache);
LOAM_DEFINE_THREAD_POINTER(ThreadCache, operators_cache, &unused_cache);
LOAM_DEFINE_THREAD_POINTER(ThreadCache, fast_cache, &unused_cache);

static_assert(sizeof(ThreadCache) <= MetadataArena::kLargestPiece,
              "a cache is one piece of metadata");

// The first of the homes with the fewest threads, so that threads that start one after another's
// end use the same one.
unsigned CacheRegistry::emptiest_home() const {
  unsigned best = 0;
  for (unsigned home = 1; home < MixedHeap::kHomes; ++home) {
    if (at_home_[home] < at_home_[best]) best = home;
  }
  return best;
}

ThreadCache* CacheRegistry::start_thread() {
  if (before_first_thread != nullptr) before_first_thread();
  ThreadCache* cache;
  {
    Lock lock(mutex_);
    cache = spare_;
    if (cache != nullptr) {
      spare_ = cache->next;
    } else {
      void* piece = metadata.allocate(sizeof(ThreadCache));
      if (piece == nullptr) return nullptr;
      cache = new (piece) ThreadCache(ThreadCache::Live{});
    }
    cache->next = nullptr;
    live_.push_back(cache);
    threads_ += 1;
    const unsigned home = emptiest_home();
    cache->home = static_cast<uint8_t>(home);
    ++at_home_[home];
    current_cache = cache;
    cache->fast_pointer = os::pointer_address(fast_cache);
    // Not while the thread is inside a call.
    if (!fast_paths_are_closed_ && is_on_slow_path()) leave_slow_path();
  }
  // After the cache is in place, because the C library may allocate in here. If it refuses, an
  // ended thread's cache stays as it is until a fork() adopts it.
  static_cast<void>(os::arm_thread_exit(&end_thread, cache));
  return cache;
}

bool CacheRegistry::close_fast_paths() {
  ThreadCache** const own = os::pointer_address(fast_cache);
  if (own == nullptr) return false;
  // A thread's variables have the same distances in all threads.
  const ptrdiff_t to_operators = os::pointer_address(operators_cache) - own;
  Lock lock(mutex_);
  fast_paths_are_closed_ = true;
  for (ThreadCache* cache : live_) {
    if (cache == current_cache) continue;
    // relaxed: a thread that still has the old pointer ends its call, or any_inside() sees it later
    __atomic_store_n(cache->fast_pointer, &unused_cache, __ATOMIC_RELAXED);
    __atomic_store_n(cache->fast_pointer + to_operators, &unused_cache, __ATOMIC_RELAXED);
  }
  return true;
}

void CacheRegistry::open_fast_paths() {
  Lock lock(mutex_);
  fast_paths_are_closed_ = false;
}

bool CacheRegistry::any_inside() {
  Lock lock(mutex_);
  for (ThreadCache* cache : live_) {
    // seq_cst: pairs with os::store_pointer()
    if (cache != current_cache &&
        __atomic_load_n(cache->fast_pointer, __ATOMIC_SEQ_CST) != &unused_cache)
      return true;
  }
  return false;
}

void CacheRegistry::retire(ThreadCache* cache) {
  cache->ThreadState::end();
  live_.remove(cache);
  threads_ -= 1;
  --at_home_[cache->home];
  ended_refills_ += cache->refills_;
  ended_flushes_ += cache->flushes_;
  ended_pushed_ += cache->pushed();
  cache->refills_ = cache->flushes_ = 0;
  cache->checks_.reset();
  if (LOAM_UNLIKELY((detours() & kSampled) != 0)) {
    add_counts(ended_calls_, cache->observed_.calls);
    cache->observed_.calls = CallCounts{};
  }
  add_counts(ended_runs_, cache->runs_.counts());
  cache->runs_.reset_counts();
  cache->release_slots();
  cache->next = spare_;
  spare_ = cache;
}

void CacheRegistry::end_thread(void* argument) {
  ThreadCache* cache = static_cast<ThreadCache*>(argument);
  // relaxed: a thread that needs the callback set it itself
  if (void (*also)() = cache_registry.at_thread_end_.load(std::memory_order_relaxed)) also();
  // From here on this thread uses the bins directly: the C library frees after the last key
  // destructor, and a new cache would never be returned.
  current_cache = &ended_cache;
  operators_cache = &unused_cache;
  take_slow_path();
  cache->flush_all(SmallHeap::Wait::kYes);
  default_small_heap.tick();  // other threads may no longer want what this thread left to them
  Lock lock(cache_registry.mutex_);
  cache_registry.retire(cache);
}

void CacheRegistry::flush_current() {
  if (current_cache->state() == ThreadCache::State::kLive)
    current_cache->flush_all(SmallHeap::Wait::kYes);
}

CacheRegistry::Totals CacheRegistry::totals() {
  Lock lock(mutex_);
  Totals t{threads_, 0, ended_refills_, ended_flushes_, ended_pushed_};
  for (ThreadCache* cache : live_) {
    t.held_bytes += cache->held_bytes();
    t.refills += cache->refills();
    t.flushes += cache->flushes();
    t.pushed += cache->pushed();
  }
  return t;
}

void CacheRegistry::Runs::complete(PageStats* pages) const {
  // A running thread may be between two counts, so the sum may be below zero.
  const auto live = [](uint64_t of_pages, uint64_t taken, uint64_t given) {
    const int64_t sum = static_cast<int64_t>(of_pages + taken - given);
    return sum < 0 ? 0 : static_cast<size_t>(sum);
  };
  pages->large_blocks = live(pages->large_blocks, counts.taken, counts.given);
  pages->large_pages =
      Pages(live(pages->large_pages.count, counts.taken_pages, counts.given_pages));
  pages->large_requested =
      live(pages->large_requested, counts.taken_requested, counts.given_requested);
  pages->large_allocations += counts.taken;
}

CacheRegistry::Runs CacheRegistry::runs() {
  Lock lock(mutex_);
  Runs all{ended_runs_, Pages(0), 0};
  for (ThreadCache* cache : live_) {
    add_counts(all.counts, cache->runs().counts());
    all.held += cache->runs().held();
    all.held_runs += cache->runs().held_runs();
  }
  return all;
}

void CacheRegistry::sum_calls(CallCounts* out) {
  Lock lock(mutex_);
  *out = ended_calls_;
  for (ThreadCache* cache : live_) {
    add_counts(*out, cache->observed_.calls);
  }
}

void CacheRegistry::count_uncached(const CallCounts& calls) {
  Lock lock(mutex_);
  add_counts(ended_calls_, calls);
}

bool CacheRegistry::any_holds(unsigned size_class, const void* block) {
  Lock lock(mutex_);
  for (ThreadCache* cache : live_) {
    if (cache->holds(size_class, block)) return true;
  }
  return false;
}

void CacheRegistry::count_mixed(uint32_t counts[kSizeClassCount]) {
  Lock lock(mutex_);
  for (ThreadCache* cache : live_) {
    cache->count_mixed(counts);
  }
}

size_t CacheRegistry::held_blocks(unsigned size_class) {
  Lock lock(mutex_);
  size_t total = 0;
  for (ThreadCache* cache : live_) {
    total += cache->held_blocks(size_class);
  }
  return total;
}

void CacheRegistry::adopt_after_fork() {
  mutex_.reset_after_fork();
  for (ThreadCache* cache : live_) {
    if (cache == current_cache) continue;
    cache->flush_all(SmallHeap::Wait::kYes);
    retire(cache);
  }
  // The fork() may have caught a thread between the count of all and its own.
  current_cache->recount_rooms_after_fork();
}

}  // namespace loam
