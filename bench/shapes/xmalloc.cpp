// xmalloc: one group of threads only allocates, another only frees.
//
// After Lever and Boreham, "malloc() Performance in a Multithreaded Linux Environment" (USENIX
// 2000), written from the description. Producers fill batches of blocks and queue them. Consumers
// take batches, and free the blocks and the batch. Every block is freed on another thread than its
// own, which is the worst case for a heap that keeps freed memory with the freeing thread.
//
// Parameters: --pairs (producers, and as many consumers), --batches a producer and round, --batch
// (blocks), --depth (batches queued at most, which bounds live memory), --rounds.
//
// The original runs a fixed time; here the number of blocks is fixed.
#include "shapes/shape.h"

namespace {

using namespace bench;

// The sizes of small objects and of short buffers, small ones more often.
constexpr uint32_t kSizes[] = {8,  12, 16, 16,  24,  24,  32,  32,  48,   64,
                               64, 96, 96, 128, 192, 256, 512, 768, 1024, 4096};

// The batch itself comes from the heap under test, as it would in a program.
struct Batch {
  uint32_t count;
  uint32_t bytes;
  void* blocks[];
};

// A bounded queue under one lock; waiting threads sleep.
class Queue {
 public:
  explicit Queue(uint32_t depth) : ring_(depth) {
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&not_empty_, nullptr);
    pthread_cond_init(&not_full_, nullptr);
  }
  void put(Batch* batch) {
    pthread_mutex_lock(&mutex_);
    while (used_ == ring_.size()) pthread_cond_wait(&not_full_, &mutex_);
    ring_[(first_ + used_++) % ring_.size()] = batch;
    pthread_cond_signal(&not_empty_);
    pthread_mutex_unlock(&mutex_);
  }
  Batch* take() {
    pthread_mutex_lock(&mutex_);
    while (used_ == 0) pthread_cond_wait(&not_empty_, &mutex_);
    Batch* batch = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --used_;
    pthread_cond_signal(&not_full_);
    pthread_mutex_unlock(&mutex_);
    return batch;
  }

 private:
  Table<Batch*> ring_;
  size_t first_ = 0, used_ = 0;
  pthread_mutex_t mutex_;
  pthread_cond_t not_empty_, not_full_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("xmalloc", "some threads only allocate, others only free", argc, argv);
  const auto pairs = static_cast<unsigned>(
      args.number("pairs", 1, 1, 1, kMostThreads / 2, "producers, and as many consumers"));
  const uint64_t batches =
      args.number("batches", 2'000, 10'000, 1, 1'000'000'000, "batches of a producer in a round");
  const auto batch_size =
      static_cast<uint32_t>(args.number("batch", 128, 128, 1, 1'000'000, "blocks a batch"));
  const auto depth =
      static_cast<uint32_t>(args.number("depth", 64, 64, 1, 1'000'000, "batches queued at most"));
  const uint64_t rounds = args.number("rounds", 4, 10, 1, 100'000, "rounds");
  args.done();

  Report report(args);
  Queue queue(depth);
  Table<Tally> tallies(2 * pairs);
  Table<Random> randoms(pairs);
  for (auto& t : tallies) t = Tally();
  for (unsigned p = 0; p < pairs; ++p) randoms[p] = stream(args.seed(), p);

  const auto produce = [&](unsigned me) {
    Tally& tally = tallies[me];
    for (uint64_t b = 0; b < batches; ++b) {
      const size_t bytes = sizeof(Batch) + batch_size * sizeof(void*);
      auto* batch = static_cast<Batch*>(must(std::malloc(bytes), bytes));
      *batch = {batch_size, static_cast<uint32_t>(bytes)};
      for (uint32_t i = 0; i < batch_size; ++i) {
        const uint32_t size = kSizes[randoms[me].below(std::size(kSizes))];
        batch->blocks[i] = must(std::malloc(size), size);
        touch(batch->blocks[i], size);
        batch->bytes += size;
        tally.checksum.add(size);
      }
      tally.live_bytes += batch->bytes;
      queue.put(batch);
    }
    tally.operations += batches * (batch_size + 1);
  };
  const auto consume = [&](unsigned me) {
    for (uint64_t b = 0; b < batches; ++b) {
      Batch* batch = queue.take();
      tallies[me].live_bytes -= batch->bytes;
      for (uint32_t i = 0; i < batch->count; ++i) std::free(batch->blocks[i]);
      std::free(batch);
    }
  };
  Crew crew(2 * pairs, [&](unsigned me) { me < pairs ? produce(me) : consume(me); });
  report.start();
  for (uint64_t round = 0; round < rounds; ++round) {
    report.begin();
    crew.phase();
    report.round(round, take_operations(tallies), live_bytes(tallies));
  }
  report.begin();
  crew.end();
  report.finish(0, checksum(tallies));
}
