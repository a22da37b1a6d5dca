// Heaps that make a census hard: a ring of blocks, countless pointers to one block, many mappings,
// damaged headers, and blocks that come and go all the time.
//
//   hostile ring N | star N | mappings N | damage | churn
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static const size_t kRoom = size_t{64} << 20;
void* volatile head;

// Blocks in a ring, each of which points to three others as well.
static void ring(size_t count) {
  std::vector<void**> all(count);
  for (auto& one : all) one = static_cast<void**>(malloc(48));
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < 4; k++) all[i][k] = all[(i + 1 + k * k * 7919) % count];
  }
  head = all[0];
}

// One room full of pointers to one block, mapped again and again: 8 Mi pointers each time.
static void star(int times) {
  void* block = calloc(1, 100);
  const int file = memfd_create("star", 0);
  if (ftruncate(file, kRoom) != 0) exit(1);
  for (int i = 0; i < times; i++) {
    void* room = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (room == MAP_FAILED) exit(1);
    auto** words = static_cast<void**>(room);
    for (size_t k = 0; i == 0 && k < kRoom / sizeof(void*); k++) words[k] = block;
  }
}

// Neighbours with other rights are mappings of their own.
static void mappings(size_t count) {
  auto* room = static_cast<char*>(
      mmap(nullptr, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (room == MAP_FAILED) exit(1);
  void* block = malloc(100);
  for (size_t i = 0; i < count; i++) {
    memcpy(room + i * 4096, &block, sizeof block);
    if (i % 2 == 1) mprotect(room + i * 4096, 4096, PROT_READ);
  }
}

// What stands before blocks becomes nonsense. The program must not use its heap afterwards.
static void damage() {
  std::vector<uint64_t*> all(20000);
  for (auto& one : all) one = static_cast<uint64_t*>(malloc(72));
  head = all[0];
  puts("ready");
  fflush(stdout);
  for (size_t i = 0; i < all.size(); i += 100) {
    all[i][-1] = i % 300 == 0 ? ~uint64_t{0} : i % 200 == 0 ? 0 : 0x123456789abcdef1;
  }
  for (;;) pause();
}

static void churn() {
  for (int t = 0; t < 2; t++) {
    std::thread([t] {
      std::vector<void*> own(20000);
      for (uint64_t n = t + 1;; n = n * 6364136223846793005 + 1442695040888963407) {
        void*& one = own[(n >> 33) % own.size()];
        free(one);
        one = malloc(16 + (n >> 40) % ((n >> 60) == 0 ? 300000 : 500));
        memcpy(one, &own[(n >> 20) % own.size()], sizeof(void*));
      }
    }).detach();
  }
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const size_t number = argc > 2 ? strtoul(argv[2], nullptr, 10) : 0;
  if (strcmp(what, "ring") == 0) ring(number);
  if (strcmp(what, "star") == 0) star(static_cast<int>(number));
  if (strcmp(what, "mappings") == 0) mappings(number);
  if (strcmp(what, "damage") == 0) damage();
  if (strcmp(what, "churn") == 0) churn();
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
