#include "loam/concurrent_functor_queue.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/counting_source.h"
#include "random.h"

namespace loam {
namespace {

using test::CountingSource;
using test::Tracked;
using namespace std::chrono_literals;

TEST(ConcurrentFunctorQueue, OneThreadSeesItsFunctorsInOrder) {
  CountingSource source;
  concurrent_functor_queue<> q(source, {.block_bytes = 512, .retained_blocks = 2});
  EXPECT_FALSE(q.run_one());
  std::vector<int> seen;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 100; ++i) {
      if (i % 2 == 0) {
        EXPECT_TRUE(q.push([&seen, i] { seen.push_back(i); }));
      } else {
        q.push([&seen, i, s = std::string(50, 'a'), pad = std::array<char, 90>()] {
          seen.push_back(i + pad[3]);
        });
      }
    }
    EXPECT_EQ(q.size(), 100u);
    EXPECT_EQ(q.run_some(30), 30u);
    EXPECT_EQ(q.run_all(), 70u);
    EXPECT_TRUE(q.empty());
    for (int i = 0; i < 100; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
    seen.clear();
  }
  EXPECT_LE(source.blocks(), 4u) << "two kept, the lane's own, and the lanes";
}

TEST(ConcurrentFunctorQueue, ArgumentsAlignmentAndGiants) {
  CountingSource source;
  concurrent_functor_queue<void(long&)> q(source, {.block_bytes = 1024, .retained_blocks = 1});
  struct alignas(256) Wide {
    std::array<char, 256> bytes;
  };
  long sum = 0;
  for (int i = 0; i < 50; ++i) {
    q.push([w = Wide{}](long& s) {
      s += 1 + static_cast<long>(reinterpret_cast<uintptr_t>(&w) % 256);
    });
    q.push([g = std::array<char, 10'000>()](long& s) { s += 100 + g[9999]; });
    q.push([p = std::make_unique<int>(10'000)](long& s) { s += *p; });
  }
  EXPECT_EQ(q.run_all(sum), 150u);
  EXPECT_EQ(sum, 50 * 10'101);
  EXPECT_LT(source.bytes(), 12'000u + q.lane_count() * 512);
}

TEST(ConcurrentFunctorQueue, ExceptionsOfFunctorsAndOfPushes) {
  Tracked::live = 0;
  CountingSource source;
  {
    concurrent_functor_queue<> q(source, {.block_bytes = 256, .retained_blocks = 1});
    int runs = 0;
    q.push([&runs, t = Tracked(1)] {
      ++runs;
      throw std::runtime_error("as it should");
    });
    q.push([&runs] { ++runs; });
    EXPECT_THROW(q.run_all(), std::runtime_error);
    EXPECT_EQ(Tracked::live, 0);
    EXPECT_EQ(q.size(), 1u);
    const Tracked prototype(2);
    for (int i = 0; i < 10; ++i) {
      Tracked::throw_at = 0;
      EXPECT_THROW(q.push([prototype, pad = std::array<char, 150>()] { static_cast<void>(pad); }),
                   std::bad_alloc);
      Tracked::throw_at = -1;
    }
    source.fail_after(0);
    EXPECT_THROW(q.push([big = std::array<char, 5000>()] { static_cast<void>(big); }),
                 std::bad_alloc);
    source.never_fail();
    EXPECT_EQ(q.run_all(), 1u);
    EXPECT_EQ(runs, 2);
    q.push([t = Tracked(3)] { ADD_FAILURE() << "destroyed with the queue, not run"; });
    EXPECT_EQ(Tracked::live, 2);
  }
  EXPECT_EQ(Tracked::live, 0);
}

TEST(ConcurrentFunctorQueue, FailsToBeMadeWithoutMemory) {
  CountingSource source;
  source.fail_after(0);
  EXPECT_THROW(concurrent_functor_queue<> q(source), std::bad_alloc);
}

TEST(ConcurrentFunctorQueue, AFunctorMayPushAndRunOthers) {
  concurrent_functor_queue<> q({.block_bytes = 512, .retained_blocks = 2});
  int inner = 0;
  bool alive_after = false;
  q.push([&, text = std::string(100, 'z')] {
    for (int i = 0; i < 100; ++i)
      q.push([&inner, pad = std::array<char, 50>()] { inner += 1 + pad[0]; });
    EXPECT_EQ(q.run_all(), 100u);
    alive_after = text == std::string(100, 'z');
  });
  EXPECT_EQ(q.run_all(), 1u);
  EXPECT_EQ(inner, 100);
  EXPECT_TRUE(alive_after);
}

TEST(ConcurrentFunctorQueue, CloseRefusesPushesAndRunsTheRest) {
  concurrent_functor_queue<> q;
  int runs = 0;
  EXPECT_TRUE(q.push([&runs] { ++runs; }));
  q.close();
  EXPECT_TRUE(q.closed());
  auto owned = std::make_unique<int>(1);
  auto functor = [&runs, p = std::move(owned)] { runs += *p; };
  EXPECT_FALSE(q.push(std::move(functor)));
  EXPECT_TRUE(q.wait_run_one());
  EXPECT_FALSE(q.wait_run_one());
  EXPECT_FALSE(q.wait_run_one_for(1s));
  EXPECT_EQ(runs, 1);
  q.close();
}

TEST(ConcurrentFunctorQueue, WaitingEndsWithAPushATimeOrAClose) {
  concurrent_functor_queue<> q;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(q.wait_run_one_for(20ms));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 20ms);
  std::atomic<int> runs{0}, ended{0};
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&] {
      while (q.wait_run_one()) {
      }
      ++ended;
    });
  }
  for (int i = 0; i < 200; ++i) {
    q.push([&] { ++runs; });
    if (i % 20 == 0) std::this_thread::sleep_for(1ms);
  }
  while (runs != 200) std::this_thread::yield();
  EXPECT_EQ(ended, 0);
  q.close();
  for (auto& t : waiting) t.join();
  EXPECT_EQ(ended, 4);
}

// Producers number their functors; consumers see every one once. `claimed` in order by producer.
struct Run {
  unsigned producers, consumers, each, lanes;
  bool waiting;
};
void everything_arrives_once(const Run& run) {
  CountingSource source;
  {
    concurrent_functor_queue<void(unsigned)> q(source, {.block_bytes = 1024, .retained_blocks = 3},
                                               run.lanes);
    std::vector<std::vector<std::atomic<unsigned char>>> seen(run.producers);
    for (auto& s : seen) s = std::vector<std::atomic<unsigned char>>(run.each);
    std::vector<std::vector<unsigned>> last(run.consumers, std::vector<unsigned>(run.producers, 0));
    std::atomic<unsigned> disorder{0};
    std::atomic<uint64_t> done{0};
    std::vector<std::thread> producers, consumers;
    for (unsigned p = 0; p < run.producers; ++p) {
      producers.emplace_back([&, p] {
        auto random = test::seeded(p);
        for (unsigned i = 0; i < run.each; ++i) {
          const auto body = [&, p, i](unsigned consumer) {
            seen[p][i].fetch_add(1, std::memory_order_relaxed);
            // One consumer sees a producer's functors in order, since they are started in order.
            if (last[consumer][p] > i) ++disorder;
            last[consumer][p] = i;
            done.fetch_add(1, std::memory_order_relaxed);
          };
          if (random.chance(50)) {
            ASSERT_TRUE(q.push(body));
          } else {
            ASSERT_TRUE(q.push([body, text = std::string(40 + i % 60, 'q')](unsigned consumer) {
              if (text.back() == 'q') body(consumer);
            }));
          }
        }
      });
    }
    const uint64_t all = uint64_t{run.producers} * run.each;
    for (unsigned c = 0; c < run.consumers; ++c) {
      consumers.emplace_back([&, c] {
        if (run.waiting) {
          while (q.wait_run_one(c)) {
          }
        } else {
          while (done.load(std::memory_order_relaxed) < all) {
            if (!q.run_one(c)) std::this_thread::yield();
          }
        }
      });
    }
    for (auto& t : producers) t.join();
    q.close();
    for (auto& t : consumers) t.join();
    EXPECT_TRUE(q.empty());
    EXPECT_EQ(done.load(), all);
    EXPECT_EQ(disorder, 0u);
    for (const auto& s : seen) {
      for (const auto& times : s) ASSERT_EQ(times, 1);
    }
    EXPECT_LE(q.bytes(), 1024u * (3 + 2 * q.lane_count()));
  }
}

TEST(ConcurrentFunctorQueue, EverythingArrivesOnce) {
  everything_arrives_once({1, 1, 20'000, 0, false});
  everything_arrives_once({4, 1, 5'000, 0, false});
  everything_arrives_once({1, 4, 20'000, 0, false});
  everything_arrives_once({4, 4, 5'000, 0, false});
}
TEST(ConcurrentFunctorQueue, EverythingArrivesOnceWithManyThreadsOnOneLane) {
  everything_arrives_once({6, 3, 3'000, 1, false});
}
TEST(ConcurrentFunctorQueue, EverythingArrivesOnceWhenConsumersSleep) {
  everything_arrives_once({3, 3, 5'000, 0, true});
  everything_arrives_once({1, 5, 5'000, 2, true});
}

TEST(ConcurrentFunctorQueue, NoProducersFunctorsAreLeftLying) {
  // A consumer that always finds a functor in its own lane must still come to the other lanes.
  concurrent_functor_queue<> q;
  std::atomic<bool> seen{false};
  std::thread([&] { q.push([&] { seen = true; }); }).join();
  int reposts = 0;
  struct Repost {
    concurrent_functor_queue<>* q;
    int* reposts;
    std::atomic<bool>* seen;
    void operator()() const {
      if (!*seen && ++*reposts < 10'000) q->push(*this);
    }
  };
  q.push(Repost{&q, &reposts, &seen});
  q.run_all();
  EXPECT_TRUE(seen);
  EXPECT_LT(reposts, 200);
}

TEST(ConcurrentFunctorQueue, CloseWhileProducersPush) {
  for (int round = 0; round < 20; ++round) {
    concurrent_functor_queue<> q;
    std::atomic<uint64_t> pushed{0}, ran{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (q.push([&] { ran.fetch_add(1, std::memory_order_relaxed); })) {
          pushed.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
    threads.emplace_back([&] {
      while (q.wait_run_one()) {
      }
    });
    std::this_thread::sleep_for(1ms);
    q.close();
    const size_t size = q.size();
    EXPECT_LE(size, pushed + 3);
    for (auto& t : threads) t.join();
    EXPECT_EQ(ran, pushed) << "what was pushed was run, nothing came after the close";
  }
}

}  // namespace
}  // namespace loam
