// Freed blocks that are held back: how many, how long, and how a write to one shows.
#include "hardening/quarantine.h"

#include <cstring>

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr size_t kLimit = 64 << 10;

void* number(uintptr_t value) { return reinterpret_cast<void*>(value * 16); }

// Inserts an entry, and visits the entries that leave for it.
template <class Visit>
void put(Quarantine& quarantine, const Quarantine::Entry& entry, Visit visit) {
  for (bool pushed = false; !pushed;) {
    Quarantine::Entry out[Quarantine::kMostOut];
    const unsigned count = quarantine.exchange(0, entry, out, &pushed);
    ASSERT_TRUE(pushed || count != 0);
    for (unsigned i = 0; i < count; ++i) visit(out[i]);
  }
}

struct Held {
  size_t blocks = 0;
  size_t bytes = 0;
};
Held held_in(Quarantine& quarantine) {
  Held held;
  EXPECT_TRUE(quarantine.for_each([&](const Quarantine::Entry& entry) {
    ++held.blocks;
    held.bytes += entry.bytes;
    return true;
  }));
  return held;
}

TEST(Quarantine, TheOldestComesOutFirstAndTheLimitHolds) {
  static Quarantine quarantine;
  ASSERT_TRUE(quarantine.start(kLimit));
  uintptr_t next_out = 1;
  for (uintptr_t i = 1; i <= 1000; ++i) {
    const size_t bytes = 16 * (i % 50 + 1);
    put(quarantine, {number(i), bytes},
        [&](const Quarantine::Entry& out) { EXPECT_EQ(out.block, number(next_out++)); });
    const Held held = held_in(quarantine);
    ASSERT_LE(held.bytes, kLimit);
    ASSERT_EQ(held.blocks, i - (next_out - 1));
  }
  EXPECT_GT(next_out, 1u) << "nothing came out: the test is too small";
}

TEST(Quarantine, ABlockOfMoreThanAQuarterOfTheLimitIsNotHeldBack) {
  static Quarantine quarantine;
  ASSERT_TRUE(quarantine.start(kLimit));
  EXPECT_TRUE(quarantine.takes(kLimit / 4));
  EXPECT_FALSE(quarantine.takes(kLimit / 4 + 1));
}

TEST(Quarantine, EveryByteThatIsWrittenShows) {
  for (const size_t bytes : {size_t{16}, size_t{48}, size_t{256}}) {
    alignas(16) unsigned char block[256];
    for (size_t i = 0; i < bytes; ++i) {
      poison(block, bytes);
      ASSERT_EQ(first_unpoisoned(block, bytes), bytes);
      block[i] ^= 1;
      ASSERT_EQ(first_unpoisoned(block, bytes), i) << bytes;
    }
  }
}

}  // namespace
}  // namespace loam
