// The common part of the classic shapes: the report of rounds, and the end.
//
// Every shape runs `rounds` equal rounds (so that ageing shows), with a checkpoint each in the
// series "rounds". Then it frees everything and trims the heap (series "after", index 0 and 1).
// Counts of operations follow only from the parameters. So a faster allocator does no more work,
// and its memory can be compared too.
#pragma once

#include "crew.h"
#include "harness/allocator.h"
#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/recorder.h"

namespace bench {

using namespace lab;

class Report {
 public:
  explicit Report(const Arguments& args) : recorder_(args) {}

  // Call once threads and tables exist.
  void start() { recorder_.start().add("trim", trim_.name()); }

  // Before a round, or before the remaining blocks are freed.
  void begin() { recorder_.resume(); }

  void round(uint64_t index, uint64_t operations, uint64_t live_bytes) {
    recorder_.checkpoint({.series = "rounds",
                          .index = index,
                          .x = index + 1,
                          .x_unit = "rounds",
                          .operations = operations,
                          .live_bytes = live_bytes});
  }

  // Everything is freed: measures, trims, measures again, and ends.
  void finish(uint64_t freed, uint64_t checksum) {
    after(0, "freed", freed);
    recorder_.resume();
    trim_();
    after(1, "trimmed", 0);
    recorder_.finish().hex("checksum", checksum);
  }

 private:
  void after(uint64_t index, const char* step, uint64_t operations) {
    recorder_
        .checkpoint({.series = "after",
                     .index = index,
                     .x = index,
                     .x_unit = "step",
                     .operations = operations})
        .add("step", step);
  }

  Trim trim_;
  Recorder recorder_;
};

// A thread's own figures, apart from its neighbours' cache lines.
struct alignas(128) Tally {
  uint64_t operations = 0, live_bytes = 0;
  Checksum checksum;
};

// Operations since the last call, live bytes now. The crew must be waiting.
inline uint64_t take_operations(Table<Tally>& tallies) {
  uint64_t sum = 0;
  for (auto& t : tallies) {
    sum += t.operations;
    t.operations = 0;
  }
  return sum;
}
// The thread that allocates adds bytes, and the thread that frees subtracts them. One thread's
// figure may fall below zero; the sum (modulo 2^64) is right.
inline uint64_t live_bytes(const Table<Tally>& tallies) {
  uint64_t sum = 0;
  for (size_t i = 0; i < tallies.size(); ++i) sum += tallies[i].live_bytes;
  return sum;
}
inline uint64_t checksum(const Table<Tally>& tallies) {
  Checksum all;
  for (size_t i = 0; i < tallies.size(); ++i) all.add(tallies[i].checksum.value());
  return all.value();
}

}  // namespace bench
