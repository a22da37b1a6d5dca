// loam::memory_resource: std::pmr::memory_resource over any heap, for pmr containers.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory_resource>

#include "loam/detail/config.hpp"
#include "loam/heap.hpp"

namespace loam {

/// A memory resource over a heap; by default over the default heap. The heap must outlive its
/// blocks. The resource is as thread-safe as the heap: any thread may use it, unless the heap was
/// made `unsynchronized`. Two resources on one heap are equal (without RTTI a resource equals only
/// itself).
class memory_resource final : public std::pmr::memory_resource {
 public:
  memory_resource() noexcept = default;
  explicit memory_resource(const heap_ref& on) noexcept : heap_(on) {}
  [[nodiscard]] heap_ref heap() const noexcept { return heap_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return detail::allocate(heap_.get(), bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t, std::size_t) override {
    [[maybe_unused]] const loam_status s = heap_.deallocate(p);
    assert(s == LOAM_OK && "a block was freed twice, or given to another heap's resource");
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    if (this == &other) return true;
#if defined(__cpp_rtti)
    const auto* same = dynamic_cast<const memory_resource*>(&other);
    return same != nullptr && same->heap_ == heap_;
#else
    return false;
#endif
  }

  heap_ref heap_;
};

}  // namespace loam
