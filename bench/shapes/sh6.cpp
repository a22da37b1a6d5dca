// sh6: mixed sizes, mixed lifetimes, frees in both orders.
//
// After the published facts about MicroQuill's sh6bench (SmartHeap). Of blocks of many sizes some
// are freed last first, as usual, some in the order of allocation, and some stay. lifetimes.h has
// the exact pattern. Threads share nothing; sh8 is the variant in which they do.
//
// Parameters: --threads, --least, --most (bytes), --count (blocks of a size step), --passes a
// round, --rounds.
#include "shapes/lifetimes.h"

int main(int argc, char** argv) {
  using namespace bench;
  Arguments args("sh6", "mixed sizes and lifetimes, frees in both orders", argc, argv);
  const auto threads =
      static_cast<unsigned>(args.number("threads", 2, 2, 1, kMostThreads, "threads"));
  const auto least = static_cast<uint32_t>(args.bytes("least", 8, 8, 1, 1 << 24, "smallest size"));
  const auto most =
      static_cast<uint32_t>(args.bytes("most", 1000, 1000, 1, 1 << 24, "largest size step"));
  const auto count = static_cast<uint32_t>(
      args.number("count", 3000, 3000, 3, 1'000'000, "blocks of each size step"));
  const uint64_t passes = args.number("passes", 10, 50, 1, 100'000, "passes in a round");
  const uint64_t rounds = args.number("rounds", 4, 10, 1, 100'000, "rounds");
  args.done();
  if (least > most) fail(kExitUsage, "sh6: --least must not be above --most");

  Report report(args);
  Table<Tally> tallies(threads);
  Table<Lifetimes> lives(threads);
  for (unsigned t = 0; t < threads; ++t) {
    tallies[t] = Tally();
    new (&lives[t]) Lifetimes(stream(args.seed(), t), least, most, count, tallies[t]);
  }
  Crew crew(threads, [&](unsigned me) {
    Lifetimes& mine = lives[me];
    for (uint64_t p = 0; p < passes; ++p) {
      mine.pass([&](Stack& blocks) {
        for (size_t i = 0; i < blocks.size(); ++i) mine.free(blocks[i]);
        blocks.clear();
      });
    }
  });
  report.start();
  for (uint64_t round = 0; round < rounds; ++round) {
    report.begin();
    crew.phase();
    report.round(round, take_operations(tallies), live_bytes(tallies));
  }
  report.begin();
  uint64_t freed = 0;
  for (auto& l : lives) freed += l.free_all();
  crew.end();
  report.finish(freed, checksum(tallies));
}
