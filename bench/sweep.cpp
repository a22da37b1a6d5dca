// sweep: the cost of blocks of every size, size after size in one process.
//
// For each size, the blocks that make up --total (but at least --blocks) are allocated, the first
// word of each is written, and all are freed in the order of allocation, --rounds times. The first
// round finds an empty heap, because the heap was trimmed before. One more round writes to every
// page. A line a size:
//
//   size, alignment   as requested (alignment 0: malloc)
//   blocks, pages     allocated; pages that their first words lie on
//   usable            malloc_usable_size of the last block, which includes the rounding
//   faults, resident  page faults of the first round, and bytes that it made resident
//   full_resident     bytes resident with every page of every block written to
//   after             bytes resident, beyond the start, once all is freed and the heap is trimmed
//   cold_ns, warm_ns  a block allocated and freed: in the first round and two more that found an
//                     empty heap, and in the later rounds; the best of each
//   later_faults      page faults of the later rounds, a round
//
// Sizes: 1, 2, 4, 8; every --step bytes to 4 KiB; then --per-doubling in each doubling to --most;
// and 64, 128 and 512 KiB, each also 32 and 80 bytes more and less. Then --most's powers of two as
// alignments, of blocks of that size and of half as much again.
//
// With --count 1, under callgrind, nothing is measured. Instead batches of --blocks blocks of each
// size are allocated and freed between two requests to callgrind to write down the executed
// instructions. The dump is named after size and alignment.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "harness/allocator.h"
#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/json.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif

namespace {

using namespace lab;

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

struct Sweep {
  uint64_t total, least_blocks, rounds;
  Trim trim;
  Table<void*> blocks;
  JsonLine line;

  void* allocate(uint64_t size, uint64_t alignment) {
    void* block = nullptr;
    if (alignment == 0) {
      block = std::malloc(size);
    } else if (posix_memalign(&block, alignment, size) != 0) {
      block = nullptr;
    }
    return must(block, size);
  }

  // The first words of blocks under 8 bytes are their only bytes.
  static void write_first(void* block, uint64_t size) {
    if (size >= sizeof(uint64_t)) {
      *static_cast<volatile uint64_t*>(block) = 1;
    } else {
      *static_cast<volatile char*>(block) = 1;
    }
  }

  uint64_t count_of(uint64_t size) const {
    return std::min<uint64_t>(blocks.size(),
                              std::max(least_blocks, total / std::max<uint64_t>(size, 16)));
  }

  // Blocks keep the order of allocation, which need not be that of addresses. If two neighbours
  // share a page, they were nearly always allocated one after the other.
  uint64_t pages_of(uint64_t n) {
    std::sort(blocks.data(), blocks.data() + n);
    uint64_t pages = 0, last = 0;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t page = reinterpret_cast<uintptr_t>(blocks[i]) / kPageBytes;
      pages += page != last;
      last = page;
    }
    return pages;
  }

  void measure(uint64_t size, uint64_t alignment) {
    const uint64_t n = count_of(size);
    trim();
    const uint64_t before = memory_figures().resident;
    uint64_t faults = process_usage().minor_faults, first_faults = 0, resident = 0, pages = 0;
    double cold = 0, warm = 0;
    uint64_t usable = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
      const uint64_t began = now_ns();
      for (uint64_t i = 0; i < n; ++i) {
        blocks[i] = allocate(size, alignment);
        write_first(blocks[i], size);
      }
      const uint64_t allocated = now_ns();
      if (round == 0) {
        const uint64_t now = process_usage().minor_faults;
        first_faults = now - faults;
        resident = memory_figures().resident - before;
        usable = malloc_usable_size(blocks[n - 1]);
      }
      const uint64_t free_began = now_ns();
      for (uint64_t i = 0; i < n; ++i) std::free(blocks[i]);
      const double ns =
          static_cast<double>(allocated - began + now_ns() - free_began) / static_cast<double>(n);
      if (round == 0) {
        cold = ns;
        faults = process_usage().minor_faults;
      } else if (warm == 0 || ns < warm) {
        warm = ns;
      }
    }
    const uint64_t later = process_usage().minor_faults - faults;
    // Cold is measured three times, because a disturbance only makes a round slower.
    for (int again = 0; again < 2; ++again) {
      trim();
      const uint64_t began = now_ns();
      for (uint64_t i = 0; i < n; ++i) {
        blocks[i] = allocate(size, alignment);
        write_first(blocks[i], size);
      }
      for (uint64_t i = 0; i < n; ++i) std::free(blocks[i]);
      cold = std::min(cold, static_cast<double>(now_ns() - began) / static_cast<double>(n));
    }
    // Pages and full residency come from a round of their own, because sorting would change the
    // order.
    trim();
    const uint64_t empty = memory_figures().resident;
    for (uint64_t i = 0; i < n; ++i) {
      blocks[i] = allocate(size, alignment);
      touch(blocks[i], size);
    }
    const uint64_t full = memory_figures().resident;
    pages = pages_of(n);
    for (uint64_t i = 0; i < n; ++i) std::free(blocks[i]);
    trim();
    const uint64_t after = memory_figures().resident;
    line.begin();
    line.add("size", size).add("alignment", alignment).add("blocks", n).add("pages", pages);
    line.add("usable", usable).add("faults", first_faults).add("resident", resident);
    line.add("full_resident", full > empty ? full - empty : 0);
    line.add("after", after > before ? after - before : 0);
    line.add("cold_ns", cold).add("warm_ns", warm);
    line.add("later_faults", static_cast<double>(later) / static_cast<double>(rounds - 1));
    line.end();
  }

  void count(uint64_t size, uint64_t alignment) {
#ifdef CALLGRIND_DUMP_STATS_AT
    const uint64_t n = std::min<uint64_t>(blocks.size(), least_blocks);
    const auto batch = [&] {
      for (uint64_t i = 0; i < n; ++i) blocks[i] = allocate(size, alignment);
      for (uint64_t i = 0; i < n; ++i) std::free(blocks[i]);
    };
    for (int i = 0; i < 4; ++i) batch();
    char name[64];
    std::snprintf(name, sizeof name, "sweep %llu %llu", static_cast<unsigned long long>(size),
                  static_cast<unsigned long long>(alignment));
    CALLGRIND_ZERO_STATS;
    for (int i = 0; i < 4; ++i) batch();
    CALLGRIND_DUMP_STATS_AT(name);
#else
    (void)size, (void)alignment;
    fail(kExitFailed, "sweep: built without valgrind/callgrind.h (Debian package valgrind)");
#endif
  }
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("sweep", "what blocks of every size cost", argc, argv);
  const uint64_t total =
      args.bytes("total", kMiB, 4 * kMiB, kKiB, uint64_t{1} << 36, "bytes of blocks of a size");
  const uint64_t least = args.number("blocks", 64, 64, 2, 1 << 20, "blocks of a size at least");
  const uint64_t rounds = args.number("rounds", 2, 4, 2, 1000, "rounds of a size");
  const uint64_t step = args.bytes("step", 64, 16, 1, 4096, "between sizes up to 4 KiB");
  const uint64_t per_doubling =
      args.number("per-doubling", 16, 64, 1, 4096, "sizes in a doubling above 4 KiB");
  const uint64_t most = args.bytes("most", 2 * kMiB, 2 * kMiB, 4 * kKiB, 64 * kMiB, "largest size");
  const bool count =
      args.number("count", 0, 0, 0, 1, "1: count instructions, under callgrind") != 0;
  args.done();

  Table<uint64_t> sizes(4096 + per_doubling * 16);
  size_t sizes_count = 0;
  const auto add = [&](uint64_t size) {
    if (size != 0 && size <= most) sizes[sizes_count++] = size;
  };
  for (const uint64_t tiny : {1, 2, 4, 8}) add(tiny);
  for (uint64_t size = step; size <= 4 * kKiB && sizes_count < 4000; size += step) add(size);
  for (uint64_t doubling = 4 * kKiB; doubling < most; doubling *= 2) {
    for (uint64_t i = 1; i <= per_doubling; ++i) add(doubling + doubling * i / per_doubling);
  }
  for (const uint64_t around : {64 * kKiB, 128 * kKiB, 512 * kKiB}) {
    for (const uint64_t less : {uint64_t{80}, uint64_t{32}}) {
      add(around - less);
      add(around + less);
    }
    add(around);
  }
  std::sort(sizes.data(), sizes.data() + sizes_count);
  sizes_count =
      static_cast<size_t>(std::unique(sizes.data(), sizes.data() + sizes_count) - sizes.data());

  const uint64_t most_blocks = std::max(least, total / 16);
  Sweep sweep{total, least, rounds, Trim(), Table<void*>(most_blocks), JsonLine()};
  memory_figures();
  std::free(sweep.allocate(64, 0));
  const auto each = [&](uint64_t size, uint64_t alignment) {
    count ? sweep.count(size, alignment) : sweep.measure(size, alignment);
  };
  for (size_t i = 0; i < sizes_count; ++i) each(sizes[i], 0);
  for (uint64_t alignment = 32; alignment <= most; alignment *= 2) {
    each(alignment, alignment);
    each(alignment + alignment / 2, alignment);
  }
}
