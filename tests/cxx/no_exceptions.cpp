// Every part of the C++ interface in a program without exceptions and RTTI: it compiles and works.
// Without memory it ends with a message (argument `exhaust`), except in try_ forms.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <vector>

#include "loam/loam.hpp"

#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) {                                            \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      return 1;                                                    \
    }                                                              \
  } while (false)

namespace {

struct particle : loam::with_heap<particle> {
  std::array<float, 6> state{};
};

int use_everything() {
  loam::heap h({.maximum = 4 << 20, .name = "small"});
  CHECK(h.try_allocate(8 << 20) == nullptr);
  CHECK(loam_last_status() == LOAM_LIMIT_REACHED);
  CHECK(!loam::heap::try_create({.initial = 8 << 20, .maximum = 4 << 20}));
  {
    std::vector<int, loam::allocator<int>> v(1000, 7, loam::allocator<int>(h));
    loam::memory_resource resource(h);
    std::pmr::list<std::pmr::string> l(&resource);
    l.emplace_back("a string that is too long for its own body");
    CHECK(resource.is_equal(resource));
    loam::arena a(h);
    loam::arena_resource arena_resource(a);
    std::pmr::vector<int> w(100, 1, &arena_resource);
    CHECK(*a.make<std::string>(50, 'x') == std::string(50, 'x'));
    CHECK(a.try_allocate(8 << 20) == nullptr);
    loam::pool<std::string> p(h.source());
    p.destroy(p.construct(50, 'y'));
    loam::node_pools pools(h);
    std::list<int, loam::pool_allocator<int>> nodes(100, 3, pools);
    loam::buffer_cache cache(loam::bucketed(), h.source());
    cache.give_back(cache.get(500));
    CHECK(cache.try_get(8 << 20).data == nullptr);
    loam::functor_queue<> q(h.source());
    loam::concurrent_functor_queue<> c(h.source());
    int runs = 0;
    for (int i = 0; i < 100; ++i) {
      q.push([&runs, s = std::string(50, 'z')] { runs += s.size() == 50; });
      c.push([&runs, s = std::string(50, 'z')] { runs += s.size() == 50; });
    }
    CHECK(q.run_all() == 100 && c.run_all() == 100 && runs == 200);
    const std::lock_guard lock(h);
    CHECK(h.begin() != h.end());
  }
  CHECK(h.summary().blocks == 0);
  const auto object = std::make_unique<particle>();
  CHECK(loam::heap_of(object.get()) == particle::class_heap());
  particle* more = new (std::nothrow) particle[10];
  CHECK(more != nullptr);
  delete[] more;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "exhaust") == 0) {
    const loam::heap h({.maximum = 1 << 20});
    loam::arena a(h.source());
    for (;;) static_cast<void>(a.allocate(1000));
  }
  return use_everything();
}
