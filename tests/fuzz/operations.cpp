// Operations on blocks.
#include <loam/win32.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "runner.h"

namespace fuzz {

namespace {

constexpr int kErrnoMark = 4711;
// The most that may be live at once, and the most of a group. Addresses are plenty, but patterns
// cost memory.
constexpr size_t kLiveBytes = size_t{1} << 30;
constexpr size_t kGroupBytes = size_t{8} << 20;
// Above these sizes a refusal is no error.
constexpr size_t kSurelyServed = size_t{64} << 20;
constexpr size_t kSurelyAligned = size_t{1} << 21;
// The heap keeps the requested size of every block above it
constexpr size_t kLargestSmall = 32768;

bool power_of_two(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

// The flags for HeapReAlloc(). Zeros are requested only if the heap knows the requested size.
DWORD win_resize_flags(uint64_t what, const ModelHeap& heap) {
  DWORD flags = what % 4 == 0 ? HEAP_REALLOC_IN_PLACE_ONLY : 0;
  if (what % 2 != 0 && heap.exact()) flags |= HEAP_ZERO_MEMORY;
  return flags;
}

bool is_cpp(Family family) { return family >= Family::kNew && family <= Family::kNewArrayAligned; }

}  // namespace

bool Runner::blocked(unsigned h) const {
  const ModelHeap& heap = model_.heaps[h];
  return h != 0 && !heap.unsynchronized() && heap.locked_by >= 0 &&
         heap.locked_by != static_cast<int>(current_);
}

bool Runner::has_room(size_t bytes) const {
  return bytes >= PTRDIFF_MAX / 2 ||
         (bytes < kLiveBytes && model_.live_bytes() + bytes < kLiveBytes);
}

bool Runner::may_fail(unsigned heap, size_t bytes, size_t alignment) const {
  if (system_ != nullptr && system_->refusals() != refusals_before_) return true;
  return model_.heaps[heap].maximum != 0 || bytes > kSurelyServed || alignment > kSurelyAligned;
}

void Runner::perform(Runner& r, const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const Op op = operation.op;
  if (op >= Op::kMalloc && op <= Op::kLoamAlignedAlloc) return r.make(operation);
  if (op >= Op::kFree && op <= Op::kLoamFreeSized) return r.end(operation);
  if (op >= Op::kRealloc && op <= Op::kLoamTryResize) return r.resize(operation);
  if (op >= Op::kWinHeap) return r.perform_on_windows(operation);
  switch (op) {
    case Op::kBadFree:
      return r.bad_free(operation);
    case Op::kStaleFree:
      return r.stale_free(operation);
    case Op::kAsk:
      if (r.model_.blocks[a[0]].start != nullptr && !r.blocked(r.model_.blocks[a[0]].heap))
        r.ask(r.model_.blocks[a[0]]);
      return;
    case Op::kAskAnywhere:
      return r.ask_anywhere(operation);
    case Op::kFill:
      return r.fill_group(operation);
    case Op::kThin:
      return r.thin_group(operation);
    case Op::kDrop:
      return r.drop_group(static_cast<unsigned>(a[0]));
    default:
      return r.perform_on_heap(operation);
  }
}

void Runner::adopt(Block& to, Block block, bool zero_asked, bool zero_usable) {
  if (const char* wrong = model_.add(block, zero_asked, zero_usable)) {
    fail("a block of %zu bytes at %p: %s", block.asked, static_cast<void*>(block.start), wrong);
  }
  to = block;
}

void Runner::make(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const unsigned slot = operation.result;
  const bool of_heap = operation.op >= Op::kLoamAlloc;
  const unsigned h = of_heap ? static_cast<unsigned>(a[0]) : 0;
  ModelHeap& heap = model_.heaps[h];
  if (heap.handle == nullptr || blocked(h)) return;
  if (model_.blocks[slot].start != nullptr) {
    if (blocked(model_.blocks[slot].heap)) return;
    end_slot(slot);
  }
  Block block;
  block.heap = static_cast<uint8_t>(h);
  block.asked = a[0];
  size_t alignment = LOAM_ALIGNMENT;
  bool zero_asked = false, zero_usable = false, wrong_alignment = false;
  void* start = nullptr;
  int error = 0;
  const auto with_alignment = [&](Family family) {
    alignment = a[0];
    block.asked = a[1];
    block.family = family;
  };
  const auto product = [&] {
    size_t bytes;
    if (__builtin_mul_overflow(size_t{a[0]}, size_t{a[1]}, &bytes)) bytes = SIZE_MAX;
    block.asked = bytes;
  };
  if (operation.op == Op::kCalloc || operation.op == Op::kReallocarrayNull) product();
  if (strchr(form_of(operation.op).arguments, 'a') != nullptr && !of_heap)
    with_alignment(Family::kOther);
  if (of_heap) {
    block.family = Family::kPrivate;
    block.asked = operation.op == Op::kLoamAlignedAlloc ? a[2] : a[1];
  }
  if (!has_room(block.asked)) return;
  // operator new throws when memory runs out. Its nothrow form calls the C++ runtime, which has
  // another heap. So calls that may fail use another function.
  const bool sure = !refusing_ && block.asked <= kSurelyServed && system_ != nullptr;
  busy_ = &model_.blocks[slot];
  errno = 0;
  switch (operation.op) {
    case Op::kMalloc:
      start = calls_.malloc(a[0]);
      break;
    case Op::kCalloc:
      start = calls_.calloc(a[0], a[1]);
      zero_asked = true;
      break;
    case Op::kReallocNull:
      start = calls_.realloc(nullptr, a[0]);
      break;
    case Op::kReallocarrayNull:
      start = calls_.reallocarray(nullptr, a[0], a[1]);
      break;
    case Op::kPosixMemalign: {
      void* const untouched = &block;
      start = untouched;
      error = calls_.posix_memalign(&start, a[0], a[1]);
      wrong_alignment = !power_of_two(a[0]) || a[0] % sizeof(void*) != 0;
      if (error != 0 && start != untouched) fail("posix_memalign failed and stored a pointer");
      if (error != 0) start = nullptr;
      if ((error == EINVAL) != wrong_alignment)
        fail("posix_memalign to %llu says %d", static_cast<unsigned long long>(a[0]), error);
      break;
    }
    case Op::kAlignedAlloc:
      start = calls_.aligned_alloc(a[0], a[1]);
      wrong_alignment = !power_of_two(a[0]);
      block.family = Family::kAligned;
      break;
    case Op::kMemalign:
      start = calls_.memalign(a[0], a[1]);
      if (!power_of_two(a[0])) alignment = LOAM_ALIGNMENT;  // rounded up
      break;
    case Op::kValloc:
    case Op::kPvalloc:
      start = operation.op == Op::kValloc ? calls_.valloc(a[0]) : calls_.pvalloc(a[0]);
      alignment = page_;
      if (operation.op == Op::kPvalloc && a[0] <= PTRDIFF_MAX)
        block.asked = (a[0] + page_ - 1) / page_ * page_;
      block.family = Family::kOther;
      break;
    case Op::kNew:
    case Op::kNewNothrow:
      if (!sure) return;
      start = operation.op == Op::kNew ? calls_.new_plain(a[0])
                                       : calls_.new_nothrow(a[0], std::nothrow);
      block.family = Family::kNew;
      break;
    case Op::kNewArray:
    case Op::kNewArrayNothrow:
      if (!sure) return;
      start = operation.op == Op::kNewArray ? calls_.new_array(a[0])
                                            : calls_.new_array_nothrow(a[0], std::nothrow);
      block.family = Family::kNewArray;
      break;
    case Op::kNewAligned:
    case Op::kNewArrayAligned: {
      if (!sure || !power_of_two(a[0]) || a[0] > kSurelyAligned) return;
      const bool array = operation.op == Op::kNewArrayAligned;
      start = (array ? calls_.new_array_aligned : calls_.new_aligned)(a[1], std::align_val_t{a[0]});
      block.family = array ? Family::kNewArrayAligned : Family::kNewAligned;
      break;
    }
    case Op::kLoamAlloc:
      start = loam_alloc(heap.handle, a[1]);
      break;
    case Op::kLoamZalloc:
      start = loam_zalloc(heap.handle, a[1]);
      zero_asked = zero_usable = block.zero_behind = true;
      break;
    case Op::kLoamAlignedAlloc:
      alignment = a[1];
      start = loam_aligned_alloc(heap.handle, a[1], a[2]);
      wrong_alignment = !power_of_two(a[1]);
      break;
    default:
      return;
  }
  busy_ = nullptr;
  if (start == nullptr) {
    if (wrong_alignment) return;
    if (!may_fail(h, block.asked, alignment)) fail("%zu bytes were refused", block.asked);
    if (!of_heap && operation.op != Op::kPosixMemalign && errno != ENOMEM &&
        power_of_two(alignment)) {
      fail("errno is %d after a refusal", errno);
    }
    return;
  }
  if (wrong_alignment) fail("an alignment of no power of two was served");
  if (block.asked > PTRDIFF_MAX) fail("%zu bytes were served", block.asked);
  block.start = static_cast<unsigned char*>(start);
  block.alignment = std::max<size_t>(alignment, 1);
  adopt(model_.blocks[slot], block, zero_asked, zero_usable);
}

// Frees a live block by the given call, or by one that its family allows.
void Runner::free_block(Block& block, Op how, size_t bytes) {
  if (!model_.intact(block))
    fail("a block of %zu bytes at %p was overwritten", block.asked,
         static_cast<void*>(block.start));
  const Block gone = block;
  ModelHeap& heap = model_.heaps[block.heap];
  unsigned char* start = block.start;
  heavy_ = heavy_ || block.asked > (size_t{1} << 20);
  errno = kErrnoMark;
  loam_status status = LOAM_OK;
  const auto align = std::align_val_t{gone.alignment};
  switch (how) {
    case Op::kLoamFree:
      status = loam_free(heap.handle, start);
      break;
    case Op::kLoamFreeSized: {
      const size_t size = loam_size(heap.handle, start);
      const size_t usable = loam_usable_size(heap.handle, start);
      // Sometimes the caller passes a wrong size.
      const size_t believed = bytes % 4 == 0 ? bytes : size;
      const bool right = heap.exact() && block.heap != 0 ? believed == size : believed <= usable;
      status = loam_free_sized(heap.handle, start, believed);
      if (right != (status == LOAM_OK))
        fail("loam_free_sized with %zu bytes says \"%s\"", believed, loam_status_text(status));
      if (status == LOAM_INVALID_ARGUMENT) return;
      break;
    }
    case Op::kWinFree:
      status = HeapFree(heap.handle, 0, start) ? LOAM_OK : LOAM_INVALID_BLOCK;
      break;
    case Op::kCfree:
      calls_.cfree(start);
      break;
    case Op::kFreeSized:
      gone.family == Family::kPlain ? calls_.free_sized(start, gone.asked) : calls_.free(start);
      break;
    case Op::kFreeAlignedSized:
      gone.family == Family::kAligned ? calls_.free_aligned_sized(start, gone.alignment, gone.asked)
                                      : calls_.free(start);
      break;
    case Op::kReallocZero:
      if (is_cpp(gone.family)) {
        calls_.free(start);
      } else if (calls_.realloc(start, 0) != nullptr) {
        fail("realloc to 0 bytes gave a block");
      }
      break;
    case Op::kDelete:
      switch (gone.family) {
        case Family::kNew:
          bytes % 2 == 0 ? calls_.delete_plain(start) : calls_.delete_nothrow(start, std::nothrow);
          break;
        case Family::kNewArray:
          calls_.delete_array(start);
          break;
        case Family::kNewAligned:
          calls_.delete_aligned(start, align);
          break;
        case Family::kNewArrayAligned:
          calls_.delete_array_aligned(start, align);
          break;
        default:
          calls_.free(start);
      }
      break;
    case Op::kDeleteSized:
      switch (gone.family) {
        case Family::kNew:
          calls_.delete_sized(start, gone.asked);
          break;
        case Family::kNewArray:
          calls_.delete_array_sized(start, gone.asked);
          break;
        case Family::kNewAligned:
          calls_.delete_sized_aligned(start, gone.asked, align);
          break;
        case Family::kNewArrayAligned:
          calls_.delete_array_aligned(start, align);
          break;
        default:
          calls_.free(start);
      }
      break;
    default:
      calls_.free(start);
  }
  if (status != LOAM_OK) fail("a live block could not be freed: %s", loam_status_text(status));
  if (errno != kErrnoMark) fail("errno became %d", errno);
  model_.remove(block);
  if (&block >= model_.blocks && &block < model_.blocks + kBlocks) {
    const size_t slot = static_cast<size_t>(&block - model_.blocks);
    model_.last[slot] = gone;
    model_.last_serial[slot] = heap.serial;
  }
}

void Runner::end_slot(unsigned slot) {
  Block& block = model_.blocks[slot];
  if (block.start != nullptr)
    free_block(block, slot % 2 == 0 ? Op::kDeleteSized : Op::kLoamFree, 1);
}

void Runner::end(const Operation& operation) {
  Block& block = model_.blocks[operation.arguments[0]];
  if (block.start == nullptr) return;
  if (!blocked(block.heap)) free_block(block, operation.op, operation.arguments[1]);
}

// A pointer into the block, or the block at the wrong heap. The heap must distinguish them, and
// change nothing.
void Runner::bad_free(const Operation& operation) {
  const unsigned h = static_cast<unsigned>(operation.arguments[0]);
  const Block& block = model_.blocks[operation.arguments[1]];
  const ModelHeap& heap = model_.heaps[h];
  if (block.start == nullptr || heap.handle == nullptr || blocked(h) || blocked(block.heap)) return;
  const size_t offset = block.usable == 0 ? 0 : operation.arguments[2] % block.usable;
  if (offset == 0 && block.heap == h) return;
  const loam_status status = loam_free(heap.handle, block.start + offset);
  const loam_status should = offset == 0 ? LOAM_WRONG_HEAP : LOAM_INVALID_BLOCK;
  if (status != should) fail("%zu bytes into a block: \"%s\"", offset, loam_status_text(status));
  if (loam_validate(model_.heaps[block.heap].handle, block.start) != LOAM_OK)
    fail("a block is gone after a mistaken free");
}

// Frees a block of a private heap once more. In the default heap it could not be checked: a block
// in a cache may still seem live there.
void Runner::stale_free(const Operation& operation) {
  const size_t slot = operation.arguments[0];
  const Block& last = model_.last[slot];
  const ModelHeap& heap = model_.heaps[last.heap];
  if (last.start == nullptr || last.heap == 0 || heap.handle == nullptr ||
      heap.serial != model_.last_serial[slot])
    return;
  if (blocked(last.heap) || model_.starts_at(last.start)) return;
  if (loam_free(heap.handle, last.start) == LOAM_OK)
    fail("a block of h%u was freed twice", last.heap);
}

void* Runner::call_resize(const Operation& operation, const Block& block, size_t bytes,
                          size_t alignment) {
  const uint64_t* a = operation.arguments;
  loam_heap* heap = model_.heaps[block.heap].handle;
  switch (operation.op) {
    case Op::kRealloc:
      return calls_.realloc(block.start, bytes);
    case Op::kReallocarray:
      return calls_.reallocarray(block.start, a[1], a[2]);
    case Op::kLoamRealloc:
      return loam_realloc(heap, block.start, bytes);
    case Op::kLoamZrealloc:
      return loam_zrealloc(heap, block.start, bytes);
    case Op::kWinReAlloc:
      return HeapReAlloc(heap, win_resize_flags(a[1], model_.heaps[block.heap]), block.start,
                         bytes);
    default:
      return loam_aligned_realloc(heap, block.start, alignment, bytes, a[3] % 2 != 0);
  }
}

void Runner::resize(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const Op op = operation.op;
  Block& block = model_.blocks[a[0]];
  if (block.start == nullptr || blocked(block.heap) || is_cpp(block.family)) return;
  const ModelHeap& heap = model_.heaps[block.heap];
  const bool aligned = op == Op::kLoamAlignedRealloc;
  const DWORD win_flags = op == Op::kWinReAlloc ? win_resize_flags(a[1], heap) : 0;
  size_t bytes = aligned || op == Op::kWinReAlloc ? a[2] : a[1];
  if (op == Op::kReallocarray && __builtin_mul_overflow(size_t{a[1]}, size_t{a[2]}, &bytes))
    bytes = SIZE_MAX;
  if (!has_room(bytes)) return;
  const size_t alignment = aligned ? a[1] : LOAM_ALIGNMENT;
  if (!model_.intact(block)) fail("a block was overwritten before it was resized");
  const Block old = block;
  heavy_ = heavy_ || old.asked > (size_t{1} << 20) || bytes > (size_t{1} << 20);
  busy_ = &block;
  if (op == Op::kLoamTryResize) {
    const loam_status status = loam_try_resize(heap.handle, block.start, bytes);
    busy_ = nullptr;
    if (status != LOAM_OK) {
      if (status != LOAM_NOT_IN_PLACE && status != LOAM_LIMIT_REACHED)
        fail("loam_try_resize says \"%s\"", loam_status_text(status));
      if (bytes <= old.asked && bytes >= old.asked - old.asked / 8 && old.asked <= kLargestSmall)
        fail("a small block did not shrink in place");
    } else {
      if (!model_.intact(old, std::min(bytes, old.asked)))
        fail("content was lost by a resize in place");
      block.zero_behind = false;
      if (const char* wrong = model_.resized(block, bytes))
        fail("resized in place to %zu bytes: %s", bytes, wrong);
      return;
    }
    if (!model_.intact(block)) fail("a refused resize changed the block");
    return;
  }
  const bool frees = bytes == 0 && (op == Op::kRealloc || op == Op::kReallocarray);
  const bool in_place = (win_flags & HEAP_REALLOC_IN_PLACE_ONLY) != 0;
  const bool zero =
      op == Op::kLoamZrealloc || (aligned && a[3] % 2 != 0) || (win_flags & HEAP_ZERO_MEMORY) != 0;
  // The offset from which the gained bytes must be zero.
  const bool knows_size = heap.exact() || old.asked > kLargestSmall;
  if (zero && !knows_size && !old.zero_behind) {
    busy_ = nullptr;
    return;
  }
  errno = 0;
  unsigned char* moved = static_cast<unsigned char*>(call_resize(operation, old, bytes, alignment));
  busy_ = nullptr;
  if (frees) {
    if (moved != nullptr) fail("realloc to 0 bytes gave a block");
    model_.remove(block);
    return;
  }
  if (moved == nullptr) {
    if (aligned && !power_of_two(alignment)) return;
    if (!in_place && !may_fail(block.heap, bytes, alignment))
      fail("a resize to %zu bytes was refused", bytes);
    if ((op == Op::kRealloc || op == Op::kReallocarray) && errno != ENOMEM)
      fail("errno is %d after a refusal", errno);
    if (!model_.intact(block)) fail("a refused resize changed the block");
    return;
  }
  if (bytes > PTRDIFF_MAX) fail("%zu bytes were served", bytes);
  if (in_place && moved != old.start) fail("a resize in place moved the block");
  model_.remove(block);
  block.start = moved;
  if (stress::first_difference(moved, old.filled, std::min(bytes, std::min(old.filled, old.asked)),
                               old.id) != stress::kIntact) {
    fail("content was lost by a resize from %zu to %zu bytes", old.asked, bytes);
  }
  if (zero) {
    const size_t end = calls_.usable_size(moved);
    for (size_t i = old.asked; i < end && i < old.asked + 65536; ++i) {
      if (moved[i] != 0)
        fail("byte %zu of a block that grew from %zu to %zu bytes is not zero", i, old.asked,
             bytes);
    }
  }
  block.asked = bytes;
  // A block that stays keeps its address, whatever its alignment is.
  block.alignment = aligned ? alignment : LOAM_ALIGNMENT;
  block.zero_behind = zero;
  if (block.family == Family::kAligned || block.family == Family::kOther)
    block.family = Family::kPlain;
  if (const char* wrong = model_.add(block, false, false))
    fail("resized to %zu bytes at %p: %s", bytes, static_cast<void*>(moved), wrong);
}

void Runner::ask(const Block& block) {
  const ModelHeap& heap = model_.heaps[block.heap];
  const size_t size = loam_size(heap.handle, block.start);
  const size_t usable = loam_usable_size(heap.handle, block.start);
  if (usable != block.usable || calls_.usable_size(block.start) != usable)
    fail("the usable size was %zu and is %zu", block.usable, usable);
  const bool kept = (heap.exact() && block.heap != 0) || block.asked > kLargestSmall;
  if (size != block.asked && (kept || size != usable) && block.asked != 0)
    fail("the size is %zu, %zu was asked for", size, block.asked);
  if (loam_heap_of(block.start) != heap.handle) fail("the block belongs to another heap");
  if (loam_validate(heap.handle, block.start) != LOAM_OK) fail("the block is not valid");
}

// Every address gets an answer, and no block is found unless one begins there.
void Runner::ask_anywhere(const Operation& operation) {
  const Block& block = model_.blocks[operation.arguments[0]];
  const unsigned char* address = reinterpret_cast<const unsigned char*>(
      reinterpret_cast<uintptr_t>(block.start) + operation.arguments[1]);
  for (unsigned h = 0; h < kHeaps; ++h) {
    loam_heap* heap = model_.heaps[h].handle;
    if (heap == nullptr) continue;
    const bool valid = loam_validate(heap, address) == LOAM_OK && address != nullptr;
    if (valid && h != 0 && !model_.starts_at(address))
      fail("h%u says that a block begins at %p", h, static_cast<const void*>(address));
    static_cast<void>(loam_size(heap, address));
    static_cast<void>(loam_usable_size(heap, address));
  }
  static_cast<void>(loam_heap_of(address));
}

// ---- many blocks -------------------------------------------------------------------------------

void Runner::fill_group(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const unsigned h = static_cast<unsigned>(a[0]);
  std::vector<Block>& group = model_.groups[operation.result];
  const ModelHeap& heap = model_.heaps[h];
  if (heap.handle == nullptr || blocked(h)) return;
  const size_t spread = a[3] % 1024;
  const size_t largest = a[2] + spread;
  if (largest > kGroupBytes || largest < a[2]) return;
  for (uint64_t i = 0; i < a[1] && group.size() < Model::kGroupBlocks; ++i) {
    if (i * largest > kGroupBytes || !has_room(largest)) break;
    Block block;
    block.heap = static_cast<uint8_t>(h);
    block.asked = a[2] + (spread == 0 ? 0 : i * 7919 % spread);
    block.family = h == 0 ? Family::kPlain : Family::kPrivate;
    block.start = static_cast<unsigned char*>(h == 0 ? calls_.malloc(block.asked)
                                                     : loam_alloc(heap.handle, block.asked));
    if (block.start == nullptr) {
      if (!may_fail(h, block.asked, 1)) fail("%zu bytes were refused", block.asked);
      break;
    }
    group.emplace_back();
    adopt(group.back(), block, false, false);
  }
}

void Runner::thin_group(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  std::vector<Block>& group = model_.groups[a[0]];
  const uint64_t percent = a[1] % 101;
  size_t kept = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    if (stress::mix(a[2] * 65536 + i) % 100 < percent && !blocked(group[i].heap)) {
      free_block(group[i], i % 2 == 0 ? Op::kFree : Op::kLoamFree, 0);
    } else {
      group[kept++] = group[i];
    }
  }
  group.resize(kept);
  heavy_ = true;
}

void Runner::drop_group(unsigned which) {
  std::vector<Block>& group = model_.groups[which];
  size_t kept = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    if (!blocked(group[i].heap)) {
      free_block(group[i], Op::kFree, 0);
    } else {
      group[kept++] = group[i];
    }
  }
  group.resize(kept);
}

}  // namespace fuzz
