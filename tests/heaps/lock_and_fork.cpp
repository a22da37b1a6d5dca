// loam_lock() stops every other thread, also threads that use only their caches. A child of fork()
// has every heap as it was, whatever other threads did to it at that moment, and the locks of other
// threads are free there.
#include <loam/loam.h>

#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "../preload/check.h"

namespace {

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

void lock_excludes() {
  for (const unsigned flags : {0u, unsigned(LOAM_HEAP_EAGER)}) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = flags;
    loam_heap* heap = loam_heap_create(&options);
    std::atomic<bool> over{false};
    std::atomic<size_t> done[3] = {};
    std::vector<std::thread> threads;
    for (auto& count : done) {
      threads.emplace_back([&] {
        while (!over) {
          void* block = loam_alloc(heap, 64);
          CHECK(block != nullptr);
          if (count % 2 != 0) {
            CHECK(loam_free(heap, block) == LOAM_OK);
          } else {
            free(block);
          }
          ++count;
        }
      });
    }
    for (int round = 0; round < 30; ++round) {
      CHECK(loam_lock(heap) == LOAM_OK);
      size_t before[3];
      for (int i = 0; i < 3; ++i) before[i] = done[i];
      CHECK(loam_validate(heap, nullptr) == LOAM_OK);
      pause_ms(3);
      // A pair takes 20 ns; a thread that finished one may still count it.
      for (int i = 0; i < 3; ++i) CHECK(done[i] - before[i] <= 1);
      if (round == 0) {
        std::thread([&] {
          CHECK(loam_try_lock(heap) == LOAM_BUSY);
          CHECK(loam_unlock(heap) == LOAM_NOT_OWNER);
          CHECK(loam_heap_destroy(heap) == LOAM_BUSY);
        }).join();
      }
      CHECK(loam_unlock(heap) == LOAM_OK);
      // All threads continue; none sleeps for ever.
      for (int i = 0; i < 3; ++i) {
        for (int waits = 0; done[i] <= before[i] + 1; ++waits) {
          CHECK(waits < 60'000);
          pause_ms(1);
        }
      }
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    CHECK(loam_heap_destroy(heap) == LOAM_OK);
  }
  // A trim of all heaps skips a locked one. The lock's holder may make heaps meanwhile.
  loam_heap* held = loam_heap_create(nullptr);
  CHECK(loam_lock(held) == LOAM_OK);
  std::atomic<bool> trimmed{false};
  std::thread trimmer([&] {
    CHECK(loam_trim(nullptr) == LOAM_OK);
    trimmed = true;
  });
  for (int waits = 0; !trimmed; ++waits) {
    CHECK(waits < 60'000);
    CHECK(loam_heap_destroy(loam_heap_create(nullptr)) == LOAM_OK);
    pause_ms(1);
  }
  trimmer.join();
  CHECK(loam_unlock(held) == LOAM_OK && loam_heap_destroy(held) == LOAM_OK);
  // An unsynchronised heap's lock stops no thread.
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.flags = LOAM_HEAP_UNSYNCHRONIZED;
  loam_heap* heap = loam_heap_create(&options);
  CHECK(loam_lock(heap) == LOAM_OK);
  std::thread([&] { CHECK(loam_lock(heap) == LOAM_OK && loam_unlock(heap) == LOAM_OK); }).join();
  CHECK(loam_unlock(heap) == LOAM_OK && loam_unlock(heap) == LOAM_NOT_OWNER);
  CHECK(loam_heap_destroy(heap) == LOAM_OK);
}

// The default heap's lock too, which excludes only lockers.
void fork_frees_the_default_heaps_lock() {
  CHECK(loam_lock(loam_default()) == LOAM_OK);
  std::thread([] {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      CHECK(loam_lock(loam_default()) == LOAM_OK && loam_unlock(loam_default()) == LOAM_OK);
      CHECK(loam_unlock(loam_default()) == LOAM_NOT_OWNER);
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
  }).join();
  CHECK(loam_unlock(loam_default()) == LOAM_OK);
}

void fork_keeps_heaps() {
  loam_heap* heaps[4];
  for (loam_heap*& heap : heaps) CHECK((heap = loam_heap_create(nullptr)) != nullptr);
  loam_heap* own = loam_heap_create(nullptr);
  std::vector<char*> mine;
  for (int i = 0; i < 1000; ++i) {
    mine.push_back(static_cast<char*>(loam_alloc(own, 50)));
    memset(mine.back(), i % 100, 50);
  }
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::vector<void*> live(200);
      for (size_t step = t; !over; ++step) {
        loam_heap* heap = heaps[step % 4];
        void*& place = live[step % 200];
        if (place != nullptr) CHECK(loam_free(heap, place) == LOAM_OK);
        place = loam_alloc(heap, step % 700);
        CHECK(place != nullptr);
        if (step % 512 == 0) CHECK(loam_lock(heap) == LOAM_OK && loam_unlock(heap) == LOAM_OK);
        if (step % 1024 == 0) {
          loam_heap* brief = loam_heap_create(nullptr);
          CHECK(loam_alloc(brief, 100) != nullptr && loam_heap_destroy(brief) == LOAM_OK);
        }
      }
    });
  }
  for (int round = 0; round < 40; ++round) {
    if (round % 4 == 0) CHECK(loam_lock(own) == LOAM_OK);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(60);
      for (int i = 0; i < 1000; ++i)
        CHECK(mine[i][49] == i % 100 && loam_free(own, mine[i]) == LOAM_OK);
      for (loam_heap* heap : heaps) {
        for (int i = 0; i < 300; ++i) CHECK(loam_alloc(heap, static_cast<size_t>(i)) != nullptr);
        CHECK(loam_lock(heap) == LOAM_OK && loam_unlock(heap) == LOAM_OK);
        loam_trim(heap);
        CHECK(loam_heap_destroy(heap) == LOAM_OK);
      }
      if (round % 4 == 0) CHECK(loam_unlock(own) == LOAM_OK);  // the child inherited the lock
      CHECK(loam_heap_destroy(own) == LOAM_OK);
      _exit(0);
    }
    if (round % 4 == 0) CHECK(loam_unlock(own) == LOAM_OK);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  for (loam_heap* heap : heaps)
    CHECK(loam_validate(heap, nullptr) == LOAM_OK && loam_heap_destroy(heap) == LOAM_OK);
  CHECK(loam_heap_destroy(own) == LOAM_OK);
}

}  // namespace

int main() {
  lock_excludes();
  fork_frees_the_default_heaps_lock();
  fork_keeps_heaps();
  return 0;
}
