// A private heap: its own spans, large blocks and caches, on the page heap that all heaps share.
//
//   account_.charged = records + pages of all runs (set aside ones and those on their way, too)
//           <= account_.maximum unless that is 0
//   slots of a bin's spans = free slots + slots that threads' caches hold + live slots
//   taken - given = cached + live, those in mixed runs included
//
// Identity: the record's address. Generation: a number that no other heap ever had; 0 when the heap
// is destroyed. Records are used again for other heaps (oldest first) and for nothing else, so the
// library can answer an old handle.
//
// Lock: mutex_, above the page heap's, the huge map's and the metadata's, below the registry's
// (heap_registry.h). Public functions take it themselves. An unsynchronised heap does not take it.
#pragma once

#include <loam/loam.h>

#include "base/check.h"
#include "os/mutex.h"
#include "pages/fallen_use.h"
#include "private/private_cache.h"

namespace loam {

/// One size class of one private heap. Class 0 has the mixed runs, in lists by an upper bound of
/// their longest free stretch.
struct HeapBin {
  static constexpr unsigned kLists = 3;  // by share of used slots; fullest first, as in Bin
  HeapRun* lists[kLists];
  uint32_t in_mixed;  // live blocks in mixed runs
  uint32_t spans;
  uint32_t free_slots;
  uint64_t taken;
  uint64_t given;
};

struct HeapBins {
  static constexpr unsigned kBins = 8;
  HeapBin bins[kBins];
};

/// The counters of a heap (stats.h).
struct HeapReading {
  struct Class {
    size_t spans, free_slots, cached, in_mixed;
    uint64_t taken, given;
  };
  size_t charged, records, set_aside, large_bytes, large_blocks, unbacked_pages, mixed_runs,
      mixed_pages;
  uint64_t lock_acquisitions, lock_contentions, lock_refusals;
};

struct HeldBack;  // private_guard.cpp

class alignas(64) PrivateHeap : public ListLink<PrivateHeap> {
 public:
  static constexpr unsigned kNameBytes = 32;

  /// Makes the record a heap. LOAM_OK, or the reason of the refusal; then nothing is held.
  [[nodiscard]] loam_status start(const loam_heap_options& options, uint64_t generation);

  /// Gives back all memory of the heap. The caller has removed it from the registry and called
  /// stop_for_ever().
  void finish();

  /// Checks the canary of every live block; `report`: each damaged one is reported. pre: no other
  /// call is in progress
  [[nodiscard]] bool blocks_are_intact(bool report);

  // ---- the fast paths, without a lock

  /// A block from the calling thread's cache; null: then call allocate().
  [[nodiscard]] LOAM_INLINE static void* pop(const PrivateHeap* heap, size_t bytes);
  /// True when the block went to the calling thread's cache; otherwise call free(). `heap` may have
  /// any value. pre: span == span_named_at(block), not null
  [[nodiscard]] LOAM_INLINE static bool push(const PrivateHeap* heap, const Span* span,
                                             void* block);
  /// The same for heaps of exact sizes and heaps that clear freed blocks.
  [[nodiscard]] LOAM_NOINLINE static void* pop_special(const PrivateHeap* heap, size_t bytes);
  [[nodiscard]] LOAM_NOINLINE static bool push_special(const PrivateHeap* heap, const Span* span,
                                                       void* block);

  // ---- blocks

  /// pre: alignment is a power of two. Null with *why set.
  [[nodiscard]] void* allocate(size_t bytes, size_t alignment, bool zero, loam_status* why);
  [[nodiscard]] loam_status free(void* block);
  [[nodiscard]] void* reallocate(void* block, size_t bytes, size_t alignment, bool zero,
                                 loam_status* why);
  [[nodiscard]] loam_status try_resize(void* block, size_t bytes);

  /// What this heap knows of a pointer.
  struct Found {
    loam_status status;  ///< LOAM_OK, LOAM_INVALID_BLOCK, LOAM_WRONG_HEAP
    HeapRun* run = nullptr;
    uint8_t* state = nullptr;  ///< kSpan
    size_t bytes = 0;          ///< as loam_size()
    size_t usable = 0;
  };
  [[nodiscard]] Found find(const void* block) const;
  /// The private heap whose live block starts there, or null. `block` may have any value.
  [[nodiscard]] static PrivateHeap* heap_of(const void* block);

  // ---- the whole heap

  [[nodiscard]] loam_status lock();
  [[nodiscard]] loam_status try_lock();
  [[nodiscard]] loam_status unlock();
  [[nodiscard]] loam_status walk_next(loam_walk_entry* entry);
  void summary(loam_heap_summary* out);
  /// Without the page heap's part: returns the pages purged inside spans. *largest: bytes of the
  /// largest free slot.
  Pages compact(size_t* largest);
  [[nodiscard]] bool is_valid();
  /// Does not wait for a thread that holds loam_lock(). A heap without locks is read as it is.
  using VisitClass = void (*)(void* context, unsigned size_class,
                              const HeapReading::Class& figures);
  void read(HeapReading* out, VisitClass visit, void* context) LOAM_NO_THREAD_SAFETY_ANALYSIS;
  /// `visit` gets one class after the other, under the heap's lock, and must not call any heap.
  template <class Visit>
  void read(HeapReading* out, Visit visit) {
    read(out, &visit_by<Visit>, &visit);
  }

  [[nodiscard]] loam_status set_mode(int mode);
  [[nodiscard]] int mode() const { return mode_.load(std::memory_order_relaxed); }
  void set_small_threshold(size_t bytes);
  [[nodiscard]] size_t small_threshold() const { return asked_.threshold; }

  [[nodiscard]] const char* name() const { return asked_.name; }
  /// As given at the heap's creation, without the additions of LOAM_HARDEN.
  [[nodiscard]] unsigned flags() const { return asked_.flags; }
  [[nodiscard]] bool exact() const { return (flags_ & LOAM_HEAP_EXACT_SIZES) != 0; }
  [[nodiscard]] bool canary() const { return (flags_ & LOAM_HEAP_CANARY) != 0; }
  /// Reports which byte behind the live block was overwritten, as report_misuse() does.
  /// pre: LOAM_CORRUPT was answered
  static void report_overflow(const void* block, Mutex* held = nullptr);
  [[nodiscard]] size_t maximum() const { return account_.maximum; }
  [[nodiscard]] loam_failure_callback on_failure() const { return asked_.on_failure; }
  [[nodiscard]] void* failure_context() const { return asked_.context; }
  [[nodiscard]] Mutex& mutex() { return mutex_; }
  /// The outermost lock that a caller inside the heap holds, for report_misuse().
  [[nodiscard]] Mutex* held_lock();
  /// Bytes below the maximum.
  [[nodiscard]] size_t room();

  // ---- for the registry

  /// 0 when this is no heap, or no longer one.
  [[nodiscard]] uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  /// Ends the heap's identity; LOAM_BUSY while another thread holds its lock.
  [[nodiscard]] loam_status stop_for_ever();
  /// Returns a cache's slots and forgets the cache: at once or, while a thread holds the heap's
  /// lock, with the unlock. Nothing in a locked heap changes except by its owner's calls. pre: its
  /// thread is the caller, or gone
  void retire_cache(HeapCache* cache);
  /// pre: the other threads' caches are not adopted yet
  void reset_after_fork(uintptr_t survivor);
  /// Pages that a fall left free. An old value.
  [[nodiscard]] Pages held_pages() const {
    return Pages(held_pages_.load(std::memory_order_relaxed));
  }
  /// A step of giving these back, in the order of the runs' serial numbers. True if there are more.
  [[nodiscard]] bool give_back_held(uint64_t* serial);

 private:
  template <bool kSpecial>
  [[nodiscard]] LOAM_INLINE static void* pop_as(const PrivateHeap* heap, size_t bytes);
  template <bool kSpecial>
  [[nodiscard]] LOAM_INLINE static bool push_as(const PrivateHeap* heap, const Span* span,
                                                void* block);

  friend class HeapRegistry;
  friend struct CounterFields;

  template <class Visit>
  static void visit_by(void* visit, unsigned size_class, const HeapReading::Class& figures) {
    (*static_cast<Visit*>(visit))(size_class, figures);
  }
  void read_inside(HeapReading* out, VisitClass visit, void* context);
  [[nodiscard]] static size_t describe_step(HeapRun* run, size_t step, loam_walk_entry* entry);

  // private_heap.cpp
  class Use;
  [[nodiscard]] bool unsynchronized() const { return (flags_ & LOAM_HEAP_UNSYNCHRONIZED) != 0; }
  [[nodiscard]] bool zero_on_free() const { return (flags_ & LOAM_HEAP_ZERO_ON_FREE) != 0; }
  [[nodiscard]] bool charge(size_t bytes);
  void uncharge(size_t bytes) { account_.charged -= bytes; }
  [[nodiscard]] static size_t charged_for_record(size_t bytes);
  [[nodiscard]] void* allocate_record(size_t bytes);
  void free_record(void* record, size_t bytes);
  [[nodiscard]] HeapRun* new_run(size_t bytes, size_t record_bytes, loam_status* why);
  void drop_run(HeapRun* run, size_t record_bytes);
  /// Why allocate_record() gave none.
  [[nodiscard]] loam_status why_no_record(size_t bytes) const {
    return account_.maximum != 0 && account_.charged + charged_for_record(bytes) > account_.maximum
               ? LOAM_LIMIT_REACHED
               : LOAM_OUT_OF_MEMORY;
  }
  [[nodiscard]] loam_status set_aside(Pages left);
  void use_set_aside(Pages pages);
  /// A request for a small block, and the class that served it.
  struct Request {
    unsigned size_class;
    size_t bytes;      ///< the requested bytes
    size_t alignment;  ///< LOAM_ALIGNMENT at least
    void* block = nullptr;
    size_t usable = 0;  ///< the bytes of the block: its class's, or a larger class's where a
                        ///< full heap had nothing closer
    [[nodiscard]] size_t bytes_of_class() const { return kSizeClasses[size_class].bytes; }
  };
  [[nodiscard]] bool allocate_small(Request* request, loam_status* why);
  [[nodiscard]] bool take_slot(HeapCache* cache, Request* request, loam_status* why);
  /// `grows`: in a mapping of its own, which resize_large() makes longer (decision 54).
  [[nodiscard]] void* allocate_large(size_t bytes, size_t alignment, bool zero, loam_status* why,
                                     bool grows = false);
  [[nodiscard]] loam_status free_large(const Found& found, void* block);
  /// The block's address afterwards; null when refused, with *why set. `zero`: a mapping must have
  /// only zero bytes behind its old end.
  [[nodiscard]] void* resize_large(const Found& found, void* block, size_t bytes, bool in_place,
                                   bool zero, loam_status* why);
  void note_resized(HeapRun* run, void* block, size_t bytes, size_t pages);
  [[nodiscard]] void* move_run(const Found& found, size_t bytes, bool zero);
  [[nodiscard]] void* resize_and_clear(const Found& found, void* block, size_t bytes,
                                       size_t alignment, bool zero, loam_status* why);
  void add_run(HeapRun* run);
  void release_run(HeapRun* run);

  // heap_bins.cpp
  [[nodiscard]] HeapBin* bin_of(unsigned size_class) const;
  [[nodiscard]] HeapBin* make_bin(unsigned size_class);
  [[nodiscard]] HeapRun* add_cut_run(RunUse use, unsigned size_class, Pages pages,
                                     size_t slot_bytes, unsigned slots, loam_status* why);
  [[nodiscard]] HeapRun* add_span(HeapBin* bin, unsigned size_class, loam_status* why);
  unsigned take(unsigned size_class, CacheSlot* out, unsigned wanted, loam_status* why);
  void note_backed(HeapRun* run, size_t slot, size_t count);
  void give(const CacheSlot* slots, unsigned count);
  void release_span(HeapBin* bin, HeapRun* run);
  Pages purge_inside(HeapRun* run);
  [[nodiscard]] bool bins_are_valid() const;

  // mixed_runs.cpp
  void note_busy(const HeapBin* bin);
  [[nodiscard]] bool take_from_starter(Request* request);
  struct Stretch;
  [[nodiscard]] static unsigned class_within(size_t bytes);
  [[nodiscard]] bool has_room(size_t pages, size_t record_bytes, bool of_span) const;
  [[nodiscard]] uint64_t returns() const;
  /// Whether spans are cut anew. A live block's state then moves to another record, under the lock.
  [[nodiscard]] bool recuts() const { return account_.maximum != 0; }
  [[nodiscard]] HeapRun* add_mixed(Pages pages, size_t piece_bytes);
  void count_mixed(HeapRun* run);
  void release_mixed(HeapRun* run);
  void place_mixed(HeapRun* run, size_t longest);
  [[nodiscard]] static size_t longest_stretch(HeapRun* run);
  [[nodiscard]] static bool find_stretch(HeapRun* run, const Request& request, Stretch* out);
  [[nodiscard]] bool take_pieces(HeapRun* run, const Stretch& stretch, Request* request);
  [[nodiscard]] bool take_from_run(HeapRun* run, Request* request);
  [[nodiscard]] bool take_from_mixed(Request* request);
  void give_to_mixed(HeapRun* run, void* block);
  [[nodiscard]] bool take_from_new_mixed(Request* request);
  [[nodiscard]] HeapRun* find_to_recut(const Request& request);
  [[nodiscard]] bool take_from_recut(Request* request);
  [[nodiscard]] HeapRun* recut(HeapRun* old, size_t piece_bytes, const Request& request);
  [[nodiscard]] bool take_larger_slot(Request* request);
  [[nodiscard]] bool squeeze(Request* request);
  [[nodiscard]] static bool mixed_is_valid(HeapRun* run, size_t* blocks, size_t* lost);

  // private_guard.cpp
  [[nodiscard]] bool poisons() const { return (flags_ & LOAM_HEAP_POISON) != 0; }
  [[nodiscard]] size_t canary_bytes() const;
  /// The end of the part of a block that is cleared: its canary stays, for a thread that validates
  /// the heap meanwhile.
  [[nodiscard]] size_t end_of(const Found& found) const {
    return canary() ? found.bytes : found.usable;
  }
  void hold_back(const CacheSlot& slot, size_t bytes);
  void release_oldest();
  void release_all_held_back();
  [[nodiscard]] bool poison_is_intact() const;
  [[nodiscard]] size_t held_back() const;
  void count_held_back(uint32_t cached[kSizeClassCount]) const;

  // private_fall.cpp
  [[nodiscard]] Pages free_backed_pages() const;
  void note_held(Pages pages);
  void note_hollow(size_t pages);
  Pages purge_spans(uint64_t* serial, Pages most);
  void note_fall(HeapCache* cache) {
    if (LOAM_UNLIKELY(fall_.fallen >= fall_.step)) look_at_fall(cache);
  }
  LOAM_NOINLINE void look_at_fall(HeapCache* cache);
  /// The fewest bytes of spans between two looks: at a fall's end each block may free a page.
  static constexpr size_t kLeastFallStep = size_t{16} << 10;
  void shorten_magazines(HeapCache* cache, Pages most);

  // private_cache.cpp
  [[nodiscard]] HeapCache* cache_for_thread();
  [[nodiscard]] HeapCache* make_cache(ThreadHeaps* thread);
  void close_doors();
  using Way = magazine_policy::Way;
  bool grow(HeapCache* cache, unsigned size_class, Way way);
  void retire_magazine(HeapCache* cache, unsigned size_class);
  [[nodiscard]] size_t granted_for(unsigned size_class, unsigned capacity) const;
  bool refill(HeapCache* cache, unsigned size_class, loam_status* why);
  void flush(HeapMagazine& magazine, unsigned count);
  void flush_all(HeapCache* cache);
  void free_cache(HeapCache* cache);
  void end_cache(HeapCache* cache);
  [[nodiscard]] static Found locate(const void* block);
  void lock_inside();
  void stop_caches();
  void resume_caches();
  void bring_home();
  void reclaim();

  // What the program asked for. `threshold`: of blocks that use caches.
  struct Asked {
    unsigned flags;
    loam_failure_callback on_failure;
    void* context;
    size_t threshold;
    char name[kNameBytes];
  };
  // Bytes, of the heap's maximum and of what it holds.
  struct Account {
    size_t maximum;  // 0: none
    size_t charged;
    size_t peak;
    size_t records;
    size_t set_aside;
    size_t large_bytes;     // whole pages
    size_t coming_bytes;    // charged for large blocks that are being made
    size_t unbacked_pages;  // of spans and mixed runs
    uint64_t large_taken;
    uint64_t large_given;
  };
  // loam_lock().
  struct Hold {
    uint32_t word;  // 1 while a thread holds it: other threads sleep on it
    unsigned depth;
    uintptr_t owner;
    bool stops_caches;  // the doors to all caches are closed, no thread is inside
  };
  struct Caches {
    List<HeapCache> list;
    HeapCache* own;
    uint64_t ended_refills;
    uint64_t ended_flushes;
    uint32_t lost_slots;  // at most this many slots were in no place at the fork
    bool closed;          // for ever: the system refuses its barrier since the caches were made
  };
  // What is purged inside of spans while use falls (private_fall.cpp).
  struct Fall {
    size_t fallen;      // bytes given to spans since the last look, less those taken
    size_t step;        // the next look
    FallenUse use;      // pages, at looks
    uint32_t returned;  // by how much use fell and rose again
    uint32_t hollow;    // purged pages, as the page heap's hints know them
  };
  struct Mixed {
    HeapRun* starter;  // the newest starter page; null once it is full, or there are enough of them
    uint32_t runs;     // starter pages count
    uint32_t pages;
    // A request of this many bytes found no place at this count of returns(). No such request will
    // before the count rises.
    size_t refused_bytes;
    uint64_t refused_at;
  };

  std::atomic<uint64_t> generation_{0};
  unsigned flags_ = 0;
  std::atomic<int> mode_{0};
  // Classes from 1 to this one use caches. Changes under the lock; relaxed: a thread that reads it
  // without the lock checks again inside.
  std::atomic<unsigned> cached_classes_{0};
  [[nodiscard]] bool is_cached(unsigned size_class) const {
    return size_class <= cached_classes_.load(std::memory_order_relaxed);
  }
  std::atomic<uint32_t> inside_{0};  // debug builds: a thread is in an unsynchronised heap
  Mutex mutex_;
  Hold hold_{};
  Account account_{};
  uint64_t serials_ = 0;
  List<HeapRun> runs_;
  Caches caches_{};
  Mixed mixed_{};
  Fall fall_{};
  std::atomic<uint32_t> held_pages_{0};  // free pages that are waited for
  HeldBack* held_back_ = nullptr;        // freed blocks full of poison; null until there is one
  Asked asked_{};
  static constexpr unsigned kBinGroups = (kSizeClassCount + HeapBins::kBins - 1) / HeapBins::kBins;
  HeapBins* groups_[kBinGroups] = {};
};
static_assert(sizeof(PrivateHeap) <= 512, "a heap that nobody uses costs little");

// Inside the heap's lock, once no other thread has stopped the heap.
class LOAM_CAPABILITY("scoped heap") PrivateHeap::Use {
 public:
  explicit Use(PrivateHeap& heap) LOAM_NO_THREAD_SAFETY_ANALYSIS : heap_(heap) {
    if (heap.unsynchronized()) {
#if defined(LOAM_DEBUG)
      if (heap.inside_.exchange(1, std::memory_order_acq_rel) != 0) {
        fatal("an unsynchronised heap is used by two threads at once", &heap);
      }
#endif
      return;
    }
    heap.mutex_.lock();
    while (LOAM_UNLIKELY(heap.hold_.owner != 0 && heap.hold_.owner != this_thread())) {
      heap.mutex_.unlock();
      os::wait_while_equal(&heap.hold_.word, 1);
      os::wake_one(&heap.hold_.word);  // each woken thread wakes the next
      heap.mutex_.lock();
    }
  }
  ~Use() LOAM_NO_THREAD_SAFETY_ANALYSIS {
    if (!heap_.unsynchronized()) {
      heap_.mutex_.unlock();
      return;
    }
#if defined(LOAM_DEBUG)
    heap_.inside_.store(0, std::memory_order_release);
#endif
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  PrivateHeap& heap_;
};

template <bool kSpecial>
LOAM_INLINE void* PrivateHeap::pop_as(const PrivateHeap* heap, size_t bytes) {
  ThreadHeaps* thread = thread_heaps();
  if (LOAM_UNLIKELY(thread == nullptr)) return nullptr;
  unsigned size_class;
  if (LOAM_LIKELY(bytes <= kFineLimit)) {
    size_class = fine_class(bytes);
  } else if (LOAM_LIKELY(bytes <= kLargestSmall)) {
    size_class = class_for(bytes);
  } else {
    return nullptr;
  }
  ThreadHeaps::Door& door = thread->door_of(heap);
  thread->note_inside(heap);
  thread->enter();
  // Before `heap` is followed: it may be no heap at all.
  if (LOAM_UNLIKELY(!door.leads_to(kSpecial ? ThreadHeaps::special(heap) : heap))) {
    thread->leave();
    return nullptr;
  }
  HeapCache* cache = door.cache;
  HeapMagazine* m = cache->magazine_at(HeapCache::offset_of(size_class));
  CacheSlot* head = m->head;
  if (LOAM_UNLIKELY(head == m->base)) {
    thread->leave();
    return nullptr;
  }
  --head;
  void* block = head->block;
  uint8_t* state = head->state;
  m->head = head;
  std::atomic_signal_fence(
      std::memory_order_seq_cst);  // for a fork()ed child: it left before it is live
  const bool exact = kSpecial && cache->exact;
  store_state(state, exact, live_state(exact, bytes));
  thread->leave();
  if (block == nullptr) __builtin_unreachable();  // saves callers their test
  return block;
}

template <bool kSpecial>
LOAM_INLINE bool PrivateHeap::push_as(const PrivateHeap* heap, const Span* span, void* block) {
  ThreadHeaps* thread = thread_heaps();
  if (LOAM_UNLIKELY(thread == nullptr)) return false;
  if (LOAM_UNLIKELY(!span->is_owned_by(heap))) return false;
  // Offset / bytes of a slot as a number of 32 + 32 bits. Up to the reciprocal's error it has no
  // fraction where a slot begins; a unit test tries every offset of every class.
  const uint32_t reciprocal = span->owned.reciprocal;
  const uint64_t quotient = (reinterpret_cast<uintptr_t>(block) - span->owned.base) * reciprocal;
  if (LOAM_UNLIKELY(static_cast<uint32_t>(quotient) >= reciprocal)) return false;
  ThreadHeaps::Door& door = thread->door_of(heap);
  thread->note_inside(heap);
  thread->enter();
  // From here on the span is known to be a private heap's: neither null nor record 0 is ever behind
  // a door.
  if (LOAM_UNLIKELY(!door.leads_to(kSpecial ? ThreadHeaps::special(heap) : heap))) {
    thread->leave();
    return false;
  }
  HeapCache* cache = door.cache;
  HeapMagazine* const m = one_address(cache->magazine_at(span->owned.magazine));
  CacheSlot* head = m->head;
  constexpr bool exact =
      kSpecial;  // or it clears, which the slow path does: a call here would cost registers
  uint8_t* state =
      static_cast<HeapRun*>(span->owned.run)->states() + ((quotient >> 32) << unsigned(exact));
  if (LOAM_UNLIKELY(head == m->end || (kSpecial && cache->zero_on_free)) ||
      LOAM_UNLIKELY(exact ? load_state(state, exact) < kSlotLive
                          : !equals_relaxed(state, kSlotLive))) {
    thread->leave();
    return false;
  }
  store_state(state, exact, kSlotCached);
  *head = CacheSlot{block, state};
  std::atomic_signal_fence(
      std::memory_order_seq_cst);  // for a fork()ed child: stored before it is covered
  m->head = head + 1;
  thread->leave();
  return true;
}

LOAM_INLINE void* PrivateHeap::pop(const PrivateHeap* heap, size_t bytes) {
  return pop_as<false>(heap, bytes);
}
LOAM_INLINE bool PrivateHeap::push(const PrivateHeap* heap, const Span* span, void* block) {
  return push_as<false>(heap, span, block);
}

}  // namespace loam
