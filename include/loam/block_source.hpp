// loam::block_source: where the building blocks (arena, pool, buffer cache, functor queues) get
// their blocks: from operator new, a std::pmr::memory_resource, or a heap of this library.
//
// One type stands for all sources, chosen at run time. Building blocks ask for few, large blocks,
// so the indirect call costs nothing that shows, and loam::arena stays one type whatever its source
// is.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>

#include "loam/detail/config.hpp"

namespace loam {

/// A source of blocks of memory: two words, copied by value. Copies are the same source: each takes
/// back blocks that another copy gave.
///
/// A source refers to a resource or heap and does not own it; the resource must outlive every
/// block. A source is as thread-safe as its resource (operator new and loam::heap: any thread at
/// any time).
class block_source {
 public:
  /// How to reach a source of another kind. `allocate` returns null when there is no memory;
  /// neither function throws. `same` compares two contexts.
  struct operations {
    void* (*allocate)(void* context, std::size_t bytes, std::size_t alignment) noexcept;
    void (*deallocate)(void* context, void* block, std::size_t bytes,
                       std::size_t alignment) noexcept;
    bool (*same)(const void* left, const void* right) noexcept;
  };

  /// The program's operator new: malloc, in nearly every program.
  block_source() noexcept : operations_(&kGlobal) {}

  /// A memory resource. An exception that it throws counts as "no memory".
  block_source(std::pmr::memory_resource& resource) noexcept
      : operations_(&kResource), context_(&resource) {}

  /// A source of any other kind. `how` must stay where it is.
  block_source(const operations& how, void* context) noexcept
      : operations_(&how), context_(context) {}

  /// `bytes` bytes aligned to `alignment`, a power of two; null when there is no memory. Never
  /// throws.
  [[nodiscard]] void* allocate(std::size_t bytes,
                               std::size_t alignment = detail::kNaturalAlignment) const noexcept {
    return operations_->allocate(context_, bytes, alignment);
  }

  /// Takes back a block of this source, with the size and alignment that were asked for. Null is
  /// allowed.
  void deallocate(void* block, std::size_t bytes,
                  std::size_t alignment = detail::kNaturalAlignment) const noexcept {
    if (block != nullptr) operations_->deallocate(context_, block, bytes, alignment);
  }

  /// True if each source may take back the other's blocks.
  [[nodiscard]] friend bool operator==(const block_source& a, const block_source& b) noexcept {
    return a.operations_ == b.operations_ && a.operations_->same(a.context_, b.context_);
  }

 private:
  static void* new_block(void*, std::size_t bytes, std::size_t alignment) noexcept {
    // The plain form is used where it suffices: aligned forms over-allocate in some C libraries.
    if (alignment <= detail::kNaturalAlignment) return ::operator new(bytes, std::nothrow);
    return ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
  }
  static void delete_block(void*, void* block, std::size_t, std::size_t alignment) noexcept {
    if (alignment <= detail::kNaturalAlignment) return ::operator delete(block);
    ::operator delete (block, std::align_val_t{alignment});
  }
  static void* resource_block(void* context, std::size_t bytes, std::size_t alignment) noexcept {
    auto& resource = *static_cast<std::pmr::memory_resource*>(context);
#if LOAM_CXX_EXCEPTIONS
    try {
      return resource.allocate(bytes, alignment);
    } catch (...) {
      return nullptr;
    }
#else
    return resource.allocate(bytes, alignment);
#endif
  }
  static void return_to_resource(void* context, void* block, std::size_t bytes,
                                 std::size_t alignment) noexcept {
    static_cast<std::pmr::memory_resource*>(context)->deallocate(block, bytes, alignment);
  }
  static bool same_resource(const void* a, const void* b) noexcept {
    return static_cast<const std::pmr::memory_resource*>(a)->is_equal(
        *static_cast<const std::pmr::memory_resource*>(b));
  }
  static bool always(const void*, const void*) noexcept { return true; }

  static constexpr operations kGlobal{new_block, delete_block, always};
  static constexpr operations kResource{resource_block, return_to_resource, same_resource};

  const operations* operations_;
  void* context_ = nullptr;
};

}  // namespace loam
