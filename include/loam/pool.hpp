// loam::pool<T>: a block allocator like those that the articles' authors wrote for their tokens,
// particles and nodes: slots of one size cut from large blocks. With it come slot_pool (untyped),
// node_pools (a pool for every size that is requested) and pool_allocator<T> for node-based
// containers.
//
// The free slots themselves record that they are free, as a linked list:
//
//   block:  | header | used | next--+ | used | next | never used so far ... |
//                             ^-----|-----------^     ^ bump        bump_end ^
//
// The heap below keeps such records out of line, because it must survive writes of any code into
// freed memory. A pool serves one type in one program, and the slot that was destroyed last is the
// warmest. A link in it costs no memory and no other cache line, so make and destroy are a load and
// a store. The price: a write after destroy() damages the list (AddressSanitizer reports it, for
// the slots are poisoned), and shrink() has to sort the list to learn which blocks are empty. A new
// block is not put on the list but cut as needed, so untouched pages stay untouched.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "loam/block_source.hpp"
#include "loam/detail/config.hpp"

namespace loam {

/// How a pool grows.
struct pool_options {
  /// Slots of the first block; every further block doubles the pool.
  std::size_t first_slots = 32;
  /// Most bytes of a block, unless one slot is larger.
  std::size_t largest_block = std::size_t{256} << 10;
};

/// Slots of one size. One thread at a time may use it. Movable; a moved-from pool is empty and may
/// be used again.
class slot_pool {
 public:
  using options = pool_options;

  /// Takes no memory until the first request. pre: slot_alignment is a power of two
  explicit slot_pool(std::size_t slot_bytes, std::size_t slot_alignment = detail::kNaturalAlignment,
                     block_source source = {}, options how = {}) noexcept
      : source_(source),
        options_(how),
        alignment_(std::max(slot_alignment, alignof(block))),
        slot_bytes_(detail::round_up(std::max(slot_bytes, sizeof(link)),
                                     std::max(slot_alignment, alignof(link)))) {
    assert(detail::is_power_of_two(slot_alignment));
  }
  slot_pool(slot_pool&& other) noexcept
      : source_(other.source_),
        options_(other.options_),
        alignment_(other.alignment_),
        slot_bytes_(other.slot_bytes_) {
    swap(other);
  }
  slot_pool& operator=(slot_pool&& other) noexcept {
    if (this != &other) {
      release();
      swap(other);
    }
    return *this;
  }
  slot_pool(const slot_pool&) = delete;
  slot_pool& operator=(const slot_pool&) = delete;
  /// Gives all blocks back; slots still in use go with them. O(blocks).
  ~slot_pool() { release(); }

  /// Exchanges everything, slot sizes and sources included. O(1).
  void swap(slot_pool& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(options_, other.options_);
    std::swap(alignment_, other.alignment_);
    std::swap(slot_bytes_, other.slot_bytes_);
    std::swap(free_, other.free_);
    std::swap(bump_, other.bump_);
    std::swap(bump_end_, other.bump_end_);
    std::swap(blocks_, other.blocks_);
    std::swap(slots_, other.slots_);
    std::swap(live_, other.live_);
    std::swap(bytes_, other.bytes_);
  }
  friend void swap(slot_pool& a, slot_pool& b) noexcept { a.swap(b); }

  /// A slot. O(1), one block from the source at most. Throws std::bad_alloc when the source has no
  /// memory (without exceptions: ends the program with a message).
  [[nodiscard]] void* allocate() {
    void* p = try_allocate();
    if (p == nullptr) [[unlikely]]
      detail::out_of_memory(slot_bytes_);
    return p;
  }

  /// The same, but null when the source has no memory; the pool is then as before.
  [[nodiscard]] void* try_allocate() noexcept {
    if (free_ != nullptr) [[likely]] {
      link* slot = free_;
      detail::unpoison(slot, slot_bytes_);
      free_ = slot->next;
      ++live_;
      return slot;
    }
    if (bump_ == bump_end_ && !grow()) [[unlikely]]
      return nullptr;
    void* slot = bump_;
    bump_ += slot_bytes_;
    detail::unpoison(slot, slot_bytes_);
    ++live_;
    return slot;
  }

  /// Takes a slot back; null is allowed. O(1). pre: it came from this pool and is in use
  void deallocate(void* slot) noexcept {
    if (slot == nullptr) return;
    assert(live_ != 0 && "a slot was given back twice, or to another pool");
    free_ = std::construct_at(static_cast<link*>(slot), link{free_});
    --live_;
    detail::poison(slot, slot_bytes_);
  }

  /// Gives blocks without a used slot back to the source and puts the free list in address order.
  /// Returns the bytes given back. O(n log n) for n free slots, without further memory.
  std::size_t shrink() noexcept {
    const std::size_t before = bytes_;
    if (live_ == 0) {
      release();
      return before;
    }
    unpoison_free();
    free_ = sort(free_);
    blocks_ = static_cast<block*>(sort(blocks_));
    // Both lists ascend, so one walk meets every block with its free slots.
    link** slot = &free_;
    for (link** at = &blocks_; *at != nullptr;) {
      auto* b = static_cast<block*>(*at);
      const auto* end = reinterpret_cast<const char*>(b) + b->bytes;
      const bool bumping = bump_ != bump_end_ && std::less<>()(static_cast<void*>(b), bump_) &&
                           std::less<>()(bump_, end);
      std::size_t free = bumping ? static_cast<std::size_t>(bump_end_ - bump_) / slot_bytes_ : 0;
      link** first = slot;
      while (*slot != nullptr && std::less<>()(reinterpret_cast<const char*>(*slot), end)) {
        ++free;
        slot = &(*slot)->next;
      }
      if (free != b->slots) {
        at = &b->next;
        continue;
      }
      *first = *slot;
      slot = first;
      if (bumping) bump_ = bump_end_ = nullptr;
      *at = b->next;
      slots_ -= b->slots;
      give_back(b);
    }
    poison_free();
    return before - bytes_;
  }

  /// Frees all blocks, with the slots in use; no destructor runs. O(blocks).
  void release() noexcept {
    while (blocks_ != nullptr) {
      auto* b = static_cast<block*>(blocks_);
      blocks_ = b->next;
      give_back(b);
    }
    free_ = nullptr;
    bump_ = bump_end_ = nullptr;
    slots_ = live_ = 0;
  }

  /// Slots in use.
  [[nodiscard]] std::size_t size() const noexcept { return live_; }
  /// Slots held, in use and free.
  [[nodiscard]] std::size_t capacity() const noexcept { return slots_; }
  /// Bytes held from the source.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Bytes from one slot to the next.
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] block_source source() const noexcept { return source_; }

 private:
  struct link {
    link* next;
  };
  struct block : link {
    std::size_t bytes, slots;
  };

  bool grow() noexcept {
    const std::size_t header = detail::round_up(sizeof(block), alignment_);
    if (slot_bytes_ > detail::kLargestRequest - header) return false;
    const std::size_t fit =
        options_.largest_block > header ? (options_.largest_block - header) / slot_bytes_ : 0;
    std::size_t slots = slots_ != 0 ? slots_ : options_.first_slots;  // doubles the pool
    slots = std::max<std::size_t>(std::min(slots, fit), 1);
    const std::size_t size = header + slots * slot_bytes_;
    void* memory = source_.allocate(size, alignment_);
    if (memory == nullptr) return false;
    auto* b = std::construct_at(static_cast<block*>(memory), block{{blocks_}, size, slots});
    blocks_ = b;
    slots_ += slots;
    bytes_ += size;
    bump_ = static_cast<char*>(memory) + header;
    bump_end_ = static_cast<char*>(memory) + size;
    detail::poison(bump_, size - header);
    return true;
  }

  void give_back(block* b) noexcept {
    const std::size_t size = b->bytes;
    bytes_ -= size;
    detail::unpoison(b, size);
    source_.deallocate(b, size, alignment_);
  }

  // Merge sort by address: bins[i] is null or a sorted list of 2^i links.
  static link* sort(link* list) noexcept {
    link* bins[64] = {};
    while (list != nullptr) {
      link* run = list;
      list = list->next;
      run->next = nullptr;
      std::size_t i = 0;
      for (; bins[i] != nullptr; ++i) run = merge(std::exchange(bins[i], nullptr), run);
      bins[i] = run;
    }
    for (link* run : bins) list = merge(run, list);
    return list;
  }
  static link* merge(link* a, link* b) noexcept {
    link* head = nullptr;
    link** tail = &head;
    while (a != nullptr && b != nullptr) {
      link*& lower = std::less<>()(a, b) ? a : b;
      *tail = lower;
      tail = &lower->next;
      lower = lower->next;
    }
    *tail = a != nullptr ? a : b;
    return head;
  }

  void unpoison_free() noexcept {
#if LOAM_CXX_ASAN
    for (link* slot = free_; slot != nullptr; slot = slot->next) {
      detail::unpoison(slot, slot_bytes_);
    }
#endif
  }
  void poison_free() noexcept {
#if LOAM_CXX_ASAN
    for (link* slot = free_; slot != nullptr;) {
      link* next = slot->next;
      detail::poison(slot, slot_bytes_);
      slot = next;
    }
#endif
  }

  block_source source_;
  options options_;
  std::size_t alignment_, slot_bytes_;
  link* free_ = nullptr;                        // slots that were used before
  char *bump_ = nullptr, *bump_end_ = nullptr;  // slots of the newest block, never used so far
  link* blocks_ = nullptr;
  std::size_t slots_ = 0, live_ = 0, bytes_ = 0;
};

/// A pool of objects of one type. One thread at a time may use it. Movable.
template <typename T>
class pool {
 public:
  using value_type = T;
  using options = pool_options;

  explicit pool(block_source source = {}, options how = {}) noexcept
      : slots_(sizeof(T), alignof(T), source, how) {}
  explicit pool(options how) noexcept : pool(block_source(), how) {}

  /// Makes an object. O(1). Throws std::bad_alloc, and what the constructor throws: the slot is
  /// then free again.
  template <typename... Arguments>
  [[nodiscard]] T* construct(Arguments&&... arguments) {
    struct guard {
      slot_pool* slots;
      void* slot;
      ~guard() { slots->deallocate(slot); }
    } slot{&slots_, slots_.allocate()};
    T* object =
        std::construct_at(static_cast<T*>(slot.slot), std::forward<Arguments>(arguments)...);
    slot.slot = nullptr;
    return object;
  }

  /// Destroys an object of this pool; null is allowed. O(1).
  void destroy(T* object) noexcept {
    if (object == nullptr) return;
    std::destroy_at(object);
    slots_.deallocate(object);
  }

  /// Blocks without objects go back to the source; see slot_pool::shrink().
  std::size_t shrink() noexcept { return slots_.shrink(); }

  /// Frees all memory at once. Objects that are still alive are not destroyed: use it for types
  /// whose destructor does nothing, or that own nothing outside the pool. The pool's own destructor
  /// does the same.
  void release() noexcept { slots_.release(); }

  /// Objects alive.
  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
  /// Objects that the memory held now has room for.
  [[nodiscard]] std::size_t capacity() const noexcept { return slots_.capacity(); }
  /// Bytes held from the source.
  [[nodiscard]] std::size_t bytes() const noexcept { return slots_.bytes(); }

 private:
  slot_pool slots_;
};

/// A slot_pool for every size, made at the first request of that size; pool_allocators share them.
/// Sizes are rounded up to 16 bytes, so that nodes of about one size share a pool. One thread at a
/// time may use the pools and all containers on them. The object must stay where it is.
class node_pools {
 public:
  explicit node_pools(block_source source = {}, pool_options how = {}) noexcept
      : source_(source), options_(how) {}
  node_pools(const node_pools&) = delete;
  node_pools& operator=(const node_pools&) = delete;
  /// Gives all memory back. pre: no container uses it any more
  ~node_pools() {
    while (first_ != nullptr) {
      entry* e = std::exchange(first_, first_->next);
      std::destroy_at(e);
      source_.deallocate(e, sizeof(entry), alignof(entry));
    }
  }

  /// The pool for nodes of that size. O(number of sizes in use); throws std::bad_alloc.
  [[nodiscard]] slot_pool& for_size(std::size_t bytes, std::size_t alignment) {
    alignment = std::max(alignment, detail::kNaturalAlignment);
    bytes = detail::round_up(bytes, alignment);
    for (entry* e = first_; e != nullptr; e = e->next) {
      if (e->bytes == bytes && e->alignment == alignment) return e->pool;
    }
    void* memory = source_.allocate(sizeof(entry), alignof(entry));
    if (memory == nullptr) detail::out_of_memory(sizeof(entry));
    first_ = std::construct_at(
        static_cast<entry*>(memory),
        entry{first_, bytes, alignment, slot_pool(bytes, alignment, source_, options_)});
    return first_->pool;
  }

  /// Empty blocks of all pools go back to the source; returns the bytes.
  std::size_t shrink() noexcept {
    std::size_t sum = 0;
    for (entry* e = first_; e != nullptr; e = e->next) sum += e->pool.shrink();
    return sum;
  }
  /// Bytes held from the source by all pools.
  [[nodiscard]] std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (const entry* e = first_; e != nullptr; e = e->next) sum += e->pool.bytes();
    return sum;
  }
  /// Nodes in use.
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t sum = 0;
    for (const entry* e = first_; e != nullptr; e = e->next) sum += e->pool.size();
    return sum;
  }
  [[nodiscard]] block_source source() const noexcept { return source_; }

 private:
  struct entry {
    entry* next;
    std::size_t bytes, alignment;
    slot_pool pool;
  };
  block_source source_;
  pool_options options_;
  entry* first_ = nullptr;
};

/// Standard allocator over node_pools. Single objects (the nodes of list, map, set, unordered_map)
/// come from a pool of their size. Arrays (a hash table's buckets, a vector) come straight from the
/// source, because no pool of one size could serve both. The node_pools must outlive the container.
/// Move assignment and swap carry the allocator along, copy assignment does not.
template <typename T>
class pool_allocator {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  pool_allocator(node_pools& pools) noexcept : pools_(&pools) {}
  template <typename U>
  pool_allocator(const pool_allocator<U>& other) noexcept : pools_(other.resource()) {}

  /// O(1) for a node. Throws std::bad_alloc, also when the size overflows.
  [[nodiscard]] T* allocate(std::size_t count) {
    if (count == 1) return static_cast<T*>(nodes().allocate());
    if (count > detail::kLargestRequest / sizeof(T)) detail::out_of_memory(detail::kLargestRequest);
    void* p = pools_->source().allocate(count * sizeof(T), alignof(T));
    if (p == nullptr) detail::out_of_memory(count * sizeof(T));
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t count) noexcept {
    if (count == 1) return nodes().deallocate(p);
    pools_->source().deallocate(p, count * sizeof(T), alignof(T));
  }
  [[nodiscard]] node_pools* resource() const noexcept { return pools_; }

  /// Equal if they use the same pools.
  template <typename U>
  [[nodiscard]] friend bool operator==(const pool_allocator& a,
                                       const pool_allocator<U>& b) noexcept {
    return a.resource() == b.resource();
  }

 private:
  slot_pool& nodes() {
    if (own_ == nullptr) own_ = &pools_->for_size(sizeof(T), alignof(T));
    return *own_;
  }
  node_pools* pools_;
  slot_pool* own_ = nullptr;  // found at the first request
};

}  // namespace loam
