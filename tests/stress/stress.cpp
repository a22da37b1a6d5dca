// stress: random load on the preloaded malloc, checked against a reference model.
//
// Workers pick slots of a shared table at random and make, resize or free the block in them, so
// that blocks cross threads. Each block holds a pattern of its own and is verified before it is
// resized or freed. Workers end and are replaced, processes fork, memory is trimmed. The first
// difference from the model ends the program, with the seed that repeats it.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "options.h"
#include "random.h"
#include "shared.h"
#include "worker.h"

namespace {

using namespace stress;

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr time_t kStuckSeconds = 120;

[[noreturn]] void give_up(const char* what, int error) {
  fprintf(stderr, "stress: %s: %s\n", what, strerror(error));
  exit(3);
}

template <typename Item>
Item* map_items(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(Item), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) give_up("cannot map the model", errno);
  auto* items = static_cast<Item*>(memory);
  for (size_t i = 0; i < count; i++) new (items + i) Item();
  return items;
}

// One of the threads that are alive at once; its worker changes.
struct Lane {
  Shared* shared = nullptr;
  pthread_t thread{};
  bool alive = false;
  std::atomic<bool> ended{false};
  uint64_t worker = 0;
  uint64_t operations = 0;
};

void* run_lane(void* argument) {
  auto& lane = *static_cast<Lane*>(argument);
  Worker worker(*lane.shared, lane.worker);
  worker.run(lane.operations);
  lane.ended.store(true, std::memory_order_release);
  sem_post(&lane.shared->finished);
  return nullptr;
}

// A crash inside the heap must also print the seed that repeats it.
void on_fatal_signal(int number) {
  char text[200];
  const Worker* worker = current_worker();
  const int length =
      worker == nullptr
          ? snprintf(text, sizeof(text), "stress: signal %d outside the workers\n", number)
          : snprintf(text, sizeof(text),
                     "stress: signal %d: seed %llu, worker %llu, operation %llu\n", number,
                     static_cast<unsigned long long>(worker->shared().options.seed),
                     static_cast<unsigned long long>(worker->number()),
                     static_cast<unsigned long long>(worker->done()));
  const ssize_t ignored = write(STDERR_FILENO, text, static_cast<size_t>(length));
  (void)ignored;
  raise(number);  // the default action, restored by SA_RESETHAND, follows
}

void catch_fatal_signals() {
  struct sigaction action = {};
  action.sa_handler = &on_fatal_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    sigaction(number, &action, nullptr);
  }
}

class Controller {
 public:
  explicit Controller(Shared& shared)
      : shared_(shared),
        random_(shared.options.seed),
        lanes_(map_items<Lane>(shared.options.threads)),
        left_(shared.options.operations != 0 ? shared.options.operations : ~uint64_t{0}) {
    pthread_attr_init(&attributes_);
    pthread_attr_setstacksize(&attributes_, kStackBytes);
  }

  void run() {
    for (uint64_t i = 0; i < shared_.options.threads; i++) start(lanes_[i]);
    while (alive_ > 0) {
      wait_for_one();
      for (uint64_t i = 0; i < shared_.options.threads; i++) {
        Lane& lane = lanes_[i];
        if (!lane.alive || !lane.ended.load(std::memory_order_acquire)) continue;
        pthread_join(lane.thread, nullptr);
        lane.alive = false;
        alive_--;
        start(lane);
      }
    }
  }

  uint64_t workers() const { return next_worker_; }

 private:
  // Gives the lane its next worker, unless the work or the time is over. Most workers live long
  // enough to fill their caches; some hardly begin.
  void start(Lane& lane) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const bool late =
        shared_.deadline != 0 && now.tv_sec * 1'000'000'000 + now.tv_nsec > shared_.deadline;
    if (left_ == 0 || late) return;
    uint64_t life = random_.one_in(3) ? 1 + random_.below(200) : 2'000 + random_.below(40'000);
    if (life > left_) life = left_;
    left_ -= life;
    lane.shared = &shared_;
    lane.worker = next_worker_++;
    lane.operations = life;
    lane.ended = false;
    for (int attempt = 0;; attempt++) {
      const int error = pthread_create(&lane.thread, &attributes_, &run_lane, &lane);
      if (error == 0) break;
      // Under --limit-mib there may be no room for a stack until other threads have freed some
      // memory.
      if (attempt == 1'000 || shared_.options.limit_mib == 0) {
        give_up("cannot start a thread", error);
      }
      const timespec pause = {0, 10'000'000};
      nanosleep(&pause, nullptr);
    }
    lane.alive = true;
    alive_++;
  }

  void wait_for_one() {
    timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += kStuckSeconds;
    while (sem_timedwait(&shared_.finished, &limit) != 0) {
      if (errno == EINTR) continue;
      fprintf(stderr, "stress: FAILED: no worker ended in %lld s: deadlock? (seed %llu)\n",
              static_cast<long long>(kStuckSeconds),
              static_cast<unsigned long long>(shared_.options.seed));
      abort();
    }
  }

  Shared& shared_;
  Random random_;
  Lane* lanes_;
  uint64_t left_;
  uint64_t alive_ = 0;
  uint64_t next_worker_ = 1;
  pthread_attr_t attributes_;
};

// Starts the program again under the limit, as a shell's `ulimit -v` would. The heap must then work
// within it from its first mapping on.
void limit_address_space(uint64_t mib, char** argv) {
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  if (mib == 0 || limit.rlim_cur == mib << 20) return;
  limit = {mib << 20, mib << 20};
  if (setrlimit(RLIMIT_AS, &limit) != 0) give_up("cannot limit the address space", errno);
  execv("/proc/self/exe", argv);
  give_up("cannot start again under the limit", errno);
}

}  // namespace

int main(int argc, char** argv) {
  Shared& shared = *map_items<Shared>(1);
  shared.options = parse_options(argc, argv);
  limit_address_space(shared.options.limit_mib, argv);
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t started = now.tv_sec * 1'000'000'000 + now.tv_nsec;
  if (shared.options.seed == 0) shared.options.seed = mix(static_cast<uint64_t>(started)) >> 16;
  if (shared.options.seconds != 0) {
    shared.deadline = started + static_cast<int64_t>(shared.options.seconds) * 1'000'000'000;
  }
  const auto seed = static_cast<unsigned long long>(shared.options.seed);
  printf("stress: seed %llu\n", seed);
  fflush(stdout);

  shared.slots = map_items<Slot>(shared.options.slots);
  sem_init(&shared.finished, 0, 0);
  catch_fatal_signals();

  Controller controller(shared);
  controller.run();
  Worker(shared, 0).free_everything();
  if (shared.live_bytes != 0) {
    fprintf(stderr, "stress: FAILED: %lld bytes live after the last free (seed %llu)\n",
            static_cast<long long>(shared.live_bytes.load()), seed);
    return 1;
  }
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t ended = now.tv_sec * 1'000'000'000 + now.tv_nsec;
  printf(
      "stress: passed; %llu operations by %llu threads in %.1f s, %llu forks, %llu refusals, "
      "peak live %.1f MiB\nstress: digest %016llx\n",
      static_cast<unsigned long long>(shared.operations.load()),
      static_cast<unsigned long long>(controller.workers() - 1),
      static_cast<double>(ended - started) / 1e9,
      static_cast<unsigned long long>(shared.forks.load()),
      static_cast<unsigned long long>(shared.refusals.load()),
      static_cast<double>(shared.peak_live_bytes.load()) / (1 << 20),
      static_cast<unsigned long long>(shared.digest.load()));
  return 0;
}
