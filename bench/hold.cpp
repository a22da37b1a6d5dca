// hold: a heap of a given size, and a thread that goes on with malloc and free.
//
//   hold BYTES SECONDS      prints "holding" once the heap is there, and "PAIRS_PER_SECOND" last
//
// Blocks of 48 B to 4 KiB, every third freed again, so that spans and runs are in all states. The
// blocks are not touched: a reader reads the heap's records, and 8 GiB must fit on a small machine.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  const uint64_t bytes = argc == 3 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const double seconds = argc == 3 ? std::strtod(argv[2], nullptr) : 0;
  if (seconds <= 0) return 2;
  std::vector<void*> blocks;
  uint64_t random = 1;
  for (uint64_t held = 0; held < bytes;) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const size_t size = 48 + (random >> 33) % 4048;
    blocks.push_back(std::malloc(size));
    if (blocks.back() == nullptr) return 3;
    held += size;
    if ((random >> 20) % 3 == 0) {
      const size_t gone = static_cast<size_t>(random >> 40) % blocks.size();
      std::free(blocks[gone]);
      blocks[gone] = blocks.back();
      blocks.pop_back();
      held -= held > 2000 ? 2000 : 0;
    }
  }
  std::puts("holding");
  std::fflush(stdout);
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  uint64_t pairs = 0;
  double passed = 0;
  while (passed < seconds) {
    for (int i = 0; i < 10'000; ++i, ++pairs) {
      void* block = std::malloc(16 + (pairs & 1023));
      asm volatile("" : : "r"(block) : "memory");
      std::free(block);
    }
    passed = std::chrono::duration<double>(Clock::now() - began).count();
  }
  std::printf("%.0f\n", static_cast<double>(pairs) / passed);
}
