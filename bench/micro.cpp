// micro: the cost of single operations, one short case after the other in one process.
//
// Groups: pair (malloc, free at once), new (operator new, sized delete), calloc, aligned, realloc
// (64 buffers growing by half in turn), batch (allocate a working set, free it in LIFO, FIFO or
// random order), churn (replace random blocks of random size), parallel (batches on every core),
// pingpong (two threads free each other's blocks).
//
// Parameters: --group (one, or all), --operations (pairs a repetition), --repetitions.
//
// Each case runs `repetitions` times; a checkpoint each, series = case, x = its size or working
// set, index = repetition. An operation is one allocation with its free. Only the first word of a
// block is written, because the allocator is measured and not memory. A trial is a process, so a
// case finds the heap that the earlier cases left, the same under every allocator.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "crew.h"
#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/recorder.h"

namespace {

using namespace lab;

constexpr uint64_t kMostWorkingSet = 64u << 20;
constexpr size_t kMostBlocks = kMostWorkingSet / 16;

struct Context {
  Recorder& recorder;
  uint64_t operations, repetitions, seed;
  unsigned cores;
  Table<void*> blocks;
  Table<uint32_t> order;
};

// Runs one case; `body` performs `operations` pairs.
template <typename Body>
void measure(Context& c, const char* series, uint64_t x, uint64_t operations, Body body,
             const char* x_unit = "bytes") {
  for (uint64_t i = 0; i < c.repetitions; ++i) {
    c.recorder.resume();
    body();
    c.recorder.checkpoint(
        {.series = series, .index = i, .x = x, .x_unit = x_unit, .operations = operations});
  }
}

void write_word(void* block) { *static_cast<volatile uint64_t*>(block) = 1; }

void pair(Context& c) {
  for (const size_t size : {16, 64, 256, 1024, 4096, 32768, 65536, 1 << 20}) {
    const uint64_t n = size <= 32768 ? c.operations : c.operations / 8;
    measure(c, "pair", size, n, [&] {
      for (uint64_t i = 0; i < n; ++i) {
        void* p = must(std::malloc(size), size);
        write_word(p);
        std::free(p);
      }
    });
  }
}

void new_delete(Context& c) {
  for (const size_t size : {24, 64, 400}) {
    measure(c, "new", size, c.operations, [&] {
      for (uint64_t i = 0; i < c.operations; ++i) {
        void* p = ::operator new(size);
        write_word(p);
        ::operator delete(p, size);
      }
    });
  }
}

void zeroed(Context& c) {
  for (const size_t size : {256, 4096, 65536, 1 << 20}) {
    const uint64_t n = c.operations / (size <= 4096 ? 4 : 64);
    measure(c, "calloc", size, n, [&] {
      for (uint64_t i = 0; i < n; ++i) {
        void* p = must(std::calloc(1, size), size);
        write_word(p);
        std::free(p);
      }
    });
  }
}

void aligned(Context& c) {
  for (const size_t alignment : {64, 256, 4096, 65536}) {
    const size_t size = alignment * 3 / 2;
    const uint64_t n = c.operations / 4;
    measure(c, "aligned", alignment, n, [&] {
      for (uint64_t i = 0; i < n; ++i) {
        void* p = nullptr;
        if (posix_memalign(&p, alignment, size) != 0) must(nullptr, size);
        write_word(p);
        std::free(p);
      }
    });
  }
}

// Buffers that grow in turn, as a program's vectors and strings do: none can simply grow in place.
void growing(Context& c) {
  constexpr size_t kBuffers = 64;
  for (const size_t last : {1 << 10, 1 << 16, 1 << 20}) {
    uint64_t steps = 0;
    for (size_t size = 16; size < last; size += size / 2) ++steps;
    const uint64_t budget = c.operations / (last <= 1 << 10 ? 4 : last <= 1 << 16 ? 16 : 128);
    const uint64_t rounds = std::max<uint64_t>(1, budget / (steps * kBuffers));
    measure(c, "realloc", last, rounds * steps * kBuffers, [&] {
      for (uint64_t r = 0; r < rounds; ++r) {
        for (size_t b = 0; b < kBuffers; ++b) c.blocks[b] = nullptr;
        for (size_t size = 16; size < last; size += size / 2) {
          for (size_t b = 0; b < kBuffers; ++b) {
            c.blocks[b] = must(std::realloc(c.blocks[b], size), size);
            write_word(static_cast<char*>(c.blocks[b]) + size / 8 * 8 - 8);
          }
        }
        for (size_t b = 0; b < kBuffers; ++b) std::free(c.blocks[b]);
      }
    });
  }
}

enum class Order { kLifo, kFifo, kRandom };

// One working set, allocated and freed. `order` is a permutation of [0, count) for kRandom.
void batch_once(void** blocks, const uint32_t* order, size_t count, size_t size, Order how) {
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = must(std::malloc(size), size);
    write_word(blocks[i]);
  }
  if (how == Order::kLifo) {
    for (size_t i = count; i-- > 0;) std::free(blocks[i]);
  } else if (how == Order::kFifo) {
    for (size_t i = 0; i < count; ++i) std::free(blocks[i]);
  } else {
    for (size_t i = 0; i < count; ++i) std::free(blocks[order[i]]);
  }
}

void shuffle(uint32_t* order, size_t count, uint64_t seed) {
  Random random(seed);
  for (uint32_t i = 0; i < count; ++i) order[i] = i;
  for (auto i = static_cast<uint32_t>(count); i > 1; --i) {
    std::swap(order[i - 1], order[random.below(i)]);
  }
}

void batch(Context& c) {
  constexpr std::pair<Order, const char*> kOrders[] = {
      {Order::kLifo, "lifo"}, {Order::kFifo, "fifo"}, {Order::kRandom, "random"}};
  for (const size_t size : {16, 64, 512, 4096}) {
    for (const auto& [how, name] : kOrders) {
      char series[32];
      std::snprintf(series, sizeof series, "batch-%s-%zu", name, size);
      for (const uint64_t working_set : {uint64_t{64} << 10, uint64_t{2} << 20, kMostWorkingSet}) {
        const size_t count = working_set / size;
        if (how == Order::kRandom) shuffle(c.order.data(), count, c.seed);
        const uint64_t rounds = std::max<uint64_t>(1, c.operations / 4 / count);
        measure(c, series, working_set, rounds * count, [&] {
          for (uint64_t r = 0; r < rounds; ++r) {
            batch_once(c.blocks.data(), c.order.data(), count, size, how);
          }
        });
      }
    }
  }
}

// Sizes from 16 B to 4 KiB, equally many in every doubling: small sizes are frequent, as in
// programs.
size_t churn_size(Random& random) {
  const uint32_t doubling = random.below(8);
  return (16u << doubling) + random.below(16u << doubling);
}

void churn(Context& c) {
  constexpr uint64_t kMeanSize = 765;  // (16 + 4096) / 2 of each doubling, over the eight
  for (const uint64_t live : {uint64_t{1} << 20, kMostWorkingSet}) {
    const auto count = static_cast<uint32_t>(live / kMeanSize);
    Random random(c.seed);
    for (uint32_t i = 0; i < count; ++i) c.blocks[i] = std::malloc(churn_size(random));
    const uint64_t n = c.operations / 4;
    measure(c, "churn", live, n, [&] {
      for (uint64_t i = 0; i < n; ++i) {
        const uint32_t victim = random.below(count);
        std::free(c.blocks[victim]);
        const size_t size = churn_size(random);
        c.blocks[victim] = must(std::malloc(size), size);
        write_word(c.blocks[victim]);
      }
    });
    for (uint32_t i = 0; i < count; ++i) std::free(c.blocks[i]);
  }
}

void parallel(Context& c) {
  constexpr size_t kSize = 64, kCount = 4096;
  const unsigned threads = std::max(2u, c.cores);
  const uint64_t rounds = std::max<uint64_t>(1, c.operations / 4 / kCount);
  Table<void*> blocks(kCount * threads);
  shuffle(c.order.data(), kCount, c.seed);
  bench::Crew crew(threads, [&](unsigned me) {
    for (uint64_t r = 0; r < rounds; ++r) {
      batch_once(&blocks[me * kCount], c.order.data(), kCount, kSize, Order::kRandom);
    }
  });
  measure(c, "parallel", kCount * kSize, rounds * kCount * threads, [&] { crew.phase(); });
}

// Two threads and one mailbox each way. A burst goes over and is freed there, and one comes back.
void pingpong(Context& c) {
  constexpr size_t kMostBurst = 64;
  struct alignas(64) Mailbox {
    std::atomic<uint32_t> full;
    void* blocks[kMostBurst];
  };
  Table<Mailbox> mailboxes(2);
  const auto wait = [](std::atomic<uint32_t>& flag, uint32_t wanted) {
    // acquire: the blocks in the mailbox were written before the flag
    for (int spins = 0; flag.load(std::memory_order_acquire) != wanted; ++spins) {
      if (spins > 200) sched_yield();  // waiting must not cost a time slice
    }
  };
  for (const size_t burst : {size_t{1}, kMostBurst}) {
    const uint64_t rounds = c.operations / 8 / burst;
    bench::Crew crew(2, [&](unsigned me) {
      Mailbox &out = mailboxes[me], &in = mailboxes[1 - me];
      Random random = stream(c.seed, me);
      for (uint64_t r = 0; r < rounds; ++r) {
        wait(out.full, 0);
        for (size_t i = 0; i < burst; ++i) {
          const size_t size = 16 + random.below(496);
          out.blocks[i] = must(std::malloc(size), size);
          write_word(out.blocks[i]);
        }
        out.full.store(1, std::memory_order_release);  // pairs with the acquire in wait()
        wait(in.full, 1);
        for (size_t i = 0; i < burst; ++i) std::free(in.blocks[i]);
        in.full.store(0, std::memory_order_release);
      }
    });
    measure(
        c, "pingpong", burst, rounds * burst * 2, [&] { crew.phase(); }, "blocks");
  }
}

constexpr struct {
  const char* name;
  void (*run)(Context&);
} kGroups[] = {{"pair", pair},       {"new", new_delete},    {"calloc", zeroed},
               {"aligned", aligned}, {"realloc", growing},   {"batch", batch},
               {"churn", churn},     {"parallel", parallel}, {"pingpong", pingpong}};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("micro", "what single operations cost, case by case", argc, argv);
  const uint64_t operations =
      args.number("operations", 400'000, 1'000'000, 1000, 1'000'000'000, "pairs a repetition");
  const uint64_t repetitions =
      args.number("repetitions", 3, 3, 1, 1000, "runs of each case in the process");
  const auto group = args.choice("group",
                                 {"all", "pair", "new", "calloc", "aligned", "realloc", "batch",
                                  "churn", "parallel", "pingpong"},
                                 "cases to run");
  args.done();
  Recorder recorder(args);
  Context context{recorder,
                  operations,
                  repetitions,
                  args.seed(),
                  core_count(),
                  Table<void*>(kMostBlocks),
                  Table<uint32_t>(kMostBlocks)};
  recorder.start();
  for (const auto& g : kGroups) {
    if (group == "all" || group == g.name) g.run(context);
  }
  recorder.finish();
}
