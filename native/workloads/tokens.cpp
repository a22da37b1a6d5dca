// tokens: the preprocessor that got slower with every run (article 000).
//
// Article: "CRT Heap Fragmentation in Windows" (2005). A C/C++ preprocessor that ran again and
// again in one process slowed by up to 40 % a run, although it freed everything. A null allocator
// doubled its speed and removed the slowdown; so did the low-fragmentation heap.
//
// Here a real tokenizer and preprocessor (tokens/) works on the system's own headers: all of the
// C++ library, the C library's and the kernel's, and windows.h where mingw-w64 is installed. A run
// reads the files, tokenises, follows includes, expands macros, fills maps and token lists, and
// frees everything.
//
// Parameters: --runs, --units (system: c++ and c; all: windows too), --files (headers a unit names;
// 0: all), --repeat (times a run processes the units, all kept until its end), --variant
// malloc|null|pool|arena|loam-lfh.
//
// Measured: seconds of every run (build and free apart), resident memory with everything loaded and
// after freeing, requests per run, latency of requests; "slowdown" is a run's time over the
// first's. An operation is one allocation or one free. Then (series "after") the state once the
// heap gave memory back. The token count and the fingerprint of all tokens must be the same in
// every run, or the program ends with status 1.
#include <new>

#include "harness/allocator.h"
#include "harness/recorder.h"
#include "tokens/loam_heap.h"
#include "tokens/policies.h"
#include "tokens/preprocessor.h"
#include "tokens/sources.h"

namespace {

using namespace lab;
using namespace tokens;

struct Plan {
  std::string_view variant;
  uint64_t runs, repeat;
};

// Everything that a run keeps until its end.
template <typename Policy>
struct Kept {
  std::list<Preprocessor<Policy>, Allocator<Preprocessor<Policy>, Policy>> units;
};

template <typename Policy>
Checksum experiment(const Plan& plan, const Sources& sources, const Trim& trim,
                    Recorder& recorder) {
  Checksum first;
  Counts first_counts;
  double first_seconds = 0;
  for (uint64_t run = 0; run < plan.runs; ++run) {
    Checksum checksum;
    Counts counts;
    const uint64_t operations = tally.operations;
    tally.peak_live_bytes = tally.live_bytes;

    recorder.resume();
    const uint64_t began = now_ns();
    auto* kept = new (Policy::allocate(sizeof(Kept<Policy>))) Kept<Policy>;
    for (uint64_t i = 0; i < plan.repeat; ++i) {
      for (const Unit& unit : sources) {
        kept->units.emplace_back(unit, counts, checksum).run();
      }
    }
    const uint64_t built = now_ns();
    recorder.pause();
    const uint64_t loaded_live = tally.live_bytes;
    const uint64_t loaded_resident = memory_figures().resident;

    recorder.resume();
    const uint64_t free_began = now_ns();
    if (Policy::kResets) {
      tally.live_bytes = 0;
    } else {
      kept->~Kept<Policy>();
      Policy::free(kept, sizeof(Kept<Policy>));
    }
    Policy::end_run();
    const uint64_t ended = now_ns();
    recorder.pause();

    if (run == 0) {
      first = checksum;
      first_counts = counts;
    } else if (checksum.value() != first.value() || counts.tokens != first_counts.tokens) {
      fail(kExitFailed,
           "tokens: a run found other tokens than the first one: the files changed "
           "meanwhile, or memory was corrupted");
    }
    const double seconds = static_cast<double>(built - began + ended - free_began) * 1e-9;
    if (run == 0) first_seconds = seconds;
    recorder.take(tally.sampler);
    recorder
        .checkpoint({.variant = plan.variant,
                     .series = "runs",
                     .index = run,
                     .x = run + 1,
                     .x_unit = "run",
                     .operations = tally.operations - operations,
                     .live_bytes = tally.live_bytes})
        .add("build_seconds", static_cast<double>(built - began) * 1e-9)
        .add("free_seconds", static_cast<double>(ended - free_began) * 1e-9)
        .add("slowdown", seconds / first_seconds)
        .add("tokens", counts.tokens)
        .add("tokens_per_second", static_cast<double>(counts.tokens) / seconds)
        .add("peak_live_bytes", tally.peak_live_bytes)
        .add("loaded_live_bytes", loaded_live)
        .add("loaded_resident_bytes", loaded_resident)
        .add("loaded_overhead", recorder.overhead(loaded_resident, loaded_live))
        .add("files", counts.files)
        .add("file_bytes", counts.bytes)
        .add("macros", counts.macros)
        .add("identifiers", counts.identifiers)
        .add("declared", counts.declared)
        .add("missing_headers", counts.missing);
  }
  recorder.resume();
  trim();
  recorder
      .checkpoint({.variant = plan.variant,
                   .series = "after",
                   .x_unit = "step",
                   .live_bytes = tally.live_bytes})
      .add("step", "trimmed");
  return first;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("tokens", "a preprocessor over the system's headers, run again and again", argc,
                 argv);
  Plan plan;
  plan.runs = args.number("runs", 12, 40, 1, 100'000, "runs in this process");
  const auto units = args.choice("units", {"system", "all", "c++", "c", "windows"},
                                 "which headers; system: c++ and c", "all");
  const uint64_t files =
      args.number("files", 0, 0, 0, 100'000, "headers that a unit names; 0 for all");
  plan.repeat = args.number("repeat", 1, 2, 1, 1'000, "times a run processes all units");
  plan.variant = args.choice("variant", {"malloc", "null", "pool", "arena", "loam-lfh"},
                             "where the program's memory comes from");
  args.done();

  const Trim trim;
  const Sources sources(units, files);
  Recorder recorder(args);
  tally.sampler = recorder.sampler();
  const bool available = plan.variant != "loam-lfh" || LoamHeapPolicy::available();

  JsonLine& start = recorder.start();
  start.add("trim", trim.name()).add("available", available);
  start.open("units");
  for (const Unit& unit : sources) start.add(unit.name, unit.text.size());
  start.close();
  if (!available) {
    recorder.finish().add("unavailable", LoamHeapPolicy::reason());
    return 0;
  }
  Checksum checksum;
  const auto run = [&]<typename Policy>() {
    Policy::prepare();
    checksum = experiment<Policy>(plan, sources, trim, recorder);
  };
  if (plan.variant == "malloc") run.operator()<MallocPolicy>();
  if (plan.variant == "null") run.operator()<NullPolicy>();
  if (plan.variant == "pool") run.operator()<PoolPolicy>();
  if (plan.variant == "arena") run.operator()<ArenaPolicy>();
  if (plan.variant == "loam-lfh") run.operator()<LoamHeapPolicy>();
  recorder.finish().hex("checksum", checksum.value());
}
