// larson: a server whose threads pass their objects on.
//
// After Larson and Krishnan, "Memory Allocation for Long-Running Server Applications" (ISMM 1998),
// written from the description. Each thread owns an array of blocks and replaces random ones by
// blocks of random size. After a while it ends, and a new thread inherits the array. So threads
// free blocks that they did not allocate, and whose threads ended long ago ("bleeding").
//
// Parameters: --threads at once, --slots a thread, --least and --most bytes, --operations
// (replacements a thread and generation), --generations a round, --rounds.
//
// Unlike the original it runs a fixed number of replacements, not a fixed time. Thread t of
// generation g inherits from thread t + 1 of the generation before.
#include "shapes/shape.h"

namespace {

using namespace bench;

struct Slot {
  void* block;
  uint32_t bytes;
};

struct Server {
  Slot* slots;
  uint32_t slot_count, least, most;
  uint64_t operations;
  Random random{0};
  Tally* tally;

  void replace(Slot& slot) {
    std::free(slot.block);
    tally->live_bytes -= slot.bytes;
    slot.bytes = random.between(least, most);
    slot.block = must(std::malloc(slot.bytes), slot.bytes);
    tally->live_bytes += slot.bytes;
    tally->checksum.add(slot.bytes);
    touch(slot.block, slot.bytes);
  }
};

void serve(Server& s) {
  for (uint64_t i = 0; i < s.operations; ++i) s.replace(s.slots[s.random.below(s.slot_count)]);
  s.tally->operations += s.operations;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("larson", "a server: random replacement, threads end and pass their blocks on",
                 argc, argv);
  const auto threads =
      static_cast<unsigned>(args.number("threads", 2, 2, 1, kMostThreads, "threads at once"));
  const auto slots = static_cast<uint32_t>(
      args.number("slots", 5000, 5000, 1, 100'000'000, "blocks that each thread holds"));
  const auto least = static_cast<uint32_t>(args.bytes("least", 8, 8, 1, 1 << 30, "smallest block"));
  const auto most =
      static_cast<uint32_t>(args.bytes("most", 1000, 1000, 1, 1 << 30, "largest block"));
  const uint64_t operations = args.number("operations", 50'000, 200'000, 1, 1'000'000'000,
                                          "replacements of a thread before it ends");
  const uint64_t generations =
      args.number("generations", 5, 10, 1, 100'000, "generations of threads a round");
  const uint64_t rounds = args.number("rounds", 4, 10, 1, 100'000, "rounds");
  args.done();
  if (least > most) fail(kExitUsage, "larson: --least must not be above --most");

  Report report(args);
  Table<Slot> all(size_t{slots} * threads);
  Table<Tally> tallies(threads);
  Table<Server> servers(threads);
  Table<pthread_t> handles(threads);
  for (auto& t : tallies) t = Tally();
  report.start();
  uint64_t generation = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    report.begin();
    for (uint64_t g = 0; g < generations; ++g, ++generation) {
      for (unsigned t = 0; t < threads; ++t) {
        const size_t inherited = (t + generation) % threads;
        servers[t] = {&all[inherited * slots],
                      slots,
                      least,
                      most,
                      operations,
                      stream(args.seed(), generation * threads + t),
                      &tallies[t]};
        handles[t] = start_thread<Server, serve>(servers[t]);
      }
      for (auto& h : handles) join_thread(h);
    }
    report.round(round, take_operations(tallies), live_bytes(tallies));
  }
  report.begin();
  uint64_t freed = 0;
  for (auto& slot : all) {
    freed += slot.block != nullptr;
    std::free(slot.block);
  }
  report.finish(freed, checksum(tallies));
}
