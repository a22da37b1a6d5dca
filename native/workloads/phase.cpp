// phase: a long-running program, one phase of its work after another.
//
// Lab experiment 8. The program fills with small objects to --live bytes, frees nine in ten at
// random and in random order, fills up again with objects of another size, again and again. The
// survivors of every phase keep memory from serving the next phase. Then it idles (one small block
// every 10 ms), compacts (the allocator's own call to give memory back, named in the start line),
// fills up once more (the cost of faulting back), frees everything, idles, and compacts.
//
// Parameters: --live, --rounds, --idle-ms. Sizes go through five ranges in turn, 24 to 488 bytes.
// No two ranges share a size class of 16-byte steps or of sixteen a doubling.
//
// Measured: resident memory after each step, its time, peak resident / peak live. An operation is
// an allocation (first and last byte written) or a free.
#include "harness/allocator.h"
#include "harness/recorder.h"
#include "objects.h"

namespace {

using namespace lab;

constexpr SizeRange kRanges[] = {{24, 40}, {104, 152}, {56, 72}, {200, 264}, {360, 488}};
constexpr uint64_t kLeastMean = kRanges[0].mean();

struct Phase {
  Recorder& recorder;
  Objects& objects;
  uint64_t index = 0;
  uint64_t peak_live = 0;

  // Ends a step: everything since the last resume() belongs to it.
  void step(std::string_view name, uint64_t round, uint64_t operations) {
    recorder.pause();
    recorder.take(objects.sampler());
    if (objects.live_bytes() > peak_live) peak_live = objects.live_bytes();
    JsonLine& line = recorder.checkpoint({.series = "phase",
                                          .index = index,
                                          .x = index,
                                          .x_unit = "step",
                                          .operations = operations,
                                          .live_bytes = objects.live_bytes()});
    line.add("step", name).add("round", round).add("objects", objects.count());
    ++index;
    recorder.resume();
  }
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("phase", "fill, free nine in ten at random, fill with another size, again", argc,
                 argv);
  const uint64_t live = args.bytes("live", 100'000'000, 200'000'000, 10'000, uint64_t{1} << 40,
                                   "bytes that are live when filled");
  const uint64_t rounds = args.number("rounds", 5, 15, 1, 10'000, "phases");
  const uint64_t idle_ms = args.number("idle-ms", 1'000, 10'000, 0, 600'000, "length of idling");
  args.done();

  const Trim trim;
  Recorder recorder(args);
  // Room for the smallest objects only, and for the survivors of earlier phases.
  Objects objects(live / kLeastMean * 5 / 4 + 1'000, args.seed(), recorder.sampler());
  Phase phase{recorder, objects};

  recorder.start().add("trim", trim.name());
  recorder.resume();
  for (uint64_t round = 0; round < rounds; ++round) {
    const uint64_t filled = objects.fill_to(live, kRanges[round % std::size(kRanges)]);
    phase.step("fill", round, filled);
    phase.step("thin", round, objects.thin_to(objects.count() / 10));
  }
  const double peak_ratio =
      static_cast<double>(recorder.peak(memory_figures().resident) - recorder.baseline()) /
      static_cast<double>(phase.peak_live);
  recorder.resume();
  idle(idle_ms);
  phase.step("idle", rounds, 0);
  trim();
  phase.step("compact", rounds, 0);
  const uint64_t refilled = objects.fill_to(live, kRanges[0]);
  phase.step("refill", rounds, refilled);
  phase.step("free", rounds, objects.thin_to(0));
  idle(idle_ms);
  phase.step("idle-empty", rounds, 0);
  trim();
  phase.step("compact-empty", rounds, 0);
  recorder.finish()
      .hex("checksum", objects.checksum())
      .add("peak_live_bytes", phase.peak_live)
      .add("peak_ratio", peak_ratio);
}
