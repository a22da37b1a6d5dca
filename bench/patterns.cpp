// patterns: what a heap holds at the peak of thirty ways in which programs grow and shrink.
//
//   patterns --pattern csv --seed 1    one line of JSON: bytes requested at the most, the kernel's
//                                      peak beyond the start, what is resident after all is freed,
//                                      processor seconds
//   patterns --list yes                the names
//
// Each pattern follows reports about real programs: what they allocate, how it grows and in which
// order it goes. Every byte is written. Their own tables lie in the heap, as those of programs do.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/system.h"

namespace {

using namespace lab;

std::atomic<int64_t> live_bytes{0}, most_live{0};

void count(int64_t change) {
  const int64_t now = live_bytes += change;
  int64_t most = most_live;
  while (now > most && !most_live.compare_exchange_weak(most, now)) {
  }
}

/// A written block. Its owner frees it.
struct Block {
  char* memory = nullptr;
  size_t bytes = 0;
};
using Blocks = std::vector<Block>;

Block get(size_t bytes) {
  Block block{static_cast<char*>(must(std::malloc(bytes), bytes)), bytes};
  std::memset(block.memory, 1, bytes);
  count(static_cast<int64_t>(bytes));
  return block;
}

Block get_aligned(size_t bytes, size_t alignment) {
  bytes = (bytes + alignment - 1) / alignment * alignment;
  Block block{static_cast<char*>(must(std::aligned_alloc(alignment, bytes), bytes)), bytes};
  std::memset(block.memory, 1, bytes);
  count(static_cast<int64_t>(bytes));
  return block;
}

void put(Block& block) {
  std::free(block.memory);
  count(-static_cast<int64_t>(block.bytes));
  block = {};
}

void put(Blocks& blocks) {
  for (Block& block : blocks) put(block);
  blocks.clear();
}

/// Frees the oldest ones until so many are left.
template <typename Element>
void keep(std::deque<Element>& all, size_t most) {
  for (; all.size() > most; all.pop_front()) put(all.front());
}

void resize(Block& block, size_t bytes) {
  const size_t before = block.bytes;
  block.memory = static_cast<char*>(must(std::realloc(block.memory, bytes), bytes));
  if (bytes > before) std::memset(block.memory + before, 1, bytes - before);
  block.bytes = bytes;
  count(static_cast<int64_t>(bytes) - static_cast<int64_t>(before));
}

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  double share() { return static_cast<double>(random_.next() >> 11) * 0x1p-53; }
  size_t between(size_t low, size_t high) {
    return random_.between(static_cast<uint32_t>(low), static_cast<uint32_t>(high));
  }
  size_t below(size_t n) { return random_.below(static_cast<uint32_t>(n)); }
  bool one_in(size_t n) { return below(n) == 0; }
  /// Any magnitude is as likely.
  size_t magnitude(double low, double high) {
    return static_cast<size_t>(low * std::pow(high / low, share()));
  }
  size_t lognormal(double median, double sigma) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += share();
    return static_cast<size_t>(median * std::exp(sigma * (sum - 6)));
  }
  /// One of the blocks, which leaves its place.
  Block pick(Blocks& blocks) {
    std::swap(blocks[below(blocks.size())], blocks.back());
    const Block block = blocks.back();
    blocks.pop_back();
    return block;
  }

 private:
  Random random_;
};

size_t part(size_t bytes, double share) {
  return static_cast<size_t>(static_cast<double>(bytes) * share);
}

// Tables of columns, of which the last two stay (column stores, data frames).
void columns(Chance& chance) {
  constexpr size_t kWidths[] = {1, 1, 2, 4, 4, 8, 8, 8, 16};
  std::deque<Blocks> tables;
  for (int i = 0; i < 120; ++i) {
    const size_t rows = chance.magnitude(10'000, 500'000);
    Blocks table;
    for (int c = 0; c < 16; ++c)
      table.push_back(get_aligned(rows * kWidths[chance.below(std::size(kWidths))], 64));
    table.push_back(get(rows * chance.between(5, 20)));
    tables.push_back(std::move(table));
    keep(tables, 2);
  }
  keep(tables, 0);
}

// One array that doubles, small blocks and one long one, again and again; a few long ones stay.
void arrays(Chance& chance) {
  Blocks kept;
  for (int i = 0; i < 200; ++i) {
    Block array = get(4096);
    const size_t most = chance.magnitude(1e6, 3e7);
    while (array.bytes < most) resize(array, 2 * array.bytes);
    Blocks small;
    for (int k = 0; k < 2000; ++k) small.push_back(get(chance.between(10, 300)));
    Block other = get(chance.magnitude(5e5, 2e7));
    put(array);
    put(small);
    put(other);
    if (i % 10 == 0) kept.push_back(get(chance.magnitude(1e5, 5e6)));
  }
  put(kept);
}

// Each of a hundred buffers is replaced by one that is half a per cent longer or shorter.
void swaps(Chance& chance) {
  Blocks all;
  for (int i = 0; i < 100; ++i) all.push_back(get(chance.between(1'950'000, 2'050'000)));
  for (int i = 0; i < 2000; ++i) {
    Block& block = all[chance.below(all.size())];
    const Block next = get(part(block.bytes, 0.995 + 0.01 * chance.share()));
    put(block);
    block = next;
  }
  put(all);
}

// Images that are made smaller in steps.
void images(Chance& chance) {
  for (int i = 0; i < 60; ++i) {
    size_t bytes = chance.magnitude(3e6, 6e7);
    Block image = get(bytes);
    Blocks smaller;
    for (int step = 0; step < 5; ++step) {
      bytes = part(bytes, 0.3 + 0.3 * chance.share());
      smaller.push_back(get(bytes));
      if (step > 0) smaller.push_back(get(bytes / 3));
    }
    put(image);
    Block result = get(bytes);
    put(smaller);
    put(result);
  }
}

// Lines in an array that doubles, then columns, then neither.
void csv(Chance& chance) {
  constexpr size_t kRows = 500'000;
  for (int file = 0; file < 4; ++file) {
    Block lines = get(64);
    Blocks texts;
    for (size_t row = 0; row < kRows; ++row) {
      if (row * 24 > lines.bytes) resize(lines, 2 * lines.bytes);
      texts.push_back(get(chance.between(10, 60)));
    }
    Blocks table;
    for (int c = 0; c < 10; ++c) table.push_back(get(kRows * 8));
    put(texts);
    put(lines);
    put(table);
  }
}

// Vectors that double to any length, at any time, and go.
void vectors(Chance& chance, size_t number, int steps, size_t first, double low, double high) {
  Blocks all(number);
  for (int i = 0; i < steps; ++i) {
    Block& block = all[chance.below(number)];
    if (block.memory == nullptr) {
      block = get(chance.between(first / 2, first));
    } else if (block.bytes < chance.magnitude(low, high)) {
      resize(block, 2 * block.bytes);
    } else {
      put(block);
    }
  }
  put(all);
}
void tiles(Chance& chance) { vectors(chance, 400, 60'000, 4000, 2e4, 4e6); }
void uploads(Chance& chance) { vectors(chance, 64, 4000, 65'536, 1e5, 2e7); }

// A cache of values of log-normal length, in the order of their arrival.
void cache(Chance& chance) {
  constexpr int64_t kRoom = 150'000'000;
  std::deque<Block> values;
  for (int i = 0; i < 600'000; ++i) {
    values.push_back(get(std::min<size_t>(chance.lognormal(800, 1.6) + 16, 5'000'000)));
    for (; live_bytes > kRoom; values.pop_front()) put(values.front());
  }
  keep(values, 0);
}

// Trees of one node length after the other. One node in fifty stays, of every other tree to the
// end.
void trees(Chance& chance) {
  Blocks stay;
  for (size_t round = 0; round < 6; ++round) {
    Blocks nodes;
    const size_t least = 16 + 16 * round;
    for (size_t bytes = 0; bytes < 80'000'000; bytes += nodes.back().bytes)
      nodes.push_back(get(chance.between(least, least * (2 + round))));
    Blocks old;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (i % 50 != 0) {
        put(nodes[i]);
      } else {
        (round % 2 == 0 ? stay : old).push_back(nodes[i]);
      }
    }
    put(old);
  }
  put(stay);
}

// Square matrices of any order; eight stay at a time.
void matrices(Chance& chance) {
  Blocks all;
  for (int i = 0; i < 400; ++i) {
    const size_t order = chance.between(200, 1500);
    all.push_back(get(order * order * 8));
    if (all.size() <= 8) continue;
    Block old = chance.pick(all);
    put(old);
  }
  put(all);
}

// Texts that double while they are written, and are cut to their length. Sixty stay.
void texts(Chance& chance) {
  std::deque<Block> all;
  for (int i = 0; i < 300; ++i) {
    const size_t length = chance.magnitude(2000, 8e6);
    Block text = get(64);
    while (text.bytes < length) resize(text, 2 * text.bytes);
    resize(text, length);
    all.push_back(text);
    keep(all, 60);
  }
  keep(all, 0);
}

// A queue that fills and drains, each time with messages of another length.
void queues(Chance& chance) {
  for (const size_t length : {4096u, 20'000u, 65'536u, 3000u, 40'000u, 1000u}) {
    std::deque<Block> queue;
    for (size_t bytes = 0; bytes < 150'000'000; bytes += queue.back().bytes)
      queue.push_back(get(part(length, 0.5 + chance.share())));
    keep(queue, 0);
  }
}

// A hash table that doubles, and its nodes.
void hashes(Chance&) {
  Blocks nodes;
  Block buckets = get(8192);
  for (int i = 0; i < 1'500'000; ++i) {
    nodes.push_back(get(48));
    if (nodes.size() * 8 <= buckets.bytes) continue;
    const Block more = get(2 * buckets.bytes);
    put(buckets);
    buckets = more;
  }
  put(nodes);
  put(buckets);
}

// Frames of one resolution after the other.
void frames(Chance& chance) {
  for (int i = 0; i < 12; ++i) {
    const size_t bytes = chance.magnitude(3e5, 8e6);
    Blocks all;
    for (size_t n = 80'000'000 / bytes; n != 0; --n) all.push_back(get_aligned(bytes, 32));
    for (int k = 0; k < 300; ++k) {
      Block& frame = all[chance.below(all.size())];
      put(frame);
      frame = get_aligned(bytes, 32);
    }
    put(all);
  }
}

// Tables in memory that fill, wait in a queue of four, and go whole.
void memtables(Chance& chance) {
  std::deque<Blocks> tables;
  for (int i = 0; i < 60; ++i) {
    Blocks table;
    for (size_t bytes = 0; bytes < 20'000'000; bytes += table.back().bytes)
      table.push_back(get(chance.one_in(500) ? 256 << 10 : chance.between(50, 1000)));
    tables.push_back(std::move(table));
    keep(tables, 4);
  }
  keep(tables, 0);
}

// Triplets in arrays that grow by half, then the arrays of a sparse matrix in their exact length.
void sparse_matrices(Chance& chance) {
  for (int i = 0; i < 10; ++i) {
    Blocks triplets = {get(64), get(64), get(64)};
    const size_t entries = chance.between(800'000, 3'000'000);
    while (triplets[0].bytes < entries * 4) {
      for (Block& array : triplets) resize(array, array.bytes * 3 / 2 + 8);
    }
    Blocks matrix = {get(entries * 4), get(entries * 8), get(400'000)};
    put(triplets);
    Blocks factor = {get(entries * 8), get(entries * 4)};
    put(matrix);
    put(factor);
  }
}

// One thread makes messages, another frees them in batches.
void pipeline(Chance& chance) {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Block> queue;
  bool is_over = false;
  std::thread consumer([&] {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return queue.size() > 800 || is_over; });
      if (queue.empty()) return;
      Blocks batch;
      for (; queue.size() > (is_over ? 0u : 400u); queue.pop_front())
        batch.push_back(queue.front());
      lock.unlock();
      changed.notify_all();
      put(batch);
    }
  });
  for (int i = 0; i < 40'000; ++i) {
    const Block message = get(chance.magnitude(1000, 300'000));
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.size() < 1600; });
    queue.push_back(message);
    changed.notify_all();
  }
  {
    const std::scoped_lock lock(mutex);
    is_over = true;
  }
  changed.notify_all();
  consumer.join();
}

// Four threads with peaks of their own, each of another size.
void staggered(Chance& chance) {
  std::vector<std::thread> threads;
  const size_t seed = chance.below(1'000'000);
  for (size_t number = 0; number < 4; ++number) {
    threads.emplace_back([number, seed] {
      Chance own(seed + number);
      for (size_t phase = 0; phase < 8; ++phase) {
        const size_t most = (phase + number) % 4 == 0 ? 50'000'000 : 5'000'000;
        const size_t least = own.magnitude(30, 3000);
        Blocks all;
        for (size_t bytes = 0; bytes < most; bytes += all.back().bytes)
          all.push_back(get(own.between(least, 4 * least)));
        put(all);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The layers of a network whose input has another size each time.
void tensors(Chance& chance) {
  Blocks weights;
  for (int i = 0; i < 30; ++i) weights.push_back(get_aligned(chance.magnitude(1e5, 4e6), 64));
  for (int i = 0; i < 80; ++i) {
    const double scale = 0.5 + chance.share();
    Blocks layers;
    for (size_t layer = 0; layer < 30; ++layer) {
      const double bytes = 1e5 + 4e6 * scale * std::exp(-0.15 * static_cast<double>(layer));
      layers.push_back(get_aligned(static_cast<size_t>(bytes), 64));
      Block scratch = get_aligned(static_cast<size_t>(2e5 + 2e6 * scale), 64);
      put(scratch);
      if (layer > 3 && layer % 2 == 1) put(layers[layer - 3]);
    }
    put(layers);
  }
  put(weights);
}

// Buffers of an editor that grow by a tenth and shrink by a twelfth.
void editors(Chance& chance) {
  Blocks all;
  for (int i = 0; i < 800; ++i) all.push_back(get(chance.magnitude(10'000, 400'000)));
  for (int i = 0; i < 30'000; ++i) {
    Block& buffer = all[chance.below(all.size())];
    resize(buffer, part(buffer.bytes, chance.share() < 0.55 ? 1.1 : 0.92));
    if (buffer.bytes <= 600'000 && buffer.bytes >= 5000) continue;
    put(buffer);
    buffer = get(chance.magnitude(10'000, 400'000));
  }
  put(all);
}

// Sorted runs, and what they are merged into.
void sorts(Chance& chance) {
  for (int i = 0; i < 8; ++i) {
    Blocks runs;
    for (int k = 0; k < 24; ++k) runs.push_back(get(chance.between(3'500'000, 4'500'000)));
    Block merged = get(50'000'000);
    while (!runs.empty()) {
      Block run = chance.pick(runs);
      put(run);
    }
    put(merged);
  }
}

// Meshes with levels of detail, of which sixty stay.
void meshes(Chance& chance) {
  std::vector<Blocks> all;
  for (int i = 0; i < 500; ++i) {
    Blocks levels;
    for (size_t points = chance.magnitude(1000, 60'000); points > 100; points /= 2) {
      levels.push_back(get(points * 32));
      levels.push_back(get(points * 12));
    }
    all.push_back(std::move(levels));
    if (all.size() <= 60) continue;
    std::swap(all[chance.below(all.size())], all.back());
    put(all.back());
    all.pop_back();
  }
  for (Blocks& levels : all) put(levels);
}

// Connections with compressors, and sessions with small blocks. All blocks of one go together.
void come_and_go(Chance& chance, size_t number, int steps,
                 const std::function<bool(Blocks&)>& add) {
  std::vector<Blocks> all(number);
  for (int i = 0; i < steps; ++i) {
    Blocks& one = all[chance.below(number)];
    if (!add(one)) put(one);
  }
  for (Blocks& one : all) put(one);
}
void connections(Chance& chance) {
  come_and_go(chance, 500, 20'000, [&](Blocks& one) {
    if (!one.empty()) return false;
    for (const size_t bytes : {5952u, 65'536u, 65'536u, 131'072u, 65'536u})
      one.push_back(get(bytes));
    one.push_back(get(chance.between(200, 20'000)));
    return true;
  });
}
void sessions(Chance& chance) {
  come_and_go(chance, 20'000, 300'000, [&](Blocks& one) {
    if (one.size() >= 6) return false;
    one.push_back(get(chance.magnitude(24, 4000)));
    return true;
  });
}

// Parts that become one, and what is selected from it.
void joins(Chance& chance) {
  for (int i = 0; i < 12; ++i) {
    Blocks parts;
    size_t sum = 0;
    for (int k = 0; k < 10; ++k) {
      parts.push_back(get(chance.magnitude(2e6, 8e6)));
      sum += parts.back().bytes;
    }
    Block whole = get(sum);
    put(parts);
    Blocks selected = {get(sum / 8), get(part(sum, chance.share()))};
    put(whole);
    put(selected);
  }
}

// Lists of neighbours that double, most of them short.
void graphs(Chance& chance) {
  Blocks all(100'000);
  for (Block& list : all) list = get(16);
  for (int i = 0; i < 3'000'000 && live_bytes < 200'000'000; ++i) {
    Block& list = all[part(all.size(), chance.share() * chance.share())];
    if (list.bytes < 20'000 && chance.one_in(4)) resize(list, 2 * list.bytes);
  }
  put(all);
}

// The usual length grows from 100 bytes to 27 KB. Each time, blocks go at random until 60 MB are
// left.
void shifts(Chance& chance) {
  Blocks all;
  for (int phase = 0; phase < 10; ++phase) {
    const double median = 100 * std::pow(2, phase * 0.9);
    for (size_t bytes = 0; bytes < 60'000'000; bytes += all.back().bytes)
      all.push_back(get(chance.lognormal(median, 0.3) + 1));
    while (live_bytes > 60'000'000) {
      Block old = chance.pick(all);
      put(old);
    }
  }
  put(all);
}

// States of an automaton, whose tables grow by half.
void automata(Chance& chance) {
  const auto state = [&] {
    Block table = get(256);
    const size_t length = chance.magnitude(300, 60'000);
    while (table.bytes < length) resize(table, table.bytes + table.bytes / 2);
    return table;
  };
  Blocks all;
  for (int i = 0; i < 6000; ++i) all.push_back(state());
  for (int i = 0; i < 40'000; ++i) {
    Block& old = all[chance.below(all.size())];
    put(old);
    old = state();
  }
  put(all);
}

// A document that each change writes anew, and a history of changes.
void documents(Chance& chance) {
  std::deque<Block> history;
  Block document = get(8'000'000);
  for (int i = 0; i < 1500; ++i) {
    const Block next = get(part(document.bytes, 0.98 + 0.045 * chance.share()));
    put(document);
    document = next;
    if (i % 3 == 0) history.push_back(get(chance.magnitude(100, 2e6)));
    keep(history, 100);
    if (document.bytes <= 20'000'000 && document.bytes >= 2'000'000) continue;
    put(document);
    document = get(8'000'000);
  }
  put(document);
  keep(history, 0);
}

// Aligned pages of a buffer pool, one in eight four times as long.
void pages(Chance& chance) {
  Blocks all;
  for (int i = 0; i < 30'000; ++i) all.push_back(get_aligned(4096, 4096));
  for (int i = 0; i < 100'000; ++i) {
    Block& page = all[chance.below(all.size())];
    put(page);
    page = get_aligned(chance.one_in(8) ? 16'384 : 4096, 4096);
  }
  put(all);
}

struct Pattern {
  std::string_view name;
  void (*run)(Chance& chance);
};
constexpr Pattern kPatterns[] = {
    {"arrays", arrays},
    {"automata", automata},
    {"cache", cache},
    {"columns", columns},
    {"connections", connections},
    {"csv", csv},
    {"documents", documents},
    {"editors", editors},
    {"frames", frames},
    {"graphs", graphs},
    {"hashes", hashes},
    {"images", images},
    {"joins", joins},
    {"matrices", matrices},
    {"memtables", memtables},
    {"meshes", meshes},
    {"pages", pages},
    {"pipeline", pipeline},
    {"queues", queues},
    {"sessions", sessions},
    {"shifts", shifts},
    {"sorts", sorts},
    {"sparse", sparse_matrices},
    {"staggered", staggered},
    {"swaps", swaps},
    {"tensors", tensors},
    {"texts", texts},
    {"tiles", tiles},
    {"trees", trees},
    {"uploads", uploads},
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("patterns", "what a heap holds while a program grows and shrinks", argc, argv);
  const std::string_view wanted = args.text("pattern", "", "a name of --list yes");
  const std::string_view list = args.choice("list", {"no", "yes"}, "print the names and end");
  args.done();
  for (const Pattern& pattern : kPatterns) {
    if (list == "yes") std::printf("%s\n", std::string(pattern.name).c_str());
    if (list == "yes" || pattern.name != wanted) continue;
    const size_t before = memory_figures().resident;
    Chance chance(args.seed());
    pattern.run(chance);
    const auto beyond = [&](size_t bytes) {
      return static_cast<unsigned long long>(bytes > before ? bytes - before : 0);
    };
    const size_t after = memory_figures().resident;
    std::printf("{\"live\":%lld,\"peak\":%llu,\"end\":%llu,\"seconds\":%.3f}\n",
                static_cast<long long>(most_live), beyond(resident_high_water()), beyond(after),
                static_cast<double>(processor_ns()) * 1e-9);
    return 0;
  }
  if (list == "yes") return 0;
  fail(kExitUsage, "patterns: no pattern is called '", wanted, "'; --list yes prints the names");
}
