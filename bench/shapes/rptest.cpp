// rptest: scattered frees of a wide range of sizes, with lists handed to the next thread.
//
// After the published description of rpmalloc's benchmark (Jansson), own code. Each thread holds a
// table of blocks of random size. A loop frees and replaces a scattered share of the table. Every
// few loops it also allocates a list of blocks for the next thread, which frees it.
//
// A sender waits while its neighbour has kMostLists unread lists. So the blocks on their way are
// bounded, and live memory does not depend on the scheduler.
//
// Parameters: --threads, --table (blocks a thread holds), --scattered (replaced in a loop), --cross
// (loops from one list to the next; 0: no lists), --least and --most bytes, --shape of the sizes
// (linear: small more likely, in proportion; even: all equally likely), --loops a round, --rounds.
#include <sched.h>

#include <atomic>

#include "shapes/shape.h"

namespace {

using namespace bench;

// A block on its way to another thread: the link lives in the block.
struct Link {
  Link* next;
  uint32_t bytes;
};

struct Held {
  void* memory;
  uint32_t bytes;
};

// The place where lists for one thread arrive.
struct alignas(128) Inbox {
  std::atomic<Link*> blocks;
  std::atomic<uint32_t> lists;
};

constexpr uint32_t kMostLists = 4;

}  // namespace

int main(int argc, char** argv) {
  Arguments args("rptest", "scattered frees of a wide range of sizes, lists across threads", argc,
                 argv);
  const auto threads =
      static_cast<unsigned>(args.number("threads", 2, 2, 1, kMostThreads, "threads"));
  const auto table = static_cast<uint32_t>(
      args.number("table", 10'000, 10'000, 1, 100'000'000, "blocks that a thread holds"));
  const auto scattered = static_cast<uint32_t>(
      args.number("scattered", 1000, 1000, 1, 100'000'000, "blocks replaced in a loop"));
  const uint64_t cross = args.number("cross", 2, 2, 0, 1'000'000,
                                     "a list goes to the next thread every so many loops");
  const auto least =
      static_cast<uint32_t>(args.bytes("least", 16, 16, sizeof(Link), 1 << 30, "smallest block"));
  const auto most =
      static_cast<uint32_t>(args.bytes("most", 16'000, 16'000, 1, 1 << 30, "largest block"));
  const bool linear = args.choice("shape", {"linear", "even"}, "how sizes spread") == "linear";
  const uint64_t loops = args.number("loops", 50, 300, 1, 1'000'000'000, "loops in a round");
  const uint64_t rounds = args.number("rounds", 4, 10, 1, 100'000, "rounds");
  args.done();
  if (least > most) fail(kExitUsage, "rptest: --least must not be above --most");

  Report report(args);
  Table<Tally> tallies(threads);
  Table<Random> randoms(threads);
  Table<Held> held(size_t{table} * threads);
  Table<Inbox> inboxes(threads);
  for (unsigned t = 0; t < threads; ++t) {
    tallies[t] = Tally();
    randoms[t] = stream(args.seed(), t);
  }
  const auto pick_size = [&](Random& random) {
    const uint32_t a = random.between(least, most);
    if (!linear) return a;
    const uint32_t b = random.between(least, most);  // the minimum of two draws falls linearly
    return a < b ? a : b;
  };
  const auto allocate = [&](unsigned me) {
    const uint32_t bytes = pick_size(randoms[me]);
    void* memory = must(std::malloc(bytes), bytes);
    touch(memory, bytes);
    tallies[me].live_bytes += bytes;
    tallies[me].checksum.add(bytes);
    ++tallies[me].operations;
    return Held{memory, bytes};
  };
  const auto release = [&](unsigned me, void* memory, uint32_t bytes) {
    tallies[me].live_bytes -= bytes;
    std::free(memory);
  };
  const auto receive = [&](unsigned me) {
    uint64_t freed = 0;
    inboxes[me].lists.store(0, std::memory_order_relaxed);
    // acquire: pairs with the release in send
    Link* list = inboxes[me].blocks.exchange(nullptr, std::memory_order_acquire);
    for (; list; ++freed) {
      Link* next = list->next;
      release(me, list, list->bytes);
      list = next;
    }
    return freed;
  };
  const auto send = [&](unsigned me) {
    Inbox& to = inboxes[(me + 1) % threads];
    while (to.lists.load(std::memory_order_relaxed) >= kMostLists) {
      receive(me);  // the neighbour may be waiting for this thread in turn
      sched_yield();
    }
    Link *first = nullptr, *last = nullptr;
    for (uint32_t i = 0; i < scattered; ++i) {
      const Held block = allocate(me);
      auto* link = static_cast<Link*>(block.memory);
      *link = {first, block.bytes};
      if (!last) last = link;
      first = link;
    }
    last->next = to.blocks.load(std::memory_order_relaxed);
    while (!to.blocks.compare_exchange_weak(last->next, first, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
    to.lists.fetch_add(1, std::memory_order_relaxed);
  };
  std::atomic<unsigned> working{0};
  Crew crew(threads, [&](unsigned me) {
    Held* mine = &held[size_t{me} * table];
    for (uint64_t loop = 0; loop < loops; ++loop) {
      for (uint32_t i = 0; i < scattered; ++i) {
        Held& place = mine[randoms[me].below(table)];
        release(me, place.memory, place.bytes);
        place = allocate(me);
      }
      if (cross && loop % cross == 0) send(me);
      receive(me);
    }
    // A neighbour that still works may be waiting for room here.
    working.fetch_sub(1, std::memory_order_relaxed);
    while (working.load(std::memory_order_relaxed) != 0) {
      receive(me);
      sched_yield();
    }
  });
  report.start();
  for (uint64_t round = 0; round < rounds; ++round) {
    working.store(threads, std::memory_order_relaxed);
    report.begin();
    crew.phase();
    report.round(round, take_operations(tallies), live_bytes(tallies));
  }
  report.begin();
  uint64_t freed = 0;
  for (unsigned t = 0; t < threads; ++t) freed += receive(t);
  crew.end();
  for (auto& place : held) {
    freed += place.memory != nullptr;
    release(0, place.memory, place.bytes);
  }
  if (live_bytes(tallies) != 0) fail(kExitFailed, "rptest: a block was lost or freed twice");
  report.finish(freed, checksum(tallies));
}
