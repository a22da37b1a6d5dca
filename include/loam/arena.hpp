// loam::arena: a heap that only allocates and drops everything at once: for a game's level, a
// server's request, a compiler's translation unit. arena_scope, arena_allocator<T> and
// arena_resource come with it.
//
//   first block               second block                      kept for the next level
//   +------+----------------+ +------+-----------+-----------+  +------+------------------+
//   |header| objects ...    | |header| objects   | free      |  |header| free             |
//   +------+----------------+ +------+-----------+-----------+  +------+------------------+
//                                                ^ cursor    ^ limit
//
// An allocation moves the cursor; no block is freed alone. Blocks of the arena double in size up to
// a limit. reset() keeps blocks for the next level, but at most as many bytes as the larger of the
// last two levels used: one outlier does not hold its memory for ever.
#pragma once

#include <cassert>
#include <cstddef>
#include <limits>
#include <memory>
#include <memory_resource>
#include <type_traits>
#include <utility>

#include "loam/block_source.hpp"
#include "loam/detail/config.hpp"

namespace loam {

/// How an arena grows; bytes, headers included.
struct arena_options {
  /// More costs tiny arenas memory, less costs large ones a few calls.
  std::size_t first_block = 4096;
  /// Blocks double up to this size, so at most so much of the last one is unused. A larger request
  /// gets a block of its own.
  std::size_t largest_block = std::size_t{1} << 20;
};

/// An allocate-only heap. One thread at a time may use it.
///
/// Objects from make() are destroyed at rewind(), reset() and by the destructor, last made first.
/// Memory from allocate() is only memory: the arena runs no destructor there. An arena is movable;
/// a moved-from arena is empty and may be used again. An arena that arena_allocators or an
/// arena_resource refer to must stay where it is.
class arena {
  struct block;
  struct cleanup;

 public:
  using options = arena_options;

  /// A point to return to. Valid for the arena that gave it, until rewind() goes back before it or
  /// reset() is called.
  class marker {
    friend class arena;
    block* current = nullptr;
    char* cursor = nullptr;
    cleanup* cleanups = nullptr;
    std::size_t reached = 0, used = 0;
  };

  /// Takes no memory until the first request.
  explicit arena(block_source source = {}, options how = {}) noexcept
      : source_(source), options_(how), next_bytes_(how.first_block) {}
  explicit arena(options how) noexcept : arena(block_source(), how) {}
  arena(arena&& other) noexcept
      : source_(other.source_), options_(other.options_), next_bytes_(other.next_bytes_) {
    swap(other);
  }
  arena& operator=(arena&& other) noexcept {
    if (this != &other) {
      release();
      swap(other);
    }
    return *this;
  }
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  /// Destroys what make() made and gives all blocks back. O(objects of make() + blocks).
  ~arena() { release(); }

  /// Exchanges everything, sources included. O(1).
  void swap(arena& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(options_, other.options_);
    std::swap(next_bytes_, other.next_bytes_);
    std::swap(first_, other.first_);
    std::swap(now_, other.now_);
    std::swap(limit_, other.limit_);
    std::swap(peak_, other.peak_);
    std::swap(previous_peak_, other.previous_peak_);
    std::swap(capacity_, other.capacity_);
    std::swap(blocks_, other.blocks_);
  }
  friend void swap(arena& a, arena& b) noexcept { a.swap(b); }

  /// `bytes` bytes aligned to `alignment`, a power of two. O(1), one block from the source at most.
  /// Zero bytes give a unique address. Throws std::bad_alloc when the source has no memory (without
  /// exceptions: ends the program with a message).
  [[nodiscard]] void* allocate(std::size_t bytes,
                               std::size_t alignment = detail::kNaturalAlignment) {
    void* p = try_allocate(bytes, alignment);
    if (p == nullptr) [[unlikely]]
      detail::out_of_memory(bytes);
    return p;
  }

  /// The same, but null when the source has no memory; the arena is then as before.
  [[nodiscard]] void* try_allocate(std::size_t bytes,
                                   std::size_t alignment = detail::kNaturalAlignment) noexcept {
    assert(detail::is_power_of_two(alignment));
    bytes += bytes == 0;
    const std::size_t pad = detail::padding(now_.cursor, alignment);
    const std::size_t room = static_cast<std::size_t>(limit_ - now_.cursor);
    if (pad <= room && bytes <= room - pad) [[likely]] {
      return take(pad, bytes);
    }
    return grow(bytes, alignment);
  }

  /// Makes a T from `arguments`; its destructor runs at rewind(), reset() or the arena's end. A T
  /// that needs no destructor costs only its bytes, any other costs 32 bytes more. Throws
  /// std::bad_alloc, and what T's constructor throws: no destructor is registered then, and the
  /// bytes go with the level.
  template <typename T, typename... Arguments>
  T* make(Arguments&&... arguments) {
    if constexpr (std::is_trivially_destructible_v<T>) {
      return std::construct_at(static_cast<T*>(allocate(sizeof(T), alignof(T))),
                               std::forward<Arguments>(arguments)...);
    } else {
      auto* entry = static_cast<cleanup*>(allocate(sizeof(cleanup), alignof(cleanup)));
      T* object = std::construct_at(static_cast<T*>(allocate(sizeof(T), alignof(T))),
                                    std::forward<Arguments>(arguments)...);
      // The entry is linked last: objects that the constructor itself made here are then destroyed
      // after this object.
      now_.cleanups = std::construct_at(
          entry,
          cleanup{now_.cleanups, [](void* p) noexcept { static_cast<T*>(p)->~T(); }, object});
      return object;
    }
  }

  /// Memory for `count` objects of T; no constructor runs. Throws as allocate() does, also when the
  /// size overflows.
  template <typename T>
  [[nodiscard]] T* allocate_array(std::size_t count) {
    if (count > detail::kLargestRequest / sizeof(T)) detail::out_of_memory(detail::kLargestRequest);
    return static_cast<T*>(allocate(count * sizeof(T), alignof(T)));
  }

  /// Makes the newest allocation longer or shorter where it lies; false if `p` is not the newest or
  /// there is no room. O(1). pre: p was allocated here with `old_bytes`
  [[nodiscard]] bool try_extend(void* p, std::size_t old_bytes, std::size_t new_bytes) noexcept {
    auto* start = static_cast<char*>(p);
    old_bytes += old_bytes == 0;
    new_bytes += new_bytes == 0;
    if (start + old_bytes != now_.cursor) return false;
    if (new_bytes > static_cast<std::size_t>(limit_ - start)) return false;
    now_.cursor = start + new_bytes;
    now_.used = now_.used - old_bytes + new_bytes;
    detail::unpoison(start, new_bytes);
    if (new_bytes < old_bytes) detail::poison(now_.cursor, old_bytes - new_bytes);
    return true;
  }

  /// Frees the newest allocation; any other stays until the level ends. O(1).
  void deallocate(void* p, std::size_t bytes) noexcept {
    if (p == nullptr) return;
    bytes += bytes == 0;
    auto* start = static_cast<char*>(p);
    if (start + bytes != now_.cursor) return;
    now_.cursor = start;
    now_.used -= bytes;
    detail::poison(start, bytes);
  }

  /// This point in time, for rewind(). O(1).
  [[nodiscard]] marker mark() const noexcept { return now_; }

  /// Drops everything since `to`: destroys what make() made, last first; blocks stay for reuse.
  /// O(objects of make() since then). pre: no rewind() before `to` and no reset() since mark()
  void rewind(const marker& to) noexcept {
    while (now_.cleanups != to.cleanups) {
      assert(now_.cleanups != nullptr && "rewind: the marker is of another arena or outdated");
      const cleanup* last = now_.cleanups;
      now_.cleanups = last->next;
      last->destroy(last->object);
    }
#if LOAM_CXX_ASAN
    for (block* b = to.current != nullptr ? to.current->next : first_; b != nullptr; b = b->next) {
      detail::poison(b + 1, b->bytes - sizeof(block));
    }
#endif
    now_ = to;
    limit_ = now_.current != nullptr ? now_.current->end() : nullptr;
    detail::poison(now_.cursor, static_cast<std::size_t>(limit_ - now_.cursor));
  }

  /// Ends the level: drops everything, and keeps as many blocks for the next as the larger of the
  /// last two levels used. O(objects of make() + blocks given back).
  void reset() noexcept {
    rewind(marker());
    const std::size_t keep = peak_ > previous_peak_ ? peak_ : previous_peak_;
    previous_peak_ = peak_;
    peak_ = 0;
    trim(keep);
  }

  /// Frees kept blocks until the blocks in use and the kept ones together are at most `keep` bytes,
  /// or no kept block is left. Blocks in use stay. Returns the bytes freed. O(blocks).
  std::size_t trim(std::size_t keep = 0) noexcept {
    std::size_t sum = now_.reached;
    block** at = now_.current != nullptr ? &now_.current->next : &first_;
    while (*at != nullptr && (*at)->bytes <= keep && sum <= keep - (*at)->bytes) {
      sum += (*at)->bytes;
      at = &(*at)->next;
    }
    return free_from(at);
  }

  /// Ends the level and gives every block back. O(objects of make() + blocks).
  void release() noexcept {
    rewind(marker());
    free_from(&first_);
    peak_ = previous_peak_ = 0;
    next_bytes_ = options_.first_block;
  }

  /// Bytes handed out since the start or the last reset(), padding included.
  [[nodiscard]] std::size_t used() const noexcept { return now_.used; }
  /// Bytes held from the source, headers included.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Blocks held from the source.
  [[nodiscard]] std::size_t block_count() const noexcept { return blocks_; }
  [[nodiscard]] block_source source() const noexcept { return source_; }

 private:
  struct alignas(detail::kNaturalAlignment) block {
    block* next;
    std::size_t bytes;  // header included
    char* begin() noexcept { return reinterpret_cast<char*>(this + 1); }
    char* end() noexcept { return reinterpret_cast<char*>(this) + bytes; }
  };
  struct cleanup {
    cleanup* next;
    void (*destroy)(void*) noexcept;
    void* object;
  };

  void* take(std::size_t pad, std::size_t bytes) noexcept {
    char* p = now_.cursor + pad;
    now_.cursor = p + bytes;
    now_.used += pad + bytes;
    detail::unpoison(p, bytes);
    return p;
  }

  // The current block is full. Goes on to the next kept block if that is large enough, or puts a
  // new one before it. Kept blocks come in the order in which the last level needed them, so a
  // level like the last one finds what it needs.
  void* grow(std::size_t bytes, std::size_t alignment) noexcept {
    constexpr std::size_t most = detail::kLargestRequest / 2;
    if (bytes > most || alignment > most) return nullptr;
    const std::size_t slack =
        alignment > detail::kNaturalAlignment ? alignment - detail::kNaturalAlignment : 0;
    const std::size_t need = sizeof(block) + bytes + slack;
    block*& place = now_.current != nullptr ? now_.current->next : first_;
    block* next = place;
    if (next == nullptr || next->bytes < need) {
      const std::size_t size = need > next_bytes_ ? need : next_bytes_;
      void* memory = source_.allocate(size);
      if (memory == nullptr) return nullptr;
      next = std::construct_at(static_cast<block*>(memory), block{place, size});
      place = next;
      capacity_ += size;
      ++blocks_;
      if (next_bytes_ < options_.largest_block) {
        next_bytes_ =
            next_bytes_ > options_.largest_block / 2 ? options_.largest_block : next_bytes_ * 2;
      }
      detail::poison(next->begin(), size - sizeof(block));
    }
    now_.current = next;
    now_.cursor = next->begin();
    now_.reached += next->bytes;
    if (now_.reached > peak_) peak_ = now_.reached;
    limit_ = next->end();
    return take(detail::padding(now_.cursor, alignment), bytes);
  }

  // pre: nothing from *at on is in use
  std::size_t free_from(block** at) noexcept {
    block* b = std::exchange(*at, nullptr);
    std::size_t bytes = 0;
    while (b != nullptr) {
      block* next = b->next;
      const std::size_t size = b->bytes;
      bytes += size;
      --blocks_;
      detail::unpoison(b, size);
      source_.deallocate(b, size);
      b = next;
    }
    capacity_ -= bytes;
    return bytes;
  }

  block_source source_;
  options options_;
  std::size_t next_bytes_;                    // of the next new block
  block* first_ = nullptr;                    // blocks in use, then kept ones
  marker now_;                                // reached: bytes of all blocks up to the current one
  char* limit_ = nullptr;                     // end of the current block
  std::size_t peak_ = 0, previous_peak_ = 0;  // most reached in this level and the one before
  std::size_t capacity_ = 0, blocks_ = 0;
};

/// Rewinds an arena at the end of a scope, and so drops what only that scope needs.
class arena_scope {
 public:
  explicit arena_scope(arena& a) noexcept : arena_(a), start_(a.mark()) {}
  arena_scope(const arena_scope&) = delete;
  arena_scope& operator=(const arena_scope&) = delete;
  ~arena_scope() { arena_.rewind(start_); }

 private:
  arena& arena_;
  arena::marker start_;
};

/// Standard allocator over an arena: allocate() moves a cursor, and deallocate() does nothing,
/// except for the newest block (so a growing vector that uses the arena alone reuses its own
/// memory). The arena must outlive the container. Move assignment and swap carry the allocator
/// along, copy assignment does not. It is no more thread-safe than the arena, which is not.
template <typename T>
class arena_allocator {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  arena_allocator(arena& a) noexcept : arena_(&a) {}
  template <typename U>
  arena_allocator(const arena_allocator<U>& other) noexcept : arena_(other.resource()) {}

  /// Throws std::bad_alloc. O(1).
  [[nodiscard]] T* allocate(std::size_t count) { return arena_->allocate_array<T>(count); }
  void deallocate(T* p, std::size_t count) noexcept { arena_->deallocate(p, count * sizeof(T)); }
  [[nodiscard]] arena* resource() const noexcept { return arena_; }

  /// Equal if they use one arena.
  template <typename U>
  [[nodiscard]] friend bool operator==(const arena_allocator& a,
                                       const arena_allocator<U>& b) noexcept {
    return a.resource() == b.resource();
  }

 private:
  arena* arena_;
};

/// std::pmr::memory_resource over an arena, for pmr containers. Unlike monotonic_buffer_resource it
/// rewinds, and keeps its blocks for the next level. The arena must outlive it. It is not
/// thread-safe.
class arena_resource final : public std::pmr::memory_resource {
 public:
  explicit arena_resource(arena& a) noexcept : arena_(&a) {}
  [[nodiscard]] arena& target() const noexcept { return *arena_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return arena_->allocate(bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t) override {
    arena_->deallocate(p, bytes);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  arena* arena_;
};

}  // namespace loam
