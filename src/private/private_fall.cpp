// What a private heap gives back while its use falls, and when the process is silent. Both purge
// free pages inside of spans that live or cached blocks keep. Decisions 104 and 136 have the same
// for malloc()'s heap.
//
//   free   free slots of spans, less the pages that are purged already
//   held   what a fall left free, because use fell by as much before and rose again
#include "base/go_on.h"
#include "cache/thread_fall.h"
#include "map/metadata.h"
#include "pages/page_heap.h"
#include "private/heap_registry.h"

namespace loam {

namespace {

// The most pages of a step of give_back_held(), which bounds the time under the lock.
constexpr Pages kMostPerStep{2048};

bool may_have_free_pages(const HeapRun* run) {
  return run->use == RunUse::kSpan && size_t{run->free_slots} * run->slot_bytes >= kPageBytes;
}

}  // namespace

Pages PrivateHeap::free_backed_pages() const {
  size_t bytes = 0;
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const HeapBin* bin = bin_of(c);
    if (bin != nullptr) bytes += size_t{bin->free_slots} * kSizeClasses[c].bytes;
  }
  const Pages all(bytes >> kPageShift), purged(account_.unbacked_pages);
  return all > purged ? all - purged : Pages(0);
}

void PrivateHeap::note_held(Pages pages) {
  // relaxed: all these are figures that may be old
  const Pages before(held_pages_.load(std::memory_order_relaxed));
  if (pages == before) return;
  held_pages_.store(static_cast<uint32_t>(pages.count), std::memory_order_relaxed);
  page_heap.hints().change_held_in_heaps(before, pages);
}

void PrivateHeap::note_hollow(size_t pages) {
  page_heap.hints().change_hollow_in_heaps(Pages(fall_.hollow), Pages(pages));
  fall_.hollow = static_cast<uint32_t>(pages);
}

// Purges the free pages of spans from a serial number on, and moves it on; not much more than
// `most`.
Pages PrivateHeap::purge_spans(uint64_t* serial, Pages most) {
  Pages gone(0);
  for (HeapRun* run : runs_) {
    if (run->serial < *serial || !may_have_free_pages(run)) continue;
    if (gone >= most) break;
    gone += purge_inside(run);
    *serial = run->serial + 1;
  }
  note_hollow(account_.unbacked_pages);
  return gone;
}

// Each cached block may keep a page. Returns them all if they could keep more than that; magazines
// then grow again when the thread takes.
void PrivateHeap::shorten_magazines(HeapCache* cache, Pages most) {
  size_t blocks = 0;
  for (const HeapMagazine& m : cache->magazines) blocks += m.held();
  if (blocks <= most.count) return;
  for (unsigned c = 1; c < kSizeClassCount; ++c) retire_magazine(cache, c);
  cache->short_refills = ThreadFall::kRefillsToGrow;
}

// `cache`: the calling thread's, or null. pre: the thread is in free(), in the lock
void PrivateHeap::look_at_fall(HeapCache* cache) {
  fall_.fallen = 0;
  const Pages free = free_backed_pages();
  const Pages charged = Pages(account_.charged >> kPageShift);
  const Pages used = charged > free ? charged - free : Pages(0);
  // Use that fell and rose again may do so once more.
  const size_t came_back = fall_.use.note(used.count);
  if (came_back > fall_.returned) fall_.returned = static_cast<uint32_t>(came_back);
  note_hollow(account_.unbacked_pages);
  page_heap.tick_unless_busy();
  fall_.step = used.bytes() / PurgePolicy::kFallShare;
  if (fall_.step < kLeastFallStep) fall_.step = kLeastFallStep;
  if (fall_.step > ThreadFall::kFallStep) fall_.step = ThreadFall::kFallStep;
  Pages most(2 * used.count / PurgePolicy::kFallShare);
  if (most < PurgePolicy::kFallFloor) most = PurgePolicy::kFallFloor;
  // A heap of small spans has much memory in their records.
  if (metadata.idle_bytes() > most.bytes() / 2 && page_heap.hints().returned_bytes() < most.bytes())
    static_cast<void>(metadata.purge(kMostPerStep.bytes()));
  if (free <= most) return note_held(Pages(0));
  if (free <= Pages(fall_.returned) + most) return note_held(free);
  note_held(Pages(0));
  if (cache != nullptr) shorten_magazines(cache, most);
  uint64_t serial = 0;
  static_cast<void>(purge_spans(&serial, charged));
}

bool PrivateHeap::give_back_held(uint64_t* serial) {
  // The calling thread holds the lock only where a handler of a signal interrupted it. A program
  // that locked the heap walks through it.
  if (unsynchronized() || mutex_.is_locked()) return false;
  Lock lock(mutex_);
  if (hold_.owner != 0) return false;
  ThreadHeaps* const thread = thread_heaps();
  // relaxed: only this thread stores it. A handler may have interrupted a fast path.
  if (thread != nullptr && thread->busy.load(std::memory_order_relaxed) == 0) {
    for (HeapCache* cache : caches_.list) {
      if (cache->owner == thread) flush_all(cache);
    }
  }
  const Pages gone = purge_spans(serial, kMostPerStep);
  fall_.returned = 0;
  fall_.use.forget();
  if (gone >= kMostPerStep) return true;
  note_held(Pages(0));
  return false;
}

void HeapRegistry::give_back_held(const GoOn& go_on) {
  uint64_t generation = 0, serial = 0;
  for (bool more = true; more && go_on();) {
    Lock lock(mutex_);
    more = false;
    for (PrivateHeap* heap : heaps_) {
      if (heap->generation() < generation || heap->held_pages() == Pages(0)) continue;
      if (heap->generation() != generation) serial = 0;
      generation = heap->generation() + !heap->give_back_held(&serial);
      more = true;
      break;
    }
  }
}

}  // namespace loam
