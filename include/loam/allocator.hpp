// loam::allocator<T>: a standard allocator over any heap.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "loam/detail/config.hpp"
#include "loam/heap.hpp"

namespace loam {

#if defined(__cpp_lib_allocate_at_least)
template <typename T>
using allocation_result = std::allocation_result<T*>;
#else
/// What allocate_at_least() gives: room for `count` objects.
template <typename T>
struct allocation_result {
  T* ptr;
  std::size_t count;
};
#endif

/// Standard allocator over a heap; by default over the default heap. It is one word. Copies and
/// rebound copies are on the same heap and compare equal. The heap must outlive the containers. The
/// allocator is as thread-safe as the heap: any thread may use it, unless the heap was made
/// `unsynchronized`.
///
/// Move assignment and swap carry the allocator along, so both stay O(1) whatever heaps meet. Copy
/// assignment does not, so that a copy never ties a container to a heap that ends sooner.
template <typename T>
class allocator {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  allocator() noexcept : heap_(loam_default()) {}
  allocator(const heap_ref& on) noexcept : heap_(on.get()) {}
  template <typename U>
  allocator(const allocator<U>& other) noexcept : heap_(other.heap().get()) {}

  /// Memory for `count` objects, aligned for T whatever its alignment is; the heap allocates no
  /// extra bytes for it. Throws std::bad_alloc (std::bad_array_new_length, which is one, when the
  /// size overflows).
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(detail::allocate(heap_, bytes(count), alignof(T)));
  }

  /// The same, and says how many objects the block has room for. Vectors and strings that ask
  /// (C++23) use the rest of the size class before they grow.
  [[nodiscard]] allocation_result<T> allocate_at_least(std::size_t count) {
    T* p = allocate(count);
    const std::size_t usable = loam_usable_size(heap_, p);
    // No other thread can have freed the block; but the count must never be less than was asked
    // for.
    return {p, usable == SIZE_MAX || usable / sizeof(T) < count ? count : usable / sizeof(T)};
  }

  void deallocate(T* p, std::size_t) noexcept {
    // The size is not passed on: allocate_at_least() lets a container name any size in between.
    [[maybe_unused]] const loam_status s = loam_free(heap_, p);
    assert(s == LOAM_OK && "a block was freed twice, or given to another heap's allocator");
  }

  [[nodiscard]] heap_ref heap() const noexcept { return heap_ref(heap_); }

  /// Equal if they are on one heap.
  template <typename U>
  [[nodiscard]] friend bool operator==(const allocator& a, const allocator<U>& b) noexcept {
    return a.heap() == b.heap();
  }

 private:
  static std::size_t bytes(std::size_t count) {
    if (count > detail::kLargestRequest / sizeof(T)) {
#if LOAM_CXX_EXCEPTIONS
      throw std::bad_array_new_length();
#else
      detail::out_of_memory(detail::kLargestRequest);
#endif
    }
    return count * sizeof(T);
  }
  loam_heap* heap_;
};

}  // namespace loam
