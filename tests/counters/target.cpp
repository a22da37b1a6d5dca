// A program with a heap worth reading: blocks of every kind, several threads, a private heap. It
// then prints the result of loam_stats_json(), and waits until its standard input ends.
//
//   target idle|split|busy|load   split: two sizes fill the heap; load: goes on allocating until
//                                 its standard input ends
#include <loam/loam.h>
#include <loam/stats.h>

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<bool> stop{false};
pthread_barrier_t barrier;

struct Random {
  uint64_t state;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
};

constexpr unsigned kBlocks = 4000;
constexpr unsigned kThreads = 3;
void* blocks[kThreads][kBlocks];  // freed in part by another thread than the one that allocated

size_t size_of(Random& random) {
  const uint64_t pick = random.next() % 1000;
  if (pick < 930) return 1 + random.next() % 2000;
  if (pick < 980) return 1 + random.next() % 40'000;
  return 1 + random.next() % 400'000;
}

void* work(void* argument) {
  const size_t self = reinterpret_cast<size_t>(argument);
  Random random{self + 1};
  for (void*& block : blocks[self]) {
    const size_t bytes = size_of(random);
    block = random.next() % 16 == 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : malloc(bytes);
    memset(block, 1, bytes);
  }
  pthread_barrier_wait(&barrier);
  void** others = blocks[(self + 1) % kThreads];
  for (unsigned i = 0; i < kBlocks; ++i) {
    if (random.next() % 4 == 0) continue;
    free(others[i]);
    others[i] = nullptr;
  }
  pthread_barrier_wait(&barrier);
  while (stop.load(std::memory_order_relaxed)) {
    void* block = malloc(size_of(random));
    if (block != nullptr) memset(block, 1, 1);
    free(block);
  }
  return nullptr;
}

void write_all(void*, const char* text, size_t length) {
  while (length != 0) {
    const ssize_t written = write(STDOUT_FILENO, text, length);
    if (written <= 0) _exit(3);
    text += written;
    length -= static_cast<size_t>(written);
  }
}

// Two sizes that lose much memory in their classes, so they get classes of their own. Some blocks
// stay.
void fill_with_two_sizes() {
  constexpr size_t kSizes[] = {1032, 4368};
  constexpr unsigned kEach = 10'000;
  static void* of_sizes[2 * kEach];
  for (unsigned i = 0; i < 2 * kEach; ++i) {
    of_sizes[i] = malloc(kSizes[i % 2]);
    memset(of_sizes[i], 1, kSizes[i % 2]);
  }
  for (unsigned i = 0; i < 2 * kEach; ++i) {
    if (i % 7 < 5) free(of_sizes[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* mode = argc == 2 ? argv[1] : "";
  const bool load = strcmp(mode, "load") == 0;
  void* kept[8] = {};
  if (strcmp(mode, "idle") == 0) {
    size_t bytes = 10;
    for (void*& block : kept) {
      block = malloc(bytes);
      memset(block, 1, bytes);
      bytes *= 7;
    }
  } else if (strcmp(mode, "split") == 0) {
    fill_with_two_sizes();
  } else {
    stop = load;  // here: whether threads go on
    pthread_barrier_init(&barrier, nullptr, kThreads);
    pthread_t threads[kThreads];
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.name = "orders";
    options.initial = 100'000;
    loam_heap* heap = loam_heap_create(&options);
    for (unsigned i = 0; i < 500; ++i) {
      void* block = loam_alloc(heap, 1 + i * 97 % 3000);
      if (i % 3 == 0) loam_free(heap, block);
    }
    kept[0] = loam_alloc(heap, 200'000);
    kept[1] = malloc(size_t{40} << 20);
    for (size_t i = 0; i < kThreads; ++i)
      pthread_create(&threads[i], nullptr, work, reinterpret_cast<void*>(i));
    if (!load) {
      for (pthread_t thread : threads) pthread_join(thread, nullptr);
    }
  }
  loam_stats_json(nullptr, write_all, nullptr);
  write_all(nullptr, "ready\n", 6);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  exit(0);
}
