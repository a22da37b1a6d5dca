// The hardened heap needs only the functions that it was given, and no other part of the heap
// above.
#include "hardening/hardening.h"

#include <string>

#include <gtest/gtest.h>

#include "cache/large_blocks.h"
#include "cache/thread_cache.h"
#include "hardening/live_blocks.h"
#include "os/fatal.h"

namespace loam {
namespace {

struct Calls {
  unsigned allocate_small = 0;
  unsigned allocate_pages = 0;
  unsigned free_large = 0;
};
Calls calls;
bool is_private = false;

void* allocate_small(unsigned size_class, size_t) {
  ++calls.allocate_small;
  return current_cache->allocate_slow(size_class);
}

void* allocate_own_slot(unsigned size_class) { return allocate_small(size_class, 0); }

void free_small(unsigned size_class, void* block) { current_cache->free_slow(size_class, block); }

void* allocate_pages(size_t bytes, size_t alignment, size_t extra, bool* zero) {
  ++calls.allocate_pages;
  return allocate_large_block(bytes, alignment, 0, zero, extra);
}

void free_large(void* block) {
  ++calls.free_large;
  Span* span = span_at(reinterpret_cast<uintptr_t>(block));
  if (span == nullptr || span->run_kind() != SpanKind::kLarge) return;  // freed already
  if (!current_cache->free_run(span)) current_cache->free_run_slow(span);
}

class HardeningTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto answer = [](const void*) { return is_private; };
    const PlainHeap plain{&allocate_small, &allocate_own_slot, &free_small,
                          &allocate_pages, &free_large,        answer};
    ASSERT_TRUE(hardening.start(Hardening::kCanary, 0, false, plain));
  }
  void SetUp() override {
    calls = Calls{};
    is_private = false;
  }

  static char* large_block(size_t bytes) {
    bool zero = false;
    return static_cast<char*>(hardening.allocate(bytes, 16, &zero));
  }

  template <class Body>
  static std::string report_of(Body body) {
    set_corruption_policy(CorruptionPolicy::kReport);
    testing::internal::CaptureStderr();
    body();
    set_corruption_policy(CorruptionPolicy::kAbort);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(HardeningTest, LargeBlocksComeFromAndGoToTheHeapThatWasHandedOver) {
  char* block = large_block(100'000);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(calls.allocate_pages, 1u);
  EXPECT_EQ(hardening.requested(block), 100'000u);
  EXPECT_TRUE(is_live(block));
  hardening.free(block, nullptr);
  EXPECT_EQ(calls.free_large, 1u);
  EXPECT_FALSE(seems_live(block));
}

TEST_F(HardeningTest, SmallBlocksComeFromTheHeapThatWasHandedOver) {
  const unsigned size_class = class_for(3000);
  void* block = hardening.allocate_small(size_class, 3000);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(calls.allocate_small, 1u);
  EXPECT_EQ(hardening.requested(block), 3000u);
  hardening.free_small(static_cast<unsigned>(class_at(block)), block, nullptr);
  EXPECT_TRUE(hardening.freed(block));
}

TEST_F(HardeningTest, ABlockThatIsFreedTwiceIsReported) {
  char* block = large_block(100'000);
  hardening.free(block, nullptr);
  const std::string report = report_of([&] { hardening.free(block, nullptr); });
  EXPECT_NE(report.find("double free"), std::string::npos) << report;
  EXPECT_EQ(calls.free_large, 1u);
}

TEST_F(HardeningTest, AFreedPlaceThatAPrivateHeapHasIsThePrivateHeapsToFree) {
  char* block = large_block(100'000);
  hardening.free(block, nullptr);
  is_private = true;
  EXPECT_EQ(report_of([&] { hardening.free(block, nullptr); }), "");
  EXPECT_EQ(calls.free_large, 2u);
}

TEST_F(HardeningTest, AByteBehindABlockIsReportedWhenItIsFreed) {
  char* block = large_block(100'000);
  EXPECT_TRUE(hardening.intact(block));
  block[100'000] ^= 1;
  EXPECT_FALSE(hardening.intact(block));
  const std::string report = report_of([&] { hardening.free(block, nullptr); });
  EXPECT_NE(report.find("overflow: byte 100000"), std::string::npos) << report;
}

}  // namespace
}  // namespace loam
