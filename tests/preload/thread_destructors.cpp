// Thread-local destructors and pthread key destructors may allocate and free at any time, even in
// the last round of key destructors, when the heap's own per-thread state no longer exists.
#include <pthread.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int kKeys = 8;
pthread_key_t keys[kKeys];
std::atomic<int> key_destructions{0};
std::atomic<int> local_destructions{0};

struct KeyValue {
  int key;
  int rounds_left;
};

// Sets its key again until the system stops calling it (PTHREAD_DESTRUCTOR_ITERATIONS rounds).
void destroy_key(void* argument) {
  auto* const value = static_cast<KeyValue*>(argument);
  key_destructions.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t size = 1; size < 100'000; size = size * 2 + 1) {
    void* const block = opaque(malloc(size));
    CHECK(block != nullptr);
    memset(block, 1, size);
    free(block);
  }
  if (value->rounds_left == 0) {
    delete value;
    return;
  }
  auto* const next = new KeyValue{value->key, value->rounds_left - 1};
  pthread_setspecific(keys[value->key], next);
  delete value;
}

struct Local {
  std::vector<std::string> lines;
  ~Local() {
    for (int i = 0; i < 100; ++i) lines.emplace_back(static_cast<std::size_t>(i) * 10, 'l');
    local_destructions.fetch_add(1, std::memory_order_relaxed);
  }
};
thread_local Local local;

void thread_body() {
  local.lines.push_back("touched");
  for (int key = 0; key < kKeys; ++key) {
    pthread_setspecific(keys[key], new KeyValue{key, 3});
  }
  for (int i = 0; i < 1000; ++i) free(opaque(malloc(static_cast<std::size_t>(i))));
}

// A thread that never allocates itself. Its destructor makes the first request.
void silent_body() {
  static thread_local struct Silent {
    bool armed = false;
    ~Silent() {
      free(opaque(malloc(1234)));
      local_destructions.fetch_add(1, std::memory_order_relaxed);
    }
  } silent;
  silent.armed = true;
}

}  // namespace

int main() {
  for (auto& key : keys) CHECK(pthread_key_create(&key, destroy_key) == 0);
  constexpr int kThreads = 200;
  for (int i = 0; i < kThreads; ++i) {
    std::thread busy(thread_body);
    std::thread silent(silent_body);
    busy.join();
    silent.join();
  }
  CHECK_EQUAL(local_destructions.load(), 2 * kThreads);
  CHECK_EQUAL(key_destructions.load(), kThreads * kKeys * 4);
  CHECK(resident_kib() < 64 * 1024);
  return 0;
}
