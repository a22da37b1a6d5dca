#include "cache/sampler.h"

#include "cache/cache_registry.h"
#include "cache/detours.h"
#include "os/os.h"

namespace loam {

constinit Sampler sampler;

namespace {

// pre: the block is live
size_t block_bytes_of(unsigned size_class, const void* block) {
  if (LOAM_LIKELY(size_class != kMixedClass)) return class_info(size_class).bytes;
  return default_small_heap.mixed().block_bytes(reinterpret_cast<uintptr_t>(block));
}

bool is_live(const ThreadCache* cache) { return cache->state() == ThreadCache::State::kLive; }

uint64_t elapsed(uint64_t began) { return os::now_ns() - began; }

}  // namespace

bool Sampler::start(uint64_t calls_between_samples) {
  roundings_ = static_cast<uint32_t*>(blocks_.start(kBucketBits, sizeof(uint32_t)));
  if (roundings_ == nullptr) return false;
  rate_ = calls_between_samples;
  take_detour(kSampled);
  return true;
}

void Sampler::follow(const void* block, size_t block_bytes, size_t bytes) {
  sampled_.fetch_add(1, std::memory_order_relaxed);
  const size_t place = blocks_.claim(block, kEra);
  if (place == FollowedBlocks::kNowhere) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const uint32_t rounding = static_cast<uint32_t>(block_bytes - bytes);
  __atomic_store_n(&roundings_[place], rounding, __ATOMIC_RELAXED);
  live_rounding_.fetch_add(static_cast<int64_t>(rounding * rate_), std::memory_order_relaxed);
  followed_.fetch_add(1, std::memory_order_relaxed);
}

void Sampler::forget(const void* block) {
  const size_t place = blocks_.find(block, kEra);
  if (place == FollowedBlocks::kNowhere) return;
  const uint32_t rounding = __atomic_load_n(&roundings_[place], __ATOMIC_RELAXED);
  // Where two threads free a block at once, only one of them counts.
  if (!blocks_.release(place, block, kEra)) return;
  live_rounding_.fetch_sub(static_cast<int64_t>(rounding * rate_), std::memory_order_relaxed);
  followed_.fetch_sub(1, std::memory_order_relaxed);
}

void Sampler::resize(const void* block, size_t block_bytes, size_t bytes) {
  const size_t place = blocks_.find(block, kEra);
  if (place == FollowedBlocks::kNowhere) return;
  const uint32_t now = static_cast<uint32_t>(block_bytes - bytes);
  const uint32_t before = __atomic_exchange_n(&roundings_[place], now, __ATOMIC_RELAXED);
  live_rounding_.fetch_add((static_cast<int64_t>(now) - before) * static_cast<int64_t>(rate_),
                           std::memory_order_relaxed);
}

uint64_t Sampler::begin() {
  return is_live(current_cache) && current_cache->draws().sample_is_due(rate_) ? os::now_ns() : 0;
}

void* Sampler::allocate(unsigned size_class, size_t bytes) {
  const uint64_t began = begin();
  ThreadCache* const before = current_cache;
  const uint64_t refills = before->refills();
  void* block = before->allocate_slow(size_class);
  if (LOAM_UNLIKELY(block == nullptr)) return nullptr;
  ThreadCache* const cache = current_cache;  // a new one after a thread's first call
  const bool hit = cache == before && is_live(cache) && cache->refills() == refills;
  const size_t block_bytes = class_info(size_class).bytes;
  if (LOAM_UNLIKELY(!is_live(cache))) {
    count_allocation(size_class);
    return block;
  }
  end_allocation(began, hit);
  if (began != 0) follow(block, block_bytes, bytes);
  count_up(cache->calls().allocs[CallCounts::band_of(block_bytes)]);
  return block;
}

void Sampler::free(unsigned size_class, void* block) {
  forget(block);  // before another thread can be given its address
  const unsigned band = CallCounts::band_of(block_bytes_of(size_class, block));
  const uint64_t began = begin();
  ThreadCache* const before = current_cache;
  const uint64_t flushes = before->flushes();
  before->free_slow(size_class, block);
  ThreadCache* const cache = current_cache;
  if (LOAM_UNLIKELY(!is_live(cache))) {
    CallCounts once{};
    once.frees[band] = 1;
    cache_registry.count_uncached(once);
    return;
  }
  const bool hit = cache == before && cache->flushes() == flushes;
  end_free(began, hit);
  count_up(cache->calls().frees[band]);
}

void Sampler::count_allocation(unsigned size_class) {
  CallCounts once{};
  once.allocs[CallCounts::band_of(class_info(size_class).bytes)] = 1;
  cache_registry.count_uncached(once);
}

void Sampler::end_allocation(uint64_t began, bool hit) {
  CallCounts& calls = current_cache->calls();
  if (hit) count_up(calls.alloc_hits);
  if (began == 0) return;
  const uint64_t ns = elapsed(began);
  count_up(calls.timed_allocs[!hit]);
  count_up(calls.timed_alloc_ns[!hit], ns);
  count_up(calls.alloc_log2_ns[CallCounts::time_bin(ns)]);
}

void Sampler::end_free(uint64_t began, bool hit) {
  CallCounts& calls = current_cache->calls();
  if (hit) count_up(calls.free_hits);
  if (began == 0) return;
  const uint64_t ns = elapsed(began);
  count_up(calls.timed_frees[!hit]);
  count_up(calls.timed_free_ns[!hit], ns);
  count_up(calls.free_log2_ns[CallCounts::time_bin(ns)]);
}

}  // namespace loam
