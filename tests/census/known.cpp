// Makes objects of all sizes on every path of an allocator, frees half of them in other threads,
// and knows which are left: each has a type of its own until it is freed. Prints how many. With
// Loam it has private heaps, too.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "loam/loam.h"

namespace known {
struct Live {
  virtual ~Live() {}
};
struct Lost {
  virtual ~Lost() {}
};
struct Freed {
  virtual ~Freed() {}
};
}  // namespace known
using namespace known;
struct Heap {
  loam_heap* heap;
  decltype(&loam_alloc) alloc;
  decltype(&loam_free) free;
};
// Far from the heap, so that no freed memory keeps old copies of these pointers.
static void** objects;
static int count;
static const int kMost = 60000;
static uint64_t seed = 88172645463325252;
static uint64_t number() {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return seed;
}
static size_t size_of(int i) {
  const uint64_t n = number();
  if (i % 2000 == 0) return (1 << 20) + n % (40 << 20);
  if (i % 200 == 0) return 33000 + n % 200000;
  if (i % 10 == 0) return 1024 + n % 31000;
  return 8 + n % (i % 3 == 0 ? 1000 : 120);
}
static void drop(void* block, const Heap* heap) {
  new (block) Freed;  // what is freed keeps this type where nothing writes to it
  if (heap == nullptr) {
    free(block);
  } else {
    heap->free(heap->heap, block);
  }
}
__attribute__((noinline)) static void fill(const Heap* heap, int blocks) {
  const int first = count;
  for (int i = 0; i < blocks; i++) {
    const size_t size = heap != nullptr ? 8 + number() % (i % 50 == 0 ? 100000 : 2000) : size_of(i);
    void* block = heap == nullptr ? malloc(size) : heap->alloc(heap->heap, size);
    new (block) Live;
    objects[count++] = block;
  }
  // Two threads free every second one; then holes are filled with blocks of other sizes.
  auto every = [&](int from) {
    for (int i = first + from; i < count; i += 4) drop(objects[i], heap), objects[i] = nullptr;
  };
  std::thread one(every, 1), other(every, 3);
  one.join(), other.join();
  for (int i = first + 1; i < count; i += 8) {
    const size_t size = 8 + number() % 600;
    objects[i] = heap == nullptr ? malloc(size) : heap->alloc(heap->heap, size);
    new (objects[i]) Live;
  }
  for (int i = first; i < count; i += 16) {
    if (objects[i] != nullptr) drop(objects[i], heap), objects[i] = nullptr;
  }
}
__attribute__((noinline)) static void lose() {
  for (int i = 0; i < 3000; i++) {
    void* block = malloc(200);
    memset(block, 0, 200);
    new (block) Lost;
    asm volatile("" : : "r"(block) : "memory");
  }
}
__attribute__((noinline)) static void scrub() {
  volatile char room[65536];
  for (unsigned i = 0; i < sizeof room; i++) room[i] = 0;
}
template <class F>
static F named(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}
int main() {
  void* room = mmap(nullptr, kMost * sizeof(void*), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  objects = static_cast<void**>(room);
  fill(nullptr, 40000);
  // Linked with no heap: these are there if Loam is preloaded.
  auto create = named<decltype(&loam_heap_create)>("loam_heap_create");
  for (unsigned flags : {0u, unsigned{LOAM_HEAP_EXACT_SIZES}}) {
    if (create == nullptr) break;
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = flags;
    Heap heap = {create(&options), named<decltype(&loam_alloc)>("loam_alloc"),
                 named<decltype(&loam_free)>("loam_free")};
    if (heap.heap == nullptr) return 1;
    fill(&heap, 10000);
  }
  std::thread loser(lose);
  loser.join();
  lose();
  scrub();
  int live = 0;
  for (int i = 0; i < count; i++) live += objects[i] != nullptr;
  printf("ready\n%d\n", live);
  fflush(stdout);
  for (;;) pause();
}
