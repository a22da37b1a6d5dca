// handoff: producer and consumer.
//
// Lab experiment 9. One thread allocates blocks and passes them through a ring of pointers, and
// another frees them. Then N producers pass their blocks to N consumers in turn. The thread that
// frees a block is never the one that allocated it. A heap in which each thread keeps its freed
// blocks grows without bound, or pays for the way back.
//
// Parameters: --blocks (in all, per series), --bytes and --bytes-most (sizes are uniform between
// them), --ring (pointers), --threads (N), --rounds (a checkpoint after each).
//
// Measured: blocks per second, peak memory (the start line has the most that can be live at once),
// and sampled latency of allocations and of frees. An operation is one allocation or one free.
// Every block carries its number in its first word, which the consumer checks.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>

#include "harness/block.h"
#include "harness/random.h"
#include "harness/recorder.h"
#include "harness/threads.h"

namespace {

using namespace lab;

// Single producer, single consumer. Each side keeps its own copy of the other's index, and reads
// the index again only when the ring seems full or empty. So the cache line of an index travels
// once in many operations.
class Ring {
 public:
  Ring(Scratch& scratch, size_t capacity)
      : cells_(scratch.take<void*>(capacity)), mask_(capacity - 1) {}

  void push(void* p) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    // The acquire pairs with pop()'s release: the cell is empty before it is written.
    wait([&] { return head - seen_tail_ <= mask_; },
         [&] { seen_tail_ = tail_.load(std::memory_order_acquire); });
    cells_[head & mask_] = p;
    head_.store(head + 1, std::memory_order_release);  // pairs with pop()'s acquire
  }
  void* pop() {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    // The acquire pairs with push()'s release: the cell is written before it is read.
    wait([&] { return tail != seen_head_; },
         [&] { seen_head_ = head_.load(std::memory_order_acquire); });
    void* p = cells_[tail & mask_];
    tail_.store(tail + 1, std::memory_order_release);  // pairs with push()'s acquire
    return p;
  }

 private:
  template <typename Ready, typename Look>
  static void wait(Ready ready, Look look) {
    for (unsigned spins = 0; !ready(); ++spins) {
      look();
      if (spins > 64) sched_yield();  // more threads than cores: let the other side run
    }
  }

  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t seen_tail_ = 0;
  alignas(64) std::atomic<uint64_t> tail_{0};
  uint64_t seen_head_ = 0;
  alignas(64) void** cells_;
  uint64_t mask_;
};

struct Series;

struct Party {
  Series* series;
  unsigned number;
  bool producer;
  Random random;
  Checksum checksum;
  LatencySampler sampler;
};

struct Series {
  unsigned width;        // producers, and consumers
  uint32_t least, most;  // bytes of a block
  uint64_t per_pair;     // blocks of a round from one producer to one consumer
  uint64_t rounds;
  Ring** rings;  // [producer * width + consumer]
  Barrier* barrier;
};

void produce(Party& me) {
  const Series& s = *me.series;
  for (uint64_t i = 0; i < s.per_pair * s.width; ++i) {
    const uint32_t bytes = me.random.between(s.least, s.most);
    me.checksum.add(bytes);
    void* p = nullptr;
    me.sampler.run([&] {
      p = must(std::malloc(bytes), bytes);
      touch(p, bytes);
    });
    *static_cast<uint64_t*>(p) = i;
    s.rings[me.number * s.width + i % s.width]->push(p);
  }
}

void consume(Party& me) {
  const Series& s = *me.series;
  for (uint64_t i = 0; i < s.per_pair; ++i) {
    for (unsigned from = 0; from < s.width; ++from) {
      void* p = s.rings[from * s.width + me.number]->pop();
      if (*static_cast<uint64_t*>(p) != i * s.width + me.number) {
        fail(kExitFailed, "handoff: a block arrived with another block's contents");
      }
      me.sampler.run([&] { std::free(p); });
    }
  }
}

void live(Party& me) {
  for (uint64_t round = 0; round < me.series->rounds; ++round) {
    me.series->barrier->wait();
    me.producer ? produce(me) : consume(me);
    me.series->barrier->wait();
  }
}

struct Plan {
  uint64_t seed, blocks, ring, rounds;
  uint32_t least, most;
};

size_t scratch_bytes(unsigned width, uint64_t ring) {
  return width * width * (sizeof(Ring) + sizeof(Ring*) + 128) + width * ring * sizeof(void*) +
         2 * width * (sizeof(Party) + sizeof(pthread_t)) + 4'096;
}

uint64_t run(std::string_view name, unsigned width, const Plan& plan, Scratch& scratch,
             Recorder& recorder) {
  scratch.rewind();
  auto** rings = scratch.take<Ring*>(width * width);
  for (unsigned i = 0; i < width * width; ++i) {
    rings[i] = new (scratch.take<Ring>(1)) Ring(scratch, plan.ring / width);
  }
  Barrier barrier(2 * width + 1);
  Series series{width,       plan.least, plan.most, plan.blocks / plan.rounds / width / width,
                plan.rounds, rings,      &barrier};
  auto* parties = scratch.take<Party>(2 * width);
  auto* threads = scratch.take<pthread_t>(2 * width);
  for (unsigned i = 0; i < 2 * width; ++i) {
    parties[i] = {&series, i / 2, i % 2 == 0, stream(plan.seed, i / 2), {}, recorder.sampler()};
    threads[i] = start_thread<Party, live>(parties[i]);
  }
  recorder.restart_peak();
  const uint64_t blocks = series.per_pair * width * width;
  for (uint64_t round = 0; round < plan.rounds; ++round) {
    recorder.resume();
    barrier.wait();
    barrier.wait();
    recorder.pause();
    for (unsigned i = 0; i < 2 * width; ++i) recorder.take(parties[i].sampler);
    recorder
        .checkpoint({.series = name,
                     .index = round,
                     .x = blocks * (round + 1),
                     .x_unit = "blocks",
                     .operations = 2 * blocks})
        .add("threads", 2 * width)
        .add("blocks", blocks)
        .add("most_live_bytes", plan.ring / width * width * width * plan.most);
  }
  Checksum checksum;
  for (unsigned i = 0; i < 2 * width; ++i) {
    join_thread(threads[i]);
    checksum.add(parties[i].checksum.value());
  }
  return checksum.value();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("handoff", "one thread allocates, another frees, through a ring; then N to N",
                 argc, argv);
  Plan plan;
  plan.seed = args.seed();
  plan.blocks =
      args.number("blocks", 4'000'000, 32'000'000, 1, uint64_t{1} << 40, "blocks of a series");
  plan.least = static_cast<uint32_t>(
      args.number("bytes", 64, 64, sizeof(uint64_t), 1 << 30, "smallest block"));
  plan.most = static_cast<uint32_t>(
      args.number("bytes-most", 0, 0, 0, 1 << 30, "largest block; 0: all of --bytes"));
  plan.ring = args.number("ring", 4'096, 4'096, 2, 1 << 24, "pointers; a power of two");
  plan.rounds = args.number("rounds", 4, 8, 1, 100'000, "checkpoints of a series");
  const unsigned cores = std::min(std::bit_floor(core_count()), 64u);
  const auto width = static_cast<unsigned>(args.number("threads", cores, cores, 1, kMostThreads / 2,
                                                       "N of the N to N series; a power of two"));
  args.done();
  if (plan.most == 0) plan.most = plan.least;
  if (plan.most < plan.least) {
    fail(kExitUsage, "handoff: --bytes-most is less than --bytes");
  }
  if (plan.ring & (plan.ring - 1)) fail(kExitUsage, "handoff: --ring must be a power of two");
  if (width & (width - 1)) fail(kExitUsage, "handoff: --threads must be a power of two");
  if (plan.ring / width < 2) fail(kExitUsage, "handoff: --ring is too small for --threads");
  if (plan.blocks / plan.rounds / width / width == 0) {
    fail(kExitUsage, "handoff: --blocks is too small for --rounds and --threads");
  }

  Recorder recorder(args);
  Scratch scratch(scratch_bytes(width, plan.ring));
  recorder.start();
  Checksum checksum;
  checksum.add(run("1 to 1", 1, plan, scratch, recorder));
  if (width > 1) checksum.add(run("N to N", width, plan, scratch, recorder));
  recorder.finish().hex("checksum", checksum.value());
}
