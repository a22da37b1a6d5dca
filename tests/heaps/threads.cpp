// Threads use shared heaps, heaps of their own and malloc at once, while heaps are made, locked,
// walked, compacted and destroyed. Every block carries its mark. At the end every heap is valid,
// and no memory is lost.
#include <loam/loam.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "../preload/check.h"

namespace {

struct Block {
  unsigned char* address;
  size_t bytes;
  loam_heap* heap;  // null: malloc's
  unsigned char mark;
};

struct Random {
  uint64_t state;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  size_t below(size_t n) { return next() % n; }
};

#if defined(LOAM_IS_NOT_MALLOC)
constexpr bool kLoamIsMalloc = false;  // under a sanitizer, which has a malloc of its own
#else
constexpr bool kLoamIsMalloc = true;
#endif
constexpr unsigned kThreads = 4;
constexpr unsigned kShared = 6;
constexpr unsigned kSteps = 50'000;

loam_heap* shared[kShared];
std::atomic<Block*> handed[64];  // blocks on their way to another thread
std::atomic<bool> over{false};

size_t some_size(Random& random) {
  switch (random.below(20)) {
    case 0:
      return random.below(200'000);
    case 1:
      return random.below(20'000);
    default:
      return random.below(600);
  }
}

void fill(const Block& block) { memset(block.address, block.mark, block.bytes); }

void check(const Block& block) {
  const size_t step = block.bytes > 4096 ? 509 : 1;
  for (size_t i = 0; i < block.bytes; i += step) CHECK(block.address[i] == block.mark);
}

void free_block(const Block& block, Random& random) {
  check(block);
  // The free of Loam's malloc accepts a block of any heap.
  if (block.heap == nullptr || (kLoamIsMalloc && random.below(4) == 0)) {
    free(block.address);
  } else {
    CHECK(loam_free(block.heap, block.address) == LOAM_OK);
  }
}

Block make_block(loam_heap* heap, Random& random) {
  const size_t bytes = some_size(random);
  void* address = heap == nullptr ? malloc(bytes)
                  : random.below(16) == 0
                      ? loam_aligned_alloc(heap, size_t{16} << random.below(9), bytes)
                      : loam_alloc(heap, bytes);
  CHECK(address != nullptr);
  Block block{static_cast<unsigned char*>(address), bytes, heap,
              static_cast<unsigned char>(random.below(255) + 1)};
  fill(block);
  return block;
}

void use_own_heap(Random& random) {
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  const unsigned choices[] = {0, LOAM_HEAP_EAGER, LOAM_HEAP_EXACT_SIZES, LOAM_HEAP_UNSYNCHRONIZED};
  options.flags = choices[random.below(4)];
  loam_heap* heap = loam_heap_create(&options);
  CHECK(heap != nullptr);
  const size_t count = random.below(400);
  std::vector<Block> blocks;
  for (size_t i = 0; i < count; ++i) {
    blocks.push_back(make_block(heap, random));
    if (random.below(3) == 0) {
      free_block(blocks.back(), random);
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) check(block);
  if (random.below(4) == 0) CHECK(loam_validate(heap, nullptr) == LOAM_OK);
  CHECK(loam_heap_destroy(heap) == LOAM_OK);  // with live blocks, with full caches
}

void work(unsigned number) {
  Random random{0x9e3779b97f4a7c15u * (number + 1)};
  std::vector<Block> live;
  for (unsigned step = 0; step < kSteps; ++step) {
    const size_t what = random.below(1000);
    if (what < 500 || live.size() < 100) {
      const size_t which = random.below(kShared + 1);
      live.push_back(make_block(which == kShared ? nullptr : shared[which], random));
    } else if (what < 950) {
      const size_t i = random.below(live.size());
      free_block(live[i], random);
      live[i] = live.back();
      live.pop_back();
    } else if (what < 970) {
      const size_t i = random.below(live.size());
      Block& block = live[i];
      check(block);
      const size_t bytes = some_size(random);
      void* moved = block.heap == nullptr ? realloc(block.address, bytes + 1)
                                          : loam_realloc(block.heap, block.address, bytes);
      CHECK(moved != nullptr);
      block.address = static_cast<unsigned char*>(moved);
      const size_t kept = bytes < block.bytes ? bytes : block.bytes;
      for (size_t k = 0; k < kept; k += 7) CHECK(block.address[k] == block.mark);
      block.bytes = bytes;
      fill(block);
    } else if (what < 990) {
      auto* given = new Block(live.back());
      live.pop_back();
      given = handed[random.below(64)].exchange(given);
      if (given != nullptr) {
        free_block(*given, random);
        delete given;
      }
    } else if (what < 998) {
      use_own_heap(random);
    } else {
      loam_heap* heap = shared[random.below(kShared)];
      CHECK(loam_lock(heap) == LOAM_OK);
      CHECK(loam_validate(heap, nullptr) == LOAM_OK);
      Block inside = make_block(heap, random);
      free_block(inside, random);
      CHECK(loam_unlock(heap) == LOAM_OK);
    }
    while (live.size() > 4000) {
      free_block(live.back(), random);
      live.pop_back();
    }
  }
  for (const Block& block : live) free_block(block, random);
}

void look() {
  size_t round = 0;
  while (!over) {
    loam_heap* heap = shared[round++ % kShared];
    loam_heap_summary summary;
    summary.size = sizeof summary;
    CHECK(loam_summary(heap, &summary) == LOAM_OK);
    CHECK(summary.reserved >= summary.committed);
    loam_walk_entry entry{};
    entry.size = sizeof entry;
    for (int i = 0; i < 2000 && loam_walk_next(heap, &entry) == LOAM_OK; ++i) {
    }
    // A frozen heap does not change.
    CHECK(loam_lock(heap) == LOAM_OK);
    size_t live[2] = {0, 0};
    for (size_t& count : live) {
      entry.address = nullptr;
      while (loam_walk_next(heap, &entry) == LOAM_OK) count += entry.kind >= LOAM_ENTRY_SMALL;
    }
    CHECK(live[0] == live[1]);
    CHECK(loam_unlock(heap) == LOAM_OK);
    if (round % 7 == 0) CHECK(loam_trim(heap) == LOAM_OK);
    if (round % 31 == 0) CHECK(loam_trim(nullptr) == LOAM_OK);
    loam_heap* all[64];
    CHECK(loam_heaps(all, 64) >= kShared + 1);
    std::this_thread::yield();
  }
}

}  // namespace

int main() {
  const unsigned flags[kShared] = {0,
                                   LOAM_HEAP_EAGER,
                                   LOAM_HEAP_EXACT_SIZES,
                                   LOAM_HEAP_EAGER | LOAM_HEAP_EXACT_SIZES,
                                   LOAM_HEAP_ZERO_ON_FREE,
                                   0};
  for (unsigned i = 0; i < kShared; ++i) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = flags[i];
    if (i == kShared - 1) options.maximum = size_t{1} << 30;
    shared[i] = loam_heap_create(&options);
    CHECK(shared[i] != nullptr);
  }
  std::thread looker(look);
  // Runs twice, so that threads end while others use the same heaps.
  for (unsigned round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back(work, round * kThreads + t);
    for (std::thread& thread : threads) thread.join();
  }
  over = true;
  looker.join();
  Random random{1};
  for (auto& place : handed) {
    if (Block* block = place.exchange(nullptr)) {
      free_block(*block, random);
      delete block;
    }
  }
  for (loam_heap* heap : shared) {
    CHECK(loam_validate(heap, nullptr) == LOAM_OK);
    loam_trim(heap);
    loam_heap_summary summary;
    summary.size = sizeof summary;
    CHECK(loam_summary(heap, &summary) == LOAM_OK);
    CHECK_EQUAL(summary.blocks, 0);
    CHECK_EQUAL(summary.allocated, 0);
    CHECK_EQUAL(summary.cached, 0);  // the ends of threads, and compact, have returned everything
    CHECK_EQUAL(summary.spans, 0);
    CHECK(loam_heap_destroy(heap) == LOAM_OK);
  }
  return 0;
}
