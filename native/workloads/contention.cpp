// contention: counts how often threads collide on the heap's lock (article 002).
//
// Article: "Heap Performance Counters" (2011). It ran the low-fragmentation-heap analysis (`lfh`)
// with two threads at once, and read the heap-lock-contention counter: 15 collisions a second on
// the default heap, and half of that with the low-fragmentation heap. "Windows via C/C++" advises a
// heap of its own for a class that allocates much, behind the class's operator new and delete.
//
// Here 1, 2, all cores' and twice as many threads run, each with its share of the slots, in three
// arrangements (series). "shared" is one heap. "per-thread" is a private heap for each thread.
// "per-class" is a private heap for each of the nine sizes, which all threads use through a class's
// operator new and delete. The latter two run only where the allocator has private heaps
// (harness/private_heap.h).
//
// Parameters: --iterations (in all, of each series and thread count; a quarter as many come before,
// unmeasured, to fill the slots), --threads (one count only; 0: the counts above), --arrangement.
//
// Measured: operations per second; collisions per second from the allocator's counters, or
// otherwise from voluntary context switches of the threads (harness/lock_counter.h;
// "collisions_source" says which).
#include <algorithm>
#include <utility>

#include "harness/lock_counter.h"
#include "harness/private_heap.h"
#include "harness/recorder.h"
#include "harness/threads.h"
#include "slots.h"

namespace {

using namespace lab;

// A class with a heap of its own, as the book has it. One for each size of slot.
template <size_t kIndex>
struct Item {
  static inline PrivateHeap heap;
  static void* operator new(size_t bytes) { return heap.allocate(bytes); }
  static void operator delete(void* p) { heap.free(p); }
  char contents[kSlotSizes[kIndex].bytes];
};

// Dispatches a slot's size to its class.
struct PerClassHeap {
  template <size_t... kIndex>
  static void* make(uint32_t bytes, std::index_sequence<kIndex...>) {
    void* p = nullptr;
    (void)((bytes == kSlotSizes[kIndex].bytes && (p = new Item<kIndex>, true)) || ...);
    return p;
  }
  template <size_t... kIndex>
  static void drop(void* p, uint32_t bytes, std::index_sequence<kIndex...>) {
    (void)((bytes == kSlotSizes[kIndex].bytes && (delete static_cast<Item<kIndex>*>(p), true)) ||
           ...);
  }
  using All = std::make_index_sequence<std::size(kSlotSizes)>;
  template <size_t... kIndex>
  static void create(std::index_sequence<kIndex...>) {
    (Item<kIndex>::heap.create(), ...);
  }
  template <size_t... kIndex>
  static void destroy(std::index_sequence<kIndex...>) {
    (Item<kIndex>::heap.destroy(), ...);
  }

  void* allocate(uint32_t bytes) { return make(bytes, All()); }
  void free(void* p, uint32_t bytes) { drop(p, bytes, All()); }
};

struct PerThreadHeap {
  PrivateHeap* heap;
  void* allocate(uint32_t bytes) { return heap->allocate(bytes); }
  void free(void* p, uint32_t) { heap->free(p); }
};

template <typename Heap>
struct Worker {
  Slots<Heap>* slots;
  Barrier* barrier;
  PrivateHeap* own;  // of this thread, which makes and destroys it; null if there is none
  uint64_t warm_up, steps;
  uint64_t switches;
};

template <typename Heap>
void work(Worker<Heap>& w) {
  if (w.own) w.own->create();
  w.slots->run(w.warm_up);
  w.slots->sampler().histogram().clear();
  w.barrier->wait();  // main reads its figures
  w.barrier->wait();
  const uint64_t switches = thread_switches();
  w.slots->run(w.steps);
  w.switches = thread_switches() - switches;  // before the barrier's own sleep
  w.barrier->wait();
  w.barrier->wait();
  if (w.own) {
    w.own->destroy();  // its remaining blocks go with it
  } else {
    w.slots->free_all();
  }
}

class Contention {
 public:
  Contention(Recorder& recorder, const LockCounter& counter, uint64_t seed, uint64_t iterations,
             unsigned most_threads)
      : recorder_(recorder),
        counter_(counter),
        seed_(seed),
        iterations_(iterations),
        scratch_(Slots<>::scratch_bytes(100, most_threads) + most_threads * kThreadScratch) {}

  template <typename Heap>
  void run(std::string_view arrangement, std::string_view variant, unsigned threads) {
    scratch_.rewind();
    auto* slots = scratch_.take<Slots<Heap>>(threads);
    auto* workers = scratch_.take<Worker<Heap>>(threads);
    auto* handles = scratch_.take<pthread_t>(threads);
    auto* heaps = scratch_.take<PrivateHeap>(threads);
    static_assert(sizeof *slots + sizeof *workers + sizeof *handles + sizeof *heaps + 4 * 64 <
                  kThreadScratch);
    Barrier barrier(threads + 1);
    constexpr bool kPerThread = std::is_same_v<Heap, PerThreadHeap>;
    if constexpr (std::is_same_v<Heap, PerClassHeap>) PerClassHeap::create(PerClassHeap::All());
    for (unsigned t = 0; t < threads; ++t) {
      new (&heaps[t]) PrivateHeap;
      Heap heap{};
      if constexpr (kPerThread) heap.heap = &heaps[t];
      new (&slots[t]) Slots<Heap>(scratch_, seed_, 100, t, threads, recorder_.sampler(), heap);
      workers[t] = {&slots[t],
                    &barrier,
                    kPerThread ? &heaps[t] : nullptr,
                    iterations_ / 4 / threads,
                    iterations_ / threads,
                    0};
      handles[t] = start_thread<Worker<Heap>, work<Heap>>(workers[t]);
    }
    barrier.wait();
    recorder_.restart_peak();
    const uint64_t before = counter_.counts() ? counter_.collisions() : 0;
    recorder_.resume();
    const uint64_t began = now_ns();
    barrier.wait();
    barrier.wait();
    const double seconds = static_cast<double>(now_ns() - began) * 1e-9;
    recorder_.pause();
    uint64_t live = 0, switches = 0, operations = 0;
    Checksum requests;
    for (unsigned t = 0; t < threads; ++t) {
      live += slots[t].live_bytes();
      switches += workers[t].switches;
      operations += workers[t].steps;
      requests.add(slots[t].checksum());
      recorder_.take(slots[t].sampler());
    }
    const uint64_t collisions = counter_.counts() ? counter_.collisions() - before : switches;
    recorder_
        .checkpoint({.variant = variant,
                     .series = arrangement,
                     .index = index_++,
                     .x = threads,
                     .x_unit = "threads",
                     .operations = operations,
                     .live_bytes = live})
        .add("threads", threads)
        .add("collisions", collisions)
        .add("collisions_per_second", static_cast<double>(collisions) / seconds)
        .add("context_switches", switches);
    barrier.wait();
    for (unsigned t = 0; t < threads; ++t) join_thread(handles[t]);
    if constexpr (std::is_same_v<Heap, PerClassHeap>) PerClassHeap::destroy(PerClassHeap::All());
    // Every arrangement makes the same requests; the allocator decides which arrangements there
    // are.
    if (threads == last_threads_ && requests.value() != last_requests_) {
      fail(kExitFailed, "contention: two arrangements saw different requests");
    }
    if (threads != last_threads_) checksum_.add(requests.value());
    last_threads_ = threads;
    last_requests_ = requests.value();
  }

  uint64_t checksum() const { return checksum_.value(); }

 private:
  Recorder& recorder_;
  const LockCounter& counter_;
  uint64_t seed_, iterations_;
  static constexpr size_t kThreadScratch = 16 * 1024;
  Scratch scratch_;
  uint64_t index_ = 0;
  Checksum checksum_;
  unsigned last_threads_ = 0;
  uint64_t last_requests_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("contention", "collisions on the heap's locks, by threads and by arrangement",
                 argc, argv);
  const uint64_t iterations = args.number("iterations", 2'000'000, 25'600'000, 1'024,
                                          100'000'000'000, "of a series, divided among threads");
  const auto only = static_cast<unsigned>(args.number(
      "threads", 0, 0, 0, kMostThreads, "this many only; 0: 1, 2, the cores, twice the cores"));
  const auto arrangement = args.choice("arrangement", {"all", "shared", "per-thread", "per-class"},
                                       "whose heap is used");
  args.done();

  const LockCounter counter;
  const std::string_view provider = PrivateHeap::provider();
  Recorder recorder(args);
  const unsigned cores = core_count();
  unsigned counts[] = {1, 2, std::min(cores, kMostThreads), std::min(2 * cores, kMostThreads)};
  std::sort(std::begin(counts), std::end(counts));
  const auto* last = std::unique(std::begin(counts), std::end(counts));
  if (only) {
    counts[0] = only;
    last = counts + 1;
  }
  Contention contention(recorder, counter, args.seed(), iterations, last[-1]);
  recorder.start()
      .add("collisions_source", counter.source())
      .add("private_heaps", provider.empty() ? "none" : provider);

  const auto wanted = [&](std::string_view a) { return arrangement == "all" || arrangement == a; };
  for (const unsigned* n = counts; n != last; ++n) {
    if (wanted("shared")) contention.run<SharedHeap>("shared", "malloc", *n);
    if (wanted("per-thread") && !provider.empty()) {
      contention.run<PerThreadHeap>("per-thread", provider, *n);
    }
    if (wanted("per-class") && !provider.empty() && PrivateHeap::any_thread()) {
      contention.run<PerClassHeap>("per-class", provider, *n);
    }
  }
  recorder.finish().hex("checksum", contention.checksum());
}
