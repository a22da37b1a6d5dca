#include "heap/observed.h"

#include "cache/cache_registry.h"
#include "hardening/hardening.h"
#include "heap/heap.h"
#include "observers/sampler.h"
#include "small/found_block.h"

namespace loam {

namespace {

LOAM_COLD void count_uncached_allocation(size_t block_bytes) {
  CallCounts once{};
  once.allocs[CallCounts::band_of(block_bytes)] = 1;
  cache_registry.count_uncached(once);
}

LOAM_COLD void count_uncached_free(unsigned band) {
  CallCounts once{};
  once.frees[band] = 1;
  cache_registry.count_uncached(once);
}

}  // namespace

/// Counts what the thread's cache serves; the hardened heap's own calls too.
class CountWatch {
 public:
  static constexpr Detour kDetour = kSampled;
  template <Operation kOperation>
  LOAM_INLINE void before(const Call& call) {
    if (kOperation == kStay) return sampler.resize(call.block, call.old_bytes, call.bytes);
    if (kOperation == kFree) {
      sampler.forget(call.block);  // before another thread can be given its address
      band_ = CallCounts::band_of(
          LOAM_LIKELY(call.size_class != kMixedClass)
              ? class_info(call.size_class).bytes
              : default_small_heap.mixed().block_bytes(reinterpret_cast<uintptr_t>(call.block)));
    }
    cache_ = current_cache;
    ObservedThread* const thread = cache_->observed();
    began_ = thread == nullptr ? 0 : sampler.begin(*thread);
    served_ = served<kOperation>(*cache_);
  }
  template <Operation kOperation>
  LOAM_INLINE void after(const Call& call, const void* result) {
    if (kOperation == kStay || (!is_free(kOperation) && LOAM_UNLIKELY(result == nullptr))) return;
    ThreadCache* const cache = current_cache;  // a new one after a thread's first call
    ObservedThread* const thread = cache->observed();
    const size_t block_bytes = kOperation == kAllocate ? class_info(call.size_class).bytes : 0;
    if (LOAM_UNLIKELY(thread == nullptr)) {
      if (kOperation == kAllocate) count_uncached_allocation(block_bytes);
      if (kOperation == kFree) count_uncached_free(band_);
      return;
    }
    const bool same = served<kOperation>(*cache) == served_;
    const bool of_class = kOperation == kAllocate || kOperation == kFree;
    const bool hit = of_class ? same && cache == cache_ : !same;
    is_free(kOperation) ? sampler.end_free(*thread, began_, hit)
                        : sampler.end_allocation(*thread, began_, hit);
    if (kOperation == kFree) count_up(thread->calls.frees[band_]);
    if (kOperation != kAllocate) return;
    if (began_ != 0) sampler.follow(result, block_bytes, call.bytes);
    count_up(thread->calls.allocs[CallCounts::band_of(block_bytes)]);
  }

 private:
  // Changes when the cache did not serve a block of a class, or when it served one of pages.
  template <Operation kOperation>
  [[nodiscard]] static uint64_t served(const ThreadCache& cache) {
    return kOperation == kAllocate        ? cache.refills()
           : kOperation == kFree          ? cache.flushes()
           : kOperation == kAllocatePages ? cache.runs().counts().taken
                                          : cache.runs().counts().given;
  }

  ThreadCache* cache_ = nullptr;
  uint64_t began_ = 0;
  uint64_t served_ = 0;
  unsigned band_ = 0;
};

namespace heap {

// ---- what the plain heap serves -----------------------------------------------------------------

namespace observed {
namespace {

void* count_and_allocate(unsigned size_class, size_t bytes) {
  return AroundPlain::serve<kAllocate>({.bytes = bytes, .size_class = size_class}, [=]() -> void* {
    return current_cache->allocate_slow(size_class);
  });
}

void* count_and_allocate_pages(size_t bytes, size_t alignment, size_t extra, bool* zero) {
  return AroundPlain::serve<kAllocatePages>(
      {.bytes = bytes}, [=] { return plain::allocate_pages(bytes, alignment, extra, zero); });
}

void count_and_free_pages(void* block) {
  AroundPlain::serve<kFreePages>({.block = block}, [=]() -> void* {
    plain::free_pages(span_at(reinterpret_cast<uintptr_t>(block)), block);
    return nullptr;
  });
}

bool is_private(const void* block) { return PrivateHeap::heap_of(block) != nullptr; }

}  // namespace
}  // namespace observed

void observed::free_cached(unsigned size_class, void* block) {
  AroundPlain::serve<kFree>({.block = block, .size_class = size_class}, [=]() -> void* {
    current_cache->free_slow(size_class, block);
    return nullptr;
  });
}

void observed::count_uncached(unsigned size_class) {
  if (sampler.on()) count_uncached_allocation(class_info(size_class).bytes);
}

PlainHeap plain_heap() {
  return {
      &observed::count_and_allocate,       &plain::allocate_own_slot,       &plain::free,
      &observed::count_and_allocate_pages, &observed::count_and_free_pages, &observed::is_private};
}

// ---- who serves ---------------------------------------------------------------------------------

// Inlined where nobody watches, and once more where somebody does: this is every call of the
// hardened heap.
#define LOAM_SERVES __attribute__((always_inline))

void* observed::allocate(unsigned size_class, size_t bytes, os::Caller caller) {
  const Call call{.bytes = bytes, .size_class = size_class};
  return AroundCalls::serve<kAllocate>(call, [=]() LOAM_SERVES -> void* {
    if (LOAM_LIKELY(hardening.on())) return hardening.allocate_small(size_class, bytes);
    if ((detours() & kGuarded) != 0) {
      if (void* block = hardening.allocate_sampled(size_class, bytes, 16, caller)) return block;
    }
    // Magazines that are armed for the profiler alone need no look at the page heap in every call.
    if (LOAM_LIKELY(detours() == kProbed)) {
      if (void* block = current_cache->pop_armed(size_class)) return block;
    }
    return count_and_allocate(size_class, bytes);
  });
}

// malloc()'s frame is read at once: what is called from here may take the place of this one.
void* observed::allocate_for_caller(unsigned size_class, size_t bytes) {
  const auto* const frame = static_cast<const void* const*>(__builtin_frame_address(0));
  void* const block = observed::allocate(size_class, bytes, {frame[1], frame[0]});
  if (LOAM_UNLIKELY(block == nullptr)) os::set_errno_out_of_memory();
  return block;
}

void* observed::allocate_pages(size_t bytes, size_t alignment, bool* zero) {
  return AroundCalls::serve<kAllocatePages>({.bytes = bytes}, [=] {
    return hardening.on() ? hardening.allocate(bytes, alignment, zero)
                          : count_and_allocate_pages(bytes, alignment, 0, zero);
  });
}

void* observed::allocate_mapping(size_t bytes) {
  const Call call{.bytes = bytes};
  return AroundCalls::serve<kAllocatePages>(call, [=] {
    return AroundPlain::serve<kAllocatePages>(call, [=] {
      bool zero = false;
      return huge_map.allocate(bytes, kPageBytes, 0, &zero, 0, true);
    });
  });
}

void* observed::allocate_aligned(size_t alignment, size_t bytes) {
  const Call call{.bytes = bytes, .alignment = alignment};
  return AroundCalls::serve<kAllocateAligned>(call, [=] {
    bool zero = false;
    return hardening.on() ? observed::allocate_pages(bytes, alignment, &zero)
                          : plain::allocate_aligned(alignment, bytes);
  });
}

void observed::free(unsigned size_class, void* block, const void* caller) {
  const Call call{.block = block, .size_class = size_class};
  AroundCalls::serve<kFree>(call, [=]() LOAM_SERVES -> void* {
    if (hardening.on()) {
      hardening.free_small(size_class, block, caller);
    } else if (detours() != kProbed || all_frees_are_checked() ||
               !current_cache->push_noted_armed(size_class, block)) {
      plain::free(size_class, block);
    }
    return nullptr;
  });
}

void observed::free_pages(void* block, const void* caller) {
  AroundCalls::serve<kFreePages>({.block = block}, [=]() -> void* {
    if (hardening.on()) {
      hardening.free(block, caller);
    } else if ((detours() & kGuarded) == 0 ||
               span_at(reinterpret_cast<uintptr_t>(block)) != nullptr ||
               !walled_blocks.free(block, caller, os::thread_number())) {
      count_and_free_pages(block);
    }
    return nullptr;
  });
}

void observed::free_sized(void* block, size_t bytes, const void* caller) {
  AroundCalls::serve<kFree>({.block = block}, [=]() -> void* {
    hardening.free(block, caller, bytes);
    return nullptr;
  });
}

namespace {

void* reallocate_hardened(void* block, size_t bytes, const void* caller) {
  if (hardening.owns(block)) {
    const Call call{.block = block, .bytes = bytes, .old_bytes = hardening.requested(block)};
    return AroundCalls::serve<kMove>(call,
                                     [=] { return hardening.reallocate(block, bytes, caller); });
  }
  const bool twice = (hardening.freed(block) || plain::is_held(block)) &&
                     find_block(block).kind != FoundBlock::kPrivate;
  if (!twice) return plain::reallocate_found(block, bytes);
  report_misuse("realloc of a freed block", block);
  return nullptr;
}

}  // namespace

void* observed::reallocate(void* block, size_t bytes, const void* caller) {
  return AroundCalls::serve<kReallocate>({.block = block, .bytes = bytes}, [=] {
    return hardening.on() ? reallocate_hardened(block, bytes, caller)
                          : plain::reallocate(block, bytes);
  });
}

bool observed::try_resize(void* block, size_t bytes) {
  return AroundCalls::serve<kTryResize>({.block = block, .bytes = bytes}, [=]() -> void* {
           const bool resized = hardening.owns(block) ? hardening.try_resize(block, bytes)
                                                      : plain::resize_in_place(block, bytes);
           if (resized) observed::resize_run(block, bytes);
           return resized ? block : nullptr;
         }) != nullptr;
}

void observed::stay(void* block, size_t slot_bytes, size_t bytes) {
  const Call call{.block = block, .bytes = bytes, .old_bytes = slot_bytes};
  AroundCalls::serve<kStay>(call,
                            [=] { return AroundPlain::serve<kStay>(call, [=] { return block; }); });
}

void observed::resize_run(void* block, size_t bytes) {
  AroundCalls::serve<kResizeRun>({.block = block, .bytes = bytes}, [=] { return block; });
}

}  // namespace heap
}  // namespace loam
