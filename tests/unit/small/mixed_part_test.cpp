// One part of mixed spans: when it is crowded, and pointers for which the wrong spans were found.
#include "small/mixed_part.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "os/fatal.h"

namespace loam {
namespace {

namespace fake = os::fake;

TEST(MixedPartTest, APointerBesideTheSpanThatWasFoundForItIsAStranger) {
  // A block comes twice. Between the search for its span and the lock, the span was returned, and
  // its record became that of another span.
  fake::reset();
  auto pages = std::make_unique<PageHeap>();
  MixedPart part;
  const unsigned c = class_for(432);
  const SizeClassInfo& info = kSizeClasses[c];
  Span* spans[2];
  for (Span*& span : spans) {
    span = pages->allocate_span({Pages(info.pages), SizeClass(c), SizeClass(c), 0});
    ASSERT_NE(span, nullptr);
    ASSERT_TRUE(part.convert(*pages, span, nullptr));
  }
  const auto block = [&](const Span* span, unsigned slot) {
    return reinterpret_cast<void*>(span_base(span) + size_t{slot} * info.bytes);
  };
  Lock lock(part.mutex());
  set_corruption_policy(CorruptionPolicy::kReport);
  fake::take_errors();
  for (auto [its, found] : {std::pair{spans[0], spans[1]}, std::pair{spans[1], spans[0]}}) {
    for (const unsigned slot : {0u, info.slots - 1u}) {
      void* pointer = block(its, slot);
      EXPECT_EQ(part.give_locked(*pages, &pointer, &found, 1, nullptr), 1u)
          << "who asks looks again";
      EXPECT_EQ(pointer, block(its, slot));
    }
  }
  EXPECT_EQ(fake::take_errors(), "");
  set_corruption_policy(CorruptionPolicy::kAbort);
  EXPECT_EQ(part.blocks_locked(c), 2u * info.slots);
  EXPECT_TRUE(part.is_valid_locked());
  for (Span* span : spans) {
    for (unsigned slot = 0; slot < info.slots; ++slot) {
      void* pointer = block(span, slot);
      EXPECT_EQ(part.give_locked(*pages, &pointer, &span, 1, nullptr), 0u);
    }
  }
  EXPECT_EQ(pages->stats().used.count, 0u);
}

TEST(MixedPartTest, IsCrowdedWhereManyWaitAmongFewAcquisitions) {
  MixedPart part;
  std::atomic<unsigned> asked{0}, comes{0}, done{0};
  constexpr unsigned kEnd = ~0u;
  std::thread other([&] {
    for (unsigned turn = 1;; ++turn) {
      unsigned seen;
      while ((seen = asked) < turn) std::this_thread::yield();
      if (seen == kEnd) return;
      comes = turn;
      { Lock lock(part.mutex()); }
      done = turn;
    }
  });
  // The other thread mostly comes while this one holds the lock. Otherwise there is one more
  // acquisition.
  const auto is_crowded_after = [&](unsigned more) {
    const uint64_t goal = part.mutex().contentions() + 64;
    while (part.mutex().contentions() < goal) {
      part.mutex().lock();
      const unsigned turn = ++asked;
      while (comes != turn) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      part.mutex().unlock();
      while (done != turn) std::this_thread::yield();
      for (unsigned i = 0; i < more; ++i) Lock lock(part.mutex());
    }
    Lock lock(part.mutex());
    return part.is_crowded_locked();
  };
  EXPECT_TRUE(is_crowded_after(0));
  EXPECT_FALSE(is_crowded_after(100)) << "one wait a hundred";
  EXPECT_TRUE(is_crowded_after(0)) << "since the last look";
  EXPECT_FALSE(part.is_crowded_locked()) << "nobody came since";
  asked = kEnd;
  other.join();
}

}  // namespace
}  // namespace loam
