// The C run-time's functions of <loam/win32.h>.
#include <cerrno>
#include <cstdlib>

#include "interface.h"

namespace heaps {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

template <typename Call>
int errno_of(Call call) {
  errno = 0;
  call();
  return errno;
}

bool is_aligned(const void* block, size_t alignment, size_t offset = 0) {
  return (reinterpret_cast<uintptr_t>(block) + offset) % alignment == 0;
}

TEST(Aligned, EveryPowerOfTwo) {
  for (size_t alignment = 1; alignment <= 4 * kMiB; alignment *= 2) {
    for (const size_t bytes : {size_t{1}, size_t{24}, size_t{1000}, 40 * kKiB}) {
      void* const block = _aligned_malloc(bytes, alignment);
      ASSERT_NE(block, nullptr) << alignment;
      EXPECT_TRUE(is_aligned(block, alignment)) << alignment;
      EXPECT_EQ(_aligned_msize(block, alignment, 0), bytes);
      std::memset(block, 1, bytes);
      _aligned_free(block);
      EXPECT_FALSE(HeapValidate(GetProcessHeap(), 0, block)) << "freed";
    }
  }
}

// Windows' function hides a pointer in front of the block. Our block is like any other.
TEST(Aligned, WithoutAnOffsetItIsAPlainBlock) {
  const Summary before = Win32Interface::summary(GetProcessHeap());
  void* const page = _aligned_malloc(4 * kKiB, 4 * kKiB);
  EXPECT_EQ(Win32Interface::summary(GetProcessHeap()).allocated, before.allocated + 4 * kKiB)
      << "nothing on top";
  EXPECT_TRUE(HeapValidate(GetProcessHeap(), 0, page));
  EXPECT_TRUE(HeapFree(GetProcessHeap(), 0, page));
  std::free(_aligned_malloc(100, 64));
}

TEST(Aligned, BadArguments) {
  void* block = &block;
  EXPECT_EQ(errno_of([&] { block = _aligned_malloc(0, 16); }), EINVAL);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(errno_of([&] { block = _aligned_malloc(100, 48); }), EINVAL);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(errno_of([&] { block = _aligned_malloc(100, 0); }), EINVAL);
  EXPECT_EQ(errno_of([&] { block = _aligned_malloc(SIZE_MAX - 100, 16); }), ENOMEM);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(errno_of([&] { block = _aligned_offset_malloc(100, 16, 100); }), EINVAL);
  EXPECT_EQ(errno_of([&] { block = _aligned_offset_malloc(SIZE_MAX, 16, 8); }), ENOMEM);
  EXPECT_EQ(errno_of([&] { block = _aligned_recalloc(nullptr, SIZE_MAX / 2, 3, 16); }), ENOMEM);
  EXPECT_EQ(errno_of([&] { EXPECT_EQ(_aligned_msize(nullptr, 16, 0), SIZE_MAX); }), EINVAL);
  EXPECT_EQ(errno_of([] { _aligned_free(nullptr); }), 0);
  int local = 0;
  EXPECT_EQ(errno_of([&] { _aligned_free(&local); }), EINVAL);
  EXPECT_EQ(errno_of([&] { EXPECT_EQ(_aligned_realloc(&local, 100, 16), nullptr); }), EINVAL);
}

TEST(Aligned, OffsetsOfEverySort) {
  for (const size_t alignment : {1, 2, 8, 16, 32, 64, 256, 4096, 65536}) {
    for (const size_t offset : {0, 1, 3, 8, 15, 16, 17, 24, 60, 64, 100, 255, 4000}) {
      const size_t bytes = offset + 77;
      auto* const block =
          static_cast<unsigned char*>(_aligned_offset_malloc(bytes, alignment, offset));
      ASSERT_NE(block, nullptr) << alignment << " at " << offset;
      EXPECT_TRUE(is_aligned(block, alignment, offset)) << alignment << " at " << offset;
      EXPECT_EQ(_aligned_msize(block, alignment, offset), bytes);
      for (size_t i = 0; i < bytes; ++i) block[i] = static_cast<unsigned char>(i * 7);
      auto* const moved = static_cast<unsigned char*>(
          _aligned_offset_realloc(block, bytes + 5000, alignment, offset));
      ASSERT_NE(moved, nullptr);
      EXPECT_TRUE(is_aligned(moved, alignment, offset)) << alignment << " at " << offset;
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(moved[i], static_cast<unsigned char>(i * 7));
      const size_t live = Win32Interface::summary(GetProcessHeap()).allocated;
      _aligned_free(moved);
      EXPECT_LT(Win32Interface::summary(GetProcessHeap()).allocated, live) << "it was freed";
    }
  }
  EXPECT_TRUE(HeapValidate(GetProcessHeap(), 0, nullptr));
}

// A pointer into the middle of a block must not count as a block at an offset.
TEST(Aligned, AMiddleIsNotFreed) {
  auto* const plain = static_cast<char*>(_aligned_malloc(1000, 64));
  auto* const at_offset = static_cast<char*>(_aligned_offset_malloc(1000, 64, 8));
  ASSERT_TRUE(plain != nullptr && at_offset != nullptr);
  for (char* const bad : {plain + 16, plain + 8, plain + 64, at_offset + 8, at_offset + 64}) {
    EXPECT_EQ(errno_of([&] { _aligned_free(bad); }), EINVAL);
    EXPECT_EQ(_aligned_msize(bad, 64, 0), SIZE_MAX);
  }
  EXPECT_EQ(_aligned_msize(plain, 64, 0), 1000u);
  EXPECT_EQ(_aligned_msize(at_offset, 64, 8), 1000u);
  EXPECT_EQ(errno_of([&] { _aligned_free(plain); }), 0);
  EXPECT_EQ(errno_of([&] { _aligned_free(at_offset); }), 0);
  EXPECT_EQ(errno_of([&] { _aligned_free(at_offset); }), EINVAL) << "freed already";
}

TEST(Aligned, ReallocKeepsContentAndAlignment) {
  auto* block = static_cast<unsigned char*>(_aligned_realloc(nullptr, 100, 256));
  ASSERT_NE(block, nullptr);
  std::memset(block, 9, 100);
  for (const size_t bytes : {200, 5000, 50, 100000, 4000000, 10}) {
    block = static_cast<unsigned char*>(_aligned_realloc(block, bytes, 256));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_aligned(block, 256)) << bytes;
    EXPECT_EQ(_aligned_msize(block, 256, 0), bytes);
    EXPECT_TRUE(is_filled(block, bytes < 100 ? bytes : 50, 9));
  }
  EXPECT_EQ(_aligned_realloc(block, 0, 256), nullptr) << "size 0 frees";
  EXPECT_FALSE(HeapValidate(GetProcessHeap(), 0, block));
}

TEST(Aligned, RecallocClearsWhatIsNew) {
  for (const size_t offset : {0, 24}) {
    auto* block =
        static_cast<unsigned char*>(_aligned_offset_recalloc(nullptr, 10, 10, 64, offset));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_filled(block, 100, 0));
    std::memset(block, 5, 100);
    for (const size_t count : {11, 13, 300, 9000}) {
      const size_t before = _aligned_msize(block, 64, offset);
      block = static_cast<unsigned char*>(_aligned_offset_recalloc(block, count, 10, 64, offset));
      ASSERT_NE(block, nullptr);
      EXPECT_TRUE(is_aligned(block, 64, offset));
      EXPECT_TRUE(is_filled(block, before, 5)) << count;
      EXPECT_TRUE(is_filled(block + before, count * 10 - before, 0)) << count;
      std::memset(block, 5, count * 10);
    }
    _aligned_free(block);
  }
}

TEST(CrtHeap, MsizeKnowsBlocksOfEveryHeap) {
  const Scoped<Win32Interface> heap;
  EXPECT_EQ(_msize(HeapAlloc(heap, 0, 123)), 123u);
  void* const block = std::malloc(123);
  EXPECT_GE(_msize(block), 123u) << "malloc keeps no exact sizes for small blocks";
  EXPECT_LE(_msize(block), 144u);
  std::free(block);
  EXPECT_EQ(errno_of([] { EXPECT_EQ(_msize(nullptr), SIZE_MAX); }), EINVAL);
}

TEST(CrtHeap, ExpandStaysInPlace) {
  void* const block = std::malloc(100);
  EXPECT_EQ(_expand(block, 90), block);
  EXPECT_EQ(errno_of([&] { EXPECT_EQ(_expand(block, 100000), nullptr); }), ENOMEM);
  EXPECT_EQ(errno_of([&] { EXPECT_EQ(_expand(nullptr, 10), nullptr); }), EINVAL);
  std::free(block);
}

TEST(CrtHeap, RecallocOfABlockOfItsOwn) {
  auto* block = static_cast<unsigned char*>(_recalloc(nullptr, 3, 7));
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(is_filled(block, 21, 0));
  std::memset(block, 1, 21);
  block = static_cast<unsigned char*>(_recalloc(block, 5, 7));
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(is_filled(block, 21, 1));
  EXPECT_TRUE(is_filled(block + 21, 14, 0));
  EXPECT_EQ(errno_of([&] { EXPECT_EQ(_recalloc(block, SIZE_MAX, 2), nullptr); }), ENOMEM);
  EXPECT_EQ(_msize(block), 35u);
  std::free(block);  // any heap's block is accepted there
  EXPECT_EQ(_recalloc(_recalloc(nullptr, 1, 1), 0, 5), nullptr);
}

TEST(CrtHeap, RecallocOfMallocsBlock) {
  auto* block = static_cast<unsigned char*>(std::malloc(100));
  const size_t before = _msize(block);
  std::memset(block, 1, before);
  block = static_cast<unsigned char*>(_recalloc(block, 10, 1000));
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(is_filled(block, before, 1));
  EXPECT_TRUE(is_filled(block + before, 10000 - before, 0));
  std::free(block);
}

TEST(CrtHeap, ThresholdAndChecks) {
  const size_t before = _get_sbh_threshold();
  EXPECT_EQ(_set_sbh_threshold(128), 1);
  EXPECT_EQ(_get_sbh_threshold(), 128u);
  EXPECT_EQ(_set_sbh_threshold(0), 1);
  EXPECT_EQ(_get_sbh_threshold(), 0u);
  void* const block = HeapAlloc(GetProcessHeap(), 0, 100);
  EXPECT_NE(block, nullptr);
  EXPECT_TRUE(HeapFree(GetProcessHeap(), 0, block));
  EXPECT_EQ(errno_of([] { EXPECT_EQ(_set_sbh_threshold(16 * kKiB + 1), 0); }), EINVAL);
  EXPECT_EQ(_set_sbh_threshold(before), 1);
  EXPECT_EQ(_heapchk(), _HEAPOK);
  EXPECT_EQ(_heapmin(), 0);
}

}  // namespace
}  // namespace heaps
