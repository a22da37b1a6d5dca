// golden_probe: the program that `bench/golden` counts under callgrind, one case a process.
//
// `golden_probe CASE` runs `warm_CASE`, and then `measure_CASE` once. The latter is a function of
// its own, never inlined. So callgrind's record of the calls made from it gives the cost of the
// heap's entry points for this case, and of nothing else. Warming binds symbols, fills the thread's
// caches, and leaves the measured path as the only path. Each case has a process, so that its cost
// does not depend on earlier cases. `golden_probe` alone lists the cases, one a line, with "exact"
// or "bound" first.
//
//   pair_SIZE, new_64      malloc and free at once: the fast paths, in which every instruction
//                          counts
//   batch_SIZE             512 blocks, then 512 frees: refill and flush, shared out over pointers
//   run_65536, run_1048576 pairs of large runs
//   realloc_small          grows and shrinks inside a block's slot
//   realloc_large          grows and shrinks a run in place, by pages
//   calloc_256             zeroed, from the cache
//   aligned_4096           posix_memalign of a page
//   heap_pair_64, heap_batch_SIZE   the same of a private heap with a cache; malloc's where there
//                                   are none
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

// Loam's functions, found when the program starts.
struct loam_heap;
extern "C" {
[[gnu::weak]] loam_heap* loam_heap_create(const void* options);
[[gnu::weak]] void* loam_alloc(loam_heap* heap, size_t bytes);
[[gnu::weak]] int loam_free(loam_heap* heap, void* block);
}

namespace {

// Few enough that a thread does not reach the slow call that follows some hundred hits.
constexpr unsigned kWarm = 100, kPairs = 100;
// A batch is larger than any magazine, and too small for a purge.
constexpr unsigned kBatch = 512, kBatches = 32;
void* blocks[kBatch];

// Keeps the block's address alive without a read or write of the block.
inline void keep(void* block) { asm volatile("" : : "r"(block) : "memory"); }

inline void pairs(unsigned count, size_t bytes) {
  for (unsigned i = 0; i < count; ++i) {
    void* block = std::malloc(bytes);
    keep(block);
    std::free(block);
  }
}

inline void batches(unsigned count, size_t bytes) {
  for (unsigned b = 0; b < count; ++b) {
    for (void*& block : blocks) block = std::malloc(bytes);
    for (void* block : blocks) std::free(block);
  }
}

loam_heap* private_heap;

inline void make_heap() {
  if (loam_heap_create != nullptr) private_heap = loam_heap_create(nullptr);
}

inline void heap_pairs(unsigned count, size_t bytes) {
  loam_heap* const on = private_heap;
  if (on == nullptr) return pairs(count, bytes);
  for (unsigned i = 0; i < count; ++i) {
    void* block = loam_alloc(on, bytes);
    keep(block);
    loam_free(on, block);
  }
}

inline void heap_batches(unsigned count, size_t bytes) {
  loam_heap* const on = private_heap;
  if (on == nullptr) return batches(count, bytes);
  for (unsigned b = 0; b < count; ++b) {
    for (void*& block : blocks) block = loam_alloc(on, bytes);
    for (void* block : blocks) loam_free(on, block);
  }
}

inline void new_delete(unsigned count, size_t bytes) {
  for (unsigned i = 0; i < count; ++i) {
    void* block = ::operator new(bytes);
    keep(block);
    ::operator delete(block, bytes);
  }
}

inline void resize(unsigned count, size_t less, size_t more) {
  void* block = std::malloc(less);
  for (unsigned i = 0; i < count; ++i) {
    block = std::realloc(block, more);
    block = std::realloc(block, less);
  }
  std::free(block);
}

inline void zeroed(unsigned count, size_t bytes) {
  for (unsigned i = 0; i < count; ++i) {
    void* block = std::calloc(1, bytes);
    keep(block);
    std::free(block);
  }
}

inline void aligned(unsigned count, size_t bytes) {
  for (unsigned i = 0; i < count; ++i) {
    void* block = nullptr;
    if (posix_memalign(&block, bytes, bytes) != 0) std::abort();
    keep(block);
    std::free(block);
  }
}

}  // namespace

#define GOLDEN_CASE(name, warm, measure)                                  \
  extern "C" [[gnu::noinline, gnu::noclone]] void warm_##name() { warm; } \
  extern "C" [[gnu::noinline, gnu::noclone]] void measure_##name() { measure; }

// The three sizes: the smallest class, a common node size, and the largest of one page and more.
GOLDEN_CASE(pair_16, pairs(kWarm, 16), pairs(kPairs, 16))
GOLDEN_CASE(pair_64, pairs(kWarm, 64), pairs(kPairs, 64))
GOLDEN_CASE(pair_1024, pairs(kWarm, 1024), pairs(kPairs, 1024))
GOLDEN_CASE(new_64, new_delete(kWarm, 64), new_delete(kPairs, 64))
GOLDEN_CASE(batch_64, batches(kBatches, 64), batches(kBatches, 64))
GOLDEN_CASE(batch_1024, batches(kBatches, 1024), batches(kBatches, 1024))
GOLDEN_CASE(run_65536, pairs(kWarm, 65536), pairs(kPairs, 65536))
GOLDEN_CASE(run_1048576, pairs(kWarm, 1048576), pairs(kPairs, 1048576))
GOLDEN_CASE(realloc_small, resize(kWarm, 250, 256), resize(kPairs, 250, 256))
GOLDEN_CASE(realloc_large, resize(kWarm, 98304, 131072), resize(kPairs, 98304, 131072))
GOLDEN_CASE(calloc_256, zeroed(kWarm, 256), zeroed(kPairs, 256))
GOLDEN_CASE(aligned_4096, aligned(kWarm, 4096), aligned(kPairs, 4096))
// Warms up twice as long, because a thread gets a cache after some dozens of calls.
GOLDEN_CASE(heap_pair_64, (make_heap(), heap_pairs(2 * kWarm, 64)), heap_pairs(kPairs, 64))
GOLDEN_CASE(heap_batch_64, (make_heap(), heap_batches(kBatches, 64)), heap_batches(kBatches, 64))
GOLDEN_CASE(heap_batch_1024, (make_heap(), heap_batches(kBatches, 1024)),
            heap_batches(kBatches, 1024))

#define GOLDEN_ENTRY(kind, name) \
  { #kind, #name, warm_##name, measure_##name }

int main(int argc, char** argv) {
  static constexpr struct {
    const char *kind, *name;
    void (*warm)();
    void (*measure)();
  } kCases[] = {
      GOLDEN_ENTRY(exact, pair_16),         GOLDEN_ENTRY(exact, pair_64),
      GOLDEN_ENTRY(exact, pair_1024),       GOLDEN_ENTRY(exact, new_64),
      GOLDEN_ENTRY(exact, heap_pair_64),    GOLDEN_ENTRY(bound, heap_batch_64),
      GOLDEN_ENTRY(bound, heap_batch_1024), GOLDEN_ENTRY(bound, batch_64),
      GOLDEN_ENTRY(bound, batch_1024),      GOLDEN_ENTRY(bound, run_65536),
      GOLDEN_ENTRY(bound, run_1048576),     GOLDEN_ENTRY(bound, realloc_small),
      GOLDEN_ENTRY(bound, realloc_large),   GOLDEN_ENTRY(bound, calloc_256),
      GOLDEN_ENTRY(bound, aligned_4096),
  };
  if (argc != 2) {
    for (const auto& c : kCases) std::printf("%s %s\n", c.kind, c.name);
    return argc == 1 ? 0 : 2;
  }
  for (const auto& c : kCases) {
    if (std::strcmp(argv[1], c.name) != 0) continue;
    c.warm();
    c.measure();
    return 0;
  }
  std::fprintf(stderr, "golden_probe: no case is called %s\n", argv[1]);
  return 2;
}
