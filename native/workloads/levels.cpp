// levels: heaps that only allocate (article 000).
//
// Article: "CRT Heap Fragmentation in Windows" (2005) describes console games. Early games had
// heaps that only allocate and are reset at the end of a level. Later ones had a heap each for the
// enemies' virtual-machine stacks, for particles, and for dynamic models.
//
// A level loads objects of mixed types (models and their buffers, stacks, actors, names), plays a
// number of frames (particles are born and die, stacks are replaced, objects are read), and then
// drops everything at once. These are the variants:
//
//   free            frees the objects one by one
//   private-heap    has one private heap a level and destroys it
//   arena           bumps a pointer, ignores frees and is reset
//   loam-arena      is the library's own, whose blocks double in size up to 1 MiB
//   separate-heaps  has private heaps for particles, stacks and models beside malloc
//
// Only some allocators have private heaps (harness/private_heap.h); the start line says so.
//
// Parameters: --live (bytes that a level loads), --frames, --levels, --variant.
//
// Measured: per level the seconds of loading, playing and dropping, and resident memory when
// loaded, at the end of play, and after dropping; "slowdown" is a level's time over the first's. An
// operation is an allocation or a free; dropping a whole heap is none. Between variants the heap
// gives memory back. The checkpoint is taken when the level is dropped.
#include <algorithm>

#include "harness/allocator.h"
#include "harness/block.h"
#include "harness/private_heap.h"
#include "harness/random.h"
#include "harness/recorder.h"
#include "loam/arena.hpp"

namespace {

using namespace lab;

enum Type : uint8_t { kModel, kStack, kActor, kName, kParticle, kTypes };

struct Kind {
  uint32_t least, most;  // bytes of an object
  uint32_t share;        // per cent of a level's bytes; particles are added during play
};
constexpr Kind kKinds[kTypes] = {
    {2'048, 262'144, 60}, {1'024, 8'192, 15}, {96, 640, 15}, {16, 80, 10}, {48, 48, 0}};

// Particles: this many are born each frame, and each lives a number of frames.
constexpr uint32_t kBirths = 2'000, kLeastLife = 2, kMostLife = 20;

struct Object {
  void* address;
  uint32_t bytes;
  Type type;
};

// Bump allocation in chunks from malloc; reset keeps the chunks.
class Arena {
 public:
  void* allocate(uint32_t bytes) {
    const size_t n = (bytes + size_t{15}) & ~size_t{15};
    if (current_ == nullptr || kChunk - used_ < n) advance();
    void* p = reinterpret_cast<char*>(current_) + used_;
    used_ += n;
    return p;
  }
  void reset() {
    current_ = first_;
    used_ = kHeader;
  }
  void release() {
    while (first_) {
      Chunk* next = first_->next;
      std::free(first_);
      first_ = next;
    }
    current_ = nullptr;
  }

 private:
  static constexpr size_t kChunk = 4 << 20, kHeader = 16;
  static_assert(kKinds[kModel].most + kHeader < kChunk, "the largest object fits into a chunk");
  struct Chunk {
    Chunk* next;
  };
  void advance() {
    if (current_ && current_->next) {
      current_ = current_->next;
    } else {
      auto* chunk = static_cast<Chunk*>(must(std::malloc(kChunk), kChunk));
      chunk->next = nullptr;
      (current_ ? current_->next : first_) = chunk;
      current_ = chunk;
    }
    used_ = kHeader;
  }
  Chunk *first_ = nullptr, *current_ = nullptr;
  size_t used_ = kHeader;
};

// How a level gets and returns its memory. begin() and drop() bracket a level.
struct FreeEach {
  static constexpr bool kDropsAtOnce = false;
  void begin() {}
  void* allocate(Type, uint32_t bytes) { return must(std::malloc(bytes), bytes); }
  void free(const Object& o) { std::free(o.address); }
  void drop() {}
  void finish() {}
};

struct OneHeap {
  static constexpr bool kDropsAtOnce = true;
  PrivateHeap heap;
  void begin() { heap.create(); }
  void* allocate(Type, uint32_t bytes) { return heap.allocate(bytes); }
  void free(const Object& o) { heap.free(o.address); }
  void drop() { heap.destroy(); }
  void finish() {}
};

struct InArena {
  static constexpr bool kDropsAtOnce = true;
  Arena arena;
  void begin() {}
  void* allocate(Type, uint32_t bytes) { return arena.allocate(bytes); }
  void free(const Object&) {}
  void drop() { arena.reset(); }
  void finish() { arena.release(); }
};

struct InLoamArena {
  static constexpr bool kDropsAtOnce = true;
  loam::arena arena;
  void begin() {}
  void* allocate(Type, uint32_t bytes) { return must(arena.try_allocate(bytes), bytes); }
  void free(const Object&) {}
  void drop() { arena.reset(); }
  void finish() { arena.release(); }
};

struct SeparateHeaps {
  static constexpr bool kDropsAtOnce = false;  // actors and names are freed one by one
  PrivateHeap heaps[kTypes];
  static bool own(Type t) { return t == kModel || t == kStack || t == kParticle; }
  void begin() {
    for (const Type t : {kModel, kStack, kParticle}) heaps[t].create();
  }
  void* allocate(Type t, uint32_t bytes) {
    return own(t) ? heaps[t].allocate(bytes) : must(std::malloc(bytes), bytes);
  }
  void free(const Object& o) { own(o.type) ? heaps[o.type].free(o.address) : std::free(o.address); }
  void drop() {
    for (const Type t : {kModel, kStack, kParticle}) heaps[t].destroy();
  }
  void finish() {}
};

struct Plan {
  uint64_t seed, live, frames, levels;
};

// The tables of a level: the loaded objects, and the particles by the frame in which they die.
struct Tables {
  Table<Object> objects;
  Table<uint32_t> stacks;  // indices into objects
  Table<void*> dying[kMostLife + 1];
  uint32_t dying_count[kMostLife + 1] = {};

  explicit Tables(uint64_t live) : objects(live / 40 + 4'096), stacks(live / 4'096 + 4'096) {
    for (auto& d : dying) d = Table<void*>(kBirths * (kMostLife + 1));
  }
};

template <typename Memory>
class Play {
 public:
  Play(std::string_view variant, const Plan& plan, Tables& tables, Recorder& recorder)
      : variant_(variant),
        plan_(plan),
        tables_(tables),
        recorder_(recorder),
        sampler_(recorder.sampler()) {}

  void level(uint64_t number, uint64_t index) {
    random_ = stream(plan_.seed, number);
    operations_ = live_ = object_count_ = stack_count_ = 0;
    recorder_.resume();
    uint64_t began = now_ns();
    memory_.begin();
    load();
    const double load_seconds = since(began);
    recorder_.pause();
    const uint64_t loaded = memory_figures().resident;
    const uint64_t loaded_live = live_;
    recorder_.resume();
    began = now_ns();
    for (uint64_t f = 0; f < plan_.frames; ++f) frame(f);
    const double play_seconds = since(began);
    recorder_.pause();
    const uint64_t played = memory_figures().resident;
    recorder_.resume();
    began = now_ns();
    drop();
    const double drop_seconds = since(began);
    recorder_.pause();
    recorder_.take(sampler_);
    const double seconds = load_seconds + play_seconds + drop_seconds;
    if (number == 0) first_seconds_ = seconds;
    recorder_
        .checkpoint({.variant = variant_,
                     .series = "levels",
                     .index = index,
                     .x = number + 1,
                     .x_unit = "level",
                     .operations = operations_})
        .add("load_seconds", load_seconds)
        .add("play_seconds", play_seconds)
        .add("drop_seconds", drop_seconds)
        .add("slowdown", seconds / first_seconds_)
        .add("objects", object_count_)
        .add("loaded_live_bytes", loaded_live)
        .add("loaded_resident_bytes", loaded)
        .add("loaded_overhead", recorder_.overhead(loaded, loaded_live))
        .add("played_resident_bytes", played);
  }
  void finish() { memory_.finish(); }
  uint64_t checksum() const { return checksum_.value(); }

 private:
  static double since(uint64_t began) { return static_cast<double>(now_ns() - began) * 1e-9; }

  Object make(Type type) {
    const Kind& kind = kKinds[type];
    // Small sizes are more likely, as with objects of one type: the product of two uniform numbers.
    const uint32_t spread = kind.most - kind.least;
    const uint32_t bytes = kind.least + static_cast<uint32_t>(uint64_t{random_.below(spread + 1)} *
                                                              random_.below(1024) / 1024);
    checksum_.add(bytes * kTypes + type);
    Object o{nullptr, bytes, type};
    sampler_.run([&] {
      o.address = memory_.allocate(type, bytes);
      touch(o.address, bytes);
    });
    ++operations_;
    live_ += bytes;
    return o;
  }
  void unmake(const Object& o) {
    sampler_.run([&] { memory_.free(o); });
    ++operations_;
    live_ -= o.bytes;
  }

  // Types are mixed; each is drawn until it has its share.
  void load() {
    uint64_t left[kTypes];
    for (int t = 0; t < kTypes; ++t) left[t] = plan_.live * kKinds[t].share / 100;
    for (bool any = true; any;) {
      any = false;
      for (const Type type : {kModel, kStack, kActor, kName}) {
        // A model comes with dozens of small things.
        const int batch = type == kModel ? 1 : type == kStack ? 2 : type == kActor ? 16 : 64;
        for (int i = 0; i < batch && left[type] != 0; ++i) {
          if (object_count_ == tables_.objects.size() || stack_count_ == tables_.stacks.size()) {
            fail(kExitFailed, "levels: the table of a level's objects is full");
          }
          const Object o = make(type);
          left[type] -= std::min<uint64_t>(left[type], o.bytes);
          if (type == kStack) tables_.stacks[stack_count_++] = object_count_;
          tables_.objects[object_count_++] = o;
          any = true;
        }
      }
    }
  }

  void frame(uint64_t number) {
    auto& dead = tables_.dying_count[number % (kMostLife + 1)];
    auto& list = tables_.dying[number % (kMostLife + 1)];
    for (uint32_t i = 0; i < dead; ++i) unmake({list[i], kKinds[kParticle].most, kParticle});
    dead = 0;
    for (uint32_t i = 0; i < kBirths; ++i) {
      const Object o = make(kParticle);
      const uint64_t end = (number + random_.between(kLeastLife, kMostLife)) % (kMostLife + 1);
      tables_.dying[end][tables_.dying_count[end]++] = o.address;
    }
    for (int i = 0; i < 4; ++i) {  // a script ends, and another begins
      Object& stack = tables_.objects[tables_.stacks[random_.below(stack_count_)]];
      unmake(stack);
      stack = make(kStack);
    }
    for (int i = 0; i < 200; ++i) {  // objects are drawn
      const Object& o = tables_.objects[random_.below(object_count_)];
      seen_ += *static_cast<volatile unsigned char*>(o.address);
    }
  }

  void drop() {
    if (Memory::kDropsAtOnce) {
      memory_.drop();
    } else {
      for (uint32_t f = 0; f <= kMostLife; ++f) {
        for (uint32_t i = 0; i < tables_.dying_count[f]; ++i) {
          drop_one({tables_.dying[f][i], kKinds[kParticle].most, kParticle});
        }
      }
      for (uint32_t i = 0; i < object_count_; ++i) drop_one(tables_.objects[i]);
      memory_.drop();
    }
    std::fill(std::begin(tables_.dying_count), std::end(tables_.dying_count), 0u);
  }
  void drop_one(const Object& o) {
    if constexpr (std::is_same_v<Memory, SeparateHeaps>) {
      if (SeparateHeaps::own(o.type)) return;  // destroyed with its heap
    }
    unmake(o);
  }

  std::string_view variant_;
  const Plan& plan_;
  Tables& tables_;
  Recorder& recorder_;
  LatencySampler sampler_;
  Memory memory_;
  Random random_{0};
  Checksum checksum_;
  uint64_t operations_ = 0, live_ = 0, seen_ = 0;
  uint32_t object_count_ = 0, stack_count_ = 0;
  double first_seconds_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("levels", "a game's levels: load, play, drop everything at once", argc, argv);
  Plan plan;
  plan.seed = args.seed();
  plan.live = args.bytes("live", 50'000'000, 400'000'000, 1'000'000, uint64_t{1} << 36,
                         "bytes that a level loads");
  plan.frames = args.number("frames", 150, 1'000, 1, 1'000'000, "of a level");
  plan.levels = args.number("levels", 5, 20, 1, 10'000, "played by each variant");
  const auto variant = args.choice(
      "variant", {"all", "free", "private-heap", "arena", "loam-arena", "separate-heaps"},
      "where a level's objects live");
  args.done();

  const Trim trim;
  const std::string_view provider = PrivateHeap::provider();
  Recorder recorder(args);
  Tables tables(plan.live);
  const bool heaps_wanted = variant == "private-heap" || variant == "separate-heaps";
  recorder.start()
      .add("trim", trim.name())
      .add("private_heaps", provider.empty() ? "none" : provider)
      .add("available", !heaps_wanted || !provider.empty());
  if (heaps_wanted && provider.empty()) {
    recorder.finish().add("unavailable", "the allocator in this process has no private heaps");
    return 0;
  }

  uint64_t index = 0, checksum = 0;
  bool first = true;
  const auto play = [&]<typename Memory>(std::string_view name, bool available) {
    if (!available || (variant != "all" && variant != name)) return;
    trim();
    recorder.restart_peak();
    Play<Memory> game(name, plan, tables, recorder);
    for (uint64_t level = 0; level < plan.levels; ++level) game.level(level, index++);
    game.finish();
    if (!first && checksum != game.checksum()) {
      fail(kExitFailed, "levels: two variants saw different requests");
    }
    checksum = game.checksum();
    first = false;
  };
  play.operator()<FreeEach>("free", true);
  play.operator()<OneHeap>("private-heap", !provider.empty());
  play.operator()<InArena>("arena", true);
  play.operator()<InLoamArena>("loam-arena", true);
  play.operator()<SeparateHeaps>("separate-heaps", !provider.empty());
  recorder.finish().hex("checksum", checksum);
}
