// Threads share a private heap and resize large blocks in it. One more thread reads the whole heap,
// and another one leaves mappings that are full of its own bytes, which the next block may get.
//
// Every block is full of its owner's tag. After each resizing the kept bytes must be the tag, and
// bytes that were requested as zero must be zero. The heaps are of all kinds in turn, without a
// maximum and with one that is reached. A failure is printed and ends the process.
//
// Usage: stress_large_resizes [STEPS [SEED]]. STEPS: resizings of each thread in each heap (100).
// SEED: the start of the random choices (1).
#include <loam/loam.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "random.h"

namespace {

using stress::Random;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMaxima[] = {0, 120 * kMiB};
constexpr size_t kLongest =
    45 * kMiB;  // above the longest run of pages, so that blocks move to mappings and back
constexpr unsigned kWorkers = 3;
constexpr unsigned kSlots = 4;
constexpr unsigned kKinds[] = {0, LOAM_HEAP_EXACT_SIZES, LOAM_HEAP_CANARY,
                               LOAM_HEAP_ZERO_ON_FREE | LOAM_HEAP_EXACT_SIZES,
                               LOAM_HEAP_POISON | LOAM_HEAP_EXACT_SIZES};

struct Shared {
  loam_heap* heap;
  unsigned flags;
  size_t maximum;
  unsigned steps;
  uint64_t seed;
  std::atomic<bool> done{false};

  // Sizes are exact, and the bytes behind them are zero for zrealloc().
  [[nodiscard]] bool exact() const {
    return (flags & (LOAM_HEAP_EXACT_SIZES | LOAM_HEAP_CANARY)) != 0;
  }
};

struct Worker {
  Shared* shared;
  unsigned number;
};

struct Block {
  unsigned char* start = nullptr;
  size_t bytes = 0;
};

[[noreturn]] void fail(const Shared& shared, const char* what) {
  std::fprintf(stderr, "stress_large_resizes: heap of flags %#x, maximum %zu MiB: %s\n",
               shared.flags, shared.maximum / kMiB, what);
  std::abort();
}

// Some bytes of each page and the last one.
bool is_full_of(const unsigned char* block, size_t bytes, unsigned char tag) {
  for (size_t at = 0; at < bytes; at += 509) {
    if (block[at] != tag) return false;
  }
  return bytes == 0 || block[bytes - 1] == tag;
}

bool is_zero(const unsigned char* block, size_t from, size_t to) {
  for (size_t at = from; at < to; at += at < from + 4096 ? 1 : 509) {
    if (block[at] != 0) return false;
  }
  return true;
}

size_t pick_size(Random& random, size_t now) {
  if (now > kMiB && now < kLongest && random.one_in(2))
    return now + now / 8 + 1 + random.below(5'000);
  switch (random.below(3)) {
    case 0:
      return 1 + random.below(70'000);
    case 1:
      return 1 + random.below(3 * kMiB);
    default:
      return 1 + random.below(kLongest);
  }
}

void step(const Shared& shared, Random& random, Block& block, unsigned char tag) {
  const size_t wanted = pick_size(random, block.bytes);
  const bool zero = shared.exact() && random.one_in(2);
  const uint64_t how = random.below(5);
  size_t alignment = LOAM_ALIGNMENT;
  bool stays = false;
  void* moved = nullptr;
  if (block.start == nullptr) {
    moved = zero ? loam_zalloc(shared.heap, wanted) : loam_alloc(shared.heap, wanted);
  } else if (how == 0) {
    if (loam_free(shared.heap, block.start) != LOAM_OK) fail(shared, "a block could not be freed");
    block = {};
    return;
  } else if (how == 1) {
    const loam_status status = loam_try_resize(shared.heap, block.start, wanted);
    if (status != LOAM_OK && status != LOAM_NOT_IN_PLACE && status != LOAM_LIMIT_REACHED)
      fail(shared, loam_status_text(status));
    if (status == LOAM_OK) moved = block.start;
    stays = true;
  } else if (how == 2) {
    alignment = size_t{16} << random.below(12);
    moved = loam_aligned_realloc(shared.heap, block.start, alignment, wanted, zero);
  } else {
    moved = zero ? loam_zrealloc(shared.heap, block.start, wanted)
                 : loam_realloc(shared.heap, block.start, wanted);
  }
  if (moved == nullptr) {
    if (!stays && shared.maximum == 0) fail(shared, "a request was refused");
    if (!is_full_of(block.start, block.bytes, tag))
      fail(shared, "a block that was not resized changed");
    return;
  }
  auto* const start = static_cast<unsigned char*>(moved);
  if (start != block.start && reinterpret_cast<uintptr_t>(start) % alignment != 0)
    fail(shared, "a block is not aligned");
  const size_t kept = block.bytes < wanted ? block.bytes : wanted;
  if (!is_full_of(start, kept, tag)) fail(shared, "a block changed on its way");
  if (zero && !stays && !is_zero(start, kept, wanted))
    fail(shared, "what is new does not read as zero");
  std::memset(start + kept, tag, wanted - kept);
  block = {start, wanted};
}

void* resize_blocks(void* argument) {
  const Worker& worker = *static_cast<Worker*>(argument);
  const Shared& shared = *worker.shared;
  Random random(shared.seed * kWorkers + worker.number);
  Block blocks[kSlots];
  for (unsigned i = 0; i < shared.steps; ++i) {
    const auto slot = static_cast<unsigned>(random.below(kSlots));
    step(shared, random, blocks[slot], static_cast<unsigned char>(16 * worker.number + slot + 1));
  }
  for (const Block& block : blocks) {
    if (block.start != nullptr && loam_free(shared.heap, block.start) != LOAM_OK)
      fail(shared, "a last block could not be freed");
  }
  return nullptr;
}

void* look(void* argument) {
  const Shared& shared = *static_cast<Shared*>(argument);
  while (!shared.done.load(std::memory_order_relaxed)) {
    if (loam_validate(shared.heap, nullptr) != LOAM_OK) fail(shared, "the heap is not valid");
    loam_walk_entry entry{};
    entry.size = sizeof entry;
    if (loam_lock(shared.heap) != LOAM_OK) fail(shared, "the heap could not be locked");
    loam_status status = LOAM_OK;
    while ((status = loam_walk_next(shared.heap, &entry)) == LOAM_OK) {
    }
    if (status != LOAM_NO_MORE) fail(shared, "a walk of the locked heap did not end");
    if (loam_unlock(shared.heap) != LOAM_OK) fail(shared, "the heap could not be unlocked");
  }
  return nullptr;
}

void* leave_mappings(void* argument) {
  const Shared& shared = *static_cast<Shared*>(argument);
  Random random(shared.seed);
  while (!shared.done.load(std::memory_order_relaxed)) {
    const size_t bytes = 33 * kMiB + random.below(20 * kMiB);
    void* block = loam_alloc(loam_default(), bytes);
    if (block == nullptr) fail(shared, "the default heap refused");
    std::memset(block, 0xee, bytes);
    block = loam_realloc(loam_default(), block, bytes + 4 * kMiB);
    if (loam_free(loam_default(), block) != LOAM_OK)
      fail(shared, "a block of the default heap could not be freed");
  }
  return nullptr;
}

void start(pthread_t* thread, void* (*run)(void*), void* argument) {
  if (pthread_create(thread, nullptr, run, argument) == 0) return;
  std::fprintf(stderr, "stress_large_resizes: no thread could be started\n");
  std::exit(2);
}

void run(unsigned flags, size_t maximum, unsigned steps, uint64_t seed) {
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.flags = flags;
  options.maximum = maximum;
  Shared shared{loam_heap_create(&options), flags, maximum, steps, seed};
  if (shared.heap == nullptr) fail(shared, "it could not be made");
  Worker workers[kWorkers];
  pthread_t threads[kWorkers], looker, leaver;
  for (unsigned i = 0; i < kWorkers; ++i) {
    workers[i] = {&shared, i};
    start(&threads[i], resize_blocks, &workers[i]);
  }
  start(&looker, look, &shared);
  start(&leaver, leave_mappings, &shared);
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  shared.done.store(true, std::memory_order_relaxed);
  pthread_join(looker, nullptr);
  pthread_join(leaver, nullptr);
  if (loam_heap_destroy(shared.heap) != LOAM_OK) fail(shared, "it could not be destroyed");
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long steps = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100;
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  if (argc > 3 || steps == 0 || steps > 1'000'000) {
    std::fprintf(stderr, "usage: stress_large_resizes [STEPS [SEED]], 1 to 1,000,000 steps\n");
    return 2;
  }
  for (const unsigned flags : kKinds) {
    for (const size_t maximum : kMaxima) run(flags, maximum, static_cast<unsigned>(steps), seed);
  }
  return 0;
}
