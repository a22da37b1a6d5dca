#include "calls.h"

#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

// C23. Weak: used if the preloaded library has them.
extern "C" {
[[gnu::weak]] void free_sized(void* block, size_t size);
[[gnu::weak]] void free_aligned_sized(void* block, size_t alignment, size_t size);
}

namespace stress {
namespace {

constexpr Call kCalls[] = {
    {Kind::kMalloc, "malloc", Family::kPlain, false, 30},
    {Kind::kCalloc, "calloc", Family::kPlain, false, 15},
    {Kind::kRealloc, "realloc from null", Family::kPlain, false, 5},
    {Kind::kReallocarray, "reallocarray from null", Family::kPlain, false, 3},
    {Kind::kAlignedAlloc, "aligned_alloc", Family::kAligned, true, 7},
    {Kind::kPosixMemalign, "posix_memalign", Family::kOther, true, 7},
    {Kind::kMemalign, "memalign", Family::kOther, true, 5},
    {Kind::kValloc, "valloc", Family::kOther, false, 1},
    {Kind::kPvalloc, "pvalloc", Family::kOther, false, 1},
    {Kind::kStrdup, "strdup", Family::kOther, false, 3},
    {Kind::kNew, "operator new", Family::kNew, false, 8},
    {Kind::kNewArray, "operator new[]", Family::kNewArray, false, 4},
    {Kind::kNothrowNew, "operator new, nothrow", Family::kNew, false, 4},
    {Kind::kAlignedNew, "operator new, aligned", Family::kAlignedNew, true, 7},
};

constexpr uint64_t total_weight() {
  uint64_t total = 0;
  for (const Call& call : kCalls) total += call.weight;
  return total;
}
static_assert(total_weight() == 100, "pick_call takes a number below 100");

void* duplicate(size_t size) {
  char text[kLongestString + 1];
  memset(text, 'x', size - 1);
  text[size - 1] = '\0';
  char* copy = strdup(text);
  if (copy != nullptr && memcmp(copy, text, size) != 0) abort();
  return copy;
}

}  // namespace

Call pick_call(uint64_t number) {
  for (const Call& call : kCalls) {
    if (number < call.weight) return call;
    number -= call.weight;
  }
  return kCalls[0];
}

int make_block(Kind kind, Block& block) {
  const size_t size = block.size;
  void* start = nullptr;
  switch (kind) {
    case Kind::kMalloc:
      start = malloc(size);
      break;
    case Kind::kCalloc:
      start = size % 3 == 0 ? calloc(size / 3, 3) : calloc(1, size);
      break;
    case Kind::kRealloc:
      start = realloc(nullptr, size);
      break;
    case Kind::kReallocarray:
      start = reallocarray(nullptr, 1, size);
      break;
    case Kind::kAlignedAlloc:
      start = aligned_alloc(block.alignment, size);
      break;
    case Kind::kPosixMemalign: {
      const int error = posix_memalign(&start, block.alignment, size);
      if (error != 0) return error;
      break;
    }
    case Kind::kMemalign:
      start = memalign(block.alignment, size);
      break;
    case Kind::kValloc:
      start = valloc(size);
      break;
    case Kind::kPvalloc:
      start = pvalloc(size);
      break;
    case Kind::kStrdup:
      start = duplicate(size);
      break;
    case Kind::kNothrowNew:
      start = ::operator new(size, std::nothrow);
      if (start == nullptr) return ENOMEM;
      break;
    case Kind::kNew:
    case Kind::kNewArray:
    case Kind::kAlignedNew:
      try {
        start = kind == Kind::kNew ? ::operator new(size)
                : kind == Kind::kNewArray
                    ? ::operator new[](size)
                    : ::operator new (size, std::align_val_t{block.alignment});
      } catch (const std::bad_alloc&) {
        return ENOMEM;
      }
      break;
  }
  block.start = static_cast<unsigned char*>(start);
  return start == nullptr ? errno : 0;
}

void free_block(const Block& block, uint64_t choice) {
  const bool sized = choice % 2 == 0;
  void* start = block.start;
  switch (block.family) {
    case Family::kPlain:
      if (sized && free_sized != nullptr) {
        free_sized(start, block.size);
      } else {
        free(start);
      }
      break;
    case Family::kAligned:
      if (sized && free_aligned_sized != nullptr) {
        free_aligned_sized(start, block.alignment, block.size);
      } else {
        free(start);
      }
      break;
    case Family::kOther:
      free(start);
      break;
    case Family::kNew:
      if (sized) {
        ::operator delete(start, block.size);
      } else {
        ::operator delete(start);
      }
      break;
    case Family::kNewArray:
      if (sized) {
        ::operator delete[](start, block.size);
      } else {
        ::operator delete[](start);
      }
      break;
    case Family::kAlignedNew:
      if (sized) {
        ::operator delete (start, block.size, std::align_val_t{block.alignment});
      } else {
        ::operator delete (start, std::align_val_t{block.alignment});
      }
      break;
  }
}

}  // namespace stress
