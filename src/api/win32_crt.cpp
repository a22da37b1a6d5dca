// The C run-time's heap functions of <loam/win32.h>: the _aligned family, whose blocks are the
// process heap's, and _msize, _expand, _recalloc for blocks of any heap. Errors go to errno.
// Thread-safe.
//
// A block that is aligned at an offset does not start where the heap's block starts:
//
//   base, a multiple of the alignment    block: block + offset is one, too
//   | tag | block's address | unused     | the caller's bytes
//   |<----------- pad, 16 or more ------>|
//
// The heap finds the base: it is asked for a block that covers the address. The pad's note is read
// only inside such a block, so no pointer of the caller is followed. On Windows a block that is
// none of the heap's may be a C run-time's (os/system_heap.h).
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "api/win32_state.h"
#include "base/config.h"
#include "base/units.h"
#include "os/system_heap.h"

namespace loam::win32 {
namespace {

constexpr size_t kLeastPad = 2 * sizeof(uintptr_t);
constexpr size_t kLargestAlignment = size_t{1} << 46;
constexpr uintptr_t kNoteTag = 0x4c6f616d4f666673;  // "LoamOffs"
static_assert(kLeastPad <= LOAM_ALIGNMENT, "a pad of one alignment always holds the note");

struct OffsetBlock {
  char* base;
  size_t pad;
};

void* fail(int error) {
  errno = error;
  return nullptr;
}

// pad + alignment >= kLeastPad, because the least alignment that is used is LOAM_ALIGNMENT.
size_t pad_for(size_t alignment, size_t offset) {
  const size_t pad = (alignment - offset % alignment) % alignment;
  return pad == 0 || pad >= kLeastPad ? pad : pad + alignment;
}

void write_note(char* base, const char* block) {
  const uintptr_t words[2] = {kNoteTag ^ reinterpret_cast<uintptr_t>(base),
                              reinterpret_cast<uintptr_t>(block)};
  std::memcpy(base, words, sizeof words);
}

bool has_note(const char* base, const char* block) {
  const size_t bytes = loam_size(get_process_heap(), base);
  if (bytes == SIZE_MAX || bytes < static_cast<size_t>(block - base)) return false;
  uintptr_t words[2];
  std::memcpy(words, base, sizeof words);
  return words[0] == (kNoteTag ^ reinterpret_cast<uintptr_t>(base)) &&
         words[1] == reinterpret_cast<uintptr_t>(block);
}

// The alignment is not known here, so each is tried. With the right one the base is one of the two
// multiples below the block, because the pad is less than two alignments. Each question to the heap
// costs some nanoseconds.
bool find_offset_block(void* block, OffsetBlock* out) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  for (size_t alignment = LOAM_ALIGNMENT; alignment <= kLargestAlignment; alignment *= 2) {
    const uintptr_t below = address & ~(alignment - 1);
    const uintptr_t bases[2] = {below, below - alignment};
    for (const uintptr_t base : bases) {
      if (base == 0 || base > address || address - base < kLeastPad) continue;
      char* const start = static_cast<char*>(block) - (address - base);
      if (!has_note(start, static_cast<char*>(block))) continue;
      *out = {start, address - base};
      return true;
    }
  }
  return false;
}

// The size in the caller's view of a block with or without an offset; SIZE_MAX and EINVAL if it is
// no such block.
size_t size_of_aligned(void* block) {
  if (block != nullptr) {
    const size_t bytes = loam_size(get_process_heap(), block);
    if (bytes != SIZE_MAX) return bytes;
    OffsetBlock found;
    if (find_offset_block(block, &found)) {
      return loam_size(get_process_heap(), found.base) - found.pad;
    }
    if (const size_t its = loam::os::system_block_size(block); its != SIZE_MAX) return its;
    if (const size_t its = loam::os::aligned_system_block_bytes(block); its != 0) return its;
  }
  errno = EINVAL;
  return SIZE_MAX;
}

bool is_valid_request(size_t bytes, size_t alignment, size_t offset) {
  return bytes != 0 && is_power_of_two(alignment) && alignment <= kLargestAlignment &&
         (offset == 0 || offset < bytes);
}

void* allocate(size_t bytes, size_t alignment, size_t offset, bool zero) {
  if (!is_valid_request(bytes, alignment, offset)) return fail(EINVAL);
  if (alignment < LOAM_ALIGNMENT) alignment = LOAM_ALIGNMENT;
  const size_t pad = pad_for(alignment, offset);
  size_t total;
  if (__builtin_add_overflow(bytes, pad, &total)) return fail(ENOMEM);
  char* const base = static_cast<char*>(loam_aligned_alloc(get_process_heap(), alignment, total));
  if (base == nullptr) return fail(ENOMEM);
  if (zero) std::memset(base + pad, 0, bytes);
  if (pad != 0) write_note(base, base + pad);
  return base + pad;
}

void* reallocate(void* block, size_t bytes, size_t alignment, size_t offset, bool zero) {
  if (block == nullptr) return allocate(bytes, alignment, offset, zero);
  if (bytes == 0) {
    _aligned_free(block);
    return nullptr;
  }
  if (!is_valid_request(bytes, alignment, offset)) return fail(EINVAL);
  const size_t before = size_of_aligned(block);
  if (before == SIZE_MAX) return nullptr;
  const size_t used = alignment < LOAM_ALIGNMENT ? size_t{LOAM_ALIGNMENT} : alignment;
  if (pad_for(used, offset) == 0 && loam_size(get_process_heap(), block) != SIZE_MAX) {
    void* const moved = loam_aligned_realloc(get_process_heap(), block, used, bytes, zero);
    return moved != nullptr ? moved : fail(ENOMEM);
  }
  void* const moved = allocate(bytes, alignment, offset, zero);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, before < bytes ? before : bytes);
  _aligned_free(block);
  return moved;
}

}  // namespace
}  // namespace loam::win32

namespace win32 = loam::win32;

extern "C" {

LOAM_EXPORT void* _aligned_malloc(size_t bytes, size_t alignment) {
  return win32::allocate(bytes, alignment, 0, false);
}

LOAM_EXPORT void* _aligned_offset_malloc(size_t bytes, size_t alignment, size_t offset) {
  return win32::allocate(bytes, alignment, offset, false);
}

LOAM_EXPORT void* _aligned_realloc(void* block, size_t bytes, size_t alignment) {
  return win32::reallocate(block, bytes, alignment, 0, false);
}

LOAM_EXPORT void* _aligned_offset_realloc(void* block, size_t bytes, size_t alignment,
                                          size_t offset) {
  return win32::reallocate(block, bytes, alignment, offset, false);
}

LOAM_EXPORT void* _aligned_recalloc(void* block, size_t count, size_t bytes, size_t alignment) {
  return _aligned_offset_recalloc(block, count, bytes, alignment, 0);
}

LOAM_EXPORT void* _aligned_offset_recalloc(void* block, size_t count, size_t bytes,
                                           size_t alignment, size_t offset) {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) return win32::fail(ENOMEM);
  return win32::reallocate(block, total, alignment, offset, true);
}

LOAM_EXPORT size_t _aligned_msize(void* block, size_t, size_t) {
  return win32::size_of_aligned(block);
}

// The block is looked up before it is freed: a wrong guess would be misuse, and the corruption
// policy may then end the process.
LOAM_EXPORT void _aligned_free(void* block) {
  if (block == nullptr) return;
  loam_heap* const heap = win32::get_process_heap();
  win32::OffsetBlock found;
  const bool at_offset =
      loam_size(heap, block) == SIZE_MAX && win32::find_offset_block(block, &found);
  if (loam_free(heap, at_offset ? found.base : block) == LOAM_OK) return;
  if (loam::os::system_block_size(block) != SIZE_MAX) return loam::os::free_system_block(block);
  if (loam::os::aligned_system_block_bytes(block) == 0) {
    errno = EINVAL;
    return;
  }
  loam::os::free_aligned_system_block(block);
}

LOAM_EXPORT size_t _msize(void* block) {
  size_t bytes = loam_size(loam_heap_of(block), block);
  if (bytes == SIZE_MAX) bytes = loam::os::system_block_size(block);
  if (bytes == SIZE_MAX) errno = EINVAL;
  return bytes;
}

LOAM_EXPORT void* _expand(void* block, size_t bytes) {
  loam_heap* const heap = loam_heap_of(block);
  if (heap == nullptr) {
    const size_t its = loam::os::system_block_size(block);
    if (its == SIZE_MAX) return win32::fail(EINVAL);
    return bytes <= its ? block : win32::fail(ENOMEM);
  }
  return loam_try_resize(heap, block, bytes) == LOAM_OK ? block : win32::fail(ENOMEM);
}

// New blocks come from the process heap. It has exact sizes, so the next call knows where to begin
// to clear.
LOAM_EXPORT void* _recalloc(void* block, size_t count, size_t bytes) {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) return win32::fail(ENOMEM);
  loam_heap* const heap = block == nullptr ? win32::get_process_heap() : loam_heap_of(block);
  if (block == nullptr) {
    void* const fresh = loam_zalloc(heap, total);
    return fresh != nullptr ? fresh : win32::fail(ENOMEM);
  }
  if (heap == nullptr) {
    const size_t its = loam::os::system_block_size(block);
    if (its == SIZE_MAX) return win32::fail(EINVAL);
    void* const moved = total == 0 ? nullptr : loam_zalloc(win32::get_process_heap(), total);
    if (moved == nullptr && total != 0) return win32::fail(ENOMEM);
    if (moved != nullptr) std::memcpy(moved, block, its < total ? its : total);
    loam::os::free_system_block(block);
    return moved;
  }
  if (total == 0) {
    static_cast<void>(loam_free(heap, block));
    return nullptr;
  }
  void* const moved = loam_zrealloc(heap, block, total);
  return moved != nullptr ? moved : win32::fail(ENOMEM);
}

LOAM_EXPORT int _heapmin(void) {
  const bool process = loam_trim(win32::get_process_heap()) == LOAM_OK;
  return loam_trim(loam_default()) == LOAM_OK && process ? 0 : -1;
}

// malloc's heap is left out: its check needs all other threads to be quiet.
LOAM_EXPORT int _heapchk(void) {
  return loam_validate(win32::get_process_heap(), nullptr) == LOAM_OK ? _HEAPOK : _HEAPBADNODE;
}

LOAM_EXPORT int _set_sbh_threshold(size_t bytes) {
  if (loam_set_small_threshold(win32::get_process_heap(), bytes) == LOAM_OK) return 1;
  errno = EINVAL;
  return 0;
}

LOAM_EXPORT size_t _get_sbh_threshold(void) {
  return loam_get_small_threshold(win32::get_process_heap());
}

}  // extern "C"
