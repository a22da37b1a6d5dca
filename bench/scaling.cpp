// scaling: the gain of more threads, and how often they wait for each other's locks in the heap.
//
// Patterns, each with 1, 2, 4, ... --threads threads and the same work a thread:
//
//   own       batches of blocks of a size, allocated and freed by the thread itself
//   mixed     random blocks of 16 B to 2 KiB in 1,000 slots of the thread's own
//   large     pairs of runs of 16 to 256 KiB: page heap work
//   written   the same, fewer of them, with all bytes written, as a program does with such blocks
//   ring      every thread frees the blocks of its neighbour, in bursts of 64
//
// A checkpoint a pattern and count of threads (x), the best of --repetitions by time. It has two
// more figures from the heap's own counters where it has them (`lock_source` in the start line says
// which): `waits` counts the waits of a thread for a lock of the heap, and `collisions` the tries
// that found a lock taken and did not wait. Otherwise they are the threads' voluntary context
// switches.
#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "crew.h"
#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/lock_counter.h"
#include "harness/random.h"
#include "harness/recorder.h"
#include "loam/stats.h"

namespace {

using namespace lab;

constexpr unsigned kMostSeats = 64;
constexpr size_t kSlots = 1024, kBurst = 64;

// Loam's own counters, jemalloc's, or the kernel's.
class Locks {
 public:
  Locks() : loam_(reinterpret_cast<Read>(dlsym(RTLD_DEFAULT, "loam_stats"))) {}

  std::string_view source() const { return loam_ ? "loam_stats" : others_.source(); }

  struct Count {
    uint64_t waits, collisions, acquisitions;
  };
  Count now() const {
    if (loam_) {
      struct loam_stats s {};
      s.size = sizeof s;
      if (loam_(nullptr, &s) == LOAM_OK) {
        return {s.lock_contentions, s.lock_refusals, s.lock_acquisitions};
      }
    }
    if (others_.counts()) return {others_.collisions(), 0, 0};
    return {process_usage().voluntary_switches, 0, 0};
  }

 private:
  using Read = loam_status (*)(loam_heap*, struct loam_stats*);
  Read loam_;
  LockCounter others_;
};

struct alignas(64) Seat {
  void* slots[kSlots];
};
struct alignas(64) Mailbox {
  std::atomic<uint32_t> full;
  void* blocks[kBurst];
};

struct Plan {
  uint64_t operations, seed;
  unsigned threads;
  Seat* seats;
  Mailbox* mailboxes;
};

void write_word(void* block) { *static_cast<volatile uint64_t*>(block) = 1; }

uint64_t own(const Plan& p, unsigned me) {
  constexpr size_t kSize = 64;
  void** slots = p.seats[me].slots;
  const uint64_t rounds = std::max<uint64_t>(1, p.operations / kSlots);
  for (uint64_t r = 0; r < rounds; ++r) {
    for (size_t i = 0; i < kSlots; ++i) {
      slots[i] = must(std::malloc(kSize), kSize);
      write_word(slots[i]);
    }
    for (size_t i = 0; i < kSlots; ++i) std::free(slots[i]);
  }
  return rounds * kSlots;
}

enum class Writes { kWord, kAll };

uint64_t churn(const Plan& p, unsigned me, size_t least, size_t spread, uint64_t operations,
               uint32_t live, Writes writes = Writes::kWord) {
  void** slots = p.seats[me].slots;
  for (size_t i = 0; i < live; ++i) slots[i] = nullptr;
  Random random = stream(p.seed, me);
  for (uint64_t i = 0; i < operations; ++i) {
    void*& slot = slots[random.below(live)];
    std::free(slot);
    const size_t size = least + random.below(static_cast<uint32_t>(spread));
    slot = must(std::malloc(size), size);
    if (writes == Writes::kAll) memset(slot, 1, size);
    write_word(slot);
  }
  for (size_t i = 0; i < live; ++i) std::free(slots[i]);
  return operations;
}

uint64_t mixed(const Plan& p, unsigned me) { return churn(p, me, 16, 2032, p.operations, 1000); }
uint64_t large(const Plan& p, unsigned me) {
  return churn(p, me, 16 << 10, 240 << 10, p.operations / 8, 64);
}
uint64_t written(const Plan& p, unsigned me) {
  return churn(p, me, 16 << 10, 240 << 10, p.operations / 64, 64, Writes::kAll);
}

uint64_t ring(const Plan& p, unsigned me) {
  // acquire: the blocks in the mailbox were written before the flag
  const auto wait = [](std::atomic<uint32_t>& flag, uint32_t wanted) {
    for (int spins = 0; flag.load(std::memory_order_acquire) != wanted; ++spins) {
      if (spins > 200) sched_yield();  // waiting must not cost a time slice
    }
  };
  Mailbox &out = p.mailboxes[me], &in = p.mailboxes[(me + 1) % p.threads];
  Random random = stream(p.seed, me);
  const uint64_t rounds = std::max<uint64_t>(1, p.operations / 2 / kBurst);
  for (uint64_t r = 0; r < rounds; ++r) {
    wait(out.full, 0);
    for (size_t i = 0; i < kBurst; ++i) {
      const size_t size = 16 + random.below(496);
      out.blocks[i] = must(std::malloc(size), size);
      write_word(out.blocks[i]);
    }
    out.full.store(1, std::memory_order_release);  // pairs with the acquire in wait()
    wait(in.full, 1);
    for (size_t i = 0; i < kBurst; ++i) std::free(in.blocks[i]);
    in.full.store(0, std::memory_order_release);
  }
  return rounds * kBurst;
}

constexpr struct {
  std::string_view name;
  uint64_t (*run)(const Plan&, unsigned);
} kPatterns[] = {
    {"own", own}, {"mixed", mixed}, {"large", large}, {"written", written}, {"ring", ring}};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("scaling", "throughput and waits for locks from one thread to many", argc, argv);
  const uint64_t most = args.number("threads", std::min(4u, 2 * core_count()), 16, 1, kMostSeats,
                                    "most threads; 1, 2, 4, ... up to it");
  const uint64_t operations =
      args.number("operations", 400'000, 4'000'000, 1000, 1'000'000'000, "pairs a thread");
  const uint64_t repetitions = args.number("repetitions", 3, 5, 1, 1000, "the best counts");
  args.done();

  Table<Seat> seats(kMostSeats);
  Table<Mailbox> mailboxes(kMostSeats);
  Table<uint64_t> done(kMostSeats);
  Locks locks;
  Recorder recorder(args);
  recorder.start().add("lock_source", locks.source());
  uint64_t index = 0;
  for (const auto& pattern : kPatterns) {
    for (uint64_t threads = 1; threads <= most;
         threads = threads < most && threads * 2 > most ? most : threads * 2) {
      const Plan plan{operations, args.seed(), static_cast<unsigned>(threads), seats.data(),
                      mailboxes.data()};
      for (auto& m : mailboxes) m.full.store(0, std::memory_order_relaxed);  // no thread runs yet
      uint64_t best_ns = ~uint64_t{0}, pairs = 0;
      bench::Crew crew(plan.threads, [&](unsigned me) { done[me] = pattern.run(plan, me); });
      recorder.resume();
      crew.phase();  // warms up
      const Locks::Count before = locks.now();
      for (uint64_t i = 0; i < repetitions; ++i) {
        const uint64_t began = now_ns();
        crew.phase();
        best_ns = std::min(best_ns, now_ns() - began);
      }
      const Locks::Count after = locks.now();
      recorder.pause();
      for (uint64_t t = 0; t < threads; ++t) pairs += done[t];
      const double all = static_cast<double>(pairs * repetitions) / 1e6;
      recorder
          .checkpoint({.series = pattern.name,
                       .index = index++,
                       .x = threads,
                       .x_unit = "threads",
                       .operations = pairs * repetitions})
          .add("best_pairs_per_second",
               static_cast<double>(pairs) / (static_cast<double>(best_ns) * 1e-9))
          .add("waits_per_million", static_cast<double>(after.waits - before.waits) / all)
          .add("collisions_per_million",
               static_cast<double>(after.collisions - before.collisions) / all)
          .add("acquisitions_per_million",
               static_cast<double>(after.acquisitions - before.acquisitions) / all);
      crew.end();
    }
  }
  recorder.finish();
}
