// loam::heap owns a private heap. loam::heap_ref refers to a heap without owning it, such as the
// default heap (malloc's). loam/loam.h has the C functions behind them; docs/heaps.md says what a
// heap is.
//
//   loam::heap level({.name = "level"});          growable, for any thread
//   void* p = level.allocate(100);
//   level.deallocate(p);
//   for (const loam::heap_entry& e : level) ...   every region, slot and block
//
// Blocks that are left in a heap end with it, in time proportional to its spans; no destructor
// runs.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "loam/block_source.hpp"
#include "loam/detail/config.hpp"
#include "loam/loam.h"
#include "loam/stats.h"

namespace loam {

using heap_entry = loam_walk_entry;
using heap_summary = loam_heap_summary;
using heap_stats = struct ::loam_stats;

/// A refusal because of the caller's mistake (a block of another heap, an argument that no call
/// serves). Lack of memory is std::bad_alloc. In a program without exceptions both end the process
/// with a message.
class heap_error : public std::logic_error {
 public:
  explicit heap_error(loam_status why) : std::logic_error(loam_status_text(why)), status_(why) {}
  [[nodiscard]] loam_status status() const noexcept { return status_; }

 private:
  loam_status status_;
};

/// How a heap is made; the defaults are a growable heap for any thread. See loam_heap_options and
/// the LOAM_HEAP_ flags.
struct heap_options {
  std::size_t initial = 0;      // bytes set aside at creation
  std::size_t maximum = 0;      // 0: grows
  bool unsynchronized = false;  // one thread at a time
  bool exact_sizes = false;     // size() gives what was asked for
  bool eager = false;           // front end and thread caches from the first call
  bool zero_on_free = false;
  bool canary = false;  // secret bytes behind every block; a block that was overrun is refused
  bool poison = false;  // freed blocks are held back; a write to them is found
  loam_failure_callback on_failure = nullptr;
  void* context = nullptr;  // for on_failure
  const char* name = nullptr;
};

enum class heap_mode {
  standard = LOAM_MODE_STANDARD,
  low_fragmentation = LOAM_MODE_LOW_FRAGMENTATION
};

namespace detail {

[[noreturn]] inline void refuse(loam_status why, std::size_t bytes) {
  if (why == LOAM_OUT_OF_MEMORY || why == LOAM_LIMIT_REACHED) out_of_memory(bytes);
#if LOAM_CXX_EXCEPTIONS
  throw heap_error(why);
#else
  std::fprintf(stderr, "loam: %s, and the program has no exceptions\n", loam_status_text(why));
  std::abort();
#endif
}

inline void* try_allocate(loam_heap* heap, std::size_t bytes, std::size_t alignment) {
  return alignment <= LOAM_ALIGNMENT ? loam_alloc(heap, bytes)
                                     : loam_aligned_alloc(heap, alignment, bytes);
}

inline void* allocate(loam_heap* heap, std::size_t bytes, std::size_t alignment) {
  void* p = try_allocate(heap, bytes, alignment);
  if (p == nullptr) [[unlikely]]
    refuse(loam_last_status(), bytes);
  return p;
}

struct heap_blocks {
  static void* allocate(void* heap, std::size_t bytes, std::size_t alignment) noexcept {
#if LOAM_CXX_EXCEPTIONS
    try {
      return try_allocate(static_cast<loam_heap*>(heap), bytes, alignment);
    } catch (...) {  // an exception of the heap's failure callback
      return nullptr;
    }
#else
    return try_allocate(static_cast<loam_heap*>(heap), bytes, alignment);
#endif
  }
  static void deallocate(void* heap, void* block, std::size_t, std::size_t) noexcept {
    loam_free(static_cast<loam_heap*>(heap), block);
  }
  static bool same(const void* a, const void* b) noexcept { return a == b; }
  static constexpr block_source::operations table{allocate, deallocate, same};
};

}  // namespace detail

/// Steps through a heap's entries; see loam_walk_next(). It is an input iterator: copies are
/// independent, but each keeps only its newest entry. It ends early, with status() LOAM_CHANGED, if
/// the entry that it stood on is gone; hold the heap's lock to prevent that.
class heap_iterator {
 public:
  using value_type = heap_entry;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::input_iterator_tag;
  using pointer = const heap_entry*;
  using reference = const heap_entry&;

  heap_iterator() noexcept = default;
  explicit heap_iterator(loam_heap* heap) noexcept : heap_(heap) {
    entry_.size = sizeof entry_;
    ++*this;
  }
  [[nodiscard]] reference operator*() const noexcept { return entry_; }
  [[nodiscard]] pointer operator->() const noexcept { return &entry_; }
  heap_iterator& operator++() noexcept {
    status_ = loam_walk_next(heap_, &entry_);
    return *this;
  }
  heap_iterator operator++(int) noexcept {
    heap_iterator before = *this;
    ++*this;
    return before;
  }
  /// LOAM_OK while it stands on an entry; LOAM_NO_MORE at the end; otherwise the reason why it
  /// ended early.
  [[nodiscard]] loam_status status() const noexcept { return status_; }
  [[nodiscard]] friend bool operator==(const heap_iterator& i, std::default_sentinel_t) noexcept {
    return i.status_ != LOAM_OK;
  }

 private:
  loam_heap* heap_ = nullptr;
  loam_status status_ = LOAM_NO_MORE;
  heap_entry entry_{};
};

/// A handle of a heap that another object owns, copied by value. Any thread may make every call at
/// any time, as long as the heap lives and was not made `unsynchronized`.
class heap_ref {
 public:
  /// The default heap, malloc's.
  heap_ref() noexcept : heap_(loam_default()) {}
  explicit heap_ref(loam_heap* handle) noexcept : heap_(handle) {}

  /// The handle for the C functions; null if empty.
  [[nodiscard]] loam_heap* get() const noexcept { return heap_; }
  [[nodiscard]] explicit operator bool() const noexcept { return heap_ != nullptr; }
  [[nodiscard]] friend bool operator==(const heap_ref& a, const heap_ref& b) noexcept {
    return a.heap_ == b.heap_;
  }

  // --- Blocks

  /// A new block. Throws std::bad_alloc without memory or at the heap's maximum, heap_error for an
  /// empty heap or an alignment that is no power of two.
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    return detail::allocate(heap_, bytes, LOAM_ALIGNMENT);
  }
  [[nodiscard]] void* allocate(std::size_t bytes, std::align_val_t alignment) const {
    return detail::allocate(heap_, bytes, static_cast<std::size_t>(alignment));
  }
  /// The same, but returns null where allocate() throws (the heap's failure callback may still
  /// throw); loam_last_status() says why.
  [[nodiscard]] void* try_allocate(std::size_t bytes) const { return loam_alloc(heap_, bytes); }
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::align_val_t alignment) const {
    return detail::try_allocate(heap_, bytes, static_cast<std::size_t>(alignment));
  }
  /// The same as allocate(), with a block of zeros.
  [[nodiscard]] void* allocate_zeroed(std::size_t bytes) const {
    void* p = loam_zalloc(heap_, bytes);
    if (p == nullptr) detail::refuse(loam_last_status(), bytes);
    return p;
  }

  /// Frees a block of this heap; null is allowed. With any status but LOAM_OK the block was not
  /// freed.
  loam_status deallocate(void* block) const noexcept { return loam_free(heap_, block); }
  /// The same, and the heap compares `bytes` with the block, as loam_free_sized() does.
  loam_status deallocate(void* block, std::size_t bytes) const noexcept {
    return loam_free_sized(heap_, block, bytes);
  }

  /// Resizes the block, and moves it if it must; content is kept up to the smaller size. Throws as
  /// allocate() does, and heap_error for a pointer that is no block of this heap; the old block
  /// then stays valid.
  [[nodiscard]] void* reallocate(void* block, std::size_t bytes) const {
    void* p = loam_realloc(heap_, block, bytes);
    if (p == nullptr) detail::refuse(loam_last_status(), bytes);
    return p;
  }
  [[nodiscard]] void* try_reallocate(void* block, std::size_t bytes) const {
    return loam_realloc(heap_, block, bytes);
  }
  /// Resizes the block where it stands; false if that is impossible, and the block is then
  /// unchanged.
  [[nodiscard]] bool try_resize(void* block, std::size_t bytes) const noexcept {
    return loam_try_resize(heap_, block, bytes) == LOAM_OK;
  }
  /// See loam_size(); SIZE_MAX for a pointer that is no block of this heap.
  [[nodiscard]] std::size_t size(const void* block) const noexcept {
    return loam_size(heap_, block);
  }
  /// Bytes that may be used; SIZE_MAX for a pointer that is no block of this heap.
  [[nodiscard]] std::size_t usable_size(const void* block) const noexcept {
    return loam_usable_size(heap_, block);
  }

  // --- Looking at it

  /// True if a live block of this heap starts there. Any address is answered.
  [[nodiscard]] bool owns(const void* block) const noexcept {
    return block != nullptr && loam_validate(heap_, block) == LOAM_OK;
  }
  /// Checks the heap's records against each other. O(spans).
  [[nodiscard]] loam_status validate() const noexcept { return loam_validate(heap_, nullptr); }
  /// Every region, slot and block, once. Hold the lock for a true picture.
  [[nodiscard]] heap_iterator begin() const noexcept { return heap_iterator(heap_); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
  /// Calls visit(const heap_entry&) for every live block, under the heap's lock. Throws what
  /// `visit` throws, and heap_error for an empty heap. `visit` may not allocate from or free to
  /// this heap.
  template <typename Visit>
  void for_each_block(Visit visit) const {
    const std::lock_guard lock(*this);
    for (const heap_entry& e : *this) {
      if (e.kind >= LOAM_ENTRY_SMALL && e.kind <= LOAM_ENTRY_HUGE) visit(e);
    }
  }
  /// Figures of the heap; zeros for an empty one.
  [[nodiscard]] heap_summary summary() const noexcept {
    heap_summary s{};
    s.size = sizeof s;
    loam_summary(heap_, &s);
    return s;
  }
  /// All counters of the heap, by the names of docs/counters.md; zeros for an empty one.
  [[nodiscard]] heap_stats stats() const noexcept {
    heap_stats s{};
    s.size = sizeof s;
    if (heap_ != nullptr) ::loam_stats(heap_, &s);
    return s;
  }
  /// As given at creation; "" if none.
  [[nodiscard]] const char* name() const noexcept {
    const char* name = loam_heap_name(heap_);
    return name != nullptr ? name : "";
  }
  [[nodiscard]] unsigned flags() const noexcept { return loam_heap_flags(heap_); }

  // --- Lock: Lockable, so std::lock_guard and std::unique_lock take a heap

  /// Stops every other thread's use of the heap until unlock(). Recursive. Throws heap_error for an
  /// empty heap. On the default heap it excludes only other threads that lock it.
  void lock() const {
    const loam_status s = loam_lock(heap_);
    if (s != LOAM_OK) detail::refuse(s, 0);
  }
  [[nodiscard]] bool try_lock() const noexcept { return loam_try_lock(heap_) == LOAM_OK; }
  void unlock() const noexcept {
    [[maybe_unused]] const loam_status s = loam_unlock(heap_);
    assert(s == LOAM_OK && "unlock: the thread does not hold the heap's lock");
  }

  // --- Memory and behaviour

  struct compacted {
    std::size_t largest_free;  // bytes of the largest free block that is backed
    std::size_t released;      // bytes given back to the system
  };
  /// Brings cached slots home and gives free pages back. O(spans). See loam_compact().
  compacted compact() const noexcept {
    compacted c{};
    c.largest_free = loam_compact(heap_, &c.released);
    return c;
  }
  /// compact() without figures.
  void trim() const noexcept { loam_trim(heap_); }

  /// low_fragmentation: threads that use the heap often get a cache.
  [[nodiscard]] heap_mode mode() const noexcept {
    return loam_get_mode(heap_) == LOAM_MODE_LOW_FRAGMENTATION ? heap_mode::low_fragmentation
                                                               : heap_mode::standard;
  }
  /// One way: see loam_set_mode().
  loam_status set_mode(heap_mode mode) const noexcept {
    return loam_set_mode(heap_, static_cast<int>(mode));
  }
  /// Blocks up to this many bytes go through threads' caches.
  [[nodiscard]] std::size_t small_threshold() const noexcept {
    return loam_get_small_threshold(heap_);
  }
  loam_status set_small_threshold(std::size_t bytes) const noexcept {
    return loam_set_small_threshold(heap_, bytes);
  }

  /// Blocks for arenas, pools, caches and queues.
  [[nodiscard]] block_source source() const noexcept { return {detail::heap_blocks::table, heap_}; }
  operator block_source() const noexcept { return source(); }

 protected:
  loam_heap* heap_;
};

/// The heap behind malloc.
[[nodiscard]] inline heap_ref default_heap() noexcept { return heap_ref(); }

/// The heap that the live block belongs to; an empty one if it is none.
[[nodiscard]] inline heap_ref heap_of(const void* block) noexcept {
  return heap_ref(loam_heap_of(block));
}

/// All counters of the process, all heaps together.
[[nodiscard]] inline heap_stats process_stats() noexcept {
  heap_stats s{};
  s.size = sizeof s;
  ::loam_stats(nullptr, &s);
  return s;
}

/// trim() of every heap of the process.
inline void trim_all() noexcept { loam_trim(nullptr); }

/// All heaps of the process, the default heap first. Throws std::bad_alloc. A heap of the list may
/// be gone when it is read.
[[nodiscard]] inline std::vector<heap_ref> heaps() {
  std::vector<loam_heap*> handles(loam_heaps(nullptr, 0));
  const std::size_t count = loam_heaps(handles.data(), handles.size());
  if (count < handles.size()) handles.resize(count);
  std::vector<heap_ref> list;
  list.reserve(handles.size());
  for (loam_heap* h : handles) list.emplace_back(h);
  return list;
}

/// Owner of a private heap. It is movable: the heap keeps its handle, so allocators, resources and
/// block sources on it stay valid; a moved-from owner is empty. The heap ends with its owner,
/// blocks and all: no object may use it afterwards.
class heap : public heap_ref {
 public:
  using options = heap_options;

  /// Throws std::bad_alloc without memory, or if `initial` exceeds `maximum`.
  explicit heap(const options& how = options()) : heap_ref(create(how)) {
    if (heap_ == nullptr) detail::refuse(loam_last_status(), how.initial);
  }
  /// The same without exceptions: an empty result if the heap cannot be made; loam_last_status()
  /// says why.
  [[nodiscard]] static std::optional<heap> try_create(const options& how = options()) noexcept {
    loam_heap* handle = create(how);
    if (handle == nullptr) return std::nullopt;
    return heap(handle);
  }
  /// Owns a heap that loam_heap_create() made, or nothing.
  explicit heap(loam_heap* handle) noexcept : heap_ref(handle) {}
  heap(heap&& other) noexcept : heap_ref(other.release()) {}
  heap& operator=(heap&& other) noexcept {
    if (this != &other) {
      destroy();
      heap_ = other.release();
    }
    return *this;
  }
  heap(const heap&) = delete;
  heap& operator=(const heap&) = delete;
  ~heap() { destroy(); }

  void swap(heap& other) noexcept { std::swap(heap_, other.heap_); }
  friend void swap(heap& a, heap& b) noexcept { a.swap(b); }

  /// Gives up the ownership; the caller may end the heap with loam_heap_destroy().
  [[nodiscard]] loam_heap* release() noexcept { return std::exchange(heap_, nullptr); }
  /// Ends the heap now; it is then empty. O(spans + large blocks).
  void destroy() noexcept {
    if (heap_ == nullptr) return;
    [[maybe_unused]] const loam_status s = loam_heap_destroy(std::exchange(heap_, nullptr));
    assert(s == LOAM_OK && "the heap is locked by another thread, or destroyed already");
  }

 private:
  static loam_heap* create(const options& how) noexcept {
    loam_heap_options o = LOAM_HEAP_OPTIONS_INIT;
    o.initial = how.initial;
    o.maximum = how.maximum;
    o.flags = (how.unsynchronized ? unsigned{LOAM_HEAP_UNSYNCHRONIZED} : 0) |
              (how.exact_sizes ? unsigned{LOAM_HEAP_EXACT_SIZES} : 0) |
              (how.eager ? unsigned{LOAM_HEAP_EAGER} : 0) |
              (how.zero_on_free ? unsigned{LOAM_HEAP_ZERO_ON_FREE} : 0) |
              (how.canary ? unsigned{LOAM_HEAP_CANARY} : 0) |
              (how.poison ? unsigned{LOAM_HEAP_POISON} : 0);
    o.on_failure = how.on_failure;
    o.context = how.context;
    o.name = how.name;
    return loam_heap_create(&o);
  }
};

}  // namespace loam
