#include "loam/class_heap.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace game {

struct particle : loam::with_heap<particle> {
  particle() = default;
  explicit particle(int n) : number(n) {
    if (n < 0) throw std::runtime_error("negative");
  }
  int number = 0;
  float position[3] = {};
};
struct spark : particle {
  std::string colour = "a colour whose name does not fit into the string itself";
  virtual ~spark() = default;
};

struct alignas(256) matrix : loam::with_heap<matrix> {
  std::array<float, 64> values{};
};

struct bounded : loam::with_heap<bounded> {
  static loam::heap_options class_heap_options() {
    return {.maximum = 512 << 10, .exact_sizes = true, .name = "bounded things"};
  }
  std::array<char, 1000> bytes;
};

// Objects are made before main and destroyed after it, in any order.
struct early : loam::with_heap<early> {
  int value = 42;
};
const std::unique_ptr<early> at_start = std::make_unique<early>();

}  // namespace game

namespace loam {
namespace {

using namespace game;

size_t live(const heap_ref& h) { return h.summary().blocks; }

TEST(ClassHeap, ObjectsOfAClassLiveInItsHeap) {
  const size_t before = live(particle::class_heap());
  auto p = std::make_unique<particle>(3);
  EXPECT_EQ(heap_of(p.get()), particle::class_heap());
  EXPECT_STREQ(particle::class_heap().name(), "game::particle");
  EXPECT_EQ(live(particle::class_heap()), before + 1);
  EXPECT_NE(particle::class_heap(), matrix::class_heap());
  p.reset();
  EXPECT_EQ(live(particle::class_heap()), before);
  std::unique_ptr<spark> s(new spark);
  EXPECT_EQ(heap_of(s.get()), particle::class_heap()) << "a derived class shares it";
}

TEST(ClassHeap, EveryFormOfNewAndDelete) {
  const heap_ref h = particle::class_heap(), m = matrix::class_heap();
  const size_t particles = live(h), matrices = live(m);
  auto* array = new particle[100];
  EXPECT_EQ(heap_of(array), h);
  delete[] array;
  auto* quiet = new (std::nothrow) particle(1);
  EXPECT_TRUE(h.owns(quiet));
  delete quiet;
  auto* quiet_array = new (std::nothrow) particle[3];
  delete[] quiet_array;
  auto* wide = new matrix;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(wide) % 256, 0u);
  EXPECT_EQ(heap_of(wide), m);
  delete wide;
  auto* wide_array = new matrix[5];
  EXPECT_EQ(reinterpret_cast<uintptr_t>(wide_array) % 256, 0u);
  delete[] wide_array;
  auto* wide_quiet = new (std::nothrow) matrix[2];
  delete[] wide_quiet;
  alignas(particle) char room[sizeof(particle)];
  auto* placed = new (room) particle(9);
  EXPECT_EQ(static_cast<void*>(placed), static_cast<void*>(room));
  placed->~particle();
  EXPECT_THROW(new particle(-1), std::runtime_error);
  EXPECT_THROW(new (std::nothrow) particle(-1), std::runtime_error);
  std::vector<particle> ordinary(10);  // std::allocator: not from the class's heap
  EXPECT_NE(heap_of(ordinary.data()), h);
  EXPECT_EQ(live(h), particles) << "what a throwing constructor left was given back";
  EXPECT_EQ(live(m), matrices);
}

TEST(ClassHeap, OptionsLimitsAndTheNewHandler) {
  EXPECT_STREQ(bounded::class_heap().name(), "bounded things");
  std::vector<std::unique_ptr<bounded>> all;
  EXPECT_THROW(for (;;) all.push_back(std::make_unique<bounded>()), std::bad_alloc);
  EXPECT_GT(all.size(), 300u);
  EXPECT_LT(all.size(), 525u);
  EXPECT_EQ(new (std::nothrow) bounded, nullptr);
  static std::vector<std::unique_ptr<bounded>>* victims;
  static int calls;
  victims = &all;
  calls = 0;
  std::set_new_handler([] {
    ++calls;
    victims->resize(victims->size() / 2);
    bounded::class_heap().compact();
  });
  const auto one_more = std::make_unique<bounded>();
  std::set_new_handler(nullptr);
  EXPECT_GE(calls, 1);
  EXPECT_NE(one_more, nullptr);
}

struct contested : with_heap<contested> {
  int x = 0;
};

TEST(ClassHeap, IsMadeOnceWhateverThreadComesFirst) {
  const size_t before = heaps().size();
  std::vector<std::thread> threads;
  std::array<contested*, 8> made{};
  for (size_t i = 0; i < made.size(); ++i) {
    threads.emplace_back([&, i] { made[i] = new contested; });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(heaps().size(), before + 1);
  for (contested* c : made) {
    EXPECT_EQ(heap_of(c), contested::class_heap());
    delete c;
  }
}

TEST(ClassHeap, WorksBeforeMain) {
  EXPECT_EQ(at_start->value, 42);
  EXPECT_EQ(heap_of(at_start.get()), early::class_heap());
}

// The first static object is destroyed last. A class's heap that was a static object would be
// destroyed before it.
TEST(ClassHeapDeathTest, WorksAtExit) {
  EXPECT_EXIT(
      {
        static struct late {
          std::unique_ptr<early> object;
          ~late() {
            object.reset();
            auto another = std::make_unique<early>();
            std::_Exit(another->value == 42 ? 0 : 1);
          }
        } last;
        last.object = std::make_unique<early>();
        std::exit(7);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loam
