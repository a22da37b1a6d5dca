#include "map/metadata.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/units.h"
#include "fake_system/fake.h"
#include "os/os.h"
#include "random.h"

namespace loam {
namespace {

namespace fake = os::fake;

class Metadata : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    fake::reset();
    fake::set_granularity(GetParam());
  }
  static bool is_zero(const void* piece, size_t bytes) {
    const char* p = static_cast<const char*>(piece);
    for (size_t i = 0; i < bytes; ++i) {
      if (p[i] != 0) return false;
    }
    return true;
  }
  MetadataArena arena_;
};

TEST_P(Metadata, PiecesAreZeroedAlignedAndDoNotOverlap) {
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  struct Piece {
    size_t bytes;
    unsigned char fill;
  };
  std::map<uintptr_t, Piece> live;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() < 40 || random.chance(50)) {
      const size_t bytes = random.magnitude(MetadataArena::kLargestPiece);
      char* p = static_cast<char*>(arena_.allocate(bytes));
      ASSERT_NE(p, nullptr);
      ASSERT_TRUE(is_zero(p, bytes));
      const uintptr_t address = reinterpret_cast<uintptr_t>(p);
      ASSERT_EQ(address % 64, 0u);
      const auto after = live.upper_bound(address);
      if (after != live.end()) {
        ASSERT_LE(address + bytes, after->first);
      }
      if (after != live.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second.bytes, address);
      }
      const auto fill = static_cast<unsigned char>(1 + random.below(255));
      memset(p, fill, bytes);
      live[address] = {bytes, fill};
    } else {
      auto victim = live.lower_bound(random.next() % live.rbegin()->first);
      if (victim == live.end()) victim = live.begin();
      const unsigned char* p = reinterpret_cast<unsigned char*>(victim->first);
      for (size_t i = 0; i < victim->second.bytes; ++i) ASSERT_EQ(p[i], victim->second.fill);
      arena_.free(reinterpret_cast<void*>(victim->first), victim->second.bytes);
      live.erase(victim);
    }
  }
  for (const auto& [address, piece] : live) {
    arena_.free(reinterpret_cast<void*>(address), piece.bytes);
  }
  EXPECT_EQ(arena_.used_bytes(), 0u);
}

TEST_P(Metadata, WhatIsFreedIsUsedAgainBeforeAnythingIsReserved) {
  std::vector<void*> pieces;
  for (int i = 0; i < 1000; ++i) pieces.push_back(arena_.allocate(1000));
  const size_t reserved = fake::metadata_bytes();
  for (int round = 0; round < 5; ++round) {
    for (void* piece : pieces) arena_.free(piece, 1000);
    for (void*& piece : pieces) ASSERT_NE(piece = arena_.allocate(1000), nullptr);
  }
  EXPECT_EQ(fake::metadata_bytes(), reserved);
  EXPECT_EQ(arena_.used_bytes(), 1000u * 1024);
}

TEST_P(Metadata, EverySizeUpToTheLargestHasAPieceThatHoldsIt) {
  for (size_t bytes = 1; bytes <= MetadataArena::kLargestPiece; bytes += bytes < 300 ? 1 : 997) {
    const size_t before = arena_.used_bytes();
    void* piece = arena_.allocate(bytes);
    ASSERT_NE(piece, nullptr);
    ASSERT_GE(arena_.used_bytes() - before, bytes);
    ASSERT_LT(arena_.used_bytes() - before, bytes < 64 ? 65 : 2 * bytes);
    memset(piece, 1, bytes);
  }
}

TEST_P(Metadata, ARefusedReservationIsANullAndTheNextCallTriesAgain) {
  fake::fail(fake::Call::kReserveMetadata, 1, 1);
  EXPECT_EQ(arena_.allocate(64), nullptr);
  EXPECT_EQ(arena_.used_bytes(), 0u);
  EXPECT_NE(arena_.allocate(64), nullptr);
}

TEST_P(Metadata, ARefusedCommitIsANullAndTheNextCallTriesAgain) {
  for (uint64_t nth = 1; nth <= 8; ++nth) {
    MetadataArena arena;
    fake::fail(fake::Call::kCommitMetadata, nth, 1);
    int refused = 0;
    for (int i = 0; i < 12; ++i) {
      void* piece = arena.allocate(MetadataArena::kLargestPiece);
      if (piece == nullptr) {
        ++refused;
      } else {
        memset(piece, 1, MetadataArena::kLargestPiece);
      }
    }
    EXPECT_EQ(refused, 1);
    EXPECT_EQ(arena.used_bytes(), 11 * MetadataArena::kLargestPiece);
  }
}

TEST_P(Metadata, PagesOfFreePiecesAloneGoBackAndAreUsedAgainFirst) {
  const size_t page = GetParam();
  std::vector<void*> pieces;
  for (size_t i = 0; i < 40 * page / 64; ++i) pieces.push_back(arena_.allocate(64));
  EXPECT_EQ(arena_.purge(SIZE_MAX), 0u) << "all are used";
  // The piece in the middle of its page stays.
  void* const kept = pieces[pieces.size() / 2];
  for (void* piece : pieces) {
    if (piece != kept) arena_.free(piece, 64);
  }
  const size_t idle = arena_.idle_bytes(), purged = arena_.purge(SIZE_MAX);
  EXPECT_GE(purged, 36 * page)
      << "not the kept one's, nor those at the ends of two chunks, which others share";
  EXPECT_EQ(arena_.idle_bytes(), idle - purged);
  if (page == kPageBytes) {
    EXPECT_EQ(arena_.idle_bytes(), 0u);
  }
  EXPECT_EQ(arena_.purge(SIZE_MAX), 0u) << "once";
  EXPECT_EQ(arena_.used_bytes(), 64u);

  const size_t reserved = fake::metadata_bytes();
  const uint64_t committed = fake::calls(fake::Call::kCommitMetadata);
  for (void*& piece : pieces) {
    if (piece == kept) continue;
    ASSERT_NE(piece = arena_.allocate(64), nullptr);
    ASSERT_TRUE(is_zero(piece, 64));
    memset(piece, 1, 64);
  }
  EXPECT_EQ(fake::metadata_bytes(), reserved);
  EXPECT_EQ(fake::calls(fake::Call::kCommitMetadata), committed);
  std::sort(pieces.begin(), pieces.end());
  EXPECT_EQ(std::adjacent_find(pieces.begin(), pieces.end()), pieces.end()) << "none comes twice";
}

TEST_P(Metadata, WhatWentBackServesAnySize) {
  const size_t before = fake::metadata_bytes();  // of earlier tests
  test::Random random = test::seeded(2);
  LOAM_TRACE_SEED(random);
  for (int round = 0; round < 20; ++round) {
    std::map<char*, size_t> live;
    for (int i = 0; i < 300; ++i) {
      const size_t bytes = random.magnitude(MetadataArena::kLargestPiece);
      char* const piece = static_cast<char*>(arena_.allocate(bytes));
      ASSERT_NE(piece, nullptr);
      ASSERT_TRUE(is_zero(piece, bytes));
      memset(piece, 0x5a, bytes);
      const auto after = live.emplace(piece, bytes).first;
      if (after != live.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second, piece);
      }
      if (std::next(after) != live.end()) {
        ASSERT_LE(piece + bytes, std::next(after)->first);
      }
    }
    // All pieces are freed except a few of this round, and a part of the idle memory is purged.
    for (const auto& [piece, bytes] : live) {
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(piece[i], 0x5a);
      arena_.free(piece, bytes);
    }
    EXPECT_EQ(arena_.used_bytes(), 0u);
    const size_t idle = arena_.idle_bytes();
    const size_t purged = arena_.purge(idle / 2);
    EXPECT_GE(purged, idle / 2);
    EXPECT_EQ(arena_.idle_bytes(), idle - purged);
  }
  EXPECT_LE(fake::metadata_bytes() - before, size_t{32} << 20) << "some 5 MiB are used at once";
}

TEST_P(Metadata, APurgeThatTheSystemRefusesLeavesThePiecesAsTheyWere) {
  const size_t page = GetParam();
  std::vector<void*> pieces;
  for (size_t i = 0; i < 10 * page / 64; ++i) pieces.push_back(arena_.allocate(64));
  for (void* piece : pieces) arena_.free(piece, 64);
  const size_t idle = arena_.idle_bytes(), reserved = fake::metadata_bytes();
  ASSERT_GE(idle, 8 * page);
  fake::fail(fake::Call::kPurgeMetadata);
  EXPECT_EQ(arena_.purge(SIZE_MAX), 0u);
  EXPECT_EQ(arena_.idle_bytes(), idle);
  fake::clear_failures();
  for (size_t i = 0; i < 8 * page / kPageBytes; ++i)
    ASSERT_NE(arena_.allocate(kPageBytes), nullptr);
  EXPECT_EQ(fake::metadata_bytes(), reserved);
}

INSTANTIATE_TEST_SUITE_P(Granularity, Metadata, testing::Values(4096, 16384, 65536));

TEST(MetadataDeathTest, ChunksStandBetweenPagesThatCannotBeTouched) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  fake::reset();
  static MetadataArena arena;
  char* first = static_cast<char*>(arena.allocate(64));
  ASSERT_NE(first, nullptr);
  const uintptr_t chunk = reinterpret_cast<uintptr_t>(first) & ~((uintptr_t{1} << 20) - 1);
  const size_t guard = size_t{64} << 10;
  EXPECT_DEATH(reinterpret_cast<char*>(chunk + guard)[-1] = 1, "");
  EXPECT_DEATH(*reinterpret_cast<char*>(chunk + (size_t{1} << 20) - guard) = 1, "");
}

}  // namespace
}  // namespace loam
