// Runs whose pieces serve blocks of all small classes. A heap makes them of its memory when it may
// take no more. All under the heap's lock. heap_run.h describes the record.
//
// The first pages of a heap, its starter pages, are such runs too, in pieces of 16 bytes: a heap of
// a few KiB then takes a page or two, and not one page a class. A heap that becomes busy, or has
// its share of them, goes on with spans of one class; existing blocks stay.
//
// A heap is full when a class has no free slot and the maximum has no room for a span of it. Then,
// in this order (decision 68):
//
//   1. a stretch of free pieces of an existing mixed run
//   2. cached and held back blocks return, empty runs go, and the class tries once more
//   3. a mixed run of as many pages as there is room for
//   4. the span with most free memory is cut anew: its live blocks stay, the rest becomes pieces
//   5. a whole slot of a larger class
//
//   bin 0: lists of the mixed runs by `longest`, which is never less than the longest free stretch
//   a mixed run's free_slots = its free pieces
//   an empty one goes back at once, unless it is the newest starter page
#include <algorithm>

#include "map/metadata.h"
#include "pages/page_heap.h"
#include "private/private_heap.h"

namespace loam {

namespace {

// When a full heap cuts a span anew, the least pieces of a slot, and about the most pieces of a
// span. Chosen: more pieces waste less of a slot on a block, and each costs 2 or 3 bytes of
// records.
constexpr size_t kPiecesOfSlot = 8;
constexpr size_t kPiecesOfSpan = 128;
constexpr size_t kMostPiecesOfSpan = 2 * kPiecesOfSpan;

// Larger blocks would leave holes too short for any block; a span of them is not much longer than
// the block.
constexpr size_t kLargestStarterBlock = 512;
// A heap with this many mixed runs makes no more of these pages. Chosen: with more classes in use
// than this, spans cost no more than the first-fit search here, which looks at four words.
constexpr uint32_t kMostStarters = 4;
// Blocks of one class before the heap's front end begins, as Windows counts them.
constexpr uint64_t kBusyAfter = 18;

uint8_t list_for(size_t longest) {
  if (longest == 0) return kNoHeapList;
  return longest < 256 ? 0 : longest < 2048 ? 1 : 2;
}

// The first slot or piece at `from` or behind it with the wanted bit; run->slots when there is
// none.
size_t next_with(HeapRun* run, size_t from, bool is_free) {
  const uint64_t *const words = run->free_bits(), flip = is_free ? 0 : ~uint64_t{0};
  const size_t found = find_bit(static_cast<unsigned>(from), (run->slots + 63u) / 64,
                                [&](unsigned w) { return words[w] ^ flip; });
  return found < run->slots ? found : run->slots;
}

// Calls visit(first, end) for each stretch of free slots or pieces until it returns true, and
// returns whether it did.
template <class Visit>
bool any_stretch(HeapRun* run, Visit visit) {
  for (size_t first = next_with(run, 0, true); first < run->slots;) {
    const size_t end = next_with(run, first, false);
    if (visit(first, end)) return true;
    first = next_with(run, end, true);
  }
  return false;
}

void set_free(HeapRun* run, size_t first, size_t end, bool is_free) {
  over_words(static_cast<unsigned>(first), static_cast<unsigned>(end - first),
             [&](unsigned w, uint64_t mask) {
               uint64_t& word = run->free_bits()[w];
               word = is_free ? word | mask : word & ~mask;
             });
}

}  // namespace

struct PrivateHeap::Stretch {
  size_t first, end;
};

// The class in which a block of this many bytes of pieces is counted, and whose bytes it has: the
// largest that fits.
unsigned PrivateHeap::class_within(size_t bytes) {
  if (bytes >= kLargestSmall) return kSizeClassCount - 1;
  const unsigned size_class = class_for(bytes);
  return size_class - (kSizeClasses[size_class].bytes > bytes);
}

// Whether a heap with a maximum has room for this many more pages, of spans or of a large block,
// and for their record. The room for the records of spans that are cut anew does not count; memory
// that was set aside does.
bool PrivateHeap::has_room(size_t pages, size_t record_bytes, bool of_span) const {
  if (account_.maximum == 0) return true;
  const size_t used = account_.charged - account_.set_aside;
  const size_t of_spans = used - account_.records - account_.large_bytes - account_.coming_bytes +
                          (of_span ? pages : 0);
  return used + pages + charged_for_record(record_bytes) + of_spans / kShareOfMaximum <=
         account_.maximum;
}

// The number of returns so far.
uint64_t PrivateHeap::returns() const {
  uint64_t sum = account_.large_given;
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    if (const HeapBin* bin = bin_of(c)) sum += bin->given;
  }
  return sum;
}

// ---- mixed runs --------------------------------------------------------------------------------

HeapRun* PrivateHeap::add_mixed(Pages pages, size_t piece_bytes) {
  loam_status why;
  const auto pieces = static_cast<unsigned>(pages.bytes() / piece_bytes);
  HeapRun* run = make_bin(0) == nullptr
                     ? nullptr
                     : add_cut_run(RunUse::kMixed, 0, pages, piece_bytes, pieces, &why);
  if (run == nullptr) return nullptr;
  run->piece_bytes = static_cast<uint32_t>(piece_bytes);
  set_run(run->span, run);
  add_run(run);
  count_mixed(run);
  return run;
}

void PrivateHeap::count_mixed(HeapRun* run) {
  ++mixed_.runs;
  mixed_.pages += run->span->page_count;
  place_mixed(run, run->bytes);
}

void PrivateHeap::release_mixed(HeapRun* run) {
  if (run == mixed_.starter) mixed_.starter = nullptr;
  --mixed_.runs;
  mixed_.pages -= run->span->page_count;
  place_mixed(run, 0);
  release_run(run);
}

void PrivateHeap::place_mixed(HeapRun* run, size_t longest) {
  run->longest = longest;
  move_to_list(bin_of(0)->lists, run, list_for(longest));
}

size_t PrivateHeap::longest_stretch(HeapRun* run) {
  size_t longest = 0;
  any_stretch(run, [&](size_t first, size_t end) {
    longest = std::max(longest, run->offset_of(end) - run->offset_of(first));
    return false;
  });
  return longest;
}

// The first stretch that can hold the block, cut to the block's need. Also for a span cut into
// slots.
bool PrivateHeap::find_stretch(HeapRun* run, const Request& request, Stretch* out) {
  return any_stretch(run, [&](size_t first, size_t end) {
    for (; first < end; ++first) {
      const size_t offset = run->offset_of(first);
      if (((run->base + offset) & (request.alignment - 1)) != 0) continue;
      const size_t behind = run->slot_from(offset + request.bytes_of_class());
      if (behind > end) return false;
      if (behind - first > HeapRun::kMostPieces) continue;
      *out = {first, behind};
      return true;
    }
    return false;
  });
}

// False without a record for the class in which the block is counted.
bool PrivateHeap::take_pieces(HeapRun* run, const Stretch& stretch, Request* request) {
  const size_t count = stretch.end - stretch.first;
  const unsigned size_class =
      class_within(run->offset_of(stretch.end) - run->offset_of(stretch.first));
  HeapBin* bin = make_bin(size_class);
  if (bin == nullptr) return false;
  set_free(run, stretch.first, stretch.end, false);
  run->free_slots = static_cast<uint16_t>(run->free_slots - count);
  run->more_pieces(stretch.first) = static_cast<uint8_t>(count - 1);
  if (LOAM_UNLIKELY(run->span->unbacked_pages != 0)) note_backed(run, stretch.first, count);
  store_state(run->state_of(stretch.first), run->exact, live_state(run->exact, request->bytes));
  ++bin->in_mixed;
  ++bin->taken;
  note_busy(bin);
  request->block = run->slot_address(stretch.first);
  request->usable = kSizeClasses[size_class].bytes;
  return true;
}

bool PrivateHeap::take_from_run(HeapRun* run, Request* request) {
  Stretch stretch;
  return find_stretch(run, *request, &stretch) && take_pieces(run, stretch, request);
}

bool PrivateHeap::take_from_mixed(Request* request) {
  const HeapBin* bin = bin_of(0);
  if (bin == nullptr) return false;
  for (unsigned list = list_for(request->bytes_of_class()); list < HeapBin::kLists; ++list) {
    HeapRun* next;
    for (HeapRun* run = bin->lists[list]; run != nullptr; run = next) {
      next = run->ListLink<HeapRun, PartialRuns>::next;
      if (run->longest < request->bytes_of_class()) continue;
      Stretch stretch;
      if (find_stretch(run, *request, &stretch)) return take_pieces(run, stretch, request);
      place_mixed(run, longest_stretch(run));
    }
  }
  return false;
}

void PrivateHeap::give_to_mixed(HeapRun* run, void* block) {
  const size_t first = run->slot_from(reinterpret_cast<uintptr_t>(block) - run->base),
               end = run->end_of(first);
  HeapBin* bin = bin_of(class_within(run->bytes_at(first)));
  store_state(run->state_of(first), run->exact, kSlotFree);
  set_free(run, first, end, true);
  run->free_slots = static_cast<uint16_t>(run->free_slots + (end - first));
  --bin->in_mixed;
  ++bin->given;
  // The newest starter page is kept while the heap is small. Otherwise a heap that goes back and
  // forth over its edge would churn the page heap.
  if (run->free_slots != run->slots || (run == mixed_.starter && mode() == LOAM_MODE_STANDARD)) {
    place_mixed(run, run->bytes);  // free pieces beside it were not looked for
  } else {
    release_mixed(run);
  }
}

// ---- starter pages ----------------------------------------------------------------------------

void PrivateHeap::note_busy(const HeapBin* bin) {
  if (LOAM_LIKELY(mode() != LOAM_MODE_STANDARD) || bin->taken < kBusyAfter) return;
  mode_.store(LOAM_MODE_LOW_FRAGMENTATION, std::memory_order_relaxed);
}

bool PrivateHeap::take_from_starter(Request* request) {
  const SizeClassInfo& info = kSizeClasses[request->size_class];
  if (info.bytes > kLargestStarterBlock) return false;
  HeapBin* bin = make_bin(request->size_class);
  if (bin == nullptr || bin->spans != 0) return false;
  if (mixed_.starter != nullptr && take_from_run(mixed_.starter, request)) return true;
  HeapRun* const run = mixed_.runs >= kMostStarters ? nullptr : add_mixed(Pages(1), LOAM_ALIGNMENT);
  if (run == nullptr) return false;
  mixed_.starter = run;
  return take_from_run(run, request);
}

// ---- a full heap -------------------------------------------------------------------------------

bool PrivateHeap::take_from_new_mixed(Request* request) {
  const size_t fewest = Pages::covering(request->bytes_of_class()).count;
  size_t pages = std::max<size_t>(kSizeClasses[request->size_class].pages, fewest);
  for (; pages >= fewest; --pages) {
    if (!has_room(Pages(pages).bytes(), 0, true)) continue;
    const size_t least = Pages(pages).bytes() / kMostPiecesOfSpan;
    const size_t share = kSizeClasses[request->size_class].bytes / kPiecesOfSlot;
    const size_t piece = std::max(least, share / LOAM_ALIGNMENT * LOAM_ALIGNMENT);
    if (HeapRun* run = add_mixed(Pages(pages), piece)) {
      if (take_from_run(run, request)) return true;
      release_mixed(run);
    }
  }
  return false;
}

// The span that is cut anew for the request. Preferred is a larger class, where every slot is long
// enough: the span with the most free memory. Otherwise a span whose free slots are neighbours.
HeapRun* PrivateHeap::find_to_recut(const Request& request) {
  HeapRun* best = nullptr;
  const auto consider = [&](HeapRun* run) {
    const auto free_bytes = [](const HeapRun* of) {
      return size_t{of->free_slots} * of->slot_bytes;
    };
    if (free_bytes(run) < request.bytes_of_class() ||
        (best != nullptr && free_bytes(run) <= free_bytes(best)))
      return;
    Stretch stretch;
    if (find_stretch(run, request, &stretch)) best = run;
  };
  for (unsigned c = request.size_class; c < kSizeClassCount; ++c) {
    const HeapBin* bin = bin_of(c);
    if (bin == nullptr || bin->free_slots == 0) continue;
    unsigned list = 0;
    while (bin->lists[list] == nullptr) ++list;
    consider(bin->lists[list]);
  }
  if (best != nullptr) return best;
  for (unsigned c = 1; c < request.size_class; ++c) {
    const HeapBin* bin = bin_of(c);
    if (bin == nullptr ||
        bin->free_slots * size_t{kSizeClasses[c].bytes} < request.bytes_of_class())
      continue;
    for (HeapRun* run : bin->lists) {
      for (; run != nullptr; run = run->ListLink<HeapRun, PartialRuns>::next) consider(run);
    }
  }
  return best;
}

// pre: the caches are stopped and empty
bool PrivateHeap::take_from_recut(Request* request) {
  HeapRun* const run = recuts() ? find_to_recut(*request) : nullptr;
  if (run == nullptr) return false;
  // As small as the request, within the allowed cost of records; otherwise as small as possible.
  const size_t coarse = std::max(run->slot_bytes / kPiecesOfSlot, run->bytes / kPiecesOfSpan);
  const size_t fine = std::max(request->bytes_of_class(), run->bytes / kMostPiecesOfSpan);
  for (const size_t piece : {std::min(fine, coarse), coarse}) {
    HeapRun* const cut =
        recut(run, std::min<size_t>(round_up(piece, LOAM_ALIGNMENT), run->slot_bytes), *request);
    if (cut != nullptr) return take_from_run(cut, request);
  }
  return false;
}

// Makes a span a mixed run whose live blocks stay where they are; null without room for the
// records. Threads that read the old record at this moment find the same live blocks in it. The
// heap keeps the old record until the span goes.
HeapRun* PrivateHeap::recut(HeapRun* old, size_t piece_bytes, const Request& request) {
  Span* const span = old->span;
  HeapRun cut = *old;
  cut.use = RunUse::kMixed;
  cut.piece_bytes = static_cast<uint32_t>(piece_bytes);
  const size_t each = cut.pieces_a_slot();
  cut.slots = static_cast<uint16_t>(old->slots * each);
  Stretch stretch;
  if (!find_stretch(old, request, &stretch)) return nullptr;
  const size_t offset = old->offset_of(stretch.first);
  const size_t usable = cut.offset_of(cut.slot_from(offset + request.bytes_of_class())) - offset;
  // Both records first: a span that is cut and serves nothing would be lost for larger blocks.
  if (make_bin(0) == nullptr || make_bin(class_within(usable)) == nullptr) return nullptr;
  HeapRun* const run = static_cast<HeapRun*>(allocate_record(cut.record_bytes()));
  if (run == nullptr) return nullptr;

  HeapBin* const bin = bin_of(old->size_class);
  --bin->spans;
  bin->free_slots -= old->free_slots;
  bin->in_mixed += old->slots - old->free_slots;
  move_to_list(bin->lists, old, kNoHeapList);
  old->list = kReplacedRun;

  static_cast<ListLink<HeapRun>&>(cut) = {};
  static_cast<ListLink<HeapRun, PartialRuns>&>(cut) = {};
  cut.size_class = 0;
  cut.list = kNoHeapList;
  cut.free_slots = static_cast<uint16_t>(old->free_slots * each);
  cut.serial = ++serials_;
  *run = cut;
  run->former() = old;
  for (size_t slot = 0; slot < old->slots; ++slot) {
    const size_t first = slot * each;
    if (old->is_free(slot)) {
      set_free(run, first, first + each, true);
      continue;
    }
    store_state(run->state_of(first), run->exact, load_state(old->state_of(slot), old->exact));
    run->more_pieces(first) = static_cast<uint8_t>(each - 1);
  }
  // A thread that has read the owner of the span, and comes to its door later, finds a magazine
  // without room.
  span->owned.magazine = HeapCache::offset_of(0);
  span->own(nullptr);
  set_run(span, run);
  runs_.insert_after(old, run);
  runs_.remove(old);
  count_mixed(run);
  return run;
}

bool PrivateHeap::take_larger_slot(Request* request) {
  for (unsigned c = request->size_class + 1; c < kSizeClassCount; ++c) {
    const HeapBin* bin = bin_of(c);
    if (bin == nullptr || bin->free_slots == 0 || kSizeClasses[c].bytes % request->alignment != 0)
      continue;
    CacheSlot slot;
    loam_status why;
    if (take(c, &slot, 1, &why) == 0) return false;
    store_state(slot.state, exact(), live_state(exact(), request->bytes));
    request->block = slot.block;
    request->usable = kSizeClasses[c].bytes;
    return true;
  }
  return false;
}

// pre: the caches are stopped and empty, and no class has an empty span
bool PrivateHeap::squeeze(Request* request) {
  if (mixed_.refused_bytes != 0 && request->bytes_of_class() >= mixed_.refused_bytes &&
      returns() == mixed_.refused_at)
    return false;
  if (take_from_mixed(request) || take_from_new_mixed(request) || take_from_recut(request) ||
      take_larger_slot(request)) {
    return true;
  }
  if (request->alignment == LOAM_ALIGNMENT) {
    mixed_.refused_bytes = request->bytes_of_class();
    mixed_.refused_at = returns();
  }
  return false;
}

// Counts the live blocks of the run, and the slots that a fork()ed child lost.
bool PrivateHeap::mixed_is_valid(HeapRun* run, size_t* blocks, size_t* lost) {
  unsigned free_pieces = 0;
  for (size_t i = 0; i < run->slots;) {
    const unsigned state = load_state(run->state_of(i), run->exact);
    if (run->is_free(i)) {
      if (state != kSlotFree) return false;
      ++free_pieces;
      ++i;
      continue;
    }
    if (state == kSlotFree) return false;
    ++*blocks;
    *lost += state == kSlotCached;
    const size_t end = run->end_of(i);
    if (end > run->slots) return false;
    while (++i < end) {
      if (run->is_free(i) || load_state(run->state_of(i), run->exact) != kSlotFree) return false;
    }
  }
  return free_pieces == run->free_slots && longest_stretch(run) <= run->longest &&
         run->list == list_for(run->longest);
}

}  // namespace loam
