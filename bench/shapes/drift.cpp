// drift: programs that run long and change their requests. Peak memory is the point.
//
// These are programs that fragmented heaps in practice, with one thread each:
//
//   cache     keeps --live bytes. A new block evicts the oldest ones; one time in ten it evicts a
//             block at random, and the oldest takes that place. Sizes drift: 32 B to 2 KiB in the
//             first round, up to 32 KiB in later ones.
//   vectors   2,000 buffers grow side by side by half, to some 15 KiB each, and are freed; then one
//             array of 32-byte records doubles to 8 MiB while each record gets a small block of its
//             own; all is freed.
//   phases    --live bytes of blocks of one size, up to an eighth less. In the next round all
//             blocks but one in --kept (five) are freed at random, and blocks of another size,
//             1,000 to 50,000 bytes, take their place. All bytes are written. With --sizes
//             16-1000,3000 or the like, the ranges and sizes come in turn.
//   buffers   20 buffers of 5 to 25 MiB. A random one is replaced; all bytes are written.
//   aged      before the first round --live bytes of blocks of 16 to 416 bytes, of which nine in
//             ten are freed at random. Then random blocks in a table of blocks of 16 to 1,000 bytes
//             are replaced. Here time is the point: a heap that uses freed memory should not be
//             slower for it.
//   texts     20,000 buffers. A random one gets 1 to 40 bytes more by realloc(), until it has
//             --longest bytes and starts anew: a program that keeps no room of its own and trusts
//             the heap to do so.
//   growth    an array that doubles from 1 MiB to --live: the new one is allocated and gets the
//             content of the old one, the old one is freed, the rest is written.
//   appends   a buffer that grows by realloc() to --live / 4 in each round, by doubling in half of
//             the rounds and by an eighth in the other half, as a program does that reads a file of
//             unknown length; new bytes are written.
//   arrays    two arrays of --live bytes each stay. Temporaries of this length are computed from
//             them, two at a time, and freed; one in four is half or one and a half times as long.
//
// Parameters: --mode, --live (cache, phases, aged, growth, appends, arrays), --sizes and --kept
// (phases), --longest (texts), --count (blocks allocated in a round; appends for vectors and
// texts), --rounds. An operation is one block allocated, resized or freed. Decisions 10, 27, 41,
// 42, 43, 45 and 52 to 54 have figures.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "shapes/shape.h"

namespace {

using namespace bench;

struct Held {
  void* memory;
  uint64_t bytes;
};

// The common part of the modes: one thread's tally, and blocks under it.
class Program {
 public:
  explicit Program(uint64_t seed) : random(stream(seed, 0)) {}

  Held allocate(uint64_t bytes) {
    void* block = must(std::malloc(bytes), bytes);
    touch(block, bytes);
    tally.checksum.add(bytes);
    count(bytes);
    return {block, bytes};
  }
  void free(Held& held) {
    if (held.memory == nullptr) return;
    std::free(held.memory);
    count(-held.bytes);
    held = {};
  }
  void resize(Held& held, uint64_t bytes) {
    held.memory = must(std::realloc(held.memory, bytes), bytes);
    touch(held.memory, bytes);
    tally.checksum.add(bytes);
    count(bytes - held.bytes);
    held.bytes = bytes;
  }
  // Resizes a block that becomes longer, and writes the new bytes.
  void append(Held& held, uint64_t bytes) {
    held.memory = must(std::realloc(held.memory, bytes), bytes);
    touch(static_cast<char*>(held.memory) + held.bytes, bytes - held.bytes);
    tally.checksum.add(bytes);
    count(bytes - held.bytes);
    held.bytes = bytes;
  }
  // No byte of these is written.
  Held reserve(uint64_t bytes) {
    void* block = must(std::malloc(bytes), bytes);
    count(bytes);
    return {block, bytes};
  }
  void write(const Held& held, uint64_t from, uint64_t to) {
    touch(static_cast<char*>(held.memory) + from, to - from);
    tally.checksum.add(to);
  }
  // Equally likely in each doubling: 2^low to 2^high.
  uint64_t size(uint32_t low, uint32_t high) {
    const uint64_t least = uint64_t{1} << random.between(low, high - 1);
    return least + random.below(static_cast<uint32_t>(least));
  }

  Random random;
  Tally tally{};

 private:
  void count(uint64_t bytes) {
    ++tally.operations;
    tally.live_bytes += bytes;
  }
};

class Cache {
 public:
  Cache(Program& program, uint64_t live) : program_(program), live_(live), ring_(live / 32) {}

  void round(uint64_t index, uint64_t blocks) {
    const auto low = static_cast<uint32_t>(5 + index % 4),
               high = static_cast<uint32_t>(11 + index * 7 % 5);
    for (uint64_t i = 0; i < blocks; ++i) {
      const uint64_t bytes = program_.size(low, high);
      while (used_ == ring_.size() || program_.tally.live_bytes + bytes > live_) evict();
      at(used_++) = program_.allocate(bytes);
    }
  }
  void clear() {
    while (used_ != 0) evict();
  }

 private:
  Held& at(uint64_t i) { return ring_[(first_ + i) % ring_.size()]; }
  void evict() {
    if (used_ == 0) fail(kExitUsage, "drift: --live is less than one block");
    if (program_.random.below(10) == 0)
      std::swap(at(0), at(program_.random.below(static_cast<uint32_t>(used_))));
    program_.free(at(0));
    ++first_;
    --used_;
  }

  Program& program_;
  uint64_t live_;
  Table<Held> ring_;
  uint64_t first_ = 0, used_ = 0;
};

class Vectors {
 public:
  explicit Vectors(Program& program)
      : program_(program), buffers_(2'000), lengths_(2'000), blocks_(kRecords) {}

  void round(uint64_t appends) {
    for (size_t i = 0; i < buffers_.size(); ++i) lengths_[i] = 0;
    for (uint64_t i = 0; i < appends; ++i) {
      const uint32_t k = program_.random.below(static_cast<uint32_t>(buffers_.size()));
      lengths_[k] += program_.random.between(1, 40);
      uint64_t room = buffers_[k].bytes;
      if (lengths_[k] <= room) continue;
      while (room < lengths_[k]) room += room / 2 + 16;
      program_.resize(buffers_[k], room);
    }
    for (auto& buffer : buffers_) program_.free(buffer);
    Held array{};
    for (uint32_t i = 0; i < kRecords; ++i) {
      if (i * kRecordBytes == array.bytes) {
        Held longer = program_.allocate(array.bytes == 0 ? kRecordBytes : 2 * array.bytes);
        program_.free(array);
        array = longer;
      }
      blocks_[i] = program_.allocate(1 + program_.random.below(100));
    }
    for (auto& block : blocks_) program_.free(block);
    program_.free(array);
  }

 private:
  static constexpr uint32_t kRecords = 200'000;
  static constexpr uint64_t kRecordBytes = 32;
  Program& program_;
  Table<Held> buffers_;
  Table<uint64_t> lengths_;
  Table<Held> blocks_;
};

// The requested sizes of a phase's blocks: one of --sizes, or a range.
struct Sizes {
  uint32_t least, most;
};
constexpr std::string_view kUsualSizes =
    "16384,20000,4000,8000,1000,12000,6000,32000,50000,3000,2000,24000";

// Texts such as 16-1000,3000: each part is a range, or a size and up to an eighth less. It
// allocates nothing, because its memory would come from the measured heap.
class SizesInTurn {
 public:
  explicit SizesInTurn(std::string_view list) {
    for (bool more = true; more;) {
      const size_t comma = list.find(',');
      more = comma != list.npos;
      if (count_ == kMost) fail(kExitUsage, "drift: --sizes takes 32 of them at most");
      sizes_[count_++] = parse(list.substr(0, comma));
      list = more ? list.substr(comma + 1) : "";
    }
  }
  [[nodiscard]] Sizes operator[](uint64_t index) const { return sizes_[index % count_]; }
  // The least average size of a block over all ranges.
  [[nodiscard]] uint64_t least_mean() const {
    uint64_t least = UINT32_MAX;
    for (size_t i = 0; i < count_; ++i)
      least = std::min(least, (uint64_t{sizes_[i].least} + sizes_[i].most) / 2);
    return least;
  }

 private:
  static constexpr size_t kMost = 32;

  static Sizes parse(std::string_view text) {
    const size_t dash = text.find('-');
    const uint32_t first = number(text.substr(0, dash), text);
    if (dash == text.npos) return {first - first / 8 + 1, first};
    const uint32_t last = number(text.substr(dash + 1), text);
    if (first > last)
      fail(kExitUsage, "drift: --sizes: in '", text, "' the larger one comes first");
    return {first, last};
  }
  static uint32_t number(std::string_view digits, std::string_view text) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 16 ||
        value > 1 << 20) {
      fail(kExitUsage, "drift: --sizes: '", text,
           "' is no size from 16 to 1048576 bytes, and no range of them, as in 16-1000,3000");
    }
    return value;
  }

  Sizes sizes_[kMost];
  size_t count_ = 0;
};

class Phases {
 public:
  /// One block in `kept` stays from phase to phase.
  Phases(Program& program, uint64_t live, const SizesInTurn& sizes, uint64_t kept)
      : program_(program),
        live_(live),
        sizes_(sizes),
        kept_(static_cast<uint32_t>(kept)),
        blocks_(live / sizes.least_mean() * 3 / 2) {}

  void round(uint64_t index) {
    const Sizes sizes = sizes_[index];
    size_t kept = 0;
    for (size_t i = 0; i < used_; ++i) {
      if (program_.random.below(kept_) == 0) {
        std::swap(blocks_[kept++], blocks_[i]);
      } else {
        program_.free(blocks_[i]);
      }
    }
    for (used_ = kept; used_ != blocks_.size();) {
      const uint64_t next = sizes.most - program_.random.below(sizes.most - sizes.least + 1);
      if (program_.tally.live_bytes + next > live_) break;
      blocks_[used_++] = program_.allocate(next);
    }
  }
  void clear() {
    for (; used_ != 0; --used_) program_.free(blocks_[used_ - 1]);
  }

 private:
  Program& program_;
  uint64_t live_;
  SizesInTurn sizes_;
  uint32_t kept_;
  Table<Held> blocks_;
  size_t used_ = 0;
};

class Buffers {
 public:
  explicit Buffers(Program& program) : program_(program), buffers_(20) {}

  void round(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      Held& held = buffers_[program_.random.below(20)];
      program_.free(held);
      held = program_.allocate(program_.random.between(5 << 20, 25 << 20));
    }
  }
  void clear() {
    for (auto& held : buffers_) program_.free(held);
  }

 private:
  Program& program_;
  Table<Held> buffers_;
};

class Aged {
 public:
  /// `live`: 0 for no such blocks.
  Aged(Program& program, uint64_t live)
      : program_(program), old_(live / 100), blocks_(live == 0 ? 0 : 100'000) {}

  void age(uint64_t live) {
    for (; program_.tally.live_bytes < live; ++used_)
      old_[used_] = program_.allocate(program_.random.between(16, 416));
    for (size_t i = 0; i < used_; ++i) {
      if (program_.random.below(10) != 0) program_.free(old_[i]);
    }
    program_.tally.operations = 0;
  }

  void round(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      Held& held = blocks_[program_.random.below(static_cast<uint32_t>(blocks_.size()))];
      program_.free(held);
      held = program_.allocate(program_.random.between(16, 1000));
    }
  }
  void clear() {
    for (size_t i = 0; i < used_; ++i) program_.free(old_[i]);
    for (auto& held : blocks_) program_.free(held);
  }

 private:
  Program& program_;
  Table<Held> old_;
  Table<Held> blocks_;
  size_t used_ = 0;
};

class Texts {
 public:
  Texts(Program& program, uint64_t longest, size_t count)
      : program_(program), longest_(longest), texts_(count) {}

  void round(uint64_t appends) {
    for (uint64_t i = 0; i < appends; ++i) {
      Held& text = texts_[program_.random.below(static_cast<uint32_t>(texts_.size()))];
      const uint64_t longer = text.bytes + program_.random.between(1, 40);
      if (longer > longest_) {
        program_.free(text);
      } else if (text.memory == nullptr) {
        text = program_.allocate(longer);
      } else {
        program_.append(text, longer);
      }
    }
  }
  void clear() {
    for (auto& text : texts_) program_.free(text);
  }

 private:
  Program& program_;
  uint64_t longest_;
  Table<Held> texts_;
};

class Growth {
 public:
  Growth(Program& program, uint64_t longest) : program_(program), longest_(longest) {}

  void round() {
    Held array = program_.allocate(1 << 20);
    while (array.bytes < longest_) {
      const Held longer = program_.reserve(2 * array.bytes);
      std::memcpy(longer.memory, array.memory, array.bytes);
      const uint64_t before = array.bytes;
      program_.free(array);
      program_.write(longer, before, longer.bytes);
      array = longer;
    }
    program_.free(array);
  }

 private:
  Program& program_;
  uint64_t longest_;
};

class Appends {
 public:
  Appends(Program& program, uint64_t longest) : program_(program), longest_(longest) {}

  void round(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      Held buffer = program_.allocate(4096);
      while (buffer.bytes < longest_)
        program_.append(buffer, buffer.bytes + buffer.bytes / (i % 2 == 0 ? 1 : 8));
      program_.free(buffer);
    }
  }

 private:
  Program& program_;
  uint64_t longest_;
};

class Arrays {
 public:
  /// `bytes`: of each array that stays; 0 for no arrays.
  Arrays(Program& program, uint64_t bytes) : program_(program) {
    if (bytes == 0) return;
    for (Held& held : operands_) held = program_.allocate(bytes);
  }

  void round(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      Held product = compute();
      Held sum = compute();
      program_.free(product);
      program_.free(sum);
    }
  }
  void clear() {
    for (Held& held : operands_) program_.free(held);
  }

 private:
  Held compute() {
    const uint64_t bytes = operands_[0].bytes;
    const uint32_t choice = program_.random.below(8);
    const Held result = program_.reserve(choice == 0   ? bytes / 2
                                         : choice == 1 ? bytes + bytes / 2
                                                       : bytes);
    for (uint64_t at = 0; at < result.bytes; at += bytes) {
      std::memcpy(static_cast<char*>(result.memory) + at, operands_[at != 0].memory,
                  std::min(bytes, result.bytes - at));
    }
    return result;
  }

  Program& program_;
  Held operands_[2] = {};
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("drift", "what is asked for changes while the program runs", argc, argv);
  const auto mode = args.choice(
      "mode",
      {"cache", "vectors", "buffers", "phases", "aged", "texts", "growth", "appends", "arrays"},
      "which program");
  const uint64_t live = args.bytes("live", 64 << 20, 256 << 20, 1 << 20, uint64_t{1} << 36,
                                   "bytes of a cache, of phases, of what ages, of an array");
  const SizesInTurn sizes(
      args.text("sizes", kUsualSizes, "of phases: sizes and ranges in turn, as 16-1000,3000"));
  const uint64_t kept =
      args.number("kept", 5, 5, 2, 1'000'000, "of phases: one block in so many stays");
  const uint64_t longest =
      args.bytes("longest", 600, 600, 64, 1 << 20, "of texts: bytes of the longest");
  const uint64_t count =
      args.number("count", 0, 0, 0, 1'000'000'000, "steps of a round; 0: as suits the program");
  const uint64_t rounds = args.number("rounds", 12, 40, 1, 100'000, "rounds");
  args.done();
  const auto steps = [&](uint64_t usual) { return count != 0 ? count : usual; };

  Program program(args.seed());
  Cache cache(program, mode == "cache" ? live : 1 << 20);
  Vectors vectors(program);
  Buffers buffers(program);
  Phases phases(program, mode == "phases" ? live : 1 << 20, sizes, kept);
  Aged aged(program, mode == "aged" ? live : 0);
  Texts texts(program, longest, mode == "texts" ? 20'000 : 0);
  Growth growth(program, live);
  Appends appends(program, live / 4);
  Arrays arrays(program, mode == "arrays" ? live : 0);
  Report report(args);
  report.start();
  if (mode == "aged") aged.age(live);
  for (uint64_t round = 0; round < rounds; ++round) {
    report.begin();
    if (mode == "cache") {
      cache.round(round, steps(live / 450));
    } else if (mode == "vectors") {
      vectors.round(steps(1'500'000));
    } else if (mode == "phases") {
      phases.round(round);
    } else if (mode == "aged") {
      aged.round(steps(500'000));
    } else if (mode == "texts") {
      texts.round(steps(1'000'000));
    } else if (mode == "growth") {
      growth.round();
    } else if (mode == "appends") {
      appends.round(steps(8));
    } else if (mode == "arrays") {
      arrays.round(steps(8));
    } else {
      buffers.round(steps(60));
    }
    const uint64_t operations = program.tally.operations;
    program.tally.operations = 0;
    report.round(round, operations, program.tally.live_bytes);
  }
  report.begin();
  cache.clear();
  buffers.clear();
  phases.clear();
  aged.clear();
  texts.clear();
  arrays.clear();
  if (program.tally.live_bytes != 0) fail(kExitFailed, "drift: a block was lost or freed twice");
  report.finish(program.tally.operations, program.tally.checksum.value());
}
