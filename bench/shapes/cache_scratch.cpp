// cache_scratch: does the allocator put two threads' small blocks on one cache line?
//
// After the two false-sharing tests of Berger et al., "Hoard: A Scalable Memory Allocator for
// Multithreaded Applications" (ASPLOS 2000), written from the description. Active: each thread
// allocates a small block, writes it many times, and frees it, again and again. If the heap serves
// neighbouring threads from one line, the line travels. Passive: the main thread allocates the
// first blocks side by side and gives one to each thread, which frees it. If the heap then hands
// the piece back to that thread, it has spread the sharing.
//
// Parameters: --mode, --threads, --size, --blocks (a thread and round), --writes (a block),
//   --rounds. An operation is one block with all its writes.
#include "shapes/shape.h"

namespace {

using namespace bench;

void scratch(void* block, size_t bytes, uint64_t writes) {
  auto* bytes_of = static_cast<volatile unsigned char*>(block);
  for (uint64_t w = 0; w < writes; ++w) {
    for (size_t i = 0; i < bytes; ++i) bytes_of[i] = static_cast<unsigned char>(bytes_of[i] + 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("cache_scratch", "false sharing that the allocator causes", argc, argv);
  const auto mode = args.choice("mode", {"passive", "active"}, "who allocates the first blocks");
  const auto threads =
      static_cast<unsigned>(args.number("threads", 2, 2, 1, kMostThreads, "threads"));
  const uint64_t size = args.bytes("size", 8, 8, 1, 1 << 20, "bytes of a block");
  const uint64_t blocks =
      args.number("blocks", 2'000, 10'000, 1, 1'000'000'000, "blocks of a thread in a round");
  const uint64_t writes = args.number("writes", 500, 500, 1, 1'000'000, "passes over each block");
  const uint64_t rounds = args.number("rounds", 4, 10, 1, 100'000, "rounds");
  args.done();
  const bool passive = mode == "passive";

  Report report(args);
  Table<Tally> tallies(threads);
  Table<void*> gifts(threads);
  for (auto& t : tallies) t = Tally();
  Crew crew(threads, [&](unsigned me) {
    if (gifts[me]) {
      scratch(gifts[me], size, writes);
      std::free(gifts[me]);
    }
    for (uint64_t i = 0; i < blocks; ++i) {
      void* block = must(std::malloc(size), size);
      scratch(block, size, writes);
      std::free(block);
    }
    tallies[me].operations += blocks;
  });
  report.start();
  for (uint64_t round = 0; round < rounds; ++round) {
    report.begin();
    if (passive) {
      for (auto& gift : gifts) gift = must(std::malloc(size), size);
    }
    crew.phase();
    report.round(round, take_operations(tallies), 0);
  }
  report.begin();
  crew.end();
  report.finish(0, 0);
}
