// sizes: finds the sizes that get slower (article 004).
//
// Article: "Are small memory allocations in C++ STL containers still a concern?" (2020). On the
// Windows heap some sizes (64 KiB above all, 128 and 512 KiB, everything to 16 KiB) got slower with
// every round once a total of 4 GiB was passed. Other sizes did not.
//
// A round allocates a total in blocks of one size, writes only the first word of each, and frees
// them in the order of allocation. Sizes are every power of two from 16 B to 1 MiB, each minus 32,
// and each minus 80. Then come 64 KiB and 64 KiB - 32 in alternate rounds (variant "alternating"),
// the same with memory given back between rounds ("alternating-compact"), and the same through
// aligned allocation ("alternating-aligned"). Last come idle and compact.
//
// Parameters: --size (one size; 0: the sweep), --total, --touched (the most memory that a round
// really writes to; keeps the quick form quick), --rounds, --variant, --alignment, --idle-ms. The
// total is lowered until blocks, 16 bytes more for each block, and the table of pointers fit into
// half of memory; every checkpoint has the used total. The full form goes through 1, 2, 4 and 8
// GiB.
//
// Measured: per size and round ns per block (allocated and freed), seconds of each half, resident
// memory with all allocated and after; "slowdown" is a round's time over the first's.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "harness/allocator.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/recorder.h"

namespace {

using namespace lab;

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = uint64_t{1} << 30, kTiB = kGiB << 10;

struct Plan {
  uint64_t total, touched, rounds;
  uint64_t alignment = 0;  // 0: plain malloc
};

void* allocate(uint64_t bytes, uint64_t alignment) {
  if (alignment == 0) return must(std::malloc(bytes), bytes);
  return must(allocate_aligned(alignment, bytes), bytes);
}
void release(void* block, uint64_t alignment) {
  alignment == 0 ? std::free(block) : free_aligned(block);
}

class Sizes {
 public:
  Sizes(Recorder& recorder, const Trim& trim, uint64_t most_blocks)
      : recorder_(recorder), trim_(trim), blocks_(most_blocks), sampler_(recorder.sampler()) {}

  // Blocks of `bytes` that make up the total, as far as the plan and memory allow.
  static uint64_t block_count(const Plan& plan, uint64_t bytes) {
    const uint64_t room = machine_memory_bytes() / 2;
    const uint64_t footprint = (bytes + 15) / 16 * 16 + 16 + sizeof(void*);
    return std::max<uint64_t>(1, std::min({plan.total / bytes, room / footprint,
                                           plan.touched / std::min<uint64_t>(bytes, kPageBytes)}));
  }

  void round(std::string_view variant, std::string_view series, uint64_t bytes, uint64_t round,
             const Plan& plan, bool compact, double& first_ns) {
    const uint64_t n = block_count(plan, bytes);
    checksum_.add(bytes ^ n << 20);
    recorder_.resume();
    const uint64_t began = now_ns();
    if (compact) trim_();
    const uint64_t compacted = now_ns();
    for (uint64_t i = 0; i < n; ++i) {
      sampler_.run([&] {
        void* p = allocate(bytes, plan.alignment);
        *static_cast<uint64_t*>(p) = i;  // only the first word, as in the article
        blocks_[i] = p;
      });
    }
    const uint64_t allocated = now_ns();
    recorder_.pause();
    const uint64_t loaded = memory_figures().resident;
    recorder_.resume();
    const uint64_t free_began = now_ns();
    for (uint64_t i = 0; i < n; ++i) {
      sampler_.run([&] { release(blocks_[i], plan.alignment); });
    }
    const uint64_t freed = now_ns();
    recorder_.pause();
    recorder_.take(sampler_);
    const double ns =
        static_cast<double>(allocated - compacted + freed - free_began) / static_cast<double>(n);
    if (first_ns == 0) first_ns = ns;
    recorder_
        .checkpoint({.variant = variant,
                     .series = series,
                     .index = index_++,
                     .x = round + 1,
                     .x_unit = "round",
                     .operations = 2 * n})
        .add("size", bytes)
        .add("total_bytes", n * bytes)
        .add("blocks", n)
        .add("ns_per_block", ns)
        .add("slowdown", ns / first_ns)
        .add("allocate_seconds", static_cast<double>(allocated - compacted) * 1e-9)
        .add("free_seconds", static_cast<double>(freed - free_began) * 1e-9)
        .add("compact_seconds", static_cast<double>(compacted - began) * 1e-9)
        .add("loaded_resident_bytes", loaded);
  }

  // All rounds of one size.
  void sweep(std::string_view variant, std::string_view series, uint64_t bytes, const Plan& plan) {
    recorder_.restart_peak();
    double first_ns = 0;
    for (uint64_t r = 0; r < plan.rounds; ++r) {
      round(variant, series, bytes, r, plan, false, first_ns);
    }
  }

  void alternate(std::string_view variant, const Plan& plan, bool compact) {
    recorder_.restart_peak();
    double first_ns[2] = {};
    for (uint64_t r = 0; r < plan.rounds; ++r) {
      const uint64_t bytes = r % 2 == 0 ? 64 * kKiB : 64 * kKiB - 32;
      round(variant, "65536 and 65504", bytes, r, plan, compact, first_ns[r % 2]);
    }
  }

  // The state once all is freed: at once, after idling, and after compacting.
  void after(uint64_t idle_ms) {
    const auto step = [&](std::string_view name, uint64_t x) {
      recorder_.checkpoint({.series = "after", .index = index_++, .x = x, .x_unit = "step"})
          .add("step", name);
      recorder_.resume();
    };
    recorder_.resume();
    step("freed", 0);
    idle(idle_ms);
    step("idle", 1);
    trim_();
    step("compact", 2);
  }

  uint64_t checksum() const { return checksum_.value(); }

 private:
  Recorder& recorder_;
  const Trim& trim_;
  Table<void*> blocks_;
  LatencySampler sampler_;
  Checksum checksum_;
  uint64_t index_ = 0;
};

// A size as the name of a series.
class Name {
 public:
  explicit Name(uint64_t bytes, uint64_t total = 0) {
    char* at = std::to_chars(text_, text_ + 20, bytes).ptr;
    if (total != 0) {
      for (const char c : std::string_view(" of ")) *at++ = c;
      at = std::to_chars(at, at + 20, total / kMiB).ptr;
      for (const char c : std::string_view(" MiB")) *at++ = c;
    }
    length_ = static_cast<size_t>(at - text_);
  }
  operator std::string_view() const { return {text_, length_}; }

 private:
  char text_[64];
  size_t length_;
};

constexpr uint64_t kLeast = 16, kMost = kMiB;

}  // namespace

int main(int argc, char** argv) {
  Arguments args("sizes", "first in, first out, in blocks of one size: which sizes decay", argc,
                 argv);
  const uint64_t size =
      args.bytes("size", 0, 0, 0, kGiB, "blocks of this size only; 0: sweep all sizes");
  Plan plan;
  plan.total = args.bytes("total", 2 * kGiB, 8 * kGiB, kKiB, kTiB, "bytes allocated in a round");
  plan.touched = args.bytes("touched", size ? kTiB : 48 * kMiB, kTiB, kPageBytes, kTiB,
                            "most bytes of the pages that a round writes to");
  plan.rounds = args.number("rounds", 5, 16, 1, 100'000, "rounds of a size");
  const auto variant = args.choice(
      "variant",
      {"all", "malloc", "aligned", "alternating", "alternating-compact", "alternating-aligned"},
      "malloc and aligned sweep the sizes");
  const uint64_t alignment = args.number("alignment", 64, 64, sizeof(void*), 1 << 20,
                                         "of aligned variants; a power of two");
  const uint64_t idle_ms = args.number("idle-ms", 1'000, 10'000, 0, 600'000, "idling at the end");
  args.done();
  if (alignment & (alignment - 1)) fail(kExitUsage, "sizes: --alignment must be a power of two");
  if (size != 0 && size < sizeof(uint64_t)) {
    fail(kExitUsage, "sizes: --size must be at least 8: a block's first word is written");
  }

  const bool all = variant == "all";
  const bool sweep = all || variant == "malloc" || variant == "aligned";
  const uint64_t least = size ? size : sweep ? kLeast : 64 * kKiB - 32;
  const Trim trim;
  Recorder recorder(args);
  Sizes sizes(recorder, trim, Sizes::block_count(plan, least));
  recorder.start().add("trim", trim.name());

  Plan aligned = plan;
  aligned.alignment = alignment;
  if (sweep) {
    const Plan& p = variant == "aligned" ? aligned : plan;
    const std::string_view name = variant == "aligned" ? "aligned" : "malloc";
    if (size != 0) {
      sizes.sweep(name, Name(size), size, p);
    } else {
      // The full form: do small, medium and the article's worst size get slower at lower totals?
      for (uint64_t total = kGiB; args.full() && total < plan.total; total *= 2) {
        Plan less = p;
        less.total = total;
        for (const uint64_t bytes : {uint64_t{64}, kKiB, 64 * kKiB}) {
          sizes.sweep(name, Name(bytes, total), bytes, less);
        }
      }
      for (uint64_t power = kLeast; power <= kMost; power *= 2) {
        for (const uint64_t less : {uint64_t{80}, uint64_t{32}, uint64_t{0}}) {
          if (less == 80 && !args.full()) continue;  // a debug build's padding: the same result
          if (power < less + kLeast) continue;
          if (less != 0 && std::has_single_bit(power - less)) continue;  // 64 - 32 comes as 32
          sizes.sweep(name, Name(power - less), power - less, p);
        }
      }
    }
  }
  if (size == 0) {
    if (all || variant == "alternating") sizes.alternate("alternating", plan, false);
    if (all || variant == "alternating-compact") {
      sizes.alternate("alternating-compact", plan, true);
    }
    if (all || variant == "alternating-aligned") {
      sizes.alternate("alternating-aligned", aligned, false);
    }
  }
  sizes.after(idle_ms);
  recorder.finish().hex("checksum", sizes.checksum());
}
