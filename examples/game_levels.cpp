// A game's levels. What lives exactly as long as a level (map, models, names) lies in an arena:
// allocated by moving a pointer, dropped by reset(). What comes and goes while the level is played
// (enemies, sparks) lies in a heap of the level's own, which ends with the level, whatever is still
// in it. So no level can fragment the next one's memory, and level ten needs what level one needed.
//
//   c++ -std=c++20 game_levels.cpp $(pkg-config --cflags --libs loam)
#include <cstdint>
#include <cstdio>
#include <list>
#include <loam/loam.hpp>
#include <string>
#include <vector>

namespace {

// A generator of our own, so that the output is the same everywhere.
class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed * 2654435761u + 1) {}
  std::size_t roll(std::size_t sides) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state_ >> 33) % sides;
  }

 private:
  std::uint64_t state_;
};

template <typename T>
using level_vector = std::vector<T, loam::arena_allocator<T>>;
using level_string = std::basic_string<char, std::char_traits<char>, loam::arena_allocator<char>>;

struct model {
  level_string name;
  level_vector<float> vertices;
};

// Loaded once, read every frame, never changed: the arena's part.
struct scene {
  explicit scene(loam::arena& memory, dice& random, int level)
      : models(loam::arena_allocator<model>(memory)) {
    const std::size_t count = 200 + 20 * static_cast<std::size_t>(level);
    models.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      model one{
          level_string("level " + std::to_string(level) + ", a model with a long name, number ",
                       loam::arena_allocator<char>(memory)),
          level_vector<float>(300 + random.roll(1500), 1.0f, loam::arena_allocator<float>(memory))};
      one.name += std::to_string(i).c_str();
      models.push_back(std::move(one));
    }
  }
  level_vector<model> models;
};

// Made and destroyed all the time, in every order: the heap's part.
struct spark {
  float place[3];
  int frames_left;
};
struct enemy {
  std::size_t health;
  std::vector<int, loam::allocator<int>> inventory;
};

struct played {
  std::size_t born = 0;
  std::size_t blocks_at_the_end = 0;
};

played play(const loam::heap& heap, dice& random, int level) {
  std::list<spark, loam::allocator<spark>> sparks{loam::allocator<spark>(heap)};
  auto& enemies = *::new (heap.allocate(sizeof(std::list<enemy, loam::allocator<enemy>>)))
                      std::list<enemy, loam::allocator<enemy>>{loam::allocator<enemy>(heap)};
  played result;
  for (int frame = 0; frame < 600; ++frame) {
    for (std::size_t i = random.roll(40); i != 0; --i) {
      sparks.push_back({{0, 0, 0}, static_cast<int>(5 + random.roll(60))});
      ++result.born;
    }
    for (auto s = sparks.begin(); s != sparks.end();) {
      s = --s->frames_left == 0 ? sparks.erase(s) : std::next(s);
    }
    if (random.roll(4) == 0) {
      enemies.push_back({50 + 10 * static_cast<std::size_t>(level),
                         std::vector<int, loam::allocator<int>>(random.roll(100), 0,
                                                                loam::allocator<int>(heap))});
      ++result.born;
    }
    enemies.remove_if([&](enemy& e) { return random.roll(100) == 0 || --e.health == 0; });
  }
  // The player has reached the exit. Nobody destroys the enemies that are left: their memory is the
  // heap's, and they own nothing else.
  result.blocks_at_the_end = heap.summary().blocks;
  return result;
}

}  // namespace

int main() {
  loam::arena level_memory;
  const std::size_t heaps_before = loam::heaps().size();
  bool kept = true;
  for (int level = 1; level <= 10; ++level) {
    dice random(static_cast<std::uint64_t>(level));
    const loam::heap level_heap({.maximum = std::size_t{16} << 20, .name = "level"});
    // Made by the arena, so reset() destroys it.
    const scene* const scenery = level_memory.make<scene>(level_memory, random, level);
    const played result = play(level_heap, random, level);
    std::printf("level %2d: %zu models, %5zu sparks and enemies, %s\n", level,
                scenery->models.size(), result.born,
                result.blocks_at_the_end > 1 ? "some left at the end" : "none left at the end");
    // The blocks of one level serve the next: ten levels need hardly more than the largest.
    kept = kept && level_memory.capacity() < 3 * level_memory.used();
    level_memory.reset();
  }
  std::printf("the arena never held three times what its level used: %s\n", kept ? "yes" : "no");
  std::printf("%zu heaps before, %zu after\n", heaps_before, loam::heaps().size());
  return 0;
}
