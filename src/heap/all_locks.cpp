#include "heap/all_locks.h"

#include "cache/cache_registry.h"
#include "counters/publisher.h"
#include "hardening/hardening.h"
#include "heap/background_purge.h"
#include "heap/default_heap.h"
#include "heap/recording.h"
#include "map/metadata.h"
#include "os/os.h"
#include "pages/huge_map.h"
#include "private/heap_registry.h"
#include "small/remote_pool.h"

namespace loam {

void before_first_thread() { heap::register_fork(); }

namespace heap {

// Lock order: private heaps, caches' registry, bins by class, page heap, its shards, huge map,
// remote pool, metadata.
void lock_everything() {
  hardening.lock();
  heap_registry.lock_all();
  cache_registry.lock();
  default_small_heap.lock_all();
  page_heap.lock_all();
  huge_map.mutex().lock();
  remote_pool.mutex().lock();
  metadata.mutex().lock();
}

void unlock_everything() {
  metadata.mutex().unlock();
  remote_pool.mutex().unlock();
  huge_map.mutex().unlock();
  page_heap.unlock_all();
  default_small_heap.unlock_all();
  cache_registry.unlock();
  heap_registry.unlock_all();
  hardening.unlock();
}

namespace {

void after_fork_in_child() {
  metadata.mutex().reset_after_fork();
  remote_pool.mutex().reset_after_fork();
  huge_map.mutex().reset_after_fork();
  page_heap.reset_locks_after_fork();
  default_small_heap.reset_locks_after_fork();
  heap_registry.reset_locks_after_fork();
  default_heap::reset_after_fork();
  background_purge.reset_after_fork();
  publisher.reset_after_fork();
  hardening.reset_after_fork();
  cache_registry.adopt_after_fork();
  recording.reset_after_fork();
  heap_registry.adopt_after_fork();
}

}  // namespace

void register_fork() {
  os::register_fork(&lock_everything, &unlock_everything, &after_fork_in_child);
}

}  // namespace heap
}  // namespace loam
