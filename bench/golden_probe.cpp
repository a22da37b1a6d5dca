// golden_probe: warm malloc/free pairs for `bench/golden` to count under callgrind.
//
// `golden_probe PAIRS` runs `measure_SIZE` for each size: functions of their own, never inlined, so
// that callgrind's record of the calls made from each gives the cost of malloc and of free for that
// size, and nothing else. `warm_SIZE` runs first: it binds symbols, fills the thread's caches and
// leaves the fast path as the only path.
#include <cstdint>
#include <cstdlib>

namespace {

constexpr uint64_t kWarmPairs = 2000;  // past every doubling of a magazine that starts small

// Keeps the block's address alive without touching the block.
inline void keep(void* block) { asm volatile("" : : "r"(block) : "memory"); }

inline void pairs(uint64_t count, size_t bytes) {
  for (uint64_t i = 0; i < count; ++i) {
    void* block = std::malloc(bytes);
    keep(block);
    std::free(block);
  }
}

}  // namespace

#define LOAM_GOLDEN_SIZE(size)                                                                  \
  extern "C" [[gnu::noinline, gnu::noclone]] void warm_##size(uint64_t n) { pairs(n, size); }   \
  extern "C" [[gnu::noinline, gnu::noclone]] void measure_##size(uint64_t n) { pairs(n, size); }

// The three: the smallest class, a common node size, and the last of the small sizes. bench/golden
// reads the sizes from the function names.
LOAM_GOLDEN_SIZE(16)
LOAM_GOLDEN_SIZE(64)
LOAM_GOLDEN_SIZE(1024)

int main(int argc, char** argv) {
  const uint64_t count = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (count == 0) return 2;
  warm_16(kWarmPairs);
  measure_16(count);
  warm_64(kWarmPairs);
  measure_64(count);
  warm_1024(kWarmPairs);
  measure_1024(count);
}
