#include "observers/sampler.h"

#include "observers/detours.h"
#include "os/os.h"

namespace loam {

constinit Sampler sampler;

namespace {

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

uint64_t Sampler::begin(ObservedThread& thread) {
  return thread.sample_is_due(rate_) ? os::now_ns() : 0;
}

void Sampler::end_allocation(ObservedThread& thread, uint64_t began, bool hit) {
  CallCounts& calls = thread.calls;
  if (hit) count_up(calls.alloc_hits);
  if (began == 0) return;
  const uint64_t ns = elapsed(began);
  count_up(calls.timed_allocs[!hit]);
  count_up(calls.timed_alloc_ns[!hit], ns);
  count_up(calls.alloc_log2_ns[CallCounts::time_bin(ns)]);
}

void Sampler::end_free(ObservedThread& thread, uint64_t began, bool hit) {
  CallCounts& calls = thread.calls;
  if (hit) count_up(calls.free_hits);
  if (began == 0) return;
  const uint64_t ns = elapsed(began);
  count_up(calls.timed_frees[!hit]);
  count_up(calls.timed_free_ns[!hit], ns);
  count_up(calls.free_log2_ns[CallCounts::time_bin(ns)]);
}

}  // namespace loam
