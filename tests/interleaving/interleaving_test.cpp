// The parts of the heap that no lock orders. Each is tested in every interleaving of a few short
// threads (checker.h):
//
//   Mutex                    os/mutex: the lock itself, its sleepers
//   RemoteQueue              small/remote_queue.h: blocks on their way home
//   ThreadHeaps, its doors   private/private_cache.h: stops every thread's cache of a private heap
//   DirectoryEntry           map/directory_entry.h: a new region, seen with a pointer into it
//
// Mutex, RemoteQueue, ThreadHeaps and DirectoryEntry are the heap's own source, compiled with a
// replaced std::atomic. PrivateHeap::stop_caches() and add_region() depend on the rest of the heap,
// so the steps between their calls are repeated here.
//
// Every test is also run without one of its orderings (release, acquire, the barrier), and must
// then fail.
#include "checker.h"

// Includes first all headers that the ones below use, so that only the latter's own text is
// replaced.
#include <loam/loam.h>

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include <gtest/gtest.h>

#include "base/config.h"
#include "base/cpu.h"

#define atomic model_atomic
#define cpu_pause model_pause
namespace loam {
inline void model_pause() { interleaving::Checker::current().pause(); }
// The processor does this in one instruction (base/cpu.h).
template <class T>
bool equals_acquire(const std::model_atomic<T*>& word, T* value) {
  return word.load(std::memory_order_acquire) == value;
}
}  // namespace loam
#include "map/directory_entry.h"
#include "os/mutex.h"
#include "private/private_cache.h"
#include "small/remote_queue.h"

#include "os/mutex.cpp"
#undef atomic
#undef cpu_pause

namespace loam::os {
void wait_while_equal(const uint32_t* word, uint32_t expected) {
  interleaving::Checker::current().sleep_while(word, expected);
}
void wake_one(const uint32_t* word) { interleaving::Checker::current().wake(word); }
void abort_process() { std::abort(); }
}  // namespace loam::os

// Nothing here reports a mistake of a caller.
namespace loam {
void report_misuse(const char*, const void*) { std::abort(); }
void write_report(const char*, const void*) { std::abort(); }
CorruptionPolicy corruption_policy() { return CorruptionPolicy::kAbort; }
}  // namespace loam

namespace loam {
namespace {

using interleaving::Checker;
using interleaving::Plain;
using interleaving::Weakening;
using Bodies = std::vector<std::function<void()>>;

void expect_right(const Checker::Make& make) {
  const Checker::Result result = Checker::explore(make);
  EXPECT_EQ(result.failure, "") << "after " << result.schedules << " schedules";
  EXPECT_GT(result.schedules, 20u);
  ::testing::Test::RecordProperty("schedules", static_cast<int>(result.schedules));
  printf("%llu schedules\n", static_cast<unsigned long long>(result.schedules));
}

void expect_wrong(const Checker::Make& make, Weakening weakening, const char* what) {
  const Checker::Result result = Checker::explore(make, weakening);
  EXPECT_NE(result.failure, "") << "nothing shows without " << what;
  EXPECT_NE(result.failure, "too many schedules") << what;
}

// ---- Mutex -------------------------------------------------------------------------------------

Checker::Make locking(unsigned threads, unsigned rounds) {
  return [=](std::function<void()>* at_end) {
    struct Shared {
      Mutex mutex;
      Plain<int> inside{"what the lock guards"};
    };
    auto shared = std::make_shared<Shared>();
    Bodies bodies;
    for (unsigned t = 0; t < threads; ++t) {
      bodies.push_back([=] {
        for (unsigned i = 0; i < rounds; ++i) {
          Lock lock(shared->mutex);
          shared->inside.write(shared->inside.read() + 1);
        }
      });
    }
    *at_end = [=] {
      if (shared->inside.after_all() != static_cast<int>(threads * rounds))
        Checker::current().fail("two were inside at once");
    };
    return bodies;
  };
}

TEST(Interleaving, OneThreadIsInsideALockAndNoSleeperIsForgotten) {
  expect_right(locking(2, 2));
  expect_right(locking(3, 1));
  expect_wrong(locking(2, 1), {.acquire = true}, "the lock's acquire");
  expect_wrong(locking(2, 1), {.release = true}, "the lock's release");
}

TEST(Interleaving, ATryNeverWaitsAndExcludes) {
  const auto make = [](std::function<void()>*) {
    struct Shared {
      Mutex mutex;
      Plain<int> inside{"what the lock guards"};
    };
    auto shared = std::make_shared<Shared>();
    const auto attempt = [=] {
      if (!shared->mutex.try_lock()) return;
      shared->inside.write(shared->inside.read() + 1);
      shared->mutex.unlock();
    };
    return Bodies{attempt, attempt, [=] {
                    Lock lock(shared->mutex);
                    shared->inside.write(0);
                  }};
  };
  expect_right(make);
  expect_wrong(make, {.release = true}, "release");
}

// ---- RemoteQueue -------------------------------------------------------------------------------

Checker::Make sending(unsigned senders) {
  return [=](std::function<void()>* at_end) {
    struct Shared {
      RemoteQueue queue;
      RemoteBatch batches[2] = {};
      Plain<int> content[2] = {Plain<int>("a batch"), Plain<int>("a batch")};
      int taken[2] = {};
    };
    auto shared = std::make_shared<Shared>();
    const auto send = [=](unsigned i) {
      shared->content[i].write(7);
      shared->batches[i].count = i + 1;
      shared->queue.push(&shared->batches[i]);
    };
    const auto take = [=] {
      for (RemoteBatch* b = shared->queue.take_all(); b != nullptr; b = b->next) {
        const size_t i = static_cast<size_t>(b - shared->batches);
        if (shared->content[i].read() != 7)
          Checker::current().fail("a batch came before its content");
        ++shared->taken[i];
      }
    };
    *at_end = [=] {
      for (RemoteBatch* b = shared->queue.take_all(); b != nullptr; b = b->next)
        ++shared->taken[b - shared->batches];
      if (shared->taken[0] != 1 || shared->taken[1] != 1)
        Checker::current().fail("a batch was lost or came twice");
      if (shared->queue.queued() != 0)
        Checker::current().fail("the count of queued blocks is wrong");
    };
    if (senders == 2) return Bodies{[=] { send(0); }, [=] { send(1); }, take};
    return Bodies{[=] {
                    send(0);
                    send(1);
                  },
                  [=] {
                    take();
                    take();
                    // The queue does not wait for the sender's end: blocks that arrive later stay.
                  }};
  };
}

TEST(Interleaving, RemoteQueueLosesAndDoublesNoBatchAndShowsItWhole) {
  expect_right(sending(1));
  expect_right(sending(2));
  expect_wrong(sending(2), {.release = true}, "push()'s release");
  expect_wrong(sending(2), {.acquire = true}, "take_all()'s acquire");
}

// ---- stopping caches ---------------------------------------------------------------------------

// PrivateHeap::pop() and push() use the magazine between enter() and leave() while the door to it
// is open; PrivateHeap::stop_caches() closes it, makes all threads pass a barrier, and waits until
// no thread is busy.
TEST(Interleaving, WhoStopsAHeapIsAloneWithItsCaches) {
  const auto make = [](std::function<void()>*) {
    struct Shared {
      ThreadHeaps thread;
      HeapCache cache;
      Plain<int> magazine{"a magazine"};
    };
    auto shared = std::make_shared<Shared>();
    const auto heap =
        reinterpret_cast<const PrivateHeap*>(uintptr_t{512});  // only its address is used
    // Open from the beginning, because a store would be a step.
    std::construct_at(&shared->thread.door_of(heap).heap, heap);
    const auto use = [=] {
      ThreadHeaps& mine = shared->thread;
      mine.enter();
      if (mine.door_of(heap).leads_to(heap)) {
        shared->magazine.write(shared->magazine.read() + 1);
      }
      mine.leave();
    };
    const auto stop = [=] {
      shared->thread.close(heap);
      Checker::current().barrier_all();
      shared->thread.wait_until_left([](unsigned) { Checker::current().pause(); });
      shared->magazine.write(0);                  // flush
      shared->thread.open(heap, &shared->cache);  // resume_caches()
    };
    return Bodies{[=] {
                    use();
                    use();
                  },
                  stop};
  };
  expect_right(make);
  expect_wrong(make, {.release = true}, "leave()'s and resume_caches()' release");
  expect_wrong(make, {.acquire = true}, "the acquires of pop() and stop_caches()");
  expect_wrong(make, {.barrier = true}, "the barrier");
}

// ---- the directory -----------------------------------------------------------------------------

// add_region() fills a header and publishes it; region_at() answers any address at any time.
TEST(Interleaving, ARegionIsSeenWholeOrNotAtAll) {
  const auto make = [](std::function<void()>*) {
    struct Shared {
      DirectoryEntry entry;
      Plain<int> header{"a region's header"};
      Mutex page_heap;
    };
    auto shared = std::make_shared<Shared>();
    const auto add = [=] {
      Lock lock(shared->page_heap);
      if (shared->entry.read() != 0) return;
      shared->header.write(5);
      shared->entry.publish(1);
    };
    const auto look = [=] {
      if (shared->entry.read() == 0) return;
      if (shared->header.read() != 5)
        Checker::current().fail("a header was seen before it was filled");
    };
    return Bodies{add, add, look};
  };
  expect_right(make);
  expect_wrong(make, {.release = true}, "add_region()'s release");
  expect_wrong(make, {.acquire = true}, "region_at()'s acquire");
}

}  // namespace
}  // namespace loam
