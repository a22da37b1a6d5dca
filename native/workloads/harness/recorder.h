// The course of an experiment: start line, checkpoints, end line, and the figures in them.
//
//   Recorder recorder(args);            // tables are mapped and touched before start()
//   recorder.start();                   // baseline resident, peak reset, start line; clock runs
//   ... work ...
//   recorder.pause();                   // stops the interval's clock (checkpoint() also does)
//   recorder.checkpoint({...})          // measures and opens the line; extra keys may follow
//       .add("depth", 4);
//   recorder.resume();                  // sends the line; clock runs again
//   recorder.finish().add(...);         // opens the end line; the destructor sends it
//
// seconds, processor_seconds, operations and latency count from the last resume() that followed a
// checkpoint. Faults and times are cumulative since start(). The peak counts from start() or
// restart_peak(). Measuring happens with the clock stopped. One thread at a time may use a
// Recorder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "arguments.h"
#include "json.h"
#include "latency.h"
#include "system.h"

namespace lab {

inline constexpr int kFormatVersion = 1;

struct Checkpoint {
  std::string_view variant = "malloc";
  std::string_view series;
  uint64_t index = 0;
  uint64_t x = 0;
  std::string_view x_unit;
  uint64_t operations = 0;  // since the last checkpoint
  uint64_t live_bytes = 0;  // requested and not yet freed
};

class Recorder {
 public:
  explicit Recorder(const Arguments& args)
      : args_(args),
        histogram_(static_cast<LatencyHistogram*>(map_memory(sizeof(LatencyHistogram)))),
        clock_cost_(clock_cost_ns()) {
    histogram_->clear();
    memory_figures();  // touches the static buffers, which the baseline must include
    resident_high_water();
    mapping_count();
  }
  Recorder(const Recorder&) = delete;
  ~Recorder() { send(); }

  LatencySampler sampler() const { return LatencySampler(clock_cost_); }

  // Opens the start line (more keys may be added) and takes the baseline.
  JsonLine& start() {
    peak_exact_ = reset_resident_high_water();
    const MemoryFigures memory = memory_figures();
    baseline_ = memory.resident;
    observed_peak_ = baseline_;
    line_.begin();
    line_.add("type", "start").add("workload", args_.workload()).add("version", kFormatVersion);
    line_.add("seed", args_.seed()).add("form", args_.full() ? "full" : "quick");
    line_.open("parameters");
    args_.write_parameters(line_);
    line_.close();
    line_.open("machine").add("cores", core_count()).add("memory_bytes", machine_memory_bytes());
    line_.close();
    line_.add("baseline_resident_bytes", baseline_).add("latency_sampling", kLatencySampling);
    line_.add("baseline_anonymous_bytes", memory.anonymous).add("tables_bytes", mapped_bytes);
    line_.add("clock_cost_ns", clock_cost_);
    line_.add("peak_source", peak_exact_ ? "VmHWM" : "checkpoints");
    open_ = true;
    start_usage_ = process_usage();
    interval_processor_start_ = processor_ns();
    start_ns_ = interval_start_ = now_ns();
    return line_;
  }

  // The clock of the present interval. Pauses nest no deeper than one.
  void resume() {
    send();
    if (!running_) {
      interval_processor_start_ = processor_ns();
      interval_start_ = now_ns();
    }
    running_ = true;
  }
  void pause() {
    if (running_) {
      interval_ns_ += now_ns() - interval_start_;
      interval_processor_ns_ += processor_ns() - interval_processor_start_;
    }
    running_ = false;
  }

  // Moves a sampler's histogram to the next checkpoint and empties it.
  void take(LatencySampler& sampler) {
    histogram_->merge(sampler.histogram());
    sampler.histogram().clear();
  }

  // A new peak begins here: for experiments that run several series in a process.
  void restart_peak() {
    const uint64_t resident = memory_figures().resident;
    earlier_peak_ = std::max(earlier_peak_, peak(resident));
    reset_resident_high_water();
    observed_peak_ = resident;
  }

  JsonLine& checkpoint(const Checkpoint& c) {
    pause();
    send();
    const MemoryFigures memory = memory_figures();
    const uint64_t mappings = mapping_count();
    const Usage usage = process_usage();
    const double seconds = static_cast<double>(interval_ns_) * 1e-9;
    const double nothing = std::numeric_limits<double>::quiet_NaN();

    line_.begin();
    line_.add("type", "checkpoint").add("variant", c.variant).add("series", c.series);
    line_.add("index", c.index).add("x", c.x).add("x_unit", c.x_unit);
    line_.add("operations", c.operations).add("seconds", seconds);
    line_.add("operations_per_second",
              seconds > 0 ? static_cast<double>(c.operations) / seconds : nothing);
    line_.add("processor_seconds", static_cast<double>(interval_processor_ns_) * 1e-9);
    write_latency();
    line_.add("live_bytes", c.live_bytes).add("resident_bytes", memory.resident);
    line_.add("peak_resident_bytes", peak(memory.resident));
    line_.add("lazyfree_bytes", memory.lazyfree).add("huge_bytes", memory.huge);
    line_.add("minor_faults", usage.minor_faults - start_usage_.minor_faults);
    line_.add("major_faults", usage.major_faults - start_usage_.major_faults);
    line_.add("user_seconds", usage.user_seconds - start_usage_.user_seconds);
    line_.add("system_seconds", usage.system_seconds - start_usage_.system_seconds);
    line_.add("voluntary_switches", usage.voluntary_switches - start_usage_.voluntary_switches);
    line_.add("mappings", mappings);
    line_.add("overhead", c.live_bytes ? overhead(memory.resident, c.live_bytes) : nothing);
    open_ = true;
    interval_ns_ = interval_processor_ns_ = 0;
    histogram_->clear();
    return line_;
  }

  // Opens the end line. More keys may be added until the Recorder is destroyed.
  JsonLine& finish() {
    pause();
    send();
    const MemoryFigures memory = memory_figures();
    line_.begin();
    line_.add("type", "end").add("seconds", static_cast<double>(now_ns() - start_ns_) * 1e-9);
    line_.add("resident_bytes", memory.resident);
    line_.add("peak_resident_bytes", std::max(earlier_peak_, peak(memory.resident)));
    open_ = true;
    return line_;
  }

  double overhead(uint64_t resident, uint64_t live) const {
    return (static_cast<double>(resident) - static_cast<double>(baseline_)) /
               static_cast<double>(live) -
           1.0;
  }
  uint64_t baseline() const { return baseline_; }

  // The highest resident size since start() or restart_peak(). The kernel batches its mark per CPU,
  // so it may be later than the exact readings.
  uint64_t peak(uint64_t resident_now) {
    if (resident_now > observed_peak_) observed_peak_ = resident_now;
    if (peak_exact_) {
      const uint64_t mark = resident_high_water();
      if (mark > observed_peak_) observed_peak_ = mark;
    }
    return observed_peak_;
  }

 private:
  void send() {
    if (open_) line_.end();
    open_ = false;
  }

  void write_latency() {
    if (histogram_->samples() == 0) {
      line_.null("latency_ns");
      return;
    }
    line_.open("latency_ns");
    line_.add("p50", histogram_->quantile(0.50)).add("p99", histogram_->quantile(0.99));
    line_.add("p999", histogram_->quantile(0.999)).add("max", histogram_->max());
    line_.add("samples", histogram_->samples());
    line_.close();
  }

  const Arguments& args_;
  LatencyHistogram* histogram_;
  uint64_t clock_cost_;
  JsonLine line_;
  bool open_ = false, running_ = false, peak_exact_ = false;
  uint64_t baseline_ = 0, observed_peak_ = 0, earlier_peak_ = 0;
  uint64_t start_ns_ = 0, interval_start_ = 0, interval_ns_ = 0;
  uint64_t interval_processor_start_ = 0, interval_processor_ns_ = 0;
  Usage start_usage_;
};

}  // namespace lab
