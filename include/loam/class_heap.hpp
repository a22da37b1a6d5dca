// loam::with_heap<T>: gives a class a heap of its own, through operator new and delete.
//
//   struct particle : loam::with_heap<particle> { ... };
//
//   auto p = std::make_unique<particle>();       from particle's heap; arrays and over-aligned too
//   particle::class_heap().summary().blocks      how many are alive
//
// Why: objects of one class often live and die together. In a heap of their own they lie together,
// objects of other classes do not pin the memory that they leave behind, and their counters stand
// apart.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <new>
#include <string_view>

#include "loam/detail/config.hpp"
#include "loam/heap.hpp"

namespace loam {

namespace detail {

/// The type's name as far as the compiler tells it: "game::particle".
template <typename T>
constexpr std::string_view type_name() noexcept {
#if defined(__GNUC__)
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  constexpr std::size_t start = text.find("T = ") + 4;
  return text.substr(start, text.find_first_of(";]", start) - start);
#else
  return "";
#endif
}

}  // namespace detail

/// Base of a class that lives in a heap of its own; `T` is the class itself. Derived classes share
/// it.
///
/// The heap is made at the first `new` and named after the class. A static function
/// `loam::heap_options class_heap_options()` of T changes its options. Every form of new and delete
/// is there: arrays, aligned, nothrow, sized, placement. They fail as operator new does: they call
/// the new-handler, then throw std::bad_alloc (nothrow forms return null). Any thread may use them.
///
/// They are safe before main() and at exit: the heap is made when it is needed and never ends, so
/// an object with static lifetime may be destroyed at any point of the exit.
template <typename T>
class with_heap {
 public:
  /// The class's heap; made if it was not there. Throws std::bad_alloc.
  [[nodiscard]] static heap_ref class_heap() {
    loam_heap* heap = try_heap();
    if (heap == nullptr) detail::refuse(loam_last_status(), 0);
    return heap_ref(heap);
  }

  // Placement forms, which the forms below would hide.
  static void* operator new(std::size_t, void* place) noexcept { return place; }
  static void* operator new[](std::size_t, void* place) noexcept { return place; }
  static void operator delete(void*, void*) noexcept {}
  static void operator delete[](void*, void*) noexcept {}

  static void* operator new(std::size_t n) { return make(n, LOAM_ALIGNMENT); }
  static void* operator new[](std::size_t n) { return make(n, LOAM_ALIGNMENT); }
  static void* operator new(std::size_t n, std::align_val_t a) { return make(n, std::size_t(a)); }
  static void* operator new[](std::size_t n, std::align_val_t a) { return make(n, std::size_t(a)); }
  static void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    return try_make(n, LOAM_ALIGNMENT);
  }
  static void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
    return try_make(n, LOAM_ALIGNMENT);
  }
  static void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
    return try_make(n, std::size_t(a));
  }
  static void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
    return try_make(n, std::size_t(a));
  }

  static void operator delete(void* p) noexcept { unmake(p); }
  static void operator delete[](void* p) noexcept { unmake(p); }
  static void operator delete(void* p, std::size_t) noexcept { unmake(p); }
  static void operator delete[](void* p, std::size_t) noexcept { unmake(p); }
  static void operator delete(void* p, std::align_val_t) noexcept { unmake(p); }
  static void operator delete[](void* p, std::align_val_t) noexcept { unmake(p); }
  static void operator delete(void* p, std::size_t, std::align_val_t) noexcept { unmake(p); }
  static void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { unmake(p); }
  static void operator delete(void* p, const std::nothrow_t&) noexcept { unmake(p); }
  static void operator delete[](void* p, const std::nothrow_t&) noexcept { unmake(p); }
  static void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
    unmake(p);
  }
  static void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
    unmake(p);
  }

 protected:
  ~with_heap() = default;  // a base, not an interface: no program deletes through it

 private:
  static loam_heap* try_heap() noexcept {
    loam_heap* heap = heap_.load(std::memory_order_acquire);  // pairs with the exchange below
    return heap != nullptr ? heap : create();
  }

  static loam_heap* create() noexcept {
    heap_options how;
    if constexpr (requires { T::class_heap_options(); }) how = T::class_heap_options();
    char name[32] = {};
    if (how.name == nullptr) {
      detail::type_name<T>().copy(name, sizeof name - 1);
      how.name = name;
    }
    std::optional<loam::heap> mine = loam::heap::try_create(how);
    if (!mine) return nullptr;
    loam_heap* theirs = nullptr;
    loam_heap* made = mine->get();
    if (heap_.compare_exchange_strong(theirs, made, std::memory_order_acq_rel)) {
      return mine->release();
    }
    return theirs;  // another thread was first; `mine` ends here, unused
  }

  // An exception of the failure callback passes through.
  static void* make(std::size_t bytes, std::size_t alignment) {
    for (;;) {
      loam_heap* heap = try_heap();
      if (heap != nullptr) {
        if (void* p = detail::try_allocate(heap, bytes, alignment)) return p;
      }
      const std::new_handler handler = std::get_new_handler();
      if (handler == nullptr) detail::out_of_memory(bytes);
      handler();
    }
  }
  static void* try_make(std::size_t bytes, std::size_t alignment) noexcept {
#if LOAM_CXX_EXCEPTIONS
    try {
      return make(bytes, alignment);
    } catch (...) {
      return nullptr;
    }
#else
    loam_heap* heap = try_heap();
    return heap != nullptr ? detail::try_allocate(heap, bytes, alignment) : nullptr;
#endif
  }
  static void unmake(void* p) noexcept {
    if (p == nullptr) return;
    [[maybe_unused]] const loam_status s = loam_free(heap_.load(std::memory_order_acquire), p);
    assert(s == LOAM_OK && "deleted twice, or not made by this class's operator new");
  }

  // Constant-initialised and never destroyed: it is there before and after every other object.
  static inline constinit std::atomic<loam_heap*> heap_{nullptr};
};

}  // namespace loam
