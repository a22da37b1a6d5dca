// Operations of <loam/win32.h> on any private heap. HeapCreate() makes a heap of exact sizes. Both
// interfaces accept a handle of either one.
#include <loam/win32.h>

#include <cerrno>
#include <cstring>

#include "runner.h"

namespace fuzz {

namespace {
constexpr DWORD kErrorMark = 4711;  // a successful call does not change the last error
}

void Runner::perform_on_windows(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const unsigned h = static_cast<unsigned>(a[0]);
  switch (operation.op) {
    case Op::kWinHeap:
      return win_make_heap(operation);
    case Op::kWinDestroy:
      return h == 0 ? void() : destroy_heap(h, true);
    case Op::kWinAlloc:
      return win_alloc(operation);
    case Op::kWinUseHeap:
      if (h != 0 && model_.heaps[h].handle != nullptr && !blocked(h)) win_use_heap(h, a[1]);
      return;
    case Op::kWinAligned:
      return win_aligned(operation);
    default:
      break;
  }
  Block& block = model_.blocks[a[0]];
  if (block.start == nullptr || block.heap == 0 || blocked(block.heap)) return;
  if (operation.op == Op::kWinReAlloc) return resize(operation);
  if (operation.op == Op::kWinFree) return free_block(block, Op::kWinFree, 0);
  win_ask(block);
}

void Runner::win_make_heap(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const unsigned h = operation.result;
  ModelHeap& heap = model_.heaps[h];
  if (heap.handle != nullptr) destroy_heap(h, true);
  if (heap.handle != nullptr) return;  // locked by another thread
  heap = ModelHeap{};
  SetLastError(kErrorMark);
  HANDLE made = HeapCreate(a[0] % 4 == 3 ? HEAP_NO_SERIALIZE : 0, a[1], a[2]);
  const bool contradicts = a[2] != 0 && a[1] > a[2];
  if (made == nullptr) {
    const bool refused = system_ != nullptr && system_->refusals() != refusals_before_;
    if (GetLastError() == kErrorMark) fail("HeapCreate failed without an error");
    if (!refused && a[1] <= (size_t{64} << 20) && a[2] == 0)
      fail("HeapCreate: error %u", unsigned(GetLastError()));
    return;
  }
  if (contradicts) fail("HeapCreate with more at first than at most made a heap");
  heap.handle = static_cast<loam_heap*>(made);
  heap.flags = loam_heap_flags(heap.handle);
  heap.maximum = a[2];
  heap.serial = ++model_.heap_serials;
  if (!heap.exact()) fail("HeapCreate made a heap that forgets sizes");
}

void Runner::win_alloc(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const unsigned h = static_cast<unsigned>(a[0]);
  const unsigned slot = operation.result;
  ModelHeap& heap = model_.heaps[h];
  if (h == 0 || heap.handle == nullptr || blocked(h) || !has_room(a[2])) return;
  if (model_.blocks[slot].start != nullptr) {
    if (blocked(model_.blocks[slot].heap)) return;
    end_slot(slot);
  }
  const bool zero = a[1] % 2 != 0;
  Block block;
  block.heap = static_cast<uint8_t>(h);
  block.asked = a[2];
  block.family = Family::kPrivate;
  busy_ = &model_.blocks[slot];
  SetLastError(kErrorMark);
  block.start =
      static_cast<unsigned char*>(HeapAlloc(heap.handle, zero ? HEAP_ZERO_MEMORY : 0, a[2]));
  const DWORD error = GetLastError();
  busy_ = nullptr;
  if (block.start == nullptr) {
    if (!may_fail(h, block.asked, 1)) fail("HeapAlloc refused %zu bytes", block.asked);
    if (error != ERROR_NOT_ENOUGH_MEMORY) fail("HeapAlloc failed with error %u", unsigned(error));
    return;
  }
  if (error != kErrorMark) fail("HeapAlloc changed the last error to %u", unsigned(error));
  adopt(model_.blocks[slot], block, zero, false);
}

void Runner::win_ask(const Block& block) {
  const ModelHeap& heap = model_.heaps[block.heap];
  if (HeapSize(heap.handle, 0, block.start) != loam_size(heap.handle, block.start))
    fail("HeapSize and loam_size differ");
  if (heap.exact() && HeapSize(heap.handle, 0, block.start) != block.asked)
    fail("HeapSize is %zu, %zu was asked for", HeapSize(heap.handle, 0, block.start), block.asked);
  SetLastError(kErrorMark);
  if (!HeapValidate(heap.handle, 0, block.start)) fail("HeapValidate knows a live block not");
  if (HeapValidate(heap.handle, 0, block.start + 1))
    fail("HeapValidate knows a block inside a block");
  if (GetLastError() != kErrorMark) fail("HeapValidate changed the last error");
  if (HeapFree(heap.handle, 0, block.start + 1) || GetLastError() != ERROR_INVALID_PARAMETER)
    fail("HeapFree of an address inside a block: error %u", unsigned(GetLastError()));
  if (HeapSize(heap.handle, 0, block.start + 1) != static_cast<SIZE_T>(-1))
    fail("HeapSize of an address inside a block");
}

void Runner::win_use_heap(unsigned h, uint64_t what) {
  HANDLE handle = model_.heaps[h].handle;
  switch (what % 7) {
    case 0:
      if (!HeapValidate(handle, 0, nullptr)) fail("HeapValidate finds h%u damaged", h);
      return;
    case 1:
      static_cast<void>(HeapCompact(handle, 0));
      heavy_ = true;
      return;
    case 2: {
      HEAP_SUMMARY summary = {};
      if (HeapSummary(handle, 0, &summary)) fail("HeapSummary takes a wrong size");
      summary.cb = sizeof summary;
      if (!HeapSummary(handle, 0, &summary) || summary.cbAllocated > summary.cbCommitted ||
          summary.cbCommitted > summary.cbReserved)
        fail("HeapSummary of h%u: allocated %zu, committed %zu, reserved %zu", h,
             summary.cbAllocated, summary.cbCommitted, summary.cbReserved);
      return;
    }
    case 3: {
      PROCESS_HEAP_ENTRY entry;
      memset(&entry, 0, sizeof entry);
      uint64_t busy = 0;
      while (HeapWalk(handle, &entry)) {
        if ((entry.wFlags & PROCESS_HEAP_ENTRY_BUSY) == 0) continue;
        ++busy;
        if (!model_.starts_at(entry.lpData))
          fail("HeapWalk of h%u met a block that is not live", h);
      }
      if (GetLastError() != ERROR_NO_MORE_ITEMS || busy != model_.blocks_of(h))
        fail("HeapWalk of h%u met %llu of %llu blocks, error %u", h,
             static_cast<unsigned long long>(busy),
             static_cast<unsigned long long>(model_.blocks_of(h)), unsigned(GetLastError()));
      return;
    }
    case 4:
      if (!HeapLock(handle) || !HeapValidate(handle, 0, nullptr) || !HeapUnlock(handle))
        fail("HeapLock, HeapUnlock: error %u", unsigned(GetLastError()));
      return;
    case 5: {
      ULONG mode = 2, is = 0;
      if (!HeapSetInformation(handle, HeapCompatibilityInformation, &mode, sizeof mode))
        fail("the low-fragmentation heap: error %u", unsigned(GetLastError()));
      mode = 0;
      if (HeapSetInformation(handle, HeapCompatibilityInformation, &mode, sizeof mode) ||
          GetLastError() != ERROR_GEN_FAILURE)
        fail("the low-fragmentation heap goes off again");
      SIZE_T length = 0;
      if (!HeapQueryInformation(handle, HeapCompatibilityInformation, &is, sizeof is, &length) ||
          is != 2 || length != 4)
        fail("the low-fragmentation heap is %u", unsigned(is));
      return;
    }
    default: {
      HEAP_OPTIMIZE_RESOURCES_INFORMATION wanted = {};
      wanted.Version = HEAP_OPTIMIZE_RESOURCES_CURRENT_VERSION;
      if (!HeapSetInformation(handle, HeapOptimizeResources, &wanted, sizeof wanted))
        fail("HeapOptimizeResources: error %u", unsigned(GetLastError()));
      heavy_ = true;
      return;
    }
  }
}

// Allocates and frees a block of the process heap at once, so that it is no block of the model.
void Runner::win_aligned(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const size_t bytes = a[0], alignment = a[2], more = a[3];
  const size_t offset = a[1];
  if (bytes > (size_t{1} << 20) || more > (size_t{1} << 20) || alignment > (size_t{1} << 20))
    return;
  has_process_heap_ = true;
  const bool right =
      alignment != 0 && (alignment & (alignment - 1)) == 0 && bytes != 0 && offset < bytes;
  errno = 0;
  auto* block = static_cast<unsigned char*>(_aligned_offset_malloc(bytes, alignment, offset));
  const bool refused = system_ != nullptr && system_->refusals() != refusals_before_;
  if (block == nullptr) {
    if (errno != (right ? ENOMEM : EINVAL)) fail("_aligned_offset_malloc sets errno to %d", errno);
    if (right && !refused) fail("_aligned_offset_malloc refused %zu bytes", bytes);
    return;
  }
  if (!right)
    fail("_aligned_offset_malloc takes %zu bytes to %zu, offset %zu", bytes, alignment, offset);
  if ((reinterpret_cast<uintptr_t>(block) + offset) % alignment != 0)
    fail("_aligned_offset_malloc is not aligned");
  if (_aligned_msize(block, alignment, offset) != bytes)
    fail("_aligned_msize is %zu, not %zu", _aligned_msize(block, alignment, offset), bytes);
  memset(block, 0x3c, bytes);
  if (more > offset) {
    auto* moved = static_cast<unsigned char*>(
        a[3] % 2 == 0 ? _aligned_offset_realloc(block, more, alignment, offset)
                      : _aligned_offset_recalloc(block, more, 1, alignment, offset));
    if (moved != nullptr) {
      if ((reinterpret_cast<uintptr_t>(moved) + offset) % alignment != 0)
        fail("a resized block is not aligned");
      for (size_t i = 0; i < more; ++i) {
        if (i < bytes ? moved[i] != 0x3c : a[3] % 2 != 0 && moved[i] != 0)
          fail("byte %zu of a block that went from %zu to %zu bytes is %#x", i, bytes, more,
               moved[i]);
      }
      block = moved;
    } else if (system_ == nullptr || system_->refusals() == refusals_before_) {
      fail("_aligned_offset_realloc refused %zu bytes", more);
    }
  }
  _aligned_free(block);
  if (_heapchk() != _HEAPOK) fail("the process heap is damaged");
}

}  // namespace fuzz
