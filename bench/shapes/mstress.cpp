// mstress: threads build random graphs of blocks and pass them to each other.
//
// After the published description of mimalloc's stress test (Leijen, Zorn and de Moura, "Mimalloc:
// Free List Sharding in Action", MSR-TR-2019-18), own code. Each thread builds small trees of
// blocks of skewed sizes. It keeps some, frees some, and swaps others with a table that all threads
// share. The thread that holds a tree frees it whole. Sizes are mostly small; one in a hundred is
// some KiB, and one in 20,000 is up to 1 MiB.
//
// Parameters: --threads, --kept (trees a thread), --shared (trees in the common table), --steps a
// thread and round, --rounds. At the end of a round each thread frees half of its kept trees.
//
// The trees that a thread builds depend only on the seed; the trees that it gets by a swap depend
// on timing.
#include <atomic>

#include "shapes/shape.h"

namespace {

using namespace bench;

// A block of the graph: header, children, then payload up to `bytes`.
struct Node {
  uint32_t bytes;
  uint32_t children;
  Node* child[];
};

uint32_t skewed_size(Random& random) {
  const uint32_t pick = random.below(20'000);
  if (pick == 0) return random.between(64 << 10, 1 << 20);
  if (pick < 200) return random.between(1 << 10, 16 << 10);
  return random.between(16, 16 + (16u << random.below(5)));
}

// A tree of at most `budget` nodes; subtracts its nodes from the budget.
Node* build(Random& random, uint32_t& budget, Tally& tally) {
  --budget;
  const uint32_t wanted = budget == 0 ? 0 : random.below(5);
  const uint32_t bytes =
      static_cast<uint32_t>(sizeof(Node) + wanted * sizeof(Node*)) + skewed_size(random);
  auto* node = static_cast<Node*>(must(std::malloc(bytes), bytes));
  touch(node, bytes);
  *node = {bytes, 0};
  tally.live_bytes += bytes;
  tally.checksum.add(bytes);
  ++tally.operations;
  while (node->children < wanted && budget > 0) {
    Node* child = build(random, budget, tally);
    node->child[node->children++] = child;
  }
  return node;
}

uint64_t destroy(Node* node, Tally& tally) {
  if (!node) return 0;
  uint64_t freed = 1;
  for (uint32_t i = 0; i < node->children; ++i) freed += destroy(node->child[i], tally);
  tally.live_bytes -= node->bytes;
  std::free(node);
  return freed;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("mstress", "random graphs of blocks, passed between threads", argc, argv);
  const auto threads =
      static_cast<unsigned>(args.number("threads", 2, 2, 1, kMostThreads, "threads"));
  const auto kept = static_cast<uint32_t>(
      args.number("kept", 4000, 4000, 2, 10'000'000, "trees that a thread keeps"));
  const auto shared = static_cast<uint32_t>(
      args.number("shared", 1000, 1000, 1, 10'000'000, "trees in the table of all threads"));
  const uint64_t steps =
      args.number("steps", 20'000, 100'000, 1, 1'000'000'000, "steps of a thread in a round");
  const uint64_t rounds = args.number("rounds", 4, 10, 1, 100'000, "rounds");
  args.done();

  Report report(args);
  Table<Tally> tallies(threads);
  Table<Random> randoms(threads);
  Table<Node*> own(size_t{kept} * threads);
  Table<std::atomic<Node*>> common(shared);
  for (unsigned t = 0; t < threads; ++t) {
    tallies[t] = Tally();
    randoms[t] = stream(args.seed(), t);
  }
  constexpr uint32_t kMostNodes = 24;

  const auto work = [&](unsigned me) {
    Node** mine = &own[size_t{me} * kept];
    Random& random = randoms[me];
    Tally& tally = tallies[me];
    for (uint64_t i = 0; i < steps; ++i) {
      Node*& place = mine[random.below(kept)];
      const uint32_t action = random.below(8);
      if (action < 4) {  // a new tree for an old one
        destroy(place, tally);
        uint32_t budget = random.between(1, kMostNodes);
        place = build(random, budget, tally);
      } else if (action < 6) {
        // acq_rel: the nodes behind the pointer were written before it, on either side
        place = common[random.below(shared)].exchange(place, std::memory_order_acq_rel);
      } else if (action < 7) {  // short-lived
        uint32_t budget = random.between(1, kMostNodes);
        destroy(build(random, budget, tally), tally);
      } else {
        destroy(place, tally);
        place = nullptr;
      }
    }
    for (uint32_t i = 0; i < kept; i += 2) {
      destroy(mine[i], tally);
      mine[i] = nullptr;
    }
  };
  Crew crew(threads, work);
  report.start();
  for (uint64_t round = 0; round < rounds; ++round) {
    report.begin();
    crew.phase();
    report.round(round, take_operations(tallies), live_bytes(tallies));
  }
  report.begin();
  crew.end();
  uint64_t freed = 0;
  for (auto& node : own) freed += destroy(node, tallies[0]);
  for (auto& place : common) freed += destroy(place.load(std::memory_order_relaxed), tallies[0]);
  if (live_bytes(tallies) != 0) fail(kExitFailed, "mstress: a tree was lost or freed twice");
  report.finish(freed, checksum(tallies));
}
