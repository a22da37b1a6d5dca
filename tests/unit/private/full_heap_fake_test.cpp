// A private heap at its maximum, on the pretended system: freed memory serves other sizes, and the
// accounts add up. Blocks are at pretended addresses, so no test writes to one. The promises are
// those of docs/heaps.md, "A full heap".
#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "heap/heap.h"
#include "private/heap_registry.h"
#include "random.h"

namespace loam {
namespace {

using test::Random;

constexpr unsigned kKinds[] = {0, LOAM_HEAP_EXACT_SIZES, LOAM_HEAP_EAGER,
                               LOAM_HEAP_UNSYNCHRONIZED | LOAM_HEAP_EXACT_SIZES};

class FullHeap : public testing::Test {
 public:
  void make(unsigned flags, size_t maximum, size_t initial = 0) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = flags;
    options.maximum = maximum;
    options.initial = initial;
    heap_ = heap_registry.create(options, &why_);
    ASSERT_NE(heap_, nullptr);
  }
  void destroy() { EXPECT_EQ(heap_registry.destroy(heap_), LOAM_OK); }
  void* allocate(size_t bytes, size_t alignment = LOAM_ALIGNMENT) {
    void* block = alignment <= LOAM_ALIGNMENT ? PrivateHeap::pop(heap_, bytes) : nullptr;
    return block != nullptr ? block : heap_->allocate(bytes, alignment, false, &why_);
  }
  loam_status free(void* block) {
    const Span* span = private_span_at(block);
    return span != nullptr && PrivateHeap::push(heap_, span, block) ? LOAM_OK : heap_->free(block);
  }
  /// Allocates until a block is refused.
  std::vector<void*> fill(size_t bytes) {
    std::vector<void*> blocks;
    while (void* block = allocate(bytes)) blocks.push_back(block);
    EXPECT_EQ(why_, LOAM_LIMIT_REACHED);
    return blocks;
  }
  loam_heap_summary summary() {
    loam_heap_summary s{};
    heap_->summary(&s);
    return s;
  }
  void TearDown() override {
    os::fake::clear_failures();
    EXPECT_TRUE(heap::is_valid());
    heap::compact();
    EXPECT_EQ(page_heap.stats().used.count, 0u);
  }

  PrivateHeap* heap_ = nullptr;
  loam_status why_ = LOAM_OK;
};

// The reported case and similar ones: a freed block serves any smaller request, whatever the two
// sizes are.
TEST_F(FullHeap, AFreedBlockServesEverySmallerOne) {
  constexpr size_t kSizes[] = {16,   40,   100,   250,   500,   1000,   2000,
                               4000, 7000, 16000, 32768, 40000, 200'000};
  for (const unsigned flags : kKinds) {
    for (const size_t maximum : {size_t{64} << 10, size_t{256} << 10, size_t{1} << 20}) {
      for (const size_t freed : kSizes) {
        for (const size_t asked : kSizes) {
          // A block with pages of its own is replaced by a span or a mixed run and their record,
          // which take at most a page more.
          if (asked > freed || (freed > kLargestSmall && asked + kPageBytes > freed)) continue;
          ASSERT_NO_FATAL_FAILURE(make(flags, maximum));
          const std::vector<void*> blocks = fill(freed);
          if (!blocks.empty()) {
            ASSERT_EQ(free(blocks[blocks.size() / 2]), LOAM_OK);
            EXPECT_NE(allocate(asked), nullptr)
                << flags << " of " << maximum << ": " << asked << " for " << freed;
            EXPECT_TRUE(heap_->is_valid())
                << flags << " of " << maximum << ": " << asked << " for " << freed;
          }
          destroy();
        }
      }
    }
  }
}

// Every second block is freed, so no slots join. At least half of the freed bytes must serve blocks
// from a half to an eighth of the size, and the heap stays within its maximum.
TEST_F(FullHeap, FreedBlocksAreDividedAmongSmallerOnes) {
  constexpr size_t kMaximum = size_t{1} << 20;
  for (const unsigned flags : kKinds) {
    for (const size_t freed : {1000, 2000, 3000, 4000, 10000}) {
      for (const size_t share : {2, 4, 8}) {
        ASSERT_NO_FATAL_FAILURE(make(flags, kMaximum));
        const std::vector<void*> blocks = fill(freed);
        EXPECT_GT(blocks.size() * freed, kMaximum * 9 / 10) << freed;
        size_t freed_bytes = 0;
        for (size_t i = 0; i < blocks.size(); i += 2, freed_bytes += freed)
          ASSERT_EQ(free(blocks[i]), LOAM_OK);
        const std::vector<void*> again = fill(freed / share);
        EXPECT_GE(again.size() * (freed / share), freed_bytes / 2)
            << flags << ": 1/" << share << " of " << freed;
        EXPECT_TRUE(heap_->is_valid());
        EXPECT_LE(summary().peak_committed, kMaximum);
        EXPECT_EQ(summary().blocks, blocks.size() / 2 + again.size());
        destroy();
      }
    }
  }
}

TEST_F(FullHeap, FreedNeighboursServeALargerBlock) {
  for (const unsigned flags : kKinds) {
    for (const size_t bytes : {100, 1000, 2000, 4000}) {
      for (const size_t neighbours : {2, 3, 7}) {
        ASSERT_NO_FATAL_FAILURE(make(flags, size_t{1} << 20));
        std::vector<void*> blocks = fill(bytes);
        std::sort(blocks.begin(), blocks.end());
        // Neighbours in one span, at any place.
        size_t first = blocks.size() / 2;
        while (private_run_at(blocks[first]) != private_run_at(blocks[first + neighbours - 1]))
          ++first;
        for (size_t i = 0; i < neighbours; ++i) ASSERT_EQ(free(blocks[first + i]), LOAM_OK);
        EXPECT_NE(allocate(neighbours * bytes), nullptr)
            << flags << ": " << neighbours << " of " << bytes;
        EXPECT_EQ(allocate(neighbours * bytes), nullptr);
        EXPECT_TRUE(heap_->is_valid());
        destroy();
      }
    }
  }
}

TEST_F(FullHeap, OnceAllIsFreedAnyRequestFits) {
  for (const unsigned flags : kKinds) {
    for (const size_t maximum : {size_t{128} << 10, size_t{1} << 20, size_t{4} << 20}) {
      for (const size_t initial : {size_t{0}, maximum}) {
        ASSERT_NO_FATAL_FAILURE(make(flags, maximum, initial));
        for (const size_t bytes : {40, 3000, 500, 20000, 100}) {
          const std::vector<void*> blocks = fill(bytes);
          EXPECT_GT(blocks.size() * bytes, maximum / 3 * 2)
              << flags << " of " << maximum << ": " << bytes;
          for (size_t i = 0; i < blocks.size(); i += 2) ASSERT_EQ(free(blocks[i]), LOAM_OK);
          const std::vector<void*> others = fill(bytes / 2);
          for (size_t i = 1; i < blocks.size(); i += 2) ASSERT_EQ(free(blocks[i]), LOAM_OK);
          for (void* block : others) ASSERT_EQ(free(block), LOAM_OK);
          void* const most = allocate(maximum / 10 * 9);
          EXPECT_NE(most, nullptr) << flags << " of " << maximum << ": " << bytes;
          if (most != nullptr) {
            ASSERT_EQ(free(most), LOAM_OK);
          }
        }
        EXPECT_TRUE(heap_->is_valid());
        destroy();
      }
    }
  }
}

// A thread has found its block without the lock and waits for the lock while another thread cuts
// the span anew.
TEST_F(FullHeap, AThreadThatWaitsWhileItsSpanIsCutFreesItsBlock) {
  for (const unsigned flags : {0u, unsigned(LOAM_HEAP_EXACT_SIZES)}) {
    ASSERT_NO_FATAL_FAILURE(make(flags, size_t{1} << 20));
    std::vector<void*> blocks = fill(4000);
    std::sort(blocks.begin(), blocks.end());
    size_t at = 0;
    while (private_run_at(blocks[at]) != private_run_at(blocks[at + 1])) ++at;
    void* const waits = blocks[at + 1];
    ASSERT_EQ(heap_->lock(), LOAM_OK);
    ASSERT_EQ(free(blocks[at]), LOAM_OK);
    const uint64_t before = heap_->mutex().acquisitions();
    std::thread other([&] { EXPECT_EQ(free(waits), LOAM_OK); });
    while (heap_->mutex().acquisitions() == before) std::this_thread::yield();
    ASSERT_EQ(private_run_at(waits)->use, RunUse::kSpan);
    EXPECT_NE(allocate(2000), nullptr);
    ASSERT_EQ(private_run_at(waits)->use, RunUse::kMixed);
    ASSERT_EQ(heap_->unlock(), LOAM_OK);
    other.join();
    EXPECT_EQ(heap_->find(waits).status, LOAM_INVALID_BLOCK);
    EXPECT_TRUE(heap_->is_valid());
    destroy();
  }
}

// A refusal of the system works like a maximum: a heap without one then serves smaller blocks from
// the slots of larger classes.
TEST_F(FullHeap, WithoutMemoryFromTheSystemFreeSlotsOfLargerClassesServe) {
  ASSERT_NO_FATAL_FAILURE(make(0, 0));
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(allocate(4000));
  for (const os::fake::Call call : {os::fake::Call::kReserve, os::fake::Call::kCommit})
    os::fake::fail(call);
  while (void* block = allocate(3000)) blocks.push_back(block);
  EXPECT_EQ(why_, LOAM_OUT_OF_MEMORY);
  ASSERT_EQ(free(blocks[500]), LOAM_OK);
  EXPECT_NE(allocate(2000), nullptr);
  os::fake::clear_failures();
  EXPECT_TRUE(heap_->is_valid());
  destroy();
}

// A model of a heap that is full most of the time.
class Model {
 public:
  Model(FullHeap& test, Random& random, unsigned flags)
      : test_(test), random_(random), flags_(flags) {}

  void step() {
    const uint64_t choice = random_.below(100);
    if (choice < 55) return make();
    if (choice < 85 && !blocks_.empty()) return release(some());
    if (choice < 92 && !blocks_.empty()) return resize(some());
    if (choice < 93) return release_many();
    if (choice < 95) return walk();
    if (choice < 96) {
      size_t largest = 0;
      static_cast<void>(test_.heap_->compact(&largest));
    }
  }

  void check() {
    ASSERT_TRUE(test_.heap_->is_valid());
    const loam_heap_summary s = test_.summary();
    ASSERT_EQ(s.blocks, blocks_.size());
    ASSERT_LE(s.peak_committed, s.maximum);
    size_t usable = 0;
    for (const auto& [address, block] : blocks_) usable += block.usable;
    ASSERT_EQ(s.allocated, usable);
    ASSERT_LE(s.allocated + s.free + s.cached + s.records, s.maximum);
  }

  void release_all() {
    while (!blocks_.empty()) release(blocks_.begin());
  }

 private:
  struct Block {
    size_t asked;  // what size() must be in a heap of exact sizes
    size_t usable;
  };
  using Blocks = std::map<uintptr_t, Block>;

  Blocks::iterator some() {
    auto at =
        blocks_.lower_bound(blocks_.begin()->first +
                            random_.below(blocks_.rbegin()->first - blocks_.begin()->first + 1));
    return at == blocks_.end() ? blocks_.begin() : at;
  }

  void check_block(uintptr_t address, const Block& block) {
    const PrivateHeap::Found found = test_.heap_->find(reinterpret_cast<void*>(address));
    ASSERT_EQ(found.status, LOAM_OK);
    ASSERT_EQ(found.usable, block.usable);
    if ((flags_ & LOAM_HEAP_EXACT_SIZES) != 0) {
      ASSERT_EQ(found.bytes, block.asked);
    }
  }

  void make() {
    size_t bytes = random_.magnitude(40'000) - 1;
    if (random_.chance(40)) bytes = usual_ / (1 + random_.below(8));
    if (random_.chance(1)) usual_ = random_.magnitude(32'768);
    const size_t alignment = random_.chance(10) ? size_t{16} << random_.below(9) : LOAM_ALIGNMENT;
    void* const made = test_.allocate(bytes, alignment);
    if (made == nullptr) {
      ASSERT_EQ(test_.why_, LOAM_LIMIT_REACHED);
      return;
    }
    const auto address = reinterpret_cast<uintptr_t>(made);
    const PrivateHeap::Found found = test_.heap_->find(made);
    ASSERT_EQ(found.status, LOAM_OK);
    ASSERT_EQ(address % alignment, 0u);
    ASSERT_GE(found.usable, bytes);
    const auto next = blocks_.lower_bound(address);
    ASSERT_TRUE(next == blocks_.end() || address + found.usable <= next->first)
        << "it overlaps the next block";
    if (next != blocks_.begin()) {
      const auto& before = *std::prev(next);
      ASSERT_LE(before.first + before.second.usable, address) << "the block before overlaps it";
    }
    blocks_[address] = {bytes, found.usable};
    asked_ += bytes;
  }

  void release(Blocks::iterator at) {
    ASSERT_NO_FATAL_FAILURE(check_block(at->first, at->second));
    void* const block = reinterpret_cast<void*>(at->first);
    ASSERT_EQ(test_.free(block), LOAM_OK);
    ASSERT_EQ(test_.free(block), LOAM_INVALID_BLOCK);
    asked_ -= at->second.asked;
    blocks_.erase(at);
  }

  void release_many() {
    const uint64_t one_in = 1 + random_.below(4);
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      const auto next = std::next(at);
      if (random_.below(one_in) == 0) release(at);
      at = next;
    }
  }

  void resize(Blocks::iterator at) {
    Block& block = at->second;
    if (block.usable > kLargestSmall + kPageBytes) return;
    const size_t bytes = random_.below(block.usable + 1);
    void* const start = reinterpret_cast<void*>(at->first);
    const loam_status status = test_.heap_->try_resize(start, bytes);
    ASSERT_EQ(status, LOAM_OK);
    asked_ = asked_ - block.asked + bytes;
    block.asked = bytes;
    block.usable = test_.heap_->find(start).usable;  // a block of its own pages gives some back
    ASSERT_NO_FATAL_FAILURE(check_block(at->first, block));
  }

  void walk() {
    loam_walk_entry entry{};
    entry.size = sizeof entry;
    size_t live = 0;
    uintptr_t end_before = 0;
    loam_status status;
    while ((status = test_.heap_->walk_next(&entry)) == LOAM_OK) {
      if (entry.kind == LOAM_ENTRY_REGION || entry.kind == LOAM_ENTRY_UNCOMMITTED) continue;
      const auto address = reinterpret_cast<uintptr_t>(entry.address);
      const bool is_live = entry.kind >= LOAM_ENTRY_SMALL;
      ASSERT_TRUE(!is_live || blocks_.count(address) == 1);
      if (is_live) {
        const bool exact = (flags_ & LOAM_HEAP_EXACT_SIZES) != 0;
        const Block& block = blocks_[address];
        ASSERT_EQ(entry.bytes,
                  exact || entry.kind != LOAM_ENTRY_SMALL ? block.asked : block.usable);
        ASSERT_GE(entry.bytes + entry.overhead, block.usable);
      }
      ASSERT_TRUE(end_before != address || address != 0);
      end_before = address + entry.bytes + entry.overhead;
      live += is_live;
    }
    ASSERT_EQ(status, LOAM_NO_MORE);
    ASSERT_EQ(live, blocks_.size());
  }

  FullHeap& test_;
  Random& random_;
  unsigned flags_;
  size_t usual_ = 1000;
  size_t asked_ = 0;
  Blocks blocks_;
};

TEST_F(FullHeap, AgreesWithAModel) {
  Random random = test::seeded();
  LOAM_TRACE_SEED(random);
  for (const unsigned flags : kKinds) {
    for (const size_t maximum :
         {size_t{16} << 10, size_t{64} << 10, size_t{300} << 10, size_t{2} << 20}) {
      ASSERT_NO_FATAL_FAILURE(make(flags, maximum, random.chance(30) ? maximum / 2 : 0));
      Model model(*this, random, flags);
      for (int step = 0; step < 12'000; ++step) {
        ASSERT_NO_FATAL_FAILURE(model.step()) << step;
        if (step % 100 == 0) {
          ASSERT_NO_FATAL_FAILURE(model.check()) << step;
        }
      }
      ASSERT_NO_FATAL_FAILURE(model.release_all());
      EXPECT_NE(allocate(maximum / 10 * (maximum < size_t{128} << 10 ? 2 : 9)), nullptr)
          << flags << " of " << maximum;
      destroy();
    }
  }
}

}  // namespace
}  // namespace loam
