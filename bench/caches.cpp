// caches: the cost and the waste of loam::buffer_cache, policy by policy, beside malloc itself.
//
// The walk of the article on caches ("A cache with a bad policy is another name for a memory leak",
// 2006): a step allocates or returns with equal chance. A request is 100 bytes and doubles with
// chance 1/2 up to `largest`. A return picks a random victim. One thread; with --threads several,
// each with its own cache. Policies: malloc (no cache at all), none, largest, cut-off (200 bytes),
// bucketed; the middle two with --depth buffers. Only the first word of a buffer is written.
//
// Parameters: --policy, --depth, --largest, --operations, --live (buffers in hand at most),
// --threads, --repetitions.
//
// A checkpoint each repetition: variant = policy, an operation is a step; hits in per cent of
// requests, per cent of allocated bytes that were needed (the mean over all steps), and kept bytes.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "crew.h"
#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/recorder.h"
#include "loam/buffer_cache.hpp"

namespace {

using namespace lab;

struct Plan {
  uint64_t operations, live, seed, repetitions;
  uint32_t largest;
  size_t depth;
  unsigned threads;
};

// malloc behind the cache's interface, with the same count of buffers in hand.
class Malloc {
 public:
  loam::buffer get(size_t bytes) {
    statistics_.bytes_needed += bytes;
    statistics_.bytes_allocated += bytes;
    ++statistics_.misses;
    return {must(std::malloc(bytes), bytes), bytes, bytes};
  }
  void give_back(loam::buffer b) {
    statistics_.bytes_needed -= b.size;
    statistics_.bytes_allocated -= b.capacity;
    std::free(b.data);
  }
  const loam::buffer_cache_statistics& statistics() const { return statistics_; }

 private:
  loam::buffer_cache_statistics statistics_;
};

struct Result {
  uint64_t hits = 0, requests = 0, kept_bytes = 0;
  double used = 0;  // per cent, summed over samples
  uint64_t samples = 0;
};

template <typename Cache>
void walk(Cache& cache, const Plan& plan, Table<loam::buffer>& held, uint64_t stream_number,
          Result& result) {
  Random random = stream(plan.seed, stream_number);
  size_t count = 0;
  for (uint64_t i = 0; i < plan.operations; ++i) {
    const uint64_t dice = random.next();
    if (count == 0 || (count < plan.live && (dice & 1))) {
      // The lowest set bit of 31: each doubling is half as likely.
      const auto doublings =
          static_cast<uint32_t>(__builtin_ctz(static_cast<uint32_t>(dice >> 33) | (1u << 31)));
      const size_t bytes = std::min<size_t>(plan.largest, size_t{100} << doublings);
      const loam::buffer b = cache.get(bytes);
      *static_cast<volatile uint64_t*>(b.data) = i;
      held[count++] = b;
    } else {
      const auto victim = static_cast<size_t>((dice >> 1) % count);
      const loam::buffer b = held[victim];
      held[victim] = held[--count];
      cache.give_back(b);
    }
    if (i % 64 == 0 && count != 0) {
      result.used += cache.statistics().percent_used();
      ++result.samples;
    }
  }
  result.hits += cache.statistics().hits;
  result.requests += cache.statistics().hits + cache.statistics().misses;
  result.kept_bytes += cache.statistics().cached_bytes;
  while (count != 0) cache.give_back(held[--count]);
}

template <typename Make>
void measure(const char* name, std::string_view wanted, const Plan& plan, Recorder& recorder,
             uint64_t& index, Make make) {
  if (wanted != "all" && wanted != name) return;
  Table<Table<loam::buffer>> held(plan.threads);
  for (auto& h : held) h = Table<loam::buffer>(plan.live + 1);
  Table<Result> results(plan.threads);
  bench::Crew crew(plan.threads, [&](unsigned me) {
    const auto cache = make();
    walk(*cache, plan, held[me], me, results[me]);
  });
  for (uint64_t r = 0; r < plan.repetitions; ++r) {
    for (Result& each : results) each = Result();
    recorder.resume();
    crew.phase();
    recorder.pause();
    Result sum;
    for (const Result& each : results) {
      sum.hits += each.hits;
      sum.requests += each.requests;
      sum.kept_bytes += each.kept_bytes;
      sum.used += each.used;
      sum.samples += each.samples;
    }
    recorder
        .checkpoint({.variant = name,
                     .series = name,
                     .index = index++,
                     .x = r + 1,
                     .x_unit = "repetition",
                     .operations = plan.operations * plan.threads})
        .add("hit_percent",
             100.0 * static_cast<double>(sum.hits) / static_cast<double>(sum.requests))
        .add("percent_used", sum.used / static_cast<double>(sum.samples))
        .add("kept_bytes", sum.kept_bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("caches", "what caches of buffers cost and waste", argc, argv);
  const auto policy = args.choice(
      "policy", {"all", "malloc", "none", "largest", "cut-off", "bucketed"}, "what is kept");
  Plan plan;
  plan.seed = args.seed();
  plan.operations = args.number("operations", 300'000, 3'000'000, 1, 1'000'000'000,
                                "steps of a thread and repetition");
  plan.live = args.number("live", 1'000, 1'000, 1, 1'000'000, "buffers in hand at most");
  plan.largest = static_cast<uint32_t>(
      args.bytes("largest", 64 << 10, 64 << 10, 100, 16 << 20, "largest request"));
  plan.depth = args.number("depth", 10, 10, 1, 1'000'000, "buffers that largest and cut-off keep");
  plan.threads = static_cast<unsigned>(
      args.number("threads", 1, 1, 1, kMostThreads, "threads, each with its own cache"));
  plan.repetitions = args.number("repetitions", 3, 5, 1, 1000, "runs of each policy");
  args.done();
  Recorder recorder(args);
  uint64_t index = 0;
  recorder.start();
  using namespace loam;
  const auto of = [&](const char* name, auto make) {
    measure(name, policy, plan, recorder, index, make);
  };
  of("malloc", [] { return std::make_unique<Malloc>(); });
  of("none", [] { return std::make_unique<buffer_cache<no_cache>>(); });
  of("largest",
     [&] { return std::make_unique<buffer_cache<keep_largest>>(keep_largest(plan.depth)); });
  of("cut-off", [&] { return std::make_unique<buffer_cache<cut_off>>(cut_off(200, plan.depth)); });
  of("bucketed", [] { return std::make_unique<buffer_cache<bucketed>>(); });
  recorder.finish();
}
