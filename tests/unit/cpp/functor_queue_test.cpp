#include "loam/functor_queue.hpp"

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/counting_source.h"
#include "must_run.h"
#include "random.h"

namespace loam {
namespace {

using test::CountingSource;
using test::Tracked;

TEST(FunctorQueue, RunsInOrderWhateverTheSizes) {
  CountingSource source;
  functor_queue<> q(source);
  EXPECT_EQ(source.requests(), 0u);
  EXPECT_FALSE(q.run_one());
  std::vector<int> seen;
  for (int i = 0; i < 300; ++i) {
    if (i % 3 == 0) q.push([&seen, i] { seen.push_back(i); });
    if (i % 3 == 1)
      q.push([&seen, i, text = std::string(100, 'x')] {
        if (text.size() == 100) seen.push_back(i);
      });
    if (i % 3 == 2)
      q.push([&seen, i, block = std::array<char, 1000>()] { seen.push_back(i + block[999]); });
  }
  EXPECT_EQ(q.size(), 300u);
  EXPECT_EQ(q.run_some(100), 100u);
  EXPECT_EQ(q.run_all(), 200u);
  EXPECT_TRUE(q.empty());
  for (int i = 0; i < 300; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

int plain_calls = 0;
void plain_function() { ++plain_calls; }

TEST(FunctorQueue, TakesEveryKindOfCallable) {
  functor_queue<> q;
  int calls = 0;
  q.push(plain_function);
  q.push(&plain_function);
  q.push([held = std::make_unique<int>(5), &calls] { calls += *held; });
  const auto constant = [&calls] { ++calls; };
  q.push(constant);
  std::function<void()> function = [&calls] { ++calls; };
  q.push(function);
  q.push(std::move(function));
  struct OnceOnly {
    int* calls;
    void operator()() && { ++*calls; }
  };
  q.push(OnceOnly{&calls});
  struct LvalueOnly {
    int* calls;
    int operator()() & { return ++*calls; }
  };
  q.push(LvalueOnly{&calls});
  struct Immovable {
    explicit Immovable(int& c) : calls(c) {}
    Immovable(Immovable&&) = delete;
    void operator()() { ++calls; }
    int& calls;
  };
  q.emplace<Immovable>(calls);
  EXPECT_EQ(q.run_all(), 9u);
  EXPECT_EQ(plain_calls, 2);
  EXPECT_EQ(calls, 11);
}

TEST(FunctorQueue, PassesArguments) {
  struct Base {
    int hits = 0;
    void hit(int by) { hits += by; }
  } base;
  functor_queue<void(Base&, int)> q;
  q.push([](Base& b, int by) { b.hits += by; });
  q.push(&Base::hit);
  q.push([](auto&&...) { return "results are discarded"; });
  EXPECT_EQ(q.run_all(base, 10), 3u);
  EXPECT_EQ(base.hits, 20);
  functor_queue<void(std::unique_ptr<int>)> moving;
  moving.push([](std::unique_ptr<int> p) { EXPECT_EQ(*p, 3); });
  EXPECT_TRUE(moving.run_one(std::make_unique<int>(3)));
}

TEST(FunctorQueue, OverAlignedFunctors) {
  struct alignas(512) Wide {
    std::array<char, 512> bytes;
  };
  functor_queue<> q;
  int runs = 0;
  for (int i = 0; i < 200; ++i) {
    q.push([&runs, wide = Wide{}] {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(&wide) % 512, 0u);
      ++runs;
    });
    q.push([&runs] { ++runs; });
  }
  q.run_all();
  EXPECT_EQ(runs, 400);
}

TEST(FunctorQueue, AThrowingFunctorIsDestroyedAndTheRestStay) {
  Tracked::live = 0;
  functor_queue<> q;
  int runs = 0;
  for (int i = 0; i < 6; ++i) {
    q.push([&runs, t = Tracked(i)] {
      ++runs;
      if (t.value % 2 == 1) throw std::runtime_error("odd");
    });
  }
  EXPECT_TRUE(q.run_one());
  EXPECT_THROW(q.run_one(), std::runtime_error);
  EXPECT_EQ(Tracked::live, 4);
  EXPECT_EQ(q.size(), 4u);
  EXPECT_THROW(q.run_all(), std::runtime_error);
  EXPECT_EQ(q.size(), 2u);
  EXPECT_THROW(q.run_all(), std::runtime_error);
  EXPECT_EQ(runs, 6);
  EXPECT_EQ(Tracked::live, 0);
}

TEST(FunctorQueue, APushThatFailsLeavesTheQueueAsItWas) {
  Tracked::live = 0;
  CountingSource source;
  {
    functor_queue<> q(source, {.block_bytes = 256, .retained_blocks = 1});
    int runs = 0;
    q.push([&runs] { ++runs; });
    const Tracked prototype(1);
    for (int i = 0; i < 20; ++i) {
      Tracked::throw_at = 0;
      EXPECT_THROW(q.push([&runs, prototype, pad = std::array<char, 80>()] { runs += pad[0]; }),
                   std::bad_alloc);
      Tracked::throw_at = -1;
    }
    source.fail_after(0);
    EXPECT_THROW(q.push([&runs, big = std::array<char, 5000>()] { runs += big[0]; }),
                 std::bad_alloc);
    source.never_fail();
    EXPECT_EQ(q.size(), 1u);
    EXPECT_EQ(q.run_all(), 1u);
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(Tracked::live, 1);
    q.trim();
    EXPECT_EQ(source.blocks(), 0u);
  }
  EXPECT_EQ(Tracked::live, 0);
}

TEST(FunctorQueue, AQueueThatIsEmptiedStaysInItsBlock) {
  CountingSource source;
  functor_queue<> q(source);
  int runs = 0;
  for (int i = 0; i < 100'000; ++i) {
    q.push([&runs, pad = std::array<char, 100>()] { runs += 1 + pad[7]; });
    q.run_one();
  }
  EXPECT_EQ(runs, 100'000);
  EXPECT_EQ(source.requests(), 1u);
}

TEST(FunctorQueue, RetentionIsBounded) {
  CountingSource source;
  functor_queue<> q(source, {.block_bytes = 1024, .retained_blocks = 3});
  int runs = 0;
  for (int i = 0; i < 1000; ++i)
    q.push([&runs, pad = std::array<char, 100>()] { runs += 1 + pad[7]; });
  EXPECT_GT(source.blocks(), 100u);
  q.run_all();
  EXPECT_LE(source.blocks(), 4u) << "three kept and the last";
  q.push([&runs, giant = std::array<char, 100'000>()] { runs += 1 + giant[7]; });
  EXPECT_GT(source.bytes(), 100'000u);
  q.run_all();
  EXPECT_LT(source.bytes(), 5000u) << "a block of its own is never kept";
  EXPECT_EQ(q.bytes(), source.bytes());
  q.trim();
  EXPECT_EQ(source.blocks(), 0u);
  q.push([&runs] { ++runs; });
  EXPECT_EQ(q.run_all(), 1u);
}

TEST(FunctorQueue, AFunctorMayUseItsQueue) {
  CountingSource source;
  functor_queue<> q(source, {.block_bytes = 512, .retained_blocks = 2});
  std::vector<int> seen;
  std::function<void(int)> repost = [&](int left) {
    seen.push_back(left);
    if (left != 0)
      q.push([&repost, left, pad = std::array<char, 100>()] { repost(left - 1 + pad[3]); });
  };
  q.push([&] { repost(50); });
  EXPECT_EQ(q.run_all(), 51u);
  EXPECT_EQ(seen.back(), 0);
  // A functor runs the rest of the queue, which is several blocks.
  int inner = 0;
  bool alive_after = false;
  q.push([&, text = std::string(200, 'y')] {
    for (int i = 0; i < 50; ++i)
      q.push([&inner, pad = std::array<char, 100>()] { inner += 1 + pad[1]; });
    EXPECT_EQ(q.run_all(), 50u);
    alive_after = text == std::string(200, 'y');
  });
  q.run_all();
  EXPECT_EQ(inner, 50);
  EXPECT_TRUE(alive_after) << "its bytes are its own until it returns";
  q.push([&] { q.clear(); });
  q.push([&] { ADD_FAILURE() << "cleared functors do not run"; });
  EXPECT_EQ(q.run_all(), 1u);
}

TEST(FunctorQueue, ClearDropMoveAndSwap) {
  Tracked::live = 0;
  CountingSource source;
  functor_queue<> a(source), b(source);
  int runs = 0;
  for (int i = 0; i < 100; ++i) a.push([&runs, t = Tracked(i)] { ++runs; });
  EXPECT_TRUE(a.drop_one());
  EXPECT_EQ(Tracked::live, 99);
  functor_queue<> c(std::move(a));
  EXPECT_EQ(c.size(), 99u);
  EXPECT_TRUE(a.empty());  // NOLINT: the moved-from state is promised
  a.push([&runs] { runs += 1000; });
  swap(a, c);
  EXPECT_EQ(c.run_all(), 1u);
  EXPECT_EQ(runs, 1000);
  b.push([&runs, t = Tracked(1)] { ++runs; });
  b = std::move(a);
  EXPECT_EQ(Tracked::live, 99);
  b.clear();
  EXPECT_EQ(Tracked::live, 0);
  EXPECT_EQ(runs, 1000);
  EXPECT_FALSE(b.drop_one());
  for (int i = 0; i < 10; ++i) b.push([&runs, t = Tracked(i)] { ++runs; });
}

// Random operations against a deque of numbers.
TEST(FunctorQueue, RandomOperationsAgreeWithAModel) {
  auto random = test::seeded(5);
  LOAM_TRACE_SEED(random);
  Tracked::live = 0;
  {
    CountingSource source;
    functor_queue<void(std::vector<int>&)> q(source, {.block_bytes = 700, .retained_blocks = 2});
    std::deque<int> model;
    std::vector<int> ran;
    const auto push = [&]<size_t Bytes>(int i) {
      struct alignas(Bytes >= 256 ? 64 : 8) Pad {
        std::array<char, Bytes> bytes;
      };
      q.push([i, t = Tracked(i), pad = Pad{}](std::vector<int>& out) {
        out.push_back(i + pad.bytes[0]);
        if (i % 11 == 0) throw i;
      });
      model.push_back(i);
    };
    test::MustRun some_run{"a queue that is not empty runs"};
    for (int step = 0; step < 30'000; ++step) {
      const uint64_t what = random.below(100);
      const uint64_t filling = step / 3000 % 2 == 0 ? 60 : 40;
      if (what < filling) {
        if (random.chance(3)) source.fail_after(0);
        try {
          switch (random.below(5)) {
            case 0:
              push.operator()<1>(step);
              break;
            case 1:
              push.operator()<40>(step);
              break;
            case 2:
              push.operator()<200>(step);
              break;
            case 3:
              push.operator()<300>(step);
              break;
            default:
              push.operator()<2000>(step);
              break;
          }
        } catch (const std::bad_alloc&) {
        }
        source.never_fail();
      } else if (what < 90) {
        ran.clear();
        bool did = true;
        try {
          did = q.run_one(ran);
        } catch (int i) {
          ASSERT_EQ(i % 11, 0);
        }
        ASSERT_EQ(did, !model.empty());
        if (did) {
          some_run.ran();
          ASSERT_EQ(ran, std::vector<int>{model.front()});
          model.pop_front();
        }
      } else if (what < 96) {
        if (q.drop_one()) model.pop_front();
      } else if (what < 98) {
        q.trim();
      } else if (what < 99) {
        functor_queue<void(std::vector<int>&)> other(std::move(q));
        swap(q, other);
      } else if (random.chance(5)) {
        q.clear();
        model.clear();
      }
      ASSERT_EQ(q.size(), model.size());
      ASSERT_EQ(static_cast<size_t>(Tracked::live), model.size());
      ASSERT_EQ(q.bytes(), source.bytes());
    }
  }
  EXPECT_EQ(Tracked::live, 0);
}

}  // namespace
}  // namespace loam
