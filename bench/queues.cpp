// queues: the cost of queues of functors, Loam's beside queues that hold std::function.
//
// Queues: functor (loam::functor_queue), concurrent (loam::concurrent_functor_queue), deque and
// list (std::queue over them), tbb and tbb-bounded (oneTBB's concurrent_queue and
// concurrent_bounded_queue), moodycamel; the last three only if they were there at the build.
//
// Tests: batch (one thread pushes `batch` functors, then runs all), turns (one thread pushes one
// and runs one), threads (every thread pushes its share, then every thread runs), at-once (half of
// the threads push while the other half runs). Functors capture 8 or 64 bytes, or two strings of
// 60.
//
// Parameters: --queue, --test, --functor (one, or all), --operations, --batch, --threads,
// --repetitions.
//
// A checkpoint each repetition: variant = queue, series = test and functor, x = repetition. An
// operation is a push with its run. Queues are made and destroyed within a repetition.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>

#include "blocks/queues.h"
#include "crew.h"
#include "harness/arguments.h"
#include "harness/recorder.h"

namespace {

using namespace lab;
using namespace blocks;

struct Context {
  Recorder& recorder;
  uint64_t operations, batch, repetitions;
  unsigned threads;
  std::string_view test, functor;
  uint64_t index = 0;
};

// Each makes the functor number i; running it adds i + 1.
struct Small {
  static constexpr const char* kName = "8";
  static auto make(uint64_t i) {
    return [i](Sum& s) { s.value += i + 1; };
  }
};
struct Medium {
  static constexpr const char* kName = "64";
  static auto make(uint64_t i) {
    struct Pad {
      uint64_t words[7];
    };
    return
        [i, pad = Pad{{1, 2, 3, 4, 5, 6, 7}}](Sum& s) { s.value += i + pad.words[i % 7] / 8 + 1; };
  }
};
struct Strings {
  static constexpr const char* kName = "strings";
  static auto make(uint64_t i) {
    return [i, a = std::string(60, 'a'), b = std::string(60, 'b')](Sum& s) {
      s.value += i + (b[i % 60] - a[i % 60]);
    };
  }
};

template <typename Queue, typename Functor>
void run_dry(Queue& queue, Sum& sum, std::atomic<uint64_t>& left) {
  while (left.load(std::memory_order_relaxed) != 0) {
    if (queue.run_one(sum)) {
      left.fetch_sub(1, std::memory_order_relaxed);
    } else {
      sched_yield();
    }
  }
}

void expect(uint64_t found, uint64_t operations) {
  if (found != operations * (operations + 1) / 2) {
    fail(kExitFailed, "queues: the functors did not all run once");
  }
}

template <typename Body>
void measure(Context& c, const char* queue, const char* test, const char* functor, Body body) {
  char series[48];
  std::snprintf(series, sizeof series, "%s %s", test, functor);
  for (uint64_t i = 0; i < c.repetitions; ++i) {
    c.recorder.resume();
    body();
    c.recorder.checkpoint({.variant = queue,
                           .series = series,
                           .index = c.index++,
                           .x = i + 1,
                           .x_unit = "repetition",
                           .operations = c.operations});
  }
}

template <typename Alone, typename Shared, typename Functor>
void run_functor(Context& c, const char* name) {
  if (c.functor != "all" && c.functor != Functor::kName) return;
  const auto wanted = [&](std::string_view test) { return c.test == "all" || c.test == test; };
  const uint64_t n = c.operations;
  if (wanted("batch")) {
    measure(c, name, "batch", Functor::kName, [&] {
      Alone queue;
      Sum sum;
      for (uint64_t i = 0; i < n;) {
        const uint64_t end = std::min(n, i + c.batch);
        for (; i < end; ++i) queue.push(Functor::make(i));
        while (queue.run_one(sum)) {
        }
      }
      expect(sum.value, n);
    });
  }
  if (wanted("turns")) {
    measure(c, name, "turns", Functor::kName, [&] {
      Alone queue;
      Sum sum;
      for (uint64_t i = 0; i < n; ++i) {
        queue.push(Functor::make(i));
        queue.run_one(sum);
      }
      expect(sum.value, n);
    });
  }
  struct alignas(128) Seat {
    Sum sum;
  };
  for (const bool at_once : {false, true}) {
    if (!wanted(at_once ? "at-once" : "threads")) continue;
    Table<Seat> seats(c.threads);
    Shared* queue = nullptr;
    bool popping = false;
    std::atomic<uint64_t> left{0};
    const unsigned producers = at_once ? c.threads / 2 : c.threads;
    bench::Crew crew(c.threads, [&](unsigned me) {
      if (me < producers && !popping) {
        for (uint64_t i = n * me / producers, end = n * (me + 1) / producers; i < end; ++i) {
          queue->push(Functor::make(i));
        }
      } else {
        run_dry<Shared, Functor>(*queue, seats[me].sum, left);
      }
    });
    measure(c, name, at_once ? "at-once" : "threads", Functor::kName, [&] {
      Shared shared;
      queue = &shared;
      left = n;
      for (Seat& s : seats) s.sum.value = 0;
      popping = false;
      crew.phase();
      popping = true;
      if (!at_once) crew.phase();
      uint64_t sum = 0;
      for (Seat& s : seats) sum += s.sum.value;
      expect(sum, n);
    });
  }
}

template <typename Alone, typename Shared = Alone>
void run_queue(Context& c, std::string_view wanted, const char* name) {
  if (wanted != "all" && wanted != name) return;
  run_functor<Alone, Shared, Small>(c, name);
  run_functor<Alone, Shared, Medium>(c, name);
  run_functor<Alone, Shared, Strings>(c, name);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("queues", "what queues of functors cost", argc, argv);
  const auto queue = args.choice(
      "queue",
      {"all", "functor", "concurrent", "deque", "list", "tbb", "tbb-bounded", "moodycamel"},
      "what holds the functors");
  const auto test =
      args.choice("test", {"all", "batch", "turns", "threads", "at-once"}, "who pushes and runs");
  const auto functor = args.choice("functor", {"all", "8", "64", "strings"}, "what they capture");
  const uint64_t operations =
      args.number("operations", 200'000, 2'000'000, 1, 1'000'000'000, "functors a repetition");
  const uint64_t batch =
      args.number("batch", 10'000, 100'000, 1, 1'000'000'000, "functors in the queue at most");
  const auto threads = static_cast<unsigned>(
      args.number("threads", std::max(2u, core_count()), std::max(2u, core_count()), 2,
                  kMostThreads, "threads of the shared tests"));
  const uint64_t repetitions = args.number("repetitions", 3, 5, 1, 1000, "runs of each case");
  args.done();
  Recorder recorder(args);
  Context c{recorder, operations, batch, repetitions, threads, test, functor};
  bool available = true;
  available &= queue != "moodycamel" || BENCH_HAS_MOODYCAMEL;
  available &= (queue != "tbb" && queue != "tbb-bounded") || BENCH_HAS_TBB;
  recorder.start()
      .add("has_tbb", BENCH_HAS_TBB != 0)
      .add("has_moodycamel", BENCH_HAS_MOODYCAMEL != 0)
      .add("available", available);
  run_queue<LoamQueue<NoMutex>, LoamQueue<std::mutex>>(c, queue, "functor");
  run_queue<LoamConcurrentQueue>(c, queue, "concurrent");
  using Deque = std::deque<Function>;
  using List = std::list<Function>;
  run_queue<StdQueue<Deque, NoMutex>, StdQueue<Deque, std::mutex>>(c, queue, "deque");
  run_queue<StdQueue<List, NoMutex>, StdQueue<List, std::mutex>>(c, queue, "list");
#if BENCH_HAS_TBB
  run_queue<TbbQueue<tbb::concurrent_queue<Function>>>(c, queue, "tbb");
  run_queue<TbbQueue<tbb::concurrent_bounded_queue<Function>>>(c, queue, "tbb-bounded");
#endif
#if BENCH_HAS_MOODYCAMEL
  run_queue<MoodycamelQueue>(c, queue, "moodycamel");
#endif
  JsonLine& line = recorder.finish();
  if (!available) {
    line.add("unavailable",
             "this program was built without that queue's headers (Debian packages libtbb-dev and "
             "libconcurrentqueue-dev)");
  }
}
