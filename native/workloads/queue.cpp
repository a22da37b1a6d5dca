// queue: containers of functors (article 004).
//
// Article: "Are small memory allocations in C++ STL containers still a concern?" (2020). Lambdas
// that capture two large strings (then three) are pushed into containers and popped, 16 times in
// one process. Everything that allocated much slowed down, but only where operator new used aligned
// allocation (by the system's call or by hand), which makes blocks a little larger.
//
// Containers: std::queue over std::deque and over std::list, std::list, std::map keyed by sequence,
// a concurrent queue (if its header was there at the build), and the library's own functor and
// functor-concurrent, which write functors one after another into blocks of 64 KiB. Tests:
// "sequential" pushes all, then pops all; "threads" does the same from several threads; "at-once"
// pushes from some while others pop. Variant: how operator new allocates (queue/operator_new.h).
//
// Parameters: --entries (lowered until they take a quarter of memory at most), --rounds, --threads,
// --container, --test, --strings, --allocation, --alignment. "all" runs every container and test
// with two strings through malloc. It runs aligned, padded and three strings only in the sequential
// test of std::list (in the full form of all node containers). A round runs every case once, as the
// article did.
//
// Measured: per case and round the seconds of pushing and popping, and resident memory when full.
// An operation is a push (which makes the functor) or a pop (which calls and destroys it).
#include <sched.h>

#include <atomic>
#include <string>

#include "harness/allocator.h"
#include "harness/random.h"
#include "harness/recorder.h"
#include "harness/threads.h"
#include "queue/containers.h"
#include "queue/operator_new.h"

namespace {

using namespace lab;
using namespace functors;

constexpr uint32_t kLeastString = 40, kMostString = 100;  // none fits into std::string itself
constexpr uint64_t kEntryBytes = 512;  // an upper estimate, which scales entries to memory

struct Worker {
  Random random;
  LatencySampler sampler;
  uint64_t entries = 0;  // to push or pop in the job at hand
  unsigned strings = 2;
  uint64_t pushed_sum = 0, popped_sum = 0;
};

using Job = void (*)(void* container, Worker&);

// Calls take(functor) with a functor of 2 or 3 strings.
template <typename Take>
void make_functor(Worker& w, Take take) {
  const uint32_t lengths[] = {w.random.between(kLeastString, kMostString),
                              w.random.between(kLeastString, kMostString)};
  w.pushed_sum += lengths[0] * 3 + lengths[1];
  std::string a(lengths[0], 'a'), b(lengths[1], 'b');
  if (w.strings == 2) {
    return take([a = std::move(a), b = std::move(b)] { return a.size() * 3 + b.size(); });
  }
  std::string c(lengths[0] / 2 + lengths[1] / 2, 'c');
  take([a = std::move(a), b = std::move(b), c = std::move(c)] {
    return a.size() * 3 + b.size() + static_cast<size_t>(c[0] - 'c');
  });
}

template <typename Container>
void push_all(void* p, Worker& w) {
  auto& container = *static_cast<Container*>(p);
  for (uint64_t i = 0; i < w.entries; ++i) {
    w.sampler.run(
        [&] { make_functor(w, [&](auto&& functor) { container.push(std::move(functor)); }); });
  }
}

template <typename Container>
void pop_all(void* p, Worker& w) {
  auto& container = *static_cast<Container*>(p);
  for (uint64_t left = w.entries; left != 0;) {
    bool popped = false;
    w.sampler.run([&] {
      if constexpr (requires { container.run_one(w.popped_sum); }) {
        popped = container.run_one(w.popped_sum);
      } else {
        Functor f;
        popped = container.pop(f);
        if (popped) w.popped_sum += f();
      }
    });
    if (popped) {
      --left;
    } else {
      sched_yield();  // "at-once": the pushing threads are behind
    }
  }
}

// A container as a row of functions over raw storage, so that the table itself takes nothing from
// the heap.
struct ContainerType {
  std::string_view name;
  bool node_based;
  struct Use {
    void (*make)(void*);
    void (*destroy)(void*);
    Job push, pop;
  } alone, shared;
};
constexpr size_t kStorage = 4096;

template <typename Container>
constexpr ContainerType::Use use() {
  static_assert(sizeof(Container) <= kStorage);
  return {[](void* p) { new (p) Container; },
          [](void* p) { static_cast<Container*>(p)->~Container(); }, push_all<Container>,
          pop_all<Container>};
}
template <typename Container>
constexpr ContainerType type(std::string_view name, bool node_based) {
  return {name, node_based, use<Container>(), use<Shared<Container>>()};
}

constexpr ContainerType kContainers[] = {
    type<QueueOverDeque>("deque", false),
    type<QueueOverList>("queue-list", true),
    type<List>("list", true),
    type<Map>("map", true),
#if WORKLOAD_HAS_CONCURRENT_QUEUE
    type<Concurrent>("concurrent", false),
#endif
    type<Functors>("functor", false),
    type<ConcurrentFunctors>("functor-concurrent", false),
};

// Threads that live as long as the program, because the container is measured and not their start.
class Crew {
 public:
  Crew(unsigned count, uint64_t seed, const Recorder& recorder)
      : members_(count), start_(count + 1), end_(count + 1) {
    for (unsigned i = 0; i < count; ++i) {
      members_[i] = {this, nullptr, nullptr, {stream(seed, i), recorder.sampler()}};
      start_thread<Member, live>(members_[i]);
    }
  }
  size_t size() const { return members_.size(); }
  Worker& worker(size_t i) { return members_[i].worker; }
  void assign(size_t i, Job job, void* container, uint64_t entries) {
    members_[i].job = job;
    members_[i].container = container;
    members_[i].worker.entries = entries;
  }
  // Every thread runs its assigned job; returns when all are done.
  void run() {
    start_.wait();
    end_.wait();
  }

 private:
  struct Member {
    Crew* crew;
    Job job;
    void* container;
    Worker worker;
  };
  static void live(Member& m) {  // ends with the process
    for (;;) {
      m.crew->start_.wait();
      m.job(m.container, m.worker);
      m.crew->end_.wait();
    }
  }
  Table<Member> members_;
  Barrier start_, end_;
};

struct Case {
  const ContainerType* container;
  std::string_view test, allocation;
  unsigned strings;
  char series[48];
  double first_seconds = 0;
};

uint64_t share(uint64_t total, size_t part, size_t parts) {
  return total * (part + 1) / parts - total * part / parts;
}

class Queue {
 public:
  Queue(Recorder& recorder, Crew& crew, uint64_t seed, uint64_t entries)
      : recorder_(recorder),
        crew_(crew),
        entries_(entries),
        main_{stream(seed, kMostThreads), recorder.sampler()},
        storage_(map_memory(kStorage)) {}

  void run(Case& c, uint64_t round) {
    way = c.allocation == "malloc"    ? Way::kMalloc
          : c.allocation == "aligned" ? Way::kAligned
                                      : Way::kPadded;
    const bool alone = c.test == "sequential";
    const auto& use = alone ? c.container->alone : c.container->shared;
    main_.strings = c.strings;
    for (size_t i = 0; i < crew_.size(); ++i) crew_.worker(i).strings = c.strings;
    recorder_.restart_peak();
    uint64_t loaded = 0;
    double push_seconds = 0, pop_seconds = 0;

    recorder_.resume();
    uint64_t began = now_ns();
    use.make(storage_);
    if (c.test == "at-once") {
      const size_t pushing = crew_.size() / 2, popping = crew_.size() - pushing;
      for (size_t i = 0; i < pushing; ++i) {
        crew_.assign(i, use.push, storage_, share(entries_, i, pushing));
      }
      for (size_t i = 0; i < popping; ++i) {
        crew_.assign(pushing + i, use.pop, storage_, share(entries_, i, popping));
      }
      crew_.run();
      push_seconds = pop_seconds = static_cast<double>(now_ns() - began) * 1e-9;
    } else {
      step(use.push, alone);
      push_seconds = static_cast<double>(now_ns() - began) * 1e-9;
      recorder_.pause();
      loaded = memory_figures().resident;
      recorder_.resume();
      began = now_ns();
      step(use.pop, alone);
      pop_seconds = static_cast<double>(now_ns() - began) * 1e-9;
    }
    use.destroy(storage_);
    recorder_.pause();

    uint64_t pushed = main_.pushed_sum, popped = main_.popped_sum;
    recorder_.take(main_.sampler);
    for (size_t i = 0; i < crew_.size(); ++i) {
      pushed += crew_.worker(i).pushed_sum;
      popped += crew_.worker(i).popped_sum;
      recorder_.take(crew_.worker(i).sampler);
    }
    if (pushed != popped) fail(kExitFailed, "queue: functors came out other than they went in");
    checksum_.add(popped);
    const double seconds = c.test == "at-once" ? push_seconds : push_seconds + pop_seconds;
    if (round == 0) c.first_seconds = seconds;
    JsonLine& line = recorder_.checkpoint({.variant = c.allocation,
                                           .series = c.series,
                                           .index = index_++,
                                           .x = round + 1,
                                           .x_unit = "round",
                                           .operations = 2 * entries_});
    line.add("container", c.container->name).add("test", c.test).add("strings", c.strings);
    line.add("entries", entries_).add("push_seconds", push_seconds);
    line.add("pop_seconds", pop_seconds).add("slowdown", seconds / c.first_seconds);
    if (loaded != 0) {
      line.add("loaded_resident_bytes", loaded)
          .add("loaded_bytes_per_entry",
               (static_cast<double>(loaded) - static_cast<double>(recorder_.baseline())) /
                   static_cast<double>(entries_));
    }
    way = Way::kMalloc;
  }

  void after(const Trim& trim) {
    const auto step = [&](std::string_view name, uint64_t x) {
      recorder_.checkpoint({.series = "after", .index = index_++, .x = x, .x_unit = "step"})
          .add("step", name);
      recorder_.resume();
    };
    recorder_.resume();
    step("freed", 0);
    trim();
    step("compact", 1);
  }

  uint64_t checksum() const { return checksum_.value(); }

 private:
  void step(Job job, bool alone) {
    if (alone) {
      main_.entries = entries_;
      job(storage_, main_);
      return;
    }
    for (size_t i = 0; i < crew_.size(); ++i) {
      crew_.assign(i, job, storage_, share(entries_, i, crew_.size()));
    }
    crew_.run();
  }

  Recorder& recorder_;
  Crew& crew_;
  uint64_t entries_;
  Worker main_;
  void* storage_;
  Checksum checksum_;
  uint64_t index_ = 0;
};

// What to run in a round.
class Cases {
 public:
  Cases() : cases_(kMost) {}
  void add(const ContainerType& container, std::string_view test, std::string_view allocation,
           unsigned strings) {
    Case& c = cases_[count_++];
    c = {&container, test, allocation, strings, {}};
    char* at = c.series;
    for (const std::string_view piece : {container.name, std::string_view(" "), test,
                                         std::string_view(strings == 3 ? " 3 strings" : "")}) {
      at = std::copy(piece.begin(), piece.end(), at);
    }
  }
  Case* begin() { return cases_.begin(); }
  Case* end() { return cases_.begin() + count_; }

 private:
  static constexpr size_t kMost = 128;
  Table<Case> cases_;
  size_t count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("queue", "containers of functors, filled and emptied round after round", argc,
                 argv);
  const uint64_t wanted =
      args.number("entries", 50'000, 8'000'000, 16, uint64_t{1} << 32, "functors of a case");
  const uint64_t rounds = args.number("rounds", 8, 16, 1, 100'000, "times every case is run");
  const unsigned cores = std::max(2u, std::min(core_count(), 64u));
  const auto threads = static_cast<unsigned>(
      args.number("threads", cores, cores, 2, kMostThreads, "threads of the shared tests"));
  const auto container = args.choice(
      "container",
      {"all", "deque", "queue-list", "list", "map", "concurrent", "functor", "functor-concurrent"},
      "what holds them");
  const auto test =
      args.choice("test", {"all", "sequential", "threads", "at-once"}, "who pushes and pops");
  const uint64_t strings =
      args.number("strings", 0, 0, 0, 3, "captured by a functor: 2, 3, or 0 for both");
  const auto allocation =
      args.choice("allocation", {"all", "malloc", "aligned", "padded"}, "what operator new does");
  alignment = args.number("alignment", 32, 32, 16, 4096, "of aligned and padded; a power of two");
  args.done();
  if (alignment & (alignment - 1)) fail(kExitUsage, "queue: --alignment must be a power of two");
  if (strings == 1) fail(kExitUsage, "queue: --strings takes 2, 3 or 0, not '1'");
  const uint64_t entries =
      std::max<uint64_t>(16, std::min(wanted, machine_memory_bytes() / 4 / kEntryBytes));

  Cases cases;
  bool found = container == "all";
  for (const ContainerType& type : kContainers) {
    if (container != "all" && container != type.name) continue;
    found = true;
    for (const std::string_view t : {"sequential", "threads", "at-once"}) {
      if (test != "all" && test != t) continue;
      for (const std::string_view way : {"malloc", "aligned", "padded"}) {
        if (allocation != "all" && allocation != way) continue;
        for (const unsigned n : {2u, 3u}) {
          if (strings != 0 && strings != n) continue;
          // "all" leaves out cases that show nothing new; a case that is given by name runs.
          const bool usual = (allocation != "all" || way == "malloc") && (strings != 0 || n == 2);
          const bool telling = args.full() ? type.node_based : type.name == "list";
          if (!usual && !(telling && t == "sequential")) continue;
          cases.add(type, t, way, n);
        }
      }
    }
  }

  const Trim trim;
  Recorder recorder(args);
  Crew crew(threads, args.seed(), recorder);
  Queue queue(recorder, crew, args.seed(), entries);
  recorder.start()
      .add("trim", trim.name())
      .add("entries", entries)
      .add("has_concurrent", WORKLOAD_HAS_CONCURRENT_QUEUE != 0)
      .add("available", found);
  if (!found) {
    recorder.finish().add("unavailable",
                          "this program was built without a concurrent queue's header (Debian "
                          "package libconcurrentqueue-dev)");
    return 0;
  }
  for (uint64_t round = 0; round < rounds; ++round) {
    for (Case& c : cases) queue.run(c, round);
  }
  queue.after(trim);
  recorder.finish().hex("checksum", queue.checksum());
}
