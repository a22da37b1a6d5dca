// stress_heaps: threads on the default heap and on private ones, in phases, checked against a
// model.
//
// Threads pick heaps at random and make, resize, free and read the blocks of any. They make and
// destroy heaps, lock, walk and compact them, and fork, while the other threads continue. The load
// changes as in programs: it builds up, turns over, changes sizes, shrinks, rests, gives memory
// back. Between two phases all threads stand still and every block, record and figure is checked.
// Half of the threads live as long as the program, the other half for one phase.
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include "heap_worker.h"

namespace {

using namespace stress;

constexpr char kUsage[] =
    "usage: stress_heaps [--seed N] [--seconds N | --phases N] [--threads N] [--operations N]\n"
    "                    [--live-mib N] [--no-fork] [--no-glances]\n"
    "\n"
    "  --seconds N      stop at the first phase's end after N seconds (default 10)\n"
    "  --phases N       stop after N phases\n"
    "  --threads N      at once (default 4)\n"
    "  --operations N   of each thread in a phase (default 4000)\n"
    "  --live-mib N     bytes alive at once, about (default 128 MiB)\n"
    "  --no-fork        leave fork out\n"
    "  --no-glances     leave out readers that take no lock by design: the process's figures "
    "where\n"
    "                   a heap is unsynchronised, walks of the default heap while it is in use\n";

// shares of making and freeing, of 100; sizes; one in so many operations ends a heap.
constexpr Phase kPhases[] = {
    {"build", 0, 90, 5, 8, 400, 2'000},          {"steady", 0, 60, 40, 8, 400, 500},
    {"other sizes", 0, 70, 40, 500, 3'000, 500}, {"large", 0, 40, 50, 20'000, 200'000, 1'000},
    {"shrink", 0, 5, 75, 8, 400, 2'000},         {"few", 0, 2, 97, 8, 64, 2'000},
    {"heaps", 0, 70, 30, 8, 4'000, 20},          {"idle", 0, 0, 0, 8, 8, 1'000'000},
};
constexpr size_t kPhaseCount = sizeof kPhases / sizeof *kPhases;

struct HeapsOptions {
  uint64_t seed = 0, seconds = 0, phases = 0, threads = 4, operations = 4'000, live_mib = 128;
  bool forks = true, glances = true;
};

[[noreturn]] void usage_error(const char* problem, const char* what) {
  fprintf(stderr, "stress_heaps: %s '%s'\n%s", problem, what, kUsage);
  exit(2);
}

HeapsOptions parse_heaps_options(int argc, char** argv) {
  HeapsOptions options;
  const struct {
    const char* name;
    uint64_t* value;
  } numbers[] = {{"--seed", &options.seed},         {"--seconds", &options.seconds},
                 {"--phases", &options.phases},     {"--threads", &options.threads},
                 {"--live-mib", &options.live_mib}, {"--operations", &options.operations}};
  for (int i = 1; i < argc; i++) {
    bool known = false;
    for (const auto& entry : numbers) {
      if (strcmp(argv[i], entry.name) != 0) continue;
      known = true;
      char* end = nullptr;
      errno = 0;
      const char* text = i + 1 < argc ? argv[++i] : "";
      *entry.value = strtoull(text, &end, 10);
      if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || *entry.value == 0)
        usage_error("a number above 0 must follow", entry.name);
    }
    if (known) continue;
    if (strcmp(argv[i], "--no-fork") == 0) {
      options.forks = false;
    } else if (strcmp(argv[i], "--no-glances") == 0) {
      options.glances = false;
    } else {
      usage_error("unknown option", argv[i]);
    }
  }
  if (options.seconds != 0 && options.phases != 0) usage_error("give --seconds or", "--phases");
  if (options.seconds == 0 && options.phases == 0) options.seconds = 10;
  if (options.threads > 64) usage_error("at most 64 for", "--threads");
  return options;
}

uint64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

template <typename Item>
Item* map_items(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(Item), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "stress_heaps: cannot map the model: %s\n", strerror(errno));
    exit(3);
  }
  auto* items = static_cast<Item*>(memory);
  for (size_t i = 0; i < count; i++) new (items + i) Item();
  return items;
}

// A thread, which takes one worker after another: `wanted` starts the next phase.
struct Lane {
  HeapsShared* shared = nullptr;
  uint64_t worker = 0;
  bool lasting = false;
  bool alive = false;
  bool ends = false;
  pthread_t thread{};
  sem_t wanted, done;
};

void* live(void* argument) {
  Lane& lane = *static_cast<Lane*>(argument);
  for (;;) {
    while (sem_wait(&lane.wanted) != 0) {
    }
    if (lane.ends) return nullptr;
    HeapWorker(*lane.shared, lane.worker).run();
    const bool last = !lane.lasting;
    sem_post(&lane.done);
    if (last) return nullptr;
  }
}

class Controller {
 public:
  Controller(HeapsShared& shared, const HeapsOptions& options)
      : shared_(shared),
        options_(options),
        lanes_(map_items<Lane>(options.threads)),
        random_(shared.seed) {
    for (uint64_t i = 0; i < options.threads; i++) {
      lanes_[i].shared = &shared;
      lanes_[i].lasting = i % 2 == 0;
      sem_init(&lanes_[i].wanted, 0, 0);
      sem_init(&lanes_[i].done, 0, 0);
    }
  }

  void run_phase(const Phase& phase) {
    shared_.phase = phase;
    shared_.phase.operations = options_.operations;
    if (phase.making + phase.freeing == 0) {
      rest();
    } else {
      for (uint64_t i = 0; i < options_.threads; i++) start(lanes_[i]);
      for (uint64_t i = 0; i < options_.threads; i++) wait_for(lanes_[i]);
    }
    HeapWorker checker(shared_, next_worker_++);
    checker.check_everything();
    give_back(checker);
  }

  void end() {
    for (uint64_t i = 0; i < options_.threads; i++) {
      if (!lanes_[i].alive) continue;
      lanes_[i].ends = true;
      sem_post(&lanes_[i].wanted);
      pthread_join(lanes_[i].thread, nullptr);
    }
  }

 private:
  void start(Lane& lane) {
    lane.worker = next_worker_++;
    if (!lane.alive) {
      const int error = pthread_create(&lane.thread, nullptr, &live, &lane);
      if (error != 0) {
        fprintf(stderr, "stress_heaps: cannot start a thread: %s\n", strerror(error));
        exit(3);
      }
      lane.alive = true;
    }
    sem_post(&lane.wanted);
  }

  void wait_for(Lane& lane) {
    timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 240;
    while (sem_timedwait(&lane.done, &limit) != 0) {
      if (errno == EINTR) continue;
      fprintf(stderr,
              "stress_heaps: FAILED: a phase (%s) did not end in 240 s: deadlock? (seed %llu)\n",
              shared_.phase.name, static_cast<unsigned long long>(shared_.seed));
      abort();
    }
    if (lane.lasting) return;
    pthread_join(lane.thread, nullptr);
    lane.alive = false;
  }

  // Longer than freed pages wait for their next user. The calls after the pause do the purging.
  static void rest() {
    const timespec pause = {0, 150'000'000};
    nanosleep(&pause, nullptr);
    for (int i = 0; i < 2'000; i++) loam_free(loam_default(), loam_alloc(loam_default(), 40'000));
  }

  // The calls that a program may make between its phases. The threads stand still with full caches.
  void give_back(HeapWorker& checker) {
    switch (random_.below(6)) {
      case 0:
        malloc_trim(0);
        break;
      case 1:
        static_cast<void>(loam_trim(nullptr));
        break;
      case 2:
        for (Place& place : shared_.places) {
          if (place.heap != nullptr) static_cast<void>(loam_compact(place.heap, nullptr));
        }
        break;
      case 3:
        checker.end_heaps();
        break;
      default:
        return;
    }
    checker.check_everything();
  }

  HeapsShared& shared_;
  const HeapsOptions& options_;
  Lane* lanes_;
  Random random_;
  uint64_t next_worker_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  const HeapsOptions options = parse_heaps_options(argc, argv);
  HeapsShared& shared = *map_items<HeapsShared>(1);
  const uint64_t started = now_ns();
  shared.seed = options.seed != 0 ? options.seed : mix(started) >> 16;
  shared.live_limit = options.live_mib << 20;
  shared.forks = options.forks;
  shared.glances = options.glances;
  shared.places[0].heap = loam_default();
  printf("stress_heaps: seed %llu\n", static_cast<unsigned long long>(shared.seed));
  fflush(stdout);

  Controller controller(shared, options);
  Random random(shared.seed);
  uint64_t phases = 0;
  while (options.phases != 0 ? phases < options.phases
                             : now_ns() - started < options.seconds * 1'000'000'000) {
    // The first round runs the phases in order, so that even a short run has all of them.
    controller.run_phase(kPhases[phases < kPhaseCount ? phases : random.below(kPhaseCount)]);
    phases++;
  }
  controller.end();
  HeapWorker last(shared, 0);
  last.free_blocks();
  last.end_heaps();
  last.check_everything();
  if (shared.live_bytes != 0) last.fail("bytes are live after the last free");
  printf(
      "stress_heaps: passed; %llu phases, %llu visits in %.1f s, %llu heaps made, %llu ended, %llu "
      "walks, "
      "%llu forks, %llu refusals\n",
      static_cast<unsigned long long>(phases),
      static_cast<unsigned long long>(shared.operations.load()),
      static_cast<double>(now_ns() - started) / 1e9,
      static_cast<unsigned long long>(shared.created.load()),
      static_cast<unsigned long long>(shared.destroyed.load()),
      static_cast<unsigned long long>(shared.walks.load()),
      static_cast<unsigned long long>(shared.forked.load()),
      static_cast<unsigned long long>(shared.refusals.load()));
  return 0;
}
