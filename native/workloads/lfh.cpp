// lfh: the low-fragmentation-heap analysis (article 001).
//
// Article: "Low-Fragmentation Heap (LFH) Analysis" (2009). Slots of nine prime sizes, a fixed
// number of each; every iteration picks one at random and allocates it if empty, else frees it.
// Checkpoints grow by factors of four up to 25,600,000 iterations.
//
// Parameters: --iterations (in all, divided among the threads), --threads (each with its own share
// of the slots, as in the article's second part), --scale (per cent of the slots).
//
// Measured: operations per second, sampled latency (an allocation's includes the first writes to
// its block), overhead = (resident - baseline) / live - 1, and page faults. Two steps follow
// (series "after"): the state once everything is freed, and once the heap gave memory back.
//
// A block is touched at its first and last byte and every 4 KiB. Both forms run all iterations,
// which takes seconds. The findings to test: more memory at first, less after; fewer faults;
// faster, and the default slows as iterations grow.
#include <algorithm>

#include "harness/allocator.h"
#include "harness/recorder.h"
#include "harness/threads.h"
#include "slots.h"

namespace {

using namespace lab;

// The state of a worker; the main thread moves `steps` between the two waits of a round.
struct Worker {
  Slots<>* slots;
  Barrier* barrier;
  const uint64_t* steps;  // this worker's, for the coming round; kStop: free all and end
  uint64_t freed;         // blocks, once stopped
};
constexpr uint64_t kStop = ~uint64_t{0};

void work(Worker& w) {
  for (;;) {
    w.barrier->wait();
    if (*w.steps == kStop) break;
    w.slots->run(*w.steps);
    w.barrier->wait();
  }
  w.freed = w.slots->free_all();
}

// 1,562; 6,250; 25,000; ... 25,600,000 (the article's last, index 7); and on by fours.
constexpr uint64_t checkpoint_at(unsigned index) {
  return index < 7 ? 25'600'000u >> (2 * (7 - index)) : uint64_t{25'600'000} << (2 * (index - 7));
}
static_assert(checkpoint_at(0) == 1'562 && checkpoint_at(6) == 6'400'000);

}  // namespace

int main(int argc, char** argv) {
  Arguments args("lfh", "random allocation and freeing of nine sizes, to 25.6 M iterations", argc,
                 argv);
  const uint64_t iterations =
      args.number("iterations", 25'600'000, 25'600'000, 1, 100'000'000'000, "iterations in all");
  const auto threads = static_cast<unsigned>(
      args.number("threads", 1, 1, 1, kMostThreads, "threads, each with its share of the slots"));
  const uint64_t scale = args.number("scale", 100, 100, 1, 10'000, "slots, per cent of the usual");
  args.done();

  const Trim trim;
  Recorder recorder(args);
  Scratch scratch(Slots<>::scratch_bytes(scale, threads));
  Table<Slots<>> slots(threads);
  Table<Worker> workers(threads);
  Table<pthread_t> handles(threads);
  Table<uint64_t> steps(threads);
  Barrier barrier(threads + 1);
  for (unsigned t = 0; t < threads; ++t) {
    new (&slots[t]) Slots<>(scratch, args.seed(), scale, t, threads, recorder.sampler());
    workers[t] = {&slots[t], &barrier, &steps[t], 0};
    if (threads > 1) handles[t] = start_thread<Worker, work>(workers[t]);
  }
  uint64_t slot_count = 0;
  for (auto& s : slots) slot_count += s.size();

  recorder.start().add("trim", trim.name()).add("slots", slot_count);
  uint64_t done = 0;
  for (unsigned index = 0; done < iterations; ++index) {
    const uint64_t target = std::min(checkpoint_at(index), iterations);
    for (unsigned t = 0; t < threads; ++t) {
      steps[t] = target * (t + 1) / threads - target * t / threads -
                 (done * (t + 1) / threads - done * t / threads);
    }
    recorder.resume();
    if (threads == 1) {
      slots[0].run(steps[0]);
    } else {
      barrier.wait();
      barrier.wait();
    }
    recorder.pause();
    uint64_t live = 0;
    for (auto& s : slots) {
      live += s.live_bytes();
      recorder.take(s.sampler());
    }
    recorder.checkpoint({.series = "iterations",
                         .index = index,
                         .x = target,
                         .x_unit = "iterations",
                         .operations = target - done,
                         .live_bytes = live});
    done = target;
  }

  Checksum checksum;
  for (auto& s : slots) checksum.add(s.checksum());
  recorder.resume();
  uint64_t freed = 0;
  if (threads == 1) {
    freed = slots[0].free_all();
  } else {  // every thread frees its own and ends, so no heap waits for a thread
    for (auto& s : steps) s = kStop;
    barrier.wait();
    for (unsigned t = 0; t < threads; ++t) {
      join_thread(handles[t]);
      freed += workers[t].freed;
    }
  }
  recorder
      .checkpoint({.series = "after", .index = 0, .x = 0, .x_unit = "step", .operations = freed})
      .add("step", "freed");
  recorder.resume();
  trim();
  recorder.checkpoint({.series = "after", .index = 1, .x = 1, .x_unit = "step"})
      .add("step", "trimmed");
  recorder.finish().hex("checksum", checksum.value());
}
