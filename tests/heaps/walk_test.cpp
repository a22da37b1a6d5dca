// Walks: ideas 13 to 16.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>

#include "interface.h"

namespace heaps {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

template <typename Interface>
class Walk : public ::testing::Test {};
TYPED_TEST_SUITE(Walk, Interfaces, InterfaceNames);

// Slots follow each other between the region's first and last without a gap. A live block's bytes
// and its overhead make up its slot. Windows' field for the overhead has eight bits: if it is at
// its maximum, the start of the next slot decides.
template <typename Interface>
void expect_slots_adjacent(const std::vector<Entry>& entries) {
  constexpr bool kNarrow = std::is_same_v<Interface, Win32Interface>;
  const Entry* region = nullptr;
  const char* next = nullptr;
  const auto expect_at = [&](const char* address) {
    if (next != nullptr) {
      EXPECT_EQ(address, next);
    }
  };
  for (const Entry& entry : entries) {
    if (entry.kind == Kind::kRegion) {
      if (region != nullptr) {
        expect_at(static_cast<const char*>(region->last));
      }
      region = &entry;
      next = static_cast<const char*>(entry.first);
      EXPECT_GE(static_cast<const char*>(entry.first), entry.begin());
      EXPECT_LE(static_cast<const char*>(entry.last), entry.begin() + entry.bytes);
    } else if (region != nullptr && entry.region == region->region &&
               entry.kind != Kind::kUncommitted) {
      expect_at(entry.begin());
      const bool full = kNarrow && entry.overhead == 255;
      next = full ? nullptr : entry.begin() + entry.bytes + entry.overhead;
    }
  }
  if (region != nullptr) {
    expect_at(static_cast<const char*>(region->last));
  }
}

// On native Windows a fresh heap shows a region, a free block and an uncommitted range. Here it has
// no pages until its first block, so its walk ends at once.
TYPED_TEST(Walk, Idea13AFreshHeapIsEmptyAndEndsWithNoMore) {
  const Scoped<TypeParam> heap;
  EXPECT_EQ(TypeParam::walk(heap).size(), 0u);
}

TYPED_TEST(Walk, Idea13ARegionsSlotsAreAdjacentAndFillIt) {
  const Scoped<TypeParam> heap;
  std::vector<void*> blocks;
  for (const size_t bytes : {10, 100, 1000, 10000, 30000}) {
    for (int i = 0; i < 5; ++i) blocks.push_back(TypeParam::alloc(heap, bytes));
  }
  const std::vector<Entry> entries = TypeParam::walk(heap);
  expect_slots_adjacent<TypeParam>(entries);
  EXPECT_GE(count(entries, Kind::kRegion), 5u) << "one size class a region";
  EXPECT_EQ(count(entries, Kind::kBusy), blocks.size());
  size_t reserved = 0;
  for (const Entry& entry : entries) reserved += entry.kind == Kind::kRegion ? entry.bytes : 0;
  const Summary summary = TypeParam::summary(heap);
  EXPECT_LE(reserved, summary.reserved);
  // The rest may only be the heap's own records.
  EXPECT_LT(summary.reserved - reserved, 128 * kKiB);
}

TYPED_TEST(Walk, Idea14ALargeBlockIsOneEntryMore) {
  const Scoped<TypeParam> heap;
  void* const small = TypeParam::alloc(heap, 100);
  ASSERT_NE(small, nullptr);
  const std::vector<Entry> before = TypeParam::walk(heap);
  for (const size_t bytes : {300 * kKiB + 1, 5 * kMiB, 40 * kMiB + 123}) {
    void* const first = TypeParam::alloc(heap, bytes);
    const std::vector<Entry> one = TypeParam::walk(heap);
    ASSERT_EQ(one.size(), before.size() + 1) << bytes;
    ASSERT_NE(find(one, first), nullptr);
    EXPECT_EQ(find(one, first)->bytes, bytes);
    EXPECT_EQ((bytes + find(one, first)->overhead) % 4096 == 0 ||
                  find(one, first)->overhead == 255,  // Windows' field has eight bits
              true);
    void* const second = TypeParam::alloc(heap, bytes + 1);
    const std::vector<Entry> two = TypeParam::walk(heap);
    ASSERT_EQ(two.size(), before.size() + 2);
    ASSERT_NE(find(two, second), nullptr);
    EXPECT_EQ(find(two, second)->bytes, bytes + 1);
    EXPECT_TRUE(TypeParam::free(heap, second));
    EXPECT_EQ(TypeParam::walk(heap), one) << bytes;
    EXPECT_TRUE(TypeParam::free(heap, first));
    EXPECT_EQ(TypeParam::walk(heap), before) << bytes;
  }
}

// On native Windows free neighbours become one free block. Here a freed slot is a slot of its class
// again, and only whole spans join. After the last free, the heap's walk is that of a fresh heap.
TYPED_TEST(Walk, Idea15SmallBlocksShowTheirExactSizes) {
  const Scoped<TypeParam> heap;
  std::map<void*, size_t> sizes;
  for (size_t bytes = 0; bytes <= 2000; bytes += 37) {
    void* const block = TypeParam::alloc(heap, bytes);
    ASSERT_NE(block, nullptr);
    sizes[block] = bytes;
  }
  const std::vector<Entry> entries = TypeParam::walk(heap);
  expect_slots_adjacent<TypeParam>(entries);
  for (const auto& [block, bytes] : sizes) {
    const Entry* const entry = find(entries, block);
    ASSERT_NE(entry, nullptr) << bytes;
    EXPECT_EQ(entry->bytes, bytes);
    EXPECT_EQ((entry->bytes + entry->overhead) % 16, 0u) << "slots are multiples of 16";
    EXPECT_GE(entry->bytes + entry->overhead, 16u);
    EXPECT_LE(entry->overhead, 16 + bytes / 8) << "what rounding to a size class costs at most";
  }
  for (const auto& [block, bytes] : sizes) ASSERT_TRUE(TypeParam::free(heap, block));
  EXPECT_EQ(count(TypeParam::walk(heap), Kind::kBusy), 0u);
  ASSERT_TRUE(TypeParam::trim(heap));
  EXPECT_EQ(TypeParam::walk(heap).size(), 0u);
}

TYPED_TEST(Walk, Idea16EverySlotIsListedBusyOrFree) {
  const Scoped<TypeParam> heap;
  ASSERT_TRUE(TypeParam::set_mode(heap, 2));
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(TypeParam::alloc(heap, 64));
  std::vector<Entry> entries = TypeParam::walk(heap);
  expect_slots_adjacent<TypeParam>(entries);
  EXPECT_GT(entries.size(), 100u);
  EXPECT_EQ(count(entries, Kind::kBusy), 100u);
  for (void* const block : blocks) EXPECT_NE(find(entries, block), nullptr);
  const size_t slots = count(entries, Kind::kBusy) + count(entries, Kind::kFree);
  for (int i = 0; i < 100; i += 2) ASSERT_TRUE(TypeParam::free(heap, blocks[i]));
  entries = TypeParam::walk(heap);
  expect_slots_adjacent<TypeParam>(entries);
  EXPECT_EQ(count(entries, Kind::kBusy), 50u) << "cached slots are free ones";
  EXPECT_EQ(count(entries, Kind::kBusy) + count(entries, Kind::kFree), slots);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(find(entries, blocks[i]) != nullptr, i % 2 != 0) << i;
}

// Trimming purges pages inside live spans, and the walk shows them.
TYPED_TEST(Walk, UncommittedRangesLieInsideTheirRegion) {
  const Scoped<TypeParam> heap;
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(TypeParam::alloc(heap, 16 * kKiB));
  for (int i = 0; i < 64; ++i) {
    ASSERT_NE(blocks[i], nullptr);
    std::memset(blocks[i], 1, 16 * kKiB);
  }
  for (int i = 0; i < 64; ++i) {
    if (i % 8 != 0) {
      ASSERT_TRUE(TypeParam::free(heap, blocks[i]));
    }
  }
  ASSERT_TRUE(TypeParam::trim(heap));
  const std::vector<Entry> entries = TypeParam::walk(heap);
  const Entry* region = nullptr;
  size_t uncommitted = 0;
  for (const Entry& entry : entries) {
    if (entry.kind == Kind::kRegion) region = &entry;
    if (entry.kind != Kind::kUncommitted) continue;
    ASSERT_NE(region, nullptr);
    EXPECT_GE(entry.begin(), region->begin());
    EXPECT_LE(entry.begin() + entry.bytes, region->begin() + region->bytes);
    uncommitted += entry.bytes;
  }
  EXPECT_GT(uncommitted, 0u);
  EXPECT_EQ(count(entries, Kind::kBusy), 8u);
}

// A walk may be abandoned and begun again at any time.
TYPED_TEST(Walk, AnAbandonedWalkLeavesNothingBehind) {
  const Scoped<TypeParam> heap;
  for (int i = 0; i < 50; ++i) ASSERT_NE(TypeParam::alloc(heap, 500), nullptr);
  const std::vector<Entry> whole = TypeParam::walk(heap);
  if constexpr (std::is_same_v<TypeParam, LoamInterface>) {
    loam_walk_entry at{};
    at.size = sizeof at;
    EXPECT_EQ(loam_walk_next(heap, &at), LOAM_OK);
    EXPECT_EQ(loam_walk_next(heap, &at), LOAM_OK);
  } else {
    PROCESS_HEAP_ENTRY at;
    at.lpData = nullptr;
    EXPECT_TRUE(HeapWalk(heap, &at));
    EXPECT_TRUE(HeapWalk(heap, &at));
  }
  EXPECT_EQ(TypeParam::walk(heap), whole);
}

// Without its cursor an entry still has its position. HeapWalk continues by it, because its entry
// has no room for a cursor. The same holds in the default heap, where the counting must not
// allocate.
struct Place {
  void* address;
  unsigned kind;
  size_t region;
  bool operator==(const Place&) const = default;
};

void expect_walks_without_cursor(loam_heap* heap) {
  static Place with[200000], without[200000];
  size_t counts[2] = {0, 0};
  for (const bool forget : {false, true}) {
    loam_walk_entry at{};
    at.size = sizeof at;
    size_t& seen = counts[forget];
    while (seen < std::size(with) && loam_walk_next(heap, &at) == LOAM_OK) {
      (forget ? without : with)[seen++] = {at.address, at.kind, at.region};
      if (forget) std::memset(at.cursor, 0, sizeof at.cursor);
    }
  }
  ASSERT_LT(counts[0], std::size(with));
  ASSERT_EQ(counts[0], counts[1]);
  for (size_t i = 0; i < counts[0]; ++i) {
    ASSERT_EQ(with[i].address, without[i].address) << i;
    ASSERT_EQ(with[i].kind, without[i].kind) << i;
    ASSERT_EQ(with[i].region, without[i].region) << i;
  }
}

TEST(WalkLoam, AWalkGoesOnWithoutItsCursor) {
  const Scoped<LoamInterface> heap({.initial = 3 * kMiB});
  std::vector<void*> blocks;
  for (size_t bytes = 1; bytes < 50 * kMiB; bytes = bytes * 5 / 4 + 1) {
    blocks.push_back(loam_alloc(heap, bytes));
    blocks.push_back(std::malloc(bytes));
  }
  expect_walks_without_cursor(heap);
  expect_walks_without_cursor(loam_default());
  for (size_t i = 0; i < blocks.size(); i += 3) std::free(blocks[i]);
  loam_trim(nullptr);
  expect_walks_without_cursor(heap);
  expect_walks_without_cursor(loam_default());
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 3 != 0) std::free(blocks[i]);
  }
  loam_walk_entry lost{};
  lost.size = sizeof lost;
  lost.address = &lost;
  lost.kind = LOAM_ENTRY_SMALL;
  EXPECT_EQ(loam_walk_next(heap, &lost), LOAM_CHANGED);
  EXPECT_EQ(loam_walk_next(loam_default(), &lost), LOAM_CHANGED);
}

// A thread keeps the runs that it freed last unchanged. They are neither a block nor a region.
TEST(WalkLoam, AWalkThatComesToABlockThatWasFreedSinceHasChanged) {
  constexpr size_t kBytes = 64 * kKiB;
  std::vector<void*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(std::malloc(kBytes));
  for (int i = 0; i < 8; ++i)
    std::free(std::malloc(kBytes));  // from the fourth run on, the thread has room to keep some
  loam_walk_entry entry{}, before{};
  entry.size = sizeof entry;
  void* next = nullptr;
  while (next == nullptr && loam_walk_next(loam_default(), &entry) == LOAM_OK) {
    const bool follows = before.kind == LOAM_ENTRY_LARGE && entry.kind == LOAM_ENTRY_LARGE;
    const auto mine = std::find(blocks.begin(), blocks.end(), entry.address);
    if (follows && mine != blocks.end()) {
      next = entry.address;
      blocks.erase(mine);
    } else {
      before = entry;
    }
  }
  ASSERT_NE(next, nullptr);
  std::free(next);
  EXPECT_EQ(loam_walk_next(loam_default(), &before), LOAM_CHANGED);
  for (void* block : blocks) std::free(block);
}

TEST(WalkLoam, TheCallbackSeesWhatTheStepsSee) {
  const Scoped<LoamInterface> heap;
  for (int i = 0; i < 30; ++i) ASSERT_NE(loam_alloc(heap, 100 + 300 * i), nullptr);
  struct Seen {
    size_t busy = 0, all = 0, stop_at = SIZE_MAX;
  } seen;
  const auto visit = [](void* context, const loam_walk_entry* entry) {
    auto* const to = static_cast<Seen*>(context);
    ++to->all;
    to->busy += LoamInterface::kind_of(entry->kind) == Kind::kBusy;
    return to->all == to->stop_at ? 1 : 0;
  };
  EXPECT_EQ(loam_walk(heap, visit, &seen), LOAM_OK);
  EXPECT_EQ(seen.busy, 30u);
  EXPECT_EQ(seen.all, LoamInterface::walk(heap).size());
  seen = {.stop_at = 7};
  EXPECT_EQ(loam_walk(heap, visit, &seen), LOAM_OK);
  EXPECT_EQ(seen.all, 7u);
}

}  // namespace
}  // namespace heaps
