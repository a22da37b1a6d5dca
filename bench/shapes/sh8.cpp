// sh8: sh6 between threads: a third of the blocks is freed by another thread.
//
// After the published facts about MicroQuill's sh8bench: as sh6, and as in larson some blocks are
// freed by a thread that did not allocate them. lifetimes.h has the pattern. The middle third of a
// pass goes to the next thread, which frees it at the end of its own pass.
//
// Parameters: as sh6. Blocks pass through one stack a thread, under a lock, a pass at a time, so
// that the hand-over itself costs little. The blocks that a thread finds on its stack depend on
// timing; its own allocations do not.
#include "shapes/lifetimes.h"

namespace {

using namespace bench;

// Blocks that other threads left for one thread to free.
class Inbox {
 public:
  explicit Inbox(size_t capacity) : blocks_(capacity) { pthread_mutex_init(&mutex_, nullptr); }

  // Takes as many as fit, from the top.
  void accept(Stack& blocks) {
    pthread_mutex_lock(&mutex_);
    while (blocks.size() && used_ < blocks_.size()) blocks_[used_++] = blocks.pop();
    pthread_mutex_unlock(&mutex_);
  }

  // Moves all blocks into `out`; returns their number.
  size_t drain(Table<Block>& out) {
    pthread_mutex_lock(&mutex_);
    const size_t count = used_;
    for (size_t i = 0; i < count; ++i) out[i] = blocks_[i];
    used_ = 0;
    pthread_mutex_unlock(&mutex_);
    return count;
  }

 private:
  Table<Block> blocks_;
  size_t used_ = 0;
  pthread_mutex_t mutex_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("sh8", "mixed sizes and lifetimes, a third freed by another thread", argc, argv);
  const auto threads =
      static_cast<unsigned>(args.number("threads", 2, 2, 2, kMostThreads, "threads"));
  const auto least = static_cast<uint32_t>(args.bytes("least", 8, 8, 1, 1 << 24, "smallest size"));
  const auto most =
      static_cast<uint32_t>(args.bytes("most", 1000, 1000, 1, 1 << 24, "largest size step"));
  const auto count = static_cast<uint32_t>(
      args.number("count", 3000, 3000, 3, 1'000'000, "blocks of each size step"));
  const uint64_t passes = args.number("passes", 10, 50, 1, 100'000, "passes in a round");
  const uint64_t rounds = args.number("rounds", 4, 10, 1, 100'000, "rounds");
  args.done();
  if (least > most) fail(kExitUsage, "sh8: --least must not be above --most");

  Report report(args);
  Table<Tally> tallies(threads);
  Table<Lifetimes> lives(threads);
  Table<Inbox> inboxes(threads);
  Table<Table<Block>> drained(threads);
  for (unsigned t = 0; t < threads; ++t) {
    tallies[t] = Tally();
    new (&lives[t]) Lifetimes(stream(args.seed(), t), least, most, count, tallies[t]);
    const size_t capacity = size_t{lives[t].steps()} * count * 2 / 3;  // two passes' middle thirds
    new (&inboxes[t]) Inbox(capacity);
    drained[t] = Table<Block>(capacity);
  }
  const auto empty_inbox = [&](unsigned me) {
    const size_t n = inboxes[me].drain(drained[me]);
    for (size_t i = 0; i < n; ++i) lives[me].free(drained[me][i]);
    return n;
  };
  Crew crew(threads, [&](unsigned me) {
    Lifetimes& mine = lives[me];
    Inbox& next = inboxes[(me + 1) % threads];
    for (uint64_t p = 0; p < passes; ++p) {
      mine.pass([&](Stack& blocks) {
        next.accept(blocks);
        // The neighbour is two passes behind. To bound memory, this thread frees the rest.
        while (blocks.size()) mine.free(blocks.pop());
      });
      empty_inbox(me);
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
  for (unsigned t = 0; t < threads; ++t) freed += empty_inbox(t) + lives[t].free_all();
  crew.end();
  report.finish(freed, checksum(tallies));
}
