// The process's counters for the system's own monitor (os/shown_counters.h), where it has one.
//
// One thread: the publisher's.
#pragma once

#include <cstring>

#include "counters/stats.h"
#include "os/shown_counters.h"

namespace loam {

namespace shown {

/// The number by which a counter is registered: of its name, so that a counter keeps it for ever
/// (FNV-1a). tools/gen_counters.py computes the same, and finds two that meet.
constexpr uint32_t id_of(const char* name) {
  uint32_t hash = 2'166'136'261u;
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 16'777'619u;
  return hash & 0x7fff'ffff;
}

constexpr bool is_shown(const stats::CounterInfo& counter) {
  return counter.in_process && (counter.scope == stats::CounterScope::kProcess ||
                                counter.scope == stats::CounterScope::kHeap);
}

struct List {
  os::ShownCounter counters[stats::kCounterCount];
  uint8_t numbers[stats::kCounterCount];
  unsigned count;
};

constexpr List make_list() {
  List list{};
  for (unsigned i = 0; i < stats::kCounterCount; ++i) {
    const stats::CounterInfo& counter = stats::kCounters[i];
    if (!is_shown(counter)) continue;
    list.counters[list.count] = {id_of(counter.id), counter.kind == stats::CounterKind::kCounter};
    list.numbers[list.count++] = static_cast<uint8_t>(i);
  }
  return list;
}

inline constexpr List kList = make_list();
inline constinit uint64_t values[kList.count] = {};

/// As a monitor shows it: of a ratio the whole per cents, of what is unknown 0.
inline uint64_t figure_of(unsigned number, uint64_t value) {
  if (value == stats::kUnknown) return 0;
  if (stats::kCounters[number].kind != stats::CounterKind::kRatio) return value;
  double ratio;
  memcpy(&ratio, &value, sizeof ratio);
  return static_cast<uint64_t>(ratio * 100);
}

}  // namespace shown

/// Brings what the monitor shows up to date. The first call has it shown.
inline void show_counters() {
  static constinit bool is_shown = false;
  stats::Values now;
  if (!stats::read(nullptr, &now)) return;
  for (unsigned i = 0; i < shown::kList.count; ++i) {
    const unsigned number = shown::kList.numbers[i];
    // relaxed: the monitor reads each by itself
    __atomic_store_n(&shown::values[i], shown::figure_of(number, now.of[number]), __ATOMIC_RELAXED);
  }
  if (is_shown) return;
  is_shown = true;
  // Where the system refuses, nothing is shown; the image is published.
  static_cast<void>(os::show_counters(shown::kList.counters, shown::values, shown::kList.count));
}

}  // namespace loam
