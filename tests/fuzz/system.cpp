#include "system.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/units.h"
#include "cache/thread_cache.h"
#include "heap/heap.h"
#include "os/os.h"
#include "os/system_heap.h"
#include "small/small_heap.h"

// The fuzzer's counters of covered edges lie among this library's variables; they are not part of
// the heap.
extern "C" {
extern char __start___sancov_cntrs __attribute__((weak, visibility("hidden")));
extern char __stop___sancov_cntrs __attribute__((weak, visibility("hidden")));
}

namespace loam::os {

namespace {

struct Mapping {
  char* address;
  size_t bytes;
};
constexpr size_t kMappings = 4096;

struct State {
  Mapping mappings[kMappings];
  size_t mapping_count;
  size_t granularity = 4096;
  uint64_t now_ns = 1'000'000'000;
  uint64_t refuse_after = 0;
  uint64_t refuse_count = 0;
  uint64_t refusals = 0;
  uint64_t lines = 0;
  uint64_t random = 1;
  bool contending = false;
  bool unhooked = false;
  void (*exit_callback)(void*) = nullptr;
  void (*prepare)() = nullptr;
  void (*parent)() = nullptr;
  void (*child)() = nullptr;
  const char* const* options = nullptr;
  size_t option_count = 0;
};
State state;
thread_local void* exit_argument = nullptr;

// The content of this library's variables when it was loaded. The copy is in a mapping, outside of
// them.
struct Picture {
  char* begin;
  size_t bytes;
  char* copy;
  ThreadCache* first_cache;
};
Picture picture;

[[noreturn]] void die(const char* what) {
  // Writes the line by one call, so that other writers cannot split it.
  char text[160] = "fuzz: ";
  strncat(text, what, sizeof text - 10);
  strcat(text, "\n");
  if (write(STDERR_FILENO, text, strlen(text)) < 0) _exit(3);
  abort();
}

bool refused() {
  if (state.refuse_count == 0) return false;
  if (state.refuse_after != 0) {
    --state.refuse_after;
    return false;
  }
  --state.refuse_count;
  ++state.refusals;
  return true;
}

void remember(void* address, size_t bytes) {
  if (state.mapping_count == kMappings) die("more mappings than the system of the fuzzer keeps");
  state.mappings[state.mapping_count++] = {static_cast<char*>(address), bytes};
}

// The part [address, address + bytes) goes. The rest of its mapping stays.
void forget(void* address, size_t bytes) {
  char* begin = static_cast<char*>(address);
  char* end = begin + bytes;
  for (size_t i = 0; i < state.mapping_count; ++i) {
    Mapping& m = state.mappings[i];
    if (begin < m.address || end > m.address + m.bytes) continue;
    const Mapping tail{end, static_cast<size_t>(m.address + m.bytes - end)};
    m.bytes = static_cast<size_t>(begin - m.address);
    if (m.bytes == 0) m = state.mappings[--state.mapping_count];
    if (tail.bytes != 0) remember(tail.address, tail.bytes);
    return;
  }
  die("the heap released memory that it had not reserved");
}

void* map_aligned(size_t bytes, size_t alignment, int protection) {
  if (bytes == 0 || bytes % state.granularity != 0 || (alignment & (alignment - 1)) != 0)
    die("a reservation of no whole pages");
  if (alignment < state.granularity) alignment = state.granularity;
  if (alignment > PTRDIFF_MAX - bytes) return nullptr;
  const size_t padded = bytes + alignment;
  void* p = mmap(nullptr, padded, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
  const uintptr_t aligned = round_up(begin, alignment);
  if (aligned != begin) munmap(p, aligned - begin);
  const size_t tail = begin + padded - (aligned + bytes);
  if (tail != 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  remember(reinterpret_cast<void*>(aligned), bytes);
  return reinterpret_cast<void*>(aligned);
}

void check_range(const void* address, size_t bytes) {
  if (bytes == 0 || bytes % state.granularity != 0 ||
      reinterpret_cast<uintptr_t>(address) % state.granularity != 0) {
    die("a range that is not made of whole pages");
  }
  const char* begin = static_cast<const char*>(address);
  for (size_t i = 0; i < state.mapping_count; ++i) {
    const Mapping& m = state.mappings[i];
    if (begin >= m.address && begin + bytes <= m.address + m.bytes) return;
  }
  die("a range that was never reserved");
}

void release_locks() {
  if (!state.contending) return;
  state.contending = false;
  default_small_heap.unlock_all();
}

}  // namespace

size_t granularity() { return state.granularity; }

void* reserve(size_t bytes, size_t alignment) {
  ErrnoGuard guard;
  return refused() ? nullptr : map_aligned(bytes, alignment, PROT_NONE);
}
void* reserve_metadata(size_t bytes, size_t alignment) { return reserve(bytes, alignment); }
void* reserve_held(size_t bytes, size_t alignment) { return reserve(bytes, alignment); }

bool commit(void* address, size_t bytes) {
  ErrnoGuard guard;
  check_range(address, bytes);
  return !refused() && mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0;
}

bool purge(void* address, size_t bytes) {
  ErrnoGuard guard;
  check_range(address, bytes);
  return !refused() && madvise(address, bytes, MADV_DONTNEED) == 0;
}

bool populate(void* address, size_t bytes) {
  check_range(address, bytes);
  return !refused();
}

bool advise_huge(void* address, size_t bytes, bool) {
  check_range(address, bytes);
  return !refused();
}

void release(void* address, size_t bytes) {
  ErrnoGuard guard;
  check_range(address, bytes);
  forget(address, bytes);
  if (munmap(address, bytes) != 0) die("munmap failed");
}

void* map_block(size_t bytes, size_t alignment) {
  ErrnoGuard guard;
  return refused() ? nullptr : map_aligned(bytes, alignment, PROT_READ | PROT_WRITE);
}

void* remap_block(void* address, size_t old_bytes, size_t new_bytes, bool in_place) {
  ErrnoGuard guard;
  check_range(address, old_bytes);
  if (new_bytes == 0 || new_bytes % state.granularity != 0) die("a mapping of no whole pages");
  if (refused()) return nullptr;
  if (new_bytes <= old_bytes || in_place) {
    void* p = mremap(address, old_bytes, new_bytes, 0);
    if (p == MAP_FAILED) return nullptr;
    forget(address, old_bytes);
    remember(p, new_bytes);
    return p;
  }
  // Always moves. The kernel's choice would depend on the neighbouring mappings, and errors are in
  // moves.
  void* p = mmap(nullptr, new_bytes + state.granularity, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
  const uintptr_t to = round_up(begin, state.granularity);
  munmap(p, new_bytes + state.granularity);
  p = mremap(address, old_bytes, new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
             reinterpret_cast<void*>(to));
  if (p == MAP_FAILED) return nullptr;
  forget(address, old_bytes);
  remember(p, new_bytes);
  return p;
}

// Moves by a copy, which the heap cannot distinguish from a move.
Moved move_to_block(void* address, size_t bytes, size_t new_bytes) {
  ErrnoGuard guard;
  check_range(address, bytes);
  if (new_bytes < bytes || new_bytes % state.granularity != 0)
    die("a mapping that does not hold what is moved there");
  if (refused()) return {};
  void* p = map_aligned(new_bytes, state.granularity, PROT_READ | PROT_WRITE);
  if (p == nullptr) return {};
  memcpy(p, address, bytes);
  if (madvise(address, bytes, MADV_DONTNEED) != 0) die("madvise failed");
  return {p, !refused()};
}

uint64_t now_coarse_ns() { return state.now_ns; }
uint64_t now_ns() { return state.now_ns; }
uint64_t running_ms() { return state.now_ns / 1'000'000; }

void wait_while_equal(const uint32_t*, uint32_t) {
  // One thread runs at a time and the other threads hold no lock, so only the pretended holder can
  // make this one wait.
  if (!state.contending) die("a thread waits for a lock that nobody will release");
  release_locks();
}
void wake_one(const uint32_t*) {}
bool barrier_all_threads() { return true; }
void yield() { die("a thread waits for another that does not run"); }
bool start_thread(void (*)()) { return false; }
void sleep_ms(unsigned) {}
// The file of counters is written, and then discarded.
const char* private_folder(const char*, char* out, size_t size) {
  strncpy(out, "/nowhere", size);
  return nullptr;
}
bool publish_file(const char*, const char*, const void*, size_t) { return true; }
unsigned remove_dead_files(const char*) { return 0; }
void remove_file(const char*, const char*) {}
void forget_files_after_fork() {}
uint64_t process_number() { return 1; }
uint64_t wall_clock_ns() { return state.now_ns; }
void count_faults(uint64_t* minor, uint64_t* major) { *minor = *major = 0; }

void start() {}

bool arm_thread_exit(void (*callback)(void*), void* argument) {
  if (state.exit_callback == nullptr) {
    if (refused()) {
      state.unhooked = true;
      return false;
    }
    state.exit_callback = callback;
  }
  exit_argument = argument;
  return true;
}

void register_fork(void (*prepare)(), void (*parent)(), void (*child)()) {
  state.prepare = prepare;
  state.parent = parent;
  state.child = child;
}

const char* option(const char* name) {
  const size_t length = strlen(name);
  for (size_t i = 0; i < state.option_count; ++i) {
    if (strncmp(state.options[i], name, length) == 0 && state.options[i][length] == '=') {
      return state.options[i] + length + 1;
    }
  }
  return nullptr;
}

bool has_options() { return state.option_count != 0; }

// The same bytes every time, like everything here.
void random_bytes(void* out, size_t bytes) {
  unsigned char* to = static_cast<unsigned char*>(out);
  for (size_t i = 0; i < bytes; ++i) {
    state.random = state.random * 6364136223846793005u + 1442695040888963407u;
    to[i] = static_cast<unsigned char>(state.random >> 56);
  }
}

uint32_t thread_number() { return 1; }

bool decommit(void* address, size_t bytes) {
  ErrnoGuard guard;
  check_range(address, bytes);
  return !refused() && madvise(address, bytes, MADV_DONTNEED) == 0 &&
         mprotect(address, bytes, PROT_NONE) == 0;
}

void report_faults(bool (*)(const void*)) {}

size_t system_block_bytes(const void*) { return 0; }
void free_system_block(void*) { abort(); }
size_t system_block_size(const void*) { return SIZE_MAX; }
size_t aligned_system_block_bytes(const void*) { return 0; }
void free_aligned_system_block(void*) { abort(); }

bool describe_code(const void*, char*, size_t) { return false; }
size_t callers(Caller, const void**, size_t) { return 0; }

// No profiler listens.
extern "C" {
volatile uint16_t loam_allocation_listeners = 0, loam_free_listeners = 0;
}
void probe_allocation(const void*, size_t, uint64_t) {}
void probe_free(const void*) {}

void write_error(const char* text, size_t length) {
  ++state.lines;
  // The line that ends the process must be visible. Reports are only counted, for the program.
  static_cast<void>(!write(STDERR_FILENO, text, length));
}

void abort_process() { abort(); }

ErrnoGuard::ErrnoGuard() : saved_(errno) {}
ErrnoGuard::~ErrnoGuard() { errno = saved_; }
void set_errno_out_of_memory() { errno = ENOMEM; }
void set_errno_invalid() { errno = EINVAL; }

}  // namespace loam::os

namespace fuzz {
namespace {

using namespace loam;
using os::picture;
using os::state;

int find_variables(dl_phdr_info* info, size_t, void*) {
  const uintptr_t probe = reinterpret_cast<uintptr_t>(&state);
  uintptr_t begin = 0, end = 0, sealed = 0;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t from = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_RELRO) sealed = round_up(from + part.p_memsz, 4096);
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
    if (probe < from || probe >= from + part.p_memsz) continue;
    begin = from;
    end = from + part.p_memsz;
  }
  if (begin == 0) return 0;
  if (sealed > begin && sealed < end) begin = sealed;
  picture.begin = reinterpret_cast<char*>(begin);
  picture.bytes = end - begin;
  return 1;
}

// Not memcpy(), because redzones between variables are copied too. Copies only words that differ,
// since most of it is a megabyte of zeros.
__attribute__((no_sanitize("address"))) void restore(char* to, const char* from, size_t bytes) {
  using Word __attribute__((may_alias)) = uint64_t;
  for (; bytes != 0 && reinterpret_cast<uintptr_t>(to) % sizeof(Word) != 0; --bytes)
    *to++ = *from++;
  Word* t = reinterpret_cast<Word*>(to);
  const Word* f = reinterpret_cast<const Word*>(from);
  size_t i = 0;
  for (; i < bytes / sizeof(Word); ++i) {
    if (t[i] != f[i]) t[i] = f[i];
  }
  for (i *= sizeof(Word); i < bytes; ++i) to[i] = from[i];
}

void reset(const char* const* options, size_t count, size_t granularity) {
  if (picture.copy == nullptr) {
    if (dl_iterate_phdr(&find_variables, nullptr) == 0)
      os::die("the library's variables were not found");
    void* copy =
        mmap(nullptr, picture.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) os::die("no memory for a copy of the library's variables");
    picture.copy = static_cast<char*>(copy);
    picture.first_cache = current_cache;
    restore(picture.copy, picture.begin, picture.bytes);
  } else {
    for (size_t i = 0; i < state.mapping_count; ++i)
      munmap(state.mappings[i].address, state.mappings[i].bytes);
    char* begin = picture.begin;
    char* end = begin + picture.bytes;
    const char* copy = picture.copy;
    char* counters = &__start___sancov_cntrs;
    if (counters != nullptr && counters >= begin && counters < end) {
      char* counters_end = &__stop___sancov_cntrs;
      restore(begin, copy, static_cast<size_t>(counters - begin));
      restore(counters_end, copy + (counters_end - begin), static_cast<size_t>(end - counters_end));
    } else {
      restore(begin, copy, static_cast<size_t>(end - begin));
    }
    current_cache = fast_cache = picture.first_cache;
  }
  os::exit_argument = nullptr;
  state.options = options;
  state.option_count = count;
  state.granularity = granularity;
  heap::start();
}

void contend() {
  if (state.contending) return;
  default_small_heap.lock_all();
  state.contending = true;
}

void end_thread() {
  os::release_locks();
  void* argument = os::exit_argument;
  os::exit_argument = nullptr;
  if (argument != nullptr && state.exit_callback != nullptr) state.exit_callback(argument);
}

pid_t fork_with_handlers() {
  os::release_locks();
  state.prepare();
  const pid_t child = ::fork();
  child == 0 ? state.child() : state.parent();
  return child;
}

}  // namespace

extern const System deterministic_system;
const System deterministic_system = {
    &reset,
    [](uint64_t ms) { state.now_ns += ms * 1'000'000; },
    [](uint64_t after, uint64_t count) {
      state.refuse_after = after;
      state.refuse_count = count;
    },
    [] { return state.refusals; },
    &contend,
    &os::release_locks,
    &end_thread,
    &fork_with_handlers,
    [] { return state.lines; },
    [] { return state.unhooked; },
};

}  // namespace fuzz
