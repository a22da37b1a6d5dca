// coherence ALLOCATOR.so WORKLOAD THREADS: what a pair of malloc and free makes cores exchange.
//
// The allocator's own code runs, compiled so that every access calls the model (model.h).
// Workloads:
//
//   small      64 blocks of 64 bytes, freed in the order in which they came
//   mixed      random blocks of 16 B to 2 KiB in 1,000 slots of the thread's own
//   large      the same of 16 to 256 KiB in 64 slots
//   hand-over  every thread frees the blocks of its neighbour, in bursts of 64
//   private    as mixed, in one private heap of Loam for all threads
//
// The program writes a word of each new block, and reads it again before the free. It has counts of
// its own. Its tables and mailboxes are not in the model. --warm pairs are not counted.
//
// The output is a JSON object a line: the counts, and the places of code with the most traffic.
#include <dlfcn.h>
#include <sched.h>
#include <sys/personality.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "directory.h"
#include "harness/arguments.h"
#include "loam/loam.h"
#include "loam/stats.h"
#include "model.h"

namespace {

using namespace cores;
using Stats = struct loam_stats;  // the tag is needed because a function has the same name

struct Allocator {
  explicit Allocator(const char* path) : library(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library == nullptr) lab::fail(2, "coherence: ", dlerror());
    find(malloc_, "malloc");
    find(free_, "free");
    find(stats_, "loam_stats");
  }
  void use_private_heap() {
    loam_heap* (*create)(const loam_heap_options*) = nullptr;
    find(create, "loam_heap_create");
    find(private_malloc_, "loam_alloc");
    find(private_free_, "loam_free");
    if (create == nullptr) lab::fail(2, "coherence: only Loam has private heaps");
    heap_ = create(nullptr);
  }
  void* take(size_t size) const {
    void* const block = heap_ != nullptr ? private_malloc_(heap_, size) : malloc_(size);
    if (block == nullptr) lab::fail(2, "coherence: the allocator returned null");
    Model::touch(block, true);
    return block;
  }
  void give(void* block) const {
    if (block == nullptr) return;
    Model::touch(block, false);
    if (heap_ != nullptr) {
      (void)private_free_(heap_, block);
    } else {
      free_(block);
    }
  }
  Stats stats() const {
    Stats s{};
    s.size = sizeof s;
    if (stats_ != nullptr) (void)stats_(nullptr, &s);
    return s;
  }

 private:
  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }
  void* library;
  void* (*malloc_)(size_t) = nullptr;
  void (*free_)(void*) = nullptr;
  loam_status (*stats_)(loam_heap*, Stats*) = nullptr;
  void* (*private_malloc_)(loam_heap*, size_t) = nullptr;
  loam_status (*private_free_)(loam_heap*, void*) = nullptr;
  loam_heap* heap_ = nullptr;
};

constexpr size_t kBurst = 64;
struct Seat {
  void* slots[1000];
  lab::Random random{0};
  void* mailbox[kBurst];
  uint32_t full = 0;  // the mailbox: 1 full, 0 empty
};

class Run {
 public:
  Run(Allocator& allocator, std::string_view workload, unsigned threads, uint64_t seed,
      Scheduler& scheduler)
      : allocator_(allocator),
        workload_(workload),
        threads_(threads),
        seats_(std::make_unique<Seat[]>(threads)),
        scheduler_(scheduler) {
    for (unsigned i = 0; i < threads; ++i) seats_[i].random = lab::stream(seed, i);
  }

  void work(unsigned me, uint64_t pairs) {
    if (workload_ == "small") return bursts(me, pairs);
    if (workload_ == "large") return churn(me, pairs, 16 << 10, 240 << 10, 64);
    if (workload_ == "hand-over") return hand_over(me, pairs);
    churn(me, pairs, 16, 2032, 1000);
  }

 private:
  void bursts(unsigned me, uint64_t pairs) {
    void** const slots = seats_[me].slots;
    for (uint64_t done = 0; done < pairs; done += kBurst) {
      for (size_t i = 0; i < kBurst; ++i) slots[i] = allocator_.take(64);
      for (size_t i = 0; i < kBurst; ++i) allocator_.give(slots[i]);
    }
    std::fill_n(slots, kBurst, nullptr);
  }

  void churn(unsigned me, uint64_t pairs, size_t least, uint32_t spread, uint32_t live) {
    Seat& seat = seats_[me];
    for (uint64_t done = 0; done < pairs; ++done) {
      void*& slot = seat.slots[seat.random.below(live)];
      allocator_.give(slot);
      slot = allocator_.take(least + seat.random.below(spread));
    }
  }

  void hand_over(unsigned me, uint64_t pairs) {
    Seat &out = seats_[me], &in = seats_[(me + 1) % threads_];
    for (uint64_t done = 0; done < pairs; done += kBurst) {
      wait(me, out.full, 0);
      for (void*& block : out.mailbox) block = allocator_.take(16 + out.random.below(496));
      out.full = 1;
      wait(me, in.full, 1);
      for (void* block : in.mailbox) allocator_.give(block);
      in.full = 0;
    }
  }
  void wait(unsigned me, const uint32_t& word, uint32_t wanted) {
    while (word != wanted) scheduler_.wait_while_equal(me, &word, 1 - wanted);
  }

  Allocator& allocator_;
  std::string_view workload_;
  unsigned threads_;
  std::unique_ptr<Seat[]> seats_;
  Scheduler& scheduler_;
};

// Each run has the same addresses and one real core. The thread that gets the baton runs there.
void be_repeatable(char** argv) {
  const int now = personality(0xffffffff);
  if ((now & ADDR_NO_RANDOMIZE) == 0 && personality(now | ADDR_NO_RANDOMIZE) != -1) {
    execv("/proc/self/exe", argv);
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  sched_setaffinity(0, sizeof one, &one);
}

void print_traffic(const char* name, const Traffic& t) {
  printf(", \"%s\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", name, t.read_moved, t.write_moved,
         t.invalidated);
}

}  // namespace

int main(int argc, char** argv) {
  be_repeatable(argv);
  lab::Arguments args("coherence", "what a pair of malloc and free makes cores exchange", argc,
                      argv);
  const std::string_view library = args.text("allocator", "", "an instrumented allocator's object");
  const std::string_view workload = args.choice(
      "workload", {"small", "mixed", "large", "hand-over", "private"}, "what threads do");
  const auto threads = static_cast<unsigned>(args.number("threads", 2, 2, 1, kMostCores, "cores"));
  const uint64_t warm =
      args.number("warm", 16384, 16384, 0, 1'000'000'000, "pairs a thread before");
  const uint64_t pairs = args.number("pairs", 4096, 4096, 64, 1'000'000'000, "pairs a thread");
  const auto quantum = static_cast<unsigned>(
      args.number("quantum", 32, 32, 1, 1'000'000, "mean accesses of a thread in one go"));
  const uint64_t shown = args.number("places", 0, 0, 0, 1000, "places of code to print");
  args.done();

  Allocator allocator(library.data());
  if (workload == "private") allocator.use_private_heap();
  allocator.give(allocator.take(1));  // work that is done once precedes the threads
  Scheduler scheduler(threads, quantum, args.seed());
  Run run(allocator, workload, threads, args.seed(), scheduler);
  Stats before{}, again{}, after{};
  // Loam's own counts are read outside the model, because the model would count the reader as a
  // core.
  const auto mark = [&](unsigned me, Stats& stats, bool counting) {
    Model::leave();
    stats = allocator.stats();
    Model::join(me);
    Model::count(counting);
  };
  Model::begin(scheduler);
  scheduler.run(
      [&](unsigned me) {
        Model::join(me);
        run.work(me, warm);
        scheduler.meet(me, [&] {
          mark(me, before, false);
          mark(me, again, true);
        });
        run.work(me, pairs);
        scheduler.meet(me, [&] { mark(me, after, false); });
      },
      Model::leave);

  const Counts c = Model::counts();
  printf("{\"pairs\": %" PRIu64 ", \"accesses\": %" PRIu64 ", \"changes\": %" PRIu64
         ", \"failed_changes\": %" PRIu64 ", \"sections\": %" PRIu64 ", \"collisions\": %" PRIu64
         ", \"waits\": %" PRIu64,
         threads * pairs, c.accesses, c.changes, c.failed_changes, c.sections, c.collisions,
         c.waits);
  print_traffic("allocator", c.allocator);
  print_traffic("program", c.program);
  if (before.lock_acquisitions != 0) {  // each look takes some locks
    const uint64_t of_look = again.lock_acquisitions - before.lock_acquisitions;
    printf(", \"own_sections\": %" PRIu64,
           after.lock_acquisitions - again.lock_acquisitions - of_look);
  }
  printf(", \"places\": [");
  uint64_t number = 0;
  for (const Place& place : Model::places()) {
    if (number == shown) break;
    Dl_info where{};
    dladdr(reinterpret_cast<void*>(place.code), &where);
    printf("%s{\"offset\": \"%" PRIxPTR "\"", number++ != 0 ? ", " : "",
           place.code - reinterpret_cast<uintptr_t>(where.dli_fbase));
    print_traffic("traffic", place.traffic);
    printf(", \"sections\": %" PRIu64 ", \"collisions\": %" PRIu64 "}", place.sections,
           place.collisions);
  }
  printf("]}\n");
  return 0;
}
