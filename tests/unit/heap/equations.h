// The equations of counters/snapshot.h, exact while no other thread allocates.
#pragma once

#include <memory>

#include <gtest/gtest.h>

#include "counters/snapshot.h"
#include "heap/heap.h"

namespace loam::test {

struct WholeSnapshot : Snapshot {
  ClassSnapshot classes[kMagazineCount] =
      {};  ///< by number; unused ones, and kMixedClass, are all zero
};

inline std::unique_ptr<WholeSnapshot> snapshot() {
  auto s = std::make_unique<WholeSnapshot>();
  take_snapshot(s.get(), [&](unsigned c, const ClassSnapshot& k) { s->classes[c] = k; });
  return s;
}

inline Snapshot totals() {
  Snapshot s;
  take_snapshot(&s, [](unsigned, const ClassSnapshot&) {});
  return s;
}

inline void expect_equations(const WholeSnapshot& s) {
  EXPECT_EQ(s.live_small_bytes + s.cached_bytes + s.span_free_bytes + s.span_tail_bytes +
                s.live_large_bytes,
            s.used_bytes);
  EXPECT_LE(s.used_bytes + s.dirty_bytes, s.committed_bytes);
  EXPECT_LE(s.committed_bytes, s.reserved_bytes);
  EXPECT_GE(s.peak_used_bytes, s.used_bytes);
  EXPECT_LE(s.largest_free_bytes, s.dirty_bytes);
  size_t live = 0, cached = 0, free = 0;
  for (unsigned i = 0; i < class_count(); ++i) {
    const unsigned c = class_number(i);
    const ClassSnapshot& k = s.classes[c];
    EXPECT_EQ(k.live + k.cached + k.free_slots, k.slots + k.mixed) << "class " << c;
    EXPECT_LE(k.slots, k.spans * class_info(c).slots)
        << "less those of partial spans that are absent";
    EXPECT_EQ(k.taken - k.given + k.mixed, k.live + k.cached);
    live += k.live * class_info(c).bytes;
    cached += k.cached * class_info(c).bytes;
    free += k.free_slots * class_info(c).bytes;
  }
  EXPECT_EQ(live, s.live_small_bytes);
  EXPECT_EQ(cached + s.cached_run_bytes, s.cached_bytes);
  EXPECT_EQ(free + s.mixed_free_bytes, s.span_free_bytes);
}

}  // namespace loam::test
