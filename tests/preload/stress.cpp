// Threads allocate, reallocate, hand over and free at random. Every block is verified before its
// free, so overlap, loss and corruption show. Argument: seconds per phase (default 2).
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"

namespace {

struct Block {
  unsigned char* start = nullptr;
  std::size_t size = 0;
  std::uint64_t seed = 0;
};

// Verifying every byte of large blocks would take all the time. Both ends are enough to notice an
// overlap.
constexpr std::size_t kEdge = 192;

void write_edges(const Block& block) {
  const std::size_t edge = block.size < kEdge ? block.size : kEdge;
  fill_pattern(block.start, edge, block.seed);
  fill_pattern(block.start + block.size - edge, edge, block.seed);
}

void check_edges(const Block& block) {
  const std::size_t edge = block.size < kEdge ? block.size : kEdge;
  CHECK(block.size < 2 * edge || has_pattern(block.start, edge, block.seed));
  CHECK(has_pattern(block.start + block.size - edge, edge, block.seed));
}

std::size_t random_size(std::uint64_t& seed) {
  const std::uint64_t kind = next_random(&seed) % 1000;
  const std::uint64_t value = next_random(&seed);
  if (kind < 700) return value % 300 + 1;
  if (kind < 950) return value % 5000 + 1;
  if (kind < 990) return value % 70'000 + 1;
  if (kind < 999) return value % 1'000'000 + 1;
  return value % 5'000'000 + 1;
}

void allocate(Block& block, std::uint64_t& seed) {
  block.size = random_size(seed);
  block.seed = next_random(&seed);
  switch (next_random(&seed) % 8) {
    case 0: {
      block.start = static_cast<unsigned char*>(calloc(1, block.size));
      CHECK(block.start != nullptr);
      const std::size_t edge = block.size < kEdge ? block.size : kEdge;
      for (std::size_t i = 0; i < edge; ++i) {
        CHECK(block.start[i] == 0 && block.start[block.size - 1 - i] == 0);
      }
      break;
    }
    case 1: {
      const std::size_t alignment = std::size_t{16} << (next_random(&seed) % 10);
      block.start = static_cast<unsigned char*>(memalign(alignment, block.size));
      CHECK(reinterpret_cast<std::uintptr_t>(block.start) % alignment == 0);
      break;
    }
    default:
      block.start = static_cast<unsigned char*>(malloc(block.size));
  }
  CHECK(block.start != nullptr);
  write_edges(block);
}

void reallocate(Block& block, std::uint64_t& seed) {
  check_edges(block);
  const std::size_t new_size = random_size(seed);
  const std::size_t common = new_size < block.size ? new_size : block.size;
  const std::size_t edge = common < kEdge ? common : kEdge;
  fill_pattern(block.start, edge, 77);
  block.start = static_cast<unsigned char*>(realloc(block.start, new_size));
  CHECK(block.start != nullptr && has_pattern(block.start, edge, 77));
  block.size = new_size;
  write_edges(block);
}

void release(Block& block) {
  check_edges(block);
  free(block.start);
  block = Block{};
}

// The places where threads leave blocks for other threads.
constexpr std::size_t kExchangeSlots = 512;
Block exchange[kExchangeSlots];
std::mutex exchange_locks[kExchangeSlots];

void work(std::uint64_t seed, const std::atomic<bool>& stop) {
  std::vector<Block> own(1000);
  while (!stop.load(std::memory_order_relaxed)) {
    Block& block = own[next_random(&seed) % own.size()];
    const std::uint64_t action = next_random(&seed) % 16;
    if (block.start == nullptr) {
      allocate(block, seed);
    } else if (action < 3) {
      reallocate(block, seed);
    } else if (action < 8) {
      const std::size_t slot = next_random(&seed) % kExchangeSlots;
      const std::lock_guard<std::mutex> guard(exchange_locks[slot]);
      std::swap(block, exchange[slot]);
    } else {
      release(block);
    }
  }
  for (auto& block : own) {
    if (block.start != nullptr) release(block);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? atoi(argv[1]) : 2;
  CHECK(seconds > 0);
  // More threads than cores, so that threads are preempted in the middle of operations.
  for (const unsigned threads : {1u, 2u, 8u}) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < threads; ++i) {
      workers.emplace_back([i, threads, &stop] { work(threads * 1000 + i + 1, stop); });
    }
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    stop.store(true, std::memory_order_relaxed);
    for (auto& worker : workers) worker.join();
  }
  for (auto& block : exchange) {
    if (block.start != nullptr) release(block);
  }
  return 0;
}
