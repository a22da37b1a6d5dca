// Blocks that one thread allocates and another frees keep their contents. A producer that never
// frees, with a consumer that never allocates, does not grow.
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

namespace {

// Single producer, single consumer. The release of the tail pairs with the acquire of the consumer.
// For the head it is the reverse.
struct Ring {
  static constexpr std::size_t kSlots = 1024;
  std::array<unsigned char*, kSlots> slots{};
  alignas(64) std::atomic<std::size_t> head{0};
  alignas(64) std::atomic<std::size_t> tail{0};
};

std::size_t size_of(std::size_t i) { return i % 1000 == 0 ? 70'000 : 17 + i % 900; }

void produce(Ring& ring, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = size_of(i);
    auto* const block = static_cast<unsigned char*>(malloc(size));
    CHECK(block != nullptr);
    block[0] = static_cast<unsigned char>(i);
    block[size - 1] = static_cast<unsigned char>(i * 3);
    while (i - ring.head.load(std::memory_order_acquire) >= Ring::kSlots) {
      std::this_thread::yield();
    }
    ring.slots[i % Ring::kSlots] = block;
    ring.tail.store(i + 1, std::memory_order_release);
  }
}

void consume(Ring& ring, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    while (ring.tail.load(std::memory_order_acquire) <= i) std::this_thread::yield();
    unsigned char* const block = ring.slots[i % Ring::kSlots];
    ring.head.store(i + 1, std::memory_order_release);
    CHECK(block[0] == static_cast<unsigned char>(i));
    CHECK(block[size_of(i) - 1] == static_cast<unsigned char>(i * 3) || size_of(i) == 1);
    free(block);
  }
}

// `pairs` producers with a consumer each, all at once.
void hand_off(std::size_t pairs, std::size_t count) {
  std::vector<Ring> rings(pairs);
  std::vector<std::thread> threads;
  for (auto& ring : rings) {
    threads.emplace_back([&ring, count] { produce(ring, count); });
    threads.emplace_back([&ring, count] { consume(ring, count); });
  }
  for (auto& thread : threads) thread.join();
}

// The allocating thread has ended before any thread frees.
void owner_gone() {
  for (int round = 0; round < 50; ++round) {
    std::vector<unsigned char*> blocks;
    std::thread([&blocks] {
      for (std::size_t i = 0; i < 2000; ++i) {
        blocks.push_back(static_cast<unsigned char*>(malloc(size_of(i))));
        fill_pattern(blocks.back(), size_of(i), i);
      }
    }).join();
    std::thread([&blocks] {
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        CHECK(has_pattern(blocks[i], size_of(i), i));
        free(blocks[i]);
      }
    }).join();
  }
}

}  // namespace

int main() {
  hand_off(1, 200'000);
  const long early = resident_kib();
  hand_off(1, 2'000'000);
  hand_off(3, 300'000);
  owner_gone();
  const long late = resident_kib();
  dprintf(2, "resident: %ld KiB early, %ld late\n", early, late);
  CHECK(late - early < 32 * 1024);
  return 0;
}
