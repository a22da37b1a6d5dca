// heaps: the cost of private heaps, beside malloc and std::pmr's pools, case by case in one
// process.
//
// Kinds (series begin with them): "malloc"; "heap", a private heap of the allocator in this process
// (harness/private_heap.h; some allocators have none); "pool" and "locked-pool", unsynchronized_
// and synchronized_pool_resource over malloc. These are the cases:
//
//   pair      allocate, free at once; x = size
//   batch     1,000 blocks of 16 to 512 B, freed in allocation order
//   fill      a million blocks of 64 B
//   destroy   then all at once: a heap's destroy, a pool's release, a million frees of malloc
//   many      10,000 heaps, each with about 4 KiB in 32 blocks: created and filled, with the memory
//             that is then resident; destroyed
//
// Each locked pool takes a key of the C library's (pthread_key_create), which has 1,024. So there
// are as many hundreds of these pools as possible: x says how many, and so does the start line
// ("most_locked_pools").
//
// Parameters: --kind (one, or all), --operations (pairs a repetition), --repetitions, --heaps.
//
// One thread. Only the first word of a block is written. A case finds the heap that the earlier
// cases left, the same under every allocator.
#include <limits.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <memory_resource>
#include <new>
#include <string>

#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/private_heap.h"
#include "harness/random.h"
#include "harness/recorder.h"

namespace {

using namespace lab;

constexpr size_t kMillion = 1'000'000;
constexpr size_t kBatch = 1000;
constexpr size_t kBlocksAHeap = 32;

void write_word(void* block) { *static_cast<volatile uint64_t*>(block) = 1; }

// Heaps of a kind that can be alive at a time, where only memory limits them.
constexpr uint64_t kNoLimit = UINT64_MAX;

// Rounded down, because the number of keys that the allocator took must not change the measurement.
uint64_t thread_keys_in_hundreds() {
  static const uint64_t most = [] {
    pthread_key_t keys[PTHREAD_KEYS_MAX] = {};
    unsigned count = 0;
    while (count < PTHREAD_KEYS_MAX && pthread_key_create(&keys[count], nullptr) == 0) ++count;
    for (unsigned i = 0; i < count; ++i) pthread_key_delete(keys[i]);
    return uint64_t{count / 100 * 100};
  }();
  return most;
}

// Each kind has create, allocate, free (with the size, which pools need), destroy, and the number
// of heaps that can exist.
struct Malloc {
  static constexpr const char* kName = "malloc";
  static uint64_t most() { return kNoLimit; }
  void create() {}
  void* allocate(size_t bytes) { return must(std::malloc(bytes), bytes); }
  void free(void* block, size_t) { std::free(block); }
  // Destroys as a program without heaps does: by freeing each block.
  void destroy(void* const* blocks, size_t count) {
    for (size_t i = 0; i < count; ++i) std::free(blocks[i]);
  }
};

struct Heap {
  static constexpr const char* kName = "heap";
  static uint64_t most() { return kNoLimit; }
  PrivateHeap heap;
  void create() { heap.create(); }
  void* allocate(size_t bytes) { return heap.allocate(bytes); }
  void free(void* block, size_t) { heap.free(block); }
  void destroy(void* const*, size_t) { heap.destroy(); }
};

template <typename Resource>
struct PoolOf {
  alignas(Resource) char storage[sizeof(Resource)];
  Resource& resource() { return *reinterpret_cast<Resource*>(storage); }
  void create() { new (storage) Resource(); }
  void* allocate(size_t bytes) { return resource().allocate(bytes); }
  void free(void* block, size_t bytes) { resource().deallocate(block, bytes); }
  void destroy(void* const*, size_t) { resource().~Resource(); }
};
struct Pool : PoolOf<std::pmr::unsynchronized_pool_resource> {
  static constexpr const char* kName = "pool";
  static uint64_t most() { return kNoLimit; }
};
struct LockedPool : PoolOf<std::pmr::synchronized_pool_resource> {
  static constexpr const char* kName = "locked-pool";
  static uint64_t most() { return thread_keys_in_hundreds(); }
};

struct Context {
  Recorder& recorder;
  uint64_t operations, repetitions, heaps, seed;
  Table<void*> blocks;
};

template <typename Kind>
struct Cases {
  Context& c;
  std::string series;

  void record(const char* what, uint64_t index, uint64_t x, uint64_t operations,
              uint64_t live = 0) {
    series = std::string(Kind::kName) + "-" + what;
    c.recorder.checkpoint({.series = series.c_str(),
                           .index = index,
                           .x = x,
                           .x_unit = "bytes",
                           .operations = operations,
                           .live_bytes = live});
  }

  void pair() {
    Kind kind;
    kind.create();
    for (const size_t size : {16, 64, 256, 1024, 8192}) {
      for (uint64_t r = 0; r < c.repetitions; ++r) {
        c.recorder.resume();
        for (uint64_t i = 0; i < c.operations; ++i) {
          void* p = kind.allocate(size);
          write_word(p);
          kind.free(p, size);
        }
        record("pair", r, size, c.operations);
      }
    }
    kind.destroy(nullptr, 0);
  }

  void batch() {
    Kind kind;
    kind.create();
    static size_t sizes[kBatch];
    Random random = stream(c.seed, 1);
    for (size_t& size : sizes) size = 16 + random.below(497);
    const uint64_t rounds = c.operations / kBatch;
    for (uint64_t r = 0; r < c.repetitions; ++r) {
      c.recorder.resume();
      for (uint64_t round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < kBatch; ++i) {
          c.blocks[i] = kind.allocate(sizes[i]);
          write_word(c.blocks[i]);
        }
        for (size_t i = 0; i < kBatch; ++i) kind.free(c.blocks[i], sizes[i]);
      }
      record("batch", r, 512, rounds * kBatch);
    }
    kind.destroy(nullptr, 0);
  }

  void million() {
    for (uint64_t r = 0; r < c.repetitions; ++r) {
      Kind kind;
      c.recorder.resume();
      kind.create();
      for (size_t i = 0; i < kMillion; ++i) {
        c.blocks[i] = kind.allocate(64);
        write_word(c.blocks[i]);
      }
      record("fill", r, 64, kMillion, kMillion * 64);
      c.recorder.resume();
      kind.destroy(&c.blocks[0], kMillion);
      record("destroy", r, 64, kMillion);
    }
  }

  void many() {
    const uint64_t heaps = std::min(c.heaps, Kind::most());
    if (heaps == 0) return;
    Table<Kind> kinds(heaps);
    for (uint64_t r = 0; r < c.repetitions; ++r) {
      Random random = stream(c.seed, 2);
      uint64_t live = 0;
      c.recorder.resume();
      for (size_t h = 0; h < heaps; ++h) {
        Kind* kind = new (&kinds[h]) Kind;
        kind->create();
        for (size_t i = 0; i < kBlocksAHeap; ++i) {
          const size_t size = 16 + random.below(225);
          c.blocks[h * kBlocksAHeap + i] = kind->allocate(size);
          write_word(c.blocks[h * kBlocksAHeap + i]);
          live += size;
        }
      }
      record("many", r, heaps, heaps, live);
      c.recorder.resume();
      for (size_t h = 0; h < heaps; ++h)
        kinds[h].destroy(&c.blocks[h * kBlocksAHeap], kBlocksAHeap);
      record("many-destroy", r, heaps, heaps);
    }
  }

  void all() {
    // Memory first, because later cases leave memory behind.
    many();
    million();
    pair();
    batch();
  }
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("heaps", "what private heaps cost", argc, argv);
  const uint64_t operations =
      args.number("operations", 400'000, 1'000'000, 1000, 1'000'000'000, "pairs a repetition");
  const uint64_t repetitions =
      args.number("repetitions", 3, 3, 1, 1000, "runs of each case in the process");
  const uint64_t heaps = args.number("heaps", 10'000, 10'000, 1, 100'000, "of the case many");
  const auto kind =
      args.choice("kind", {"all", "malloc", "heap", "pool", "locked-pool"}, "whose cost");
  args.done();
  Recorder recorder(args);
  const size_t most = kMillion > heaps * kBlocksAHeap ? kMillion : heaps * kBlocksAHeap;
  Context context{recorder, operations, repetitions, heaps, args.seed(), Table<void*>(most)};
  const std::string_view provider = PrivateHeap::provider();
  recorder.start()
      .add("private_heaps", provider.empty() ? "none" : provider)
      .add("most_locked_pools", thread_keys_in_hundreds());
  if (kind == "all" || kind == "heap") {
    if (!provider.empty()) Cases<Heap>{context, {}}.all();
  }
  if (kind == "all" || kind == "malloc") Cases<Malloc>{context, {}}.all();
  if (kind == "all" || kind == "pool") Cases<Pool>{context, {}}.all();
  if (kind == "all" || kind == "locked-pool") Cases<LockedPool>{context, {}}.all();
  recorder.finish();
}
