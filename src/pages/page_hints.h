// What everybody may know about the page heap without its lock. Each value may be some operations
// old, and nothing depends on their order, so all accesses are relaxed.
#pragma once

#include <atomic>

#include "base/units.h"

namespace loam {

class PageHints {
 public:
  /// True while more memory is backed than is worth keeping. Then call PageHeap::tick() now and
  /// then, and the tick() of the heap that owns the spans.
  [[nodiscard]] bool wants_ticks() const {
    return pages_wait() || spans_wait_.load(std::memory_order_relaxed);
  }
  /// True while the heap catches up after a time without calls. Then call
  /// PageHeap::tick_unless_busy() at once.
  [[nodiscard]] bool is_behind() const { return is_behind_.load(std::memory_order_relaxed); }
  /// True while free pages are more than is worth keeping.
  [[nodiscard]] bool pages_wait() const { return pages_wait_.load(std::memory_order_relaxed); }
  /// Bytes in runs: for limits that follow the heap's size.
  [[nodiscard]] size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  /// Pages that are dirty or parked outside of shards; out of date while ticks are wanted.
  [[nodiscard]] Pages waiting() const { return Pages(waiting_.load(std::memory_order_relaxed)); }

  /// The number of shards, from the first on, that a thread had or to which a slab belongs. Who
  /// looks a moment too early misses runs that are parked a moment later.
  [[nodiscard]] unsigned shards_in_use() const {
    return shards_in_use_.load(std::memory_order_relaxed);
  }
  void use_shard(unsigned shard) {
    unsigned count = shards_in_use();
    while (count <= shard &&
           !shards_in_use_.compare_exchange_weak(count, shard + 1, std::memory_order_relaxed)) {
    }
  }

  /// Sets whether pages inside of spans may be more than is worth keeping.
  void set_spans_wait(bool they_do) { spans_wait_.store(they_do, std::memory_order_relaxed); }
  /// Pages of used spans that hold no memory. An old value.
  [[nodiscard]] Pages hollow() const { return Pages(hollow_.load(std::memory_order_relaxed)); }
  void set_hollow(Pages pages) { hollow_.store(pages.count, std::memory_order_relaxed); }
  /// Bytes of pages by which use fell and rose again lately.
  [[nodiscard]] size_t returned_bytes() const {
    return returned_bytes_.load(std::memory_order_relaxed);
  }
  void set_returned(Pages pages) {
    returned_bytes_.store(pages.bytes(), std::memory_order_relaxed);
  }
  /// Bytes inside of spans that a fall left, because as much came back lately.
  [[nodiscard]] size_t held_in_spans() const {
    return held_in_spans_.load(std::memory_order_relaxed);
  }
  void set_held_in_spans(size_t bytes) { held_in_spans_.store(bytes, std::memory_order_relaxed); }
  /// The same, of private heaps.
  [[nodiscard]] Pages held_in_heaps() const {
    return Pages(held_in_heaps_.load(std::memory_order_relaxed));
  }
  void change_held_in_heaps(Pages before, Pages now) {
    held_in_heaps_.fetch_add(now.count - before.count, std::memory_order_relaxed);
  }
  /// As hollow(), of private heaps.
  [[nodiscard]] Pages hollow_in_heaps() const {
    return Pages(hollow_in_heaps_.load(std::memory_order_relaxed));
  }
  void change_hollow_in_heaps(Pages before, Pages now) {
    hollow_in_heaps_.fetch_add(now.count - before.count, std::memory_order_relaxed);
  }
  /// When the page heap last made a step of its policy. An old value.
  [[nodiscard]] uint64_t looked_ms() const { return looked_ms_.load(std::memory_order_relaxed); }
  void set_looked(uint64_t ms) { looked_ms_.store(ms, std::memory_order_relaxed); }
  /// Pages of mappings that are kept for the next block.
  [[nodiscard]] Pages idle_mappings() const {
    return Pages(idle_mappings_.load(std::memory_order_relaxed));
  }
  void set_idle_mappings(Pages pages) {
    idle_mappings_.store(pages.count, std::memory_order_relaxed);
  }
  void set_pages_wait(bool they_do) { pages_wait_.store(they_do, std::memory_order_relaxed); }
  void set_behind(bool it_is) { is_behind_.store(it_is, std::memory_order_relaxed); }
  void set_waiting(Pages pages) { waiting_.store(pages.count, std::memory_order_relaxed); }
  void set_used(Pages pages) { used_bytes_.store(pages.bytes(), std::memory_order_relaxed); }

 private:
  std::atomic<bool> pages_wait_{false};
  std::atomic<bool> is_behind_{false};
  std::atomic<bool> spans_wait_{false};
  std::atomic<unsigned> shards_in_use_{0};
  std::atomic<size_t> waiting_{0};
  std::atomic<size_t> used_bytes_{0};
  std::atomic<size_t> returned_bytes_{0};
  std::atomic<size_t> hollow_{0};
  std::atomic<size_t> held_in_spans_{0};
  std::atomic<size_t> held_in_heaps_{0};
  std::atomic<size_t> hollow_in_heaps_{0};
  std::atomic<uint64_t> looked_ms_{0};
  std::atomic<size_t> idle_mappings_{0};
};

}  // namespace loam
