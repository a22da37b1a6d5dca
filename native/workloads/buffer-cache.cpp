// buffer-cache: a cache with a bad policy is another name for a memory leak (article 003).
//
// Article: "A cache with a bad policy is another name for a memory leak" (2006). A step allocates
// or frees with equal chance. A request is 100 bytes, and doubles with chance 1/2 while it is under
// 1 MiB. A free picks a random victim. A cache that keeps the largest buffer hands large buffers
// out for small requests: after 37,900 steps less than 2 % of the allocated bytes are needed. The
// article's second listing says chance 1/4, but its figures are those of 1/2. With the C library's
// rand of its time (the default here, seed 1), `largest depth 1` and `cure depth 1` give them to
// the last digit.
//
// Findings to test: the flawed policy falls below 10 % within a few hundred steps and below 2 % by
// step 37,900; the cure stays above 90 %; a deeper flawed cache is worse.
//
// Parameters: --steps, --every (steps between checkpoints; 0: 100, or more so that there are at
// most 400), --chance, --policy, --depth (0: 1, 4 and 10), --cutoff, --generator.
//
// Measured: every 100 steps the live buffers, the needed bytes, the allocated bytes (in callers'
// hands, not in the cache), and per cent used. An operation is a step. The end line has the
// histogram of requests, and the cut-off that covers three in four, as the article chose it. Every
// policy and depth (a series each) sees the same steps.
#include <algorithm>
#include <charconv>
#include <limits>

#include "buffer_cache/policies.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/recorder.h"

namespace {

using namespace lab;
using namespace buffers;

constexpr uint32_t kSmallest = 100, kMostBytes = 1024 * 1024, kSizes = 15;

struct Plan {
  uint64_t seed, steps, every;
  uint32_t cutoff;
  bool article;  // the generator of the article's time and place
};

// The article's compiler had a `rand` of 15 bits, from a 32-bit linear congruential generator. The
// alternative is the harness's generator, cut to 31 bits.
class Rand {
 public:
  Rand(const Plan& plan)
      : article_(plan.article),
        state_(static_cast<uint32_t>(plan.seed)),
        random_(stream(plan.seed, 0)) {}
  uint32_t operator()() {
    if (!article_) return static_cast<uint32_t>(random_.next() >> 33);
    state_ = state_ * 214013u + 2531011u;
    return (state_ >> 16) & 0x7FFF;
  }

 private:
  bool article_;
  uint32_t state_;
  Random random_;
};

struct Held {
  Buffer buffer;
  uint32_t needed;
};

struct Histogram {
  uint64_t counts[kSizes] = {};  // of 100, 200, 400, ...
  uint64_t total = 0;

  // The smallest size that covers three requests in four, within a hundredth.
  uint32_t cutoff() const {
    uint64_t seen = 0;
    for (uint32_t i = 0; i < kSizes; ++i) {
      seen += counts[i];
      if (seen * 100 >= total * 74) return kSmallest << i;
    }
    return kMostBytes;
  }
};

// The random walk is the same for all policies: it has its own generator and its own sums.
template <typename Policy>
Checksum run(std::string_view policy, uint32_t depth, uint32_t odds, const Plan& plan,
             Table<Held>& held, Histogram& histogram, Recorder& recorder, uint64_t& index) {
  Policy cache(depth, plan.cutoff);
  Rand random(plan);
  LatencySampler sampler = recorder.sampler();
  Checksum checksum;
  size_t count = 0;
  uint64_t needed = 0, allocated = 0, since = 0;
  double lowest = std::numeric_limits<double>::infinity();
  histogram = {};
  char series[64];
  char* end = std::copy(policy.begin(), policy.end(), series);
  if (depth != 0) {
    for (const char c : std::string_view(" depth ")) *end++ = c;
    end = std::to_chars(end, end + 10, depth).ptr;
  }
  if (odds == 4) {
    for (const char c : std::string_view(" chance 1/4")) *end++ = c;
  }
  recorder.restart_peak();
  recorder.resume();
  for (uint64_t step = 0; step <= plan.steps; ++step) {
    if (count == 0 || (random() & 1)) {
      uint32_t doublings = 0;
      while (kSmallest << doublings < kMostBytes &&
             (odds == 2 ? random() & 1 : random() % odds == 0)) {
        ++doublings;
      }
      const uint32_t bytes = kSmallest << doublings;
      ++histogram.counts[doublings];
      ++histogram.total;
      checksum.add(bytes);
      if (count == held.size()) {
        fail(kExitFailed, "buffer-cache: too many live buffers; fewer --steps");
      }
      Held h{{}, bytes};
      sampler.run([&] {
        h.buffer = cache.get(bytes);
        touch(h.buffer.address, bytes);
      });
      held[count++] = h;
      needed += bytes;
      allocated += h.buffer.bytes;
    } else {
      const uint32_t victim = random() % static_cast<uint32_t>(count);
      checksum.add(victim);
      const Held h = std::exchange(held[victim], held[--count]);
      needed -= h.needed;
      allocated -= h.buffer.bytes;
      sampler.run([&] { cache.give_back(h.buffer); });
    }
    ++since;
    if (step % plan.every != 0) continue;
    recorder.take(sampler);
    const double used = allocated
                            ? 100.0 * static_cast<double>(needed) / static_cast<double>(allocated)
                            : std::numeric_limits<double>::quiet_NaN();
    if (used < lowest) lowest = used;
    recorder
        .checkpoint({.variant = policy,
                     .series = {series, static_cast<size_t>(end - series)},
                     .index = index++,
                     .x = step,
                     .x_unit = "steps",
                     .operations = since,
                     .live_bytes = needed})
        .add("depth", depth)
        .add("buffers", count)
        .add("bytes_needed", needed)
        .add("bytes_allocated", allocated)
        .add("percent_used", used)
        .add("lowest_percent_used", lowest)
        .add("cached_bytes", cache.cached_bytes());
    since = 0;
    recorder.resume();
  }
  while (count != 0) cache.give_back(held[--count].buffer);
  cache.clear();
  recorder.pause();
  return checksum;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("buffer-cache", "caches of buffers in front of the heap, good and bad policies",
                 argc, argv);
  Plan plan;
  plan.seed = args.seed();
  plan.steps = args.number("steps", 40'000, 1'000'000, 1, 100'000'000, "of each policy and depth");
  plan.every = args.number("every", 0, 0, 0, 100'000'000,
                           "steps between checkpoints; 0: 100, at most 400 of them");
  const auto chance =
      args.choice("chance", {"half", "quarter", "both"}, "of a request to double", "both");
  plan.article = args.choice("generator", {"article", "harness"},
                             "article: the C library's rand of its time") == "article";
  const auto policy =
      args.choice("policy", {"all", "none", "heap", "largest", "cure", "buckets", "loam"},
                  "what the cache keeps");
  const auto depth = static_cast<uint32_t>(
      args.number("depth", 0, 0, 0, kMostDepth, "buffers kept; 0: 1, 4 and 10 in turn"));
  plan.cutoff = static_cast<uint32_t>(
      args.bytes("cutoff", 200, 200, 1, kMostBytes, "largest buffer that the cure keeps"));
  args.done();
  if (plan.every == 0) plan.every = std::max<uint64_t>(100, (plan.steps + 399) / 400);

  Recorder recorder(args);
  // The number of live buffers is a random walk; ten million steps stay far below this.
  Table<Held> held(std::min<uint64_t>(plan.steps + 1, 1'000'000));
  Histogram histogram;
  Checksum checksum;
  uint64_t index = 0;
  recorder.start().add("every", plan.every);

  const auto wanted = [&](std::string_view p) { return policy == "all" || policy == p; };
  const auto at_depths = [&](auto&& body) {
    if (depth != 0) return body(depth);
    for (const uint32_t d : {1u, 4u, 10u}) body(d);
  };
  uint32_t odds = 2;
  const auto one = [&]<typename Policy>(std::string_view name, uint32_t d) {
    checksum = run<Policy>(name, d, odds, plan, held, histogram, recorder, index);
  };
  Checksum all;
  for (odds = 4; odds >= 2; odds -= 2) {
    if (chance != "both" && (chance == "half") != (odds == 2)) continue;
    if (wanted("none")) one.operator()<None>("none", 0);
    if (wanted("heap")) one.operator()<Heap>("heap", 0);
    if (wanted("largest")) at_depths([&](uint32_t d) { one.operator()<Largest>("largest", d); });
    if (wanted("cure")) at_depths([&](uint32_t d) { one.operator()<Cure>("cure", d); });
    if (wanted("buckets")) at_depths([&](uint32_t d) { one.operator()<Buckets>("buckets", d); });
    if (wanted("loam")) at_depths([&](uint32_t d) { one.operator()<Loam>("loam", d); });
    all.add(checksum.value());
  }

  JsonLine& line = recorder.finish();
  line.hex("checksum", all.value()).add("suggested_cutoff", histogram.cutoff());
  line.open("requests");
  for (uint32_t i = 0; i < kSizes; ++i) {
    char size[16];
    *std::to_chars(size, size + 15, kSmallest << i).ptr = '\0';
    line.add(size, histogram.counts[i]);
  }
  line.close();
}
