// peak: what is resident after a peak, and what rounds of peaks cost.
//
//   peak --mode after     --live bytes stay of --peak; then --pairs frees and allocations a second
//   peak --mode silence   the same with no call for 1.5 s, and then a hundred
//   peak --mode rounds    --peak bytes are allocated and freed --rounds times, --gap ms apart, in
//                         which such light activity goes on
//
// --sizes LEAST-MOST: uniform. Every byte is written. Prints one line of JSON: requested bytes,
// resident bytes at times in ms (or after so many calls), processor time and page faults. The
// tables lie outside the heap. Decision 104 has figures.
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/system.h"

namespace {

using namespace lab;

struct Block {
  void* memory;
  uint32_t bytes;
};

class Blocks {
 public:
  Blocks(size_t most, uint32_t least, uint32_t largest, uint64_t seed)
      : table_(most), least_(least), largest_(largest), random_(seed) {}

  void grow_to(uint64_t bytes) {
    while (bytes_ < bytes) table_[count_++] = allocate();
  }
  void shrink_to(uint64_t bytes) {
    while (count_ != 0 && bytes_ > bytes) release(table_[--count_]);
  }
  void replace() {
    Block& block = table_[random_.below(static_cast<uint32_t>(count_))];
    release(block);
    block = allocate();
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  Block allocate() {
    const uint32_t bytes = random_.between(least_, largest_);
    void* memory = must(std::malloc(bytes), bytes);
    std::memset(memory, 1, bytes);
    bytes_ += bytes;
    return {memory, bytes};
  }
  void release(Block block) {
    std::free(block.memory);
    bytes_ -= block.bytes;
  }

  Table<Block> table_;
  uint32_t least_, largest_;
  Random random_;
  size_t count_ = 0;
  uint64_t bytes_ = 0;
};

// Pairs for so long, one batch each millisecond. Calls look(ms) each millisecond.
template <typename Look>
void act_lightly(Blocks& blocks, uint64_t pairs_a_second, uint64_t ms, Look look) {
  const uint64_t began = now_ns();
  for (uint64_t done = 0;;) {
    const uint64_t passed = (now_ns() - began) / 1'000'000;
    look(passed);
    if (passed >= ms) return;
    for (const uint64_t due = pairs_a_second * passed / 1000; done < due; ++done) blocks.replace();
    sleep_ms(1);
  }
}

void print_resident(uint64_t at, bool first) {
  std::printf("%s\"%llu\":%llu", first ? "" : ",", static_cast<unsigned long long>(at),
              static_cast<unsigned long long>(memory_figures().resident));
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("peak", "what is resident after a peak, and what rounds of peaks cost", argc,
                 argv);
  const std::string_view mode =
      args.choice("mode", {"after", "silence", "rounds"}, "what is done after the peak");
  const std::string_view sizes = args.text("sizes", "16-512", "LEAST-MOST bytes of a block");
  const uint64_t live =
      args.bytes("live", 20 << 20, 20 << 20, 1 << 20, uint64_t{1} << 40, "bytes that stay");
  const uint64_t peak =
      args.bytes("peak", 220 << 20, 220 << 20, 1 << 20, uint64_t{1} << 40, "bytes at the peak");
  const uint64_t pairs =
      args.number("pairs", 1000, 1000, 1, 1'000'000, "pairs of light activity a second");
  const uint64_t rounds = args.number("rounds", 8, 8, 1, 1000, "rounds");
  const uint64_t gap = args.number("gap", 1500, 1500, 1, 60'000, "ms between two rounds");
  args.done();
  uint32_t least = 0, most = 0;
  const char* const end = sizes.data() + sizes.size();
  const auto first = std::from_chars(sizes.data(), end, least);
  const bool has_dash = first.ptr != end && *first.ptr == '-';
  const auto second = has_dash ? std::from_chars(first.ptr + 1, end, most) : first;
  if (second.ec != std::errc() || second.ptr != end || least == 0 || most < least)
    fail(kExitUsage, "peak", ": --sizes wants LEAST-MOST, such as 16-512");

  // A fifth more than the mean size requires, because the sum of many sizes does not differ that
  // much.
  const uint64_t mean = (uint64_t{least} + most) / 2;
  Blocks blocks((peak > live ? peak : live) / mean * 6 / 5 + 1000, least, most, args.seed());
  blocks.grow_to(live);
  const Usage before = process_usage();
  const auto fall = [&] {
    blocks.grow_to(peak);
    blocks.shrink_to(live);
  };
  std::printf("{\"mode\":\"%s\",\"resident\":{", std::string(mode).c_str());
  if (mode == "rounds") {
    for (uint64_t round = 0; round < rounds; ++round) {
      fall();
      bool looked = false;
      act_lightly(blocks, pairs, gap, [&](uint64_t ms) {
        if (looked || ms < gap / 2) return;
        print_resident(round * gap + ms, round == 0);
        looked = true;
      });
    }
  } else {
    fall();
    print_resident(0, true);
    if (mode == "after") {
      constexpr uint64_t kLooks[] = {250, 500, 750, 1000, 1500, 2000, 3000, 4000, 5000};
      const uint64_t* next = kLooks;
      act_lightly(blocks, pairs, 5000, [&](uint64_t ms) {
        if (next == std::end(kLooks) || ms < *next) return;
        print_resident(*next++, false);
      });
    } else {
      sleep_ms(1500);
      for (uint64_t calls = 0; calls < 300; calls += 50) {
        for (int i = 0; i < 25; ++i) blocks.replace();
        print_resident(calls + 50, false);
      }
    }
  }
  const Usage after = process_usage();
  std::printf("},\"live_bytes\":%llu,\"processor_s\":%.3f,\"faults\":%llu}\n",
              static_cast<unsigned long long>(blocks.bytes()),
              static_cast<double>(processor_ns()) * 1e-9,
              static_cast<unsigned long long>(after.minor_faults - before.minor_faults));
}
