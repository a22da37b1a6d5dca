// The handles of fake.h.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/units.h"

#include "fake_system/fake_state.h"
#include "os/os.h"

namespace loam::os::fake {

State& state = *new State;

void breach(const char* what, uintptr_t address, size_t bytes) {
  fprintf(stderr, "fake system: %s (address 0x%zx, %zu bytes)\n", what, size_t{address}, bytes);
  abort();
}

void check_covered(const Ranges& ranges, const char* what, uintptr_t address, size_t bytes) {
  if (!ranges.covers(address, address + bytes)) breach(what, address, bytes);
}

void reset() {
  Guard guard(state.mutex);
  static_cast<Settings&>(state) = Settings{};
  state.waits.store(0, std::memory_order_relaxed);
  listen_to_probes(false, false);
  state.metadata_before = state.metadata.total();
  // Begins at a region's boundary, so that no test uses a region of an earlier one.
  state.next = round_up(state.next + 1, kRegionBytes);
}

void set_granularity(size_t bytes) {
  Guard guard(state.mutex);
  const bool possible = is_power_of_two(bytes) && bytes >= kPageBytes && bytes <= 65536;
  if (!possible) breach("granularity is none of 4, 16 and 64 KiB", 0, bytes);
  state.granularity = bytes;
}

void limit_reserved(size_t bytes) {
  Guard guard(state.mutex);
  state.limit = bytes;
}

void reuse_addresses(bool reuse) {
  Guard guard(state.mutex);
  state.reuse = reuse;
}

void place_next_at(uintptr_t address) {
  Guard guard(state.mutex);
  state.placed = address;
}

void set_option(const char* name, const char* value) {
  Guard guard(state.mutex);
  if (value == nullptr) {
    state.options.erase(name);
  } else {
    state.options[name] = value;
  }
}

void set_clock_ms(uint64_t ms) {
  Guard guard(state.mutex);
  state.clock_ns = ms * 1'000'000;
}

void advance_ms(uint64_t ms) {
  Guard guard(state.mutex);
  state.clock_ns += ms * 1'000'000;
}

void set_running_threads(unsigned threads) {
  Guard guard(state.mutex);
  state.running_threads = threads;
}

void listen_to_probes(bool allocations, bool frees) {
  __atomic_store_n(&loam_allocation_listeners, allocations ? 1 : 0, __ATOMIC_RELAXED);
  __atomic_store_n(&loam_free_listeners, frees ? 1 : 0, __ATOMIC_RELAXED);
}

std::vector<Probed> take_probed() {
  Guard guard(state.mutex);
  return std::exchange(state.probed, {});
}

void fail(Call call, uint64_t nth, uint64_t count) {
  Guard guard(state.mutex);
  state.plans[unsigned(call)] = {nth - 1, count};
}

void fail_any(uint64_t nth, uint64_t count) {
  Guard guard(state.mutex);
  state.any = {nth - 1, count};
}

void clear_failures() {
  Guard guard(state.mutex);
  for (Plan& plan : state.plans) plan = Plan{};
  state.any = Plan{};
}

uint64_t calls(Call call) {
  Guard guard(state.mutex);
  return state.calls[unsigned(call)];
}

uint64_t refusals(Call call) {
  Guard guard(state.mutex);
  return state.refusals[unsigned(call)];
}

uint64_t waits() { return state.waits.load(std::memory_order_relaxed); }

uint64_t fallible_calls() {
  Guard guard(state.mutex);
  return state.fallible;
}

std::vector<Record> log() {
  Guard guard(state.mutex);
  return state.log;
}

void clear_log() {
  Guard guard(state.mutex);
  state.log.clear();
}

size_t reserved_bytes() {
  Guard guard(state.mutex);
  return state.reserved.total();
}

size_t metadata_bytes() {
  Guard guard(state.mutex);
  return state.metadata.total();
}

size_t committed_bytes() {
  Guard guard(state.mutex);
  return state.committed.total();
}

bool is_reserved(uintptr_t address, size_t bytes) {
  Guard guard(state.mutex);
  return state.reserved.covers(address, address + bytes);
}

bool is_committed(uintptr_t address, size_t bytes) {
  Guard guard(state.mutex);
  return state.committed.covers(address, address + bytes);
}

void touch(uintptr_t address, size_t bytes) {
  Guard guard(state.mutex);
  const uintptr_t begin = address & ~(state.granularity - 1);
  const uintptr_t end = round_up(address + bytes, state.granularity);
  check_covered(state.committed, "touch of what is not committed", begin, end - begin);
  // If no page of a 2 MiB slab was backed, all of the slab becomes backed.
  for (uintptr_t huge = begin & ~(kSlabBytes - 1); huge < end; huge += kSlabBytes) {
    const uintptr_t past = huge + kSlabBytes;
    if (!state.resident.meets(huge, past) && state.huge.covers(huge, past) &&
        state.committed.covers(huge, past)) {
      state.resident.add(huge, past);
    }
  }
  state.resident.add(begin, end);
  state.written.add(address, address + bytes);
}

size_t written_bytes(uintptr_t address, size_t bytes) {
  Guard guard(state.mutex);
  return state.written.overlap(address, address + bytes);
}

size_t resident_bytes() {
  Guard guard(state.mutex);
  return state.resident.total();
}

std::string take_errors() {
  Guard guard(state.mutex);
  return std::move(state.errors);
}

ForkHooks fork_hooks() {
  Guard guard(state.mutex);
  return state.fork_hooks;
}

}  // namespace loam::os::fake
