// A private Loam heap with the low-fragmentation policy on: article 000's own cure. It exists only
// if the preloaded library exports Loam's C interface; otherwise the variant says so.
#pragma once

#include <cstddef>

#include "harness/allocator.h"
#include "harness/block.h"
#include "policies.h"

namespace tokens {

struct LoamHeapPolicy {
  static constexpr bool kResets = false;

  static bool available() {
    create_ = lab::find_function<Create>("loam_heap_create");
    allocate_ = lab::find_function<Allocate>("loam_alloc");
    free_ = lab::find_function<Free>("loam_free");
    set_mode_ = lab::find_function<SetMode>("loam_set_mode");
    return create_ && allocate_ && free_ && set_mode_;
  }
  static const char* reason() {
    return "the allocator in this process exports no loam_heap_create, loam_alloc, loam_free and "
           "loam_set_mode";
  }

  static void prepare() {
    heap_ = create_(nullptr);
    if (heap_ == nullptr || set_mode_(heap_, kLowFragmentation) != 0) {
      lab::fail(lab::kExitFailed,
                "tokens: cannot create a private heap with its "
                "low-fragmentation policy on");
    }
  }
  static void end_run() {}
  static void* allocate(size_t n) { return lab::must(allocate_(heap_, n), n); }
  static void free(void* p, size_t) { free_(heap_, p); }
  static void* allocate_node(size_t n) { return allocate(n); }
  static void free_node(void* p, size_t n) { free(p, n); }

 private:
  static constexpr int kLowFragmentation = 2;  // as HeapCompatibilityInformation numbers it
  using Create = void* (*)(const void* options);
  using Allocate = void* (*)(void* heap, size_t bytes);
  using Free = int (*)(void* heap, void* block);
  using SetMode = int (*)(void* heap, int mode);
  static inline Create create_ = nullptr;
  static inline Allocate allocate_ = nullptr;
  static inline Free free_ = nullptr;
  static inline SetMode set_mode_ = nullptr;
  static inline void* heap_ = nullptr;
};

}  // namespace tokens
