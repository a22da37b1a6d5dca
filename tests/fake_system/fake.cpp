// The calls of os.h on the pretended system.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>

#include "base/units.h"
#include "fake_system/fake_state.h"
#include "fake_system/host.h"
#include "os/os.h"
#include "os/system_heap.h"

namespace loam::os {

namespace {

using namespace fake;

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }
void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

void check_shape(const char* call, const void* address, size_t bytes) {
  const std::string name(call);
  const char* what = bytes == 0 ? " of an empty range"
                     : bytes % state.granularity != 0
                         ? " of a size that is no multiple of the granularity"
                     : number(address) % state.granularity != 0
                         ? " at an address that is no multiple of the granularity"
                         : nullptr;
  if (what != nullptr) breach((name + what).c_str(), number(address), bytes);
}
void check_alignment(size_t alignment) {
  if (!is_power_of_two(alignment)) breach("an alignment that is no power of two", 0, alignment);
}

/// Counts the call; true when a plan refuses it.
bool refused(Call call) {
  const unsigned i = unsigned(call);
  ++state.calls[i];
  ++state.fallible;
  const bool by_kind = state.plans[i].refuses();
  const bool by_any = state.any.refuses();
  return by_kind || by_any;
}

bool note(Call call, uintptr_t address, size_t bytes, bool granted) {
  if (!granted) ++state.refusals[unsigned(call)];
  state.log.push_back({call, address, bytes, !granted});
  return granted;
}

bool within_limit(size_t bytes) {
  const size_t metadata = state.metadata.total();
  const size_t before = state.metadata_before < metadata ? state.metadata_before : metadata;
  const size_t held = state.reserved.total() + metadata - before;
  return held <= state.limit && bytes <= state.limit - held;
}

uintptr_t find_place(size_t bytes, size_t alignment) {
  if (state.reuse) {
    for (const auto& [begin, end] : state.released.ranges()) {
      const uintptr_t place = round_up(begin, alignment);
      if (place < end && bytes <= end - place) return place;
    }
  }
  const uintptr_t from = state.placed != 0 ? state.placed : state.next;
  const uintptr_t end = state.placed != 0 ? UINTPTR_MAX : uintptr_t{1} << kAddressBits;
  const uintptr_t place = round_up(from, alignment);
  return place < from || place >= end || bytes > end - place ? 0 : place;
}

/// Takes pretended address space; 0 when there is none.
uintptr_t take_addresses(size_t bytes, size_t alignment) {
  check_alignment(alignment);
  if (!within_limit(bytes)) return 0;
  const uintptr_t place = find_place(bytes, alignment);
  if (place == 0) return 0;
  state.reserved.add(place, place + bytes);
  state.released.remove(place, place + bytes);
  if (state.placed != 0) {
    state.placed = place + bytes;
  } else if (place >= state.next) {
    state.next = place + bytes;
  }
  return place;
}

void drop_addresses(uintptr_t begin, uintptr_t end) {
  state.reserved.remove(begin, end);
  state.committed.remove(begin, end);
  state.resident.remove(begin, end);
  state.written.remove(begin, end);
  state.huge.remove(begin, end);
  state.released.add(begin, end);
}

pthread_key_t thread_exit_key;

}  // namespace

// ---- os.h -------------------------------------------------------------------------------------

ErrnoGuard::ErrnoGuard() : saved_(errno) {}
ErrnoGuard::~ErrnoGuard() { errno = saved_; }
void set_errno_out_of_memory() { errno = ENOMEM; }
void set_errno_invalid() { errno = EINVAL; }

size_t granularity() {
  Guard guard(state.mutex);
  return state.granularity;
}

void* reserve(size_t bytes, size_t alignment) {
  Guard guard(state.mutex);
  check_shape("reserve", nullptr, bytes);
  const uintptr_t place = refused(Call::kReserve) ? 0 : take_addresses(bytes, alignment);
  note(Call::kReserve, place, bytes, place != 0);
  return pointer(place);
}

void* reserve_held(size_t bytes, size_t alignment) { return reserve(bytes, alignment); }

void* reserve_metadata(size_t bytes, size_t alignment) {
  ErrnoGuard keep;
  Guard guard(state.mutex);
  check_shape("reserve_metadata", nullptr, bytes);
  check_alignment(alignment);
  void* place = nullptr;
  if (!refused(Call::kReserveMetadata) && within_limit(bytes)) {
    const size_t real = alignment < 65536 ? 65536 : alignment;  // as if pages were at most 64 KiB
    place = host::reserve(bytes, real);
  }
  if (place != nullptr) state.metadata.add(number(place), number(place) + bytes);
  note(Call::kReserveMetadata, number(place), bytes, place != nullptr);
  return place;
}

bool commit(void* address, size_t bytes) {
  ErrnoGuard keep;
  Guard guard(state.mutex);
  check_shape("commit", address, bytes);
  const uintptr_t begin = number(address);
  if (state.metadata.meets(begin, begin + bytes)) {
    check_covered(state.metadata, "commit leaves its metadata reservation", number(address), bytes);
    const bool granted = !refused(Call::kCommitMetadata) && host::commit(address, bytes);
    return note(Call::kCommitMetadata, begin, bytes, granted);
  }
  check_covered(state.reserved, "commit of what is not reserved", number(address), bytes);
  const bool granted = !refused(Call::kCommit);
  if (granted) state.committed.add(begin, begin + bytes);
  return note(Call::kCommit, begin, bytes, granted);
}

bool purge(void* address, size_t bytes) {
  ErrnoGuard keep;
  Guard guard(state.mutex);
  check_shape("purge", address, bytes);
  if (state.metadata.meets(number(address), number(address) + bytes)) {
    check_covered(state.metadata, "purge leaves its metadata reservation", number(address), bytes);
    const bool granted = !refused(Call::kPurgeMetadata) && host::purge(address, bytes);
    return note(Call::kPurgeMetadata, number(address), bytes, granted);
  }
  check_covered(state.committed, "purge of what is not committed", number(address), bytes);
  const bool granted = !refused(Call::kPurge);
  if (granted) {
    state.resident.remove(number(address), number(address) + bytes);
    state.written.remove(number(address), number(address) + bytes);
  }
  return note(Call::kPurge, number(address), bytes, granted);
}

bool decommit(void* address, size_t bytes) {
  Guard guard(state.mutex);
  check_shape("decommit", address, bytes);
  const uintptr_t begin = number(address), end = begin + bytes;
  check_covered(state.reserved, "decommit of what is not reserved", begin, bytes);
  state.committed.remove(begin, end);
  state.resident.remove(begin, end);
  state.written.remove(begin, end);
  return true;
}

void report_faults(bool (*)(const void*)) {}

bool populate(void* address, size_t bytes) {
  Guard guard(state.mutex);
  check_shape("populate", address, bytes);
  check_covered(state.committed, "populate of what is not committed", number(address), bytes);
  const bool granted = !refused(Call::kPopulate);
  if (granted) state.resident.add(number(address), number(address) + bytes);
  return note(Call::kPopulate, number(address), bytes, granted);
}

bool advise_huge(void* address, size_t bytes, bool allow) {
  Guard guard(state.mutex);
  check_shape("advise_huge", address, bytes);
  check_covered(state.reserved, "advice about what is not reserved", number(address), bytes);
  const bool granted = !refused(Call::kAdviseHuge);
  const uintptr_t begin = number(address), end = begin + bytes;
  if (granted) allow ? state.huge.add(begin, end) : state.huge.remove(begin, end);
  return note(Call::kAdviseHuge, begin, bytes, granted);
}

void release(void* address, size_t bytes) {
  ErrnoGuard keep;
  Guard guard(state.mutex);
  check_shape("release", address, bytes);
  const uintptr_t begin = number(address);
  const bool is_metadata = state.metadata.meets(begin, begin + bytes);
  const Call call = is_metadata ? Call::kReleaseMetadata : Call::kRelease;
  ++state.calls[unsigned(call)];
  if (is_metadata) {
    check_covered(state.metadata, "release leaves its metadata reservation", begin, bytes);
    state.metadata.remove(begin, begin + bytes);
    host::release(address, bytes);
  } else {
    check_covered(state.reserved, "release of what is not reserved", number(address), bytes);
    drop_addresses(begin, begin + bytes);
  }
  note(call, begin, bytes, true);
}

void* map_block(size_t bytes, size_t alignment) {
  Guard guard(state.mutex);
  check_shape("map_block", nullptr, bytes);
  const uintptr_t place = refused(Call::kMapBlock) ? 0 : take_addresses(bytes, alignment);
  if (place != 0) state.committed.add(place, place + bytes);
  note(Call::kMapBlock, place, bytes, place != 0);
  return pointer(place);
}

void* remap_block(void* address, size_t old_bytes, size_t new_bytes, bool in_place) {
  Guard guard(state.mutex);
  check_shape("remap_block", address, old_bytes);
  check_shape("remap_block", address, new_bytes);
  check_covered(state.committed, "remap_block of what is not mapped", number(address), old_bytes);
  const uintptr_t begin = number(address);
  const uintptr_t old_end = begin + old_bytes, new_end = begin + new_bytes;
  uintptr_t place = begin;
  if (refused(Call::kRemapBlock)) {
    place = 0;
  } else if (new_bytes < old_bytes) {
    drop_addresses(new_end, old_end);
  } else if (new_bytes > old_bytes) {
    const bool room = new_end > begin && !state.reserved.meets(old_end, new_end) &&
                      !state.metadata.meets(old_end, new_end);
    if (!within_limit(new_bytes - old_bytes)) {
      place = 0;
    } else if (room) {
      state.reserved.add(old_end, new_end);
      state.committed.add(old_end, new_end);
      state.released.remove(old_end, new_end);
      if (new_end > state.next && old_end <= state.next) state.next = new_end;
    } else if (in_place) {
      place = 0;
    } else {
      place = take_addresses(new_bytes, state.granularity);
      if (place != 0) {
        state.committed.add(place, place + new_bytes);
        if (state.written.meets(begin, old_end)) {
          state.resident.add(place, place + old_bytes);
          state.written.add(place, place + old_bytes);
        }
        drop_addresses(begin, old_end);
      }
    }
  }
  note(Call::kRemapBlock, place, new_bytes, place != 0);
  return pointer(place);
}

Moved move_to_block(void* address, size_t bytes, size_t new_bytes) {
  Guard guard(state.mutex);
  check_shape("move_to_block", address, bytes);
  check_shape("move_to_block", address, new_bytes);
  check_covered(state.committed, "move_to_block of what is not committed", number(address), bytes);
  if (new_bytes < bytes) breach("move_to_block to less than there is", number(address), new_bytes);
  const uintptr_t begin = number(address), end = begin + bytes;
  const uintptr_t place =
      refused(Call::kMoveToBlock) ? 0 : take_addresses(new_bytes, state.granularity);
  if (place != 0) {
    state.committed.add(place, place + new_bytes);
    for (Ranges* ranges : {&state.resident, &state.written}) {
      for (const auto& [from, to] : ranges->within(begin, end))
        ranges->add(place + (from - begin), place + (to - begin));
      ranges->remove(begin, end);
    }
  }
  note(Call::kMoveToBlock, place, new_bytes, place != 0);
  if (place == 0) return {};
  const bool has_place = !refused(Call::kKeepPlace);
  if (!has_place) {
    state.committed.remove(begin, end);
    state.reserved.remove(begin, end);
  }
  return {pointer(place), has_place};
}

const char* private_folder(const char*, char*, size_t) { return "there is none"; }
bool publish_file(const char*, const char*, const void*, size_t) { return false; }
unsigned remove_dead_files(const char*) { return 0; }
void remove_file(const char*, const char*) {}
void forget_files_after_fork() {}
uint64_t process_number() { return 1; }
uint64_t wall_clock_ns() { return now_ns(); }
void count_faults(uint64_t* minor, uint64_t* major) { *minor = *major = 0; }
uint64_t now_coarse_ns() {
  Guard guard(state.mutex);
  return state.clock_ns;
}
uint64_t now_ns() { return now_coarse_ns(); }
uint64_t running_ms() {
  Guard guard(state.mutex);
  return state.clock_ns / 1'000'000 * state.running_threads;
}

// Spurious returns are allowed, so the simplest waiter only yields.
void wait_while_equal(const uint32_t*, uint32_t) {
  state.waits.fetch_add(1, std::memory_order_relaxed);
  sched_yield();
}
void wake_one(const uint32_t*) {}

bool barrier_all_threads() {
  Guard guard(state.mutex);
  const bool granted = !refused(Call::kBarrier);
  if (granted) host::barrier();  // for tests with threads
  return note(Call::kBarrier, 0, 0, granted);
}

void yield() { sched_yield(); }

bool start_thread(void (*body)()) {
  Guard guard(state.mutex);
  state.thread_body = body;
  return true;
}

void sleep_ms(unsigned ms) {
  Guard guard(state.mutex);
  state.slept_ms += ms;
}

void start() {}

bool arm_thread_exit(void (*callback)(void*), void* argument) {
  Guard guard(state.mutex);
  if (!state.has_thread_exit_key) {
    const bool granted =
        !refused(Call::kRegisterThreadExit) && pthread_key_create(&thread_exit_key, callback) == 0;
    state.has_thread_exit_key = note(Call::kRegisterThreadExit, 0, 0, granted);
  }
  return state.has_thread_exit_key && pthread_setspecific(thread_exit_key, argument) == 0;
}

void register_fork(void (*prepare)(), void (*parent)(), void (*child)()) {
  Guard guard(state.mutex);
  state.fork_hooks = {prepare, parent, child};
}

const char* option(const char* name) {
  Guard guard(state.mutex);
  const auto found = state.options.find(name);
  return found == state.options.end() ? nullptr : found->second.c_str();
}

void random_bytes(void* out, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    static_cast<unsigned char*>(out)[i] = static_cast<unsigned char>(37 * i + 11);
}

const char* variable(const char* name) { return option(name); }

bool has_options() {
  Guard guard(state.mutex);
  return !state.options.empty();
}

uint32_t thread_number() { return 1; }

bool describe_code(const void*, char*, size_t) { return false; }
size_t callers(Caller, const void**, size_t) { return 0; }

void write_error(const char* text, size_t length) {
  ErrnoGuard keep;
  Guard guard(state.mutex);
  state.errors.append(text, length);
  const auto written =
      write(STDERR_FILENO, text, static_cast<unsigned>(length));  // for death tests
  static_cast<void>(written);
}

void abort_process() { abort(); }

extern "C" {
volatile uint16_t loam_allocation_listeners = 0, loam_free_listeners = 0;
}
void probe_allocation(const void* block, size_t bytes, uint64_t weight) {
  Guard guard(state.mutex);
  state.probed.push_back({block, bytes, weight});
}
void probe_free(const void* block) {
  Guard guard(state.mutex);
  state.probed.push_back({block, 0, 0});
}

size_t system_block_bytes(const void*) { return 0; }
void free_system_block(void*) { abort(); }
size_t system_block_size(const void*) { return SIZE_MAX; }
size_t aligned_system_block_bytes(const void*) { return 0; }
void free_aligned_system_block(void*) { abort(); }

}  // namespace loam::os
