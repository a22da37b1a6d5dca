// sparse: a heap that holds little and is spread wide.
//
// Lab experiment 8, second part. The program fills with small objects of mixed sizes to --live
// bytes. It thins them out at random to a tenth, a hundredth, a thousandth, and after each idles
// and compacts: how much memory goes back? Then it fills up again: what does faulting back cost? A
// heap whose blocks carry headers can return a page only once the page is empty. Out-of-line
// metadata allows more.
//
// Parameters: --live, --idle-ms. Sizes are uniform from 16 to 512 bytes.
//
// Measured: after each step resident memory, resident / live (overhead + 1), and time. An operation
// is an allocation (first and last byte written) or a free.
#include "harness/allocator.h"
#include "harness/recorder.h"
#include "objects.h"

using namespace lab;

int main(int argc, char** argv) {
  Arguments args("sparse", "fill, thin out to 1/10, 1/100, 1/1000, compact, fill again", argc,
                 argv);
  const uint64_t live = args.bytes("live", 150'000'000, 500'000'000, 100'000, uint64_t{1} << 40,
                                   "bytes that are live when filled");
  const uint64_t idle_ms = args.number("idle-ms", 500, 10'000, 0, 600'000, "length of idling");
  args.done();

  constexpr SizeRange kSizes{16, 512};
  const Trim trim;
  Recorder recorder(args);
  Objects objects(live / kSizes.mean() * 2 + 10'000, args.seed(), recorder.sampler());
  uint64_t index = 0;
  const auto step = [&](std::string_view name, uint64_t divisor, uint64_t operations) {
    recorder.pause();
    recorder.take(objects.sampler());
    recorder
        .checkpoint({.series = "sparse",
                     .index = index,
                     .x = index,
                     .x_unit = "step",
                     .operations = operations,
                     .live_bytes = objects.live_bytes()})
        .add("step", name)
        .add("divisor", divisor)
        .add("objects", objects.count());
    ++index;
    recorder.resume();
  };

  recorder.start().add("trim", trim.name());
  recorder.resume();
  const uint64_t filled = objects.fill_to(live, kSizes);
  step("fill", 1, filled);
  for (uint64_t divisor = 10; divisor <= 1'000; divisor *= 10) {
    step("thin", divisor, objects.thin_to(filled / divisor));
    idle(idle_ms);
    step("idle", divisor, 0);
    trim();
    step("compact", divisor, 0);
  }
  step("refill", 1, objects.fill_to(live, kSizes));
  step("free", 0, objects.thin_to(0));
  idle(idle_ms);
  step("idle", 0, 0);
  trim();
  step("compact", 0, 0);
  recorder.finish().hex("checksum", objects.checksum());
}
