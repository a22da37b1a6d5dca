// Windows: memory, waiting, options, errors. windows_threads.cpp has threads, windows_report.cpp
// randomness and names, windows_system_heap.cpp the C run-time's own blocks.
//
// The system commits memory in advance and counts it against a limit of the whole machine: commit()
// may be refused at any time. Address space comes in reservations, which are returned whole.
#if defined(_WIN32)

#include "os/windows.h"

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "base/units.h"
#include "os/charge.h"
#include "os/os.h"

namespace loam::os {

constinit uint64_t charged_bytes = 0;

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPlace = 65536;  // reservations begin at multiples of it

char* bytes_of(void* address) { return static_cast<char*>(address); }

// Bound: the number of tries of a refused commit, and the pause before each. Meanwhile another
// process may end, or the system may make its paging file longer (Firefox had 70 % fewer crashes
// with such a retry). After half a second in all the block is refused.
constexpr unsigned kCommitTries = 10;
constexpr DWORD kCommitPauseMs = 50;

// The committed bytes of a range. No call that changes them returns the difference, so the system
// is asked before each. This costs less than the call that follows.
size_t committed_in(const void* address, size_t bytes) {
  size_t sum = 0;
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + bytes;
  MEMORY_BASIC_INFORMATION info;
  for (uintptr_t at = reinterpret_cast<uintptr_t>(address); at < end;) {
    if (VirtualQuery(reinterpret_cast<void*>(at), &info, sizeof info) != sizeof info) break;
    const uintptr_t past = reinterpret_cast<uintptr_t>(info.BaseAddress) + info.RegionSize;
    const uintptr_t stop = past < end ? past : end;
    if (info.State == MEM_COMMIT) sum += stop - at;
    at = stop;
  }
  return sum;
}

// relaxed: only a figure. A decrease is an addition that wraps.
void count_charge(size_t came, size_t went) {
  __atomic_fetch_add(&charged_bytes, uint64_t{came} - uint64_t{went}, __ATOMIC_RELAXED);
}

bool commit_once(void* address, size_t bytes) {
  const size_t before = committed_in(address, bytes);
  if (VirtualAlloc(address, bytes, MEM_COMMIT, PAGE_READWRITE) == nullptr) return false;
  count_charge(bytes, before);
  return true;
}

// One reservation's part of a range.
bool commit_part(void* address, size_t bytes) {
  for (unsigned i = 0;; ++i) {
    if (commit_once(address, bytes)) return true;
    const DWORD why = GetLastError();
    const bool may_pass = why == ERROR_COMMITMENT_LIMIT || why == ERROR_NOT_ENOUGH_MEMORY;
    if (i == kCommitTries || !may_pass) return false;
    Sleep(kCommitPauseMs);
  }
}

bool decommit_part(void* address, size_t bytes) {
  const size_t before = committed_in(address, bytes);
  if (VirtualFree(address, bytes, MEM_DECOMMIT) == 0) return false;
  count_charge(0, before);
  return true;
}

// pre: the whole of a reservation
bool release_reservation(void* address, size_t bytes) {
  const size_t before = committed_in(address, bytes);
  if (VirtualFree(address, 0, MEM_RELEASE) == 0) return false;
  count_charge(0, before);
  return true;
}

// The access with which a range is reserved, whatever its pages get later. A mapping for one block
// (map_block) uses the second value, so that release() recognises it.
constexpr DWORD kPlain = PAGE_NOACCESS, kMapping = PAGE_READWRITE;

// A reservation around an address.
struct Reservation {
  uintptr_t begin, end;
  bool is_mapping;
};

bool find_reservation(const void* address, Reservation* out) {
  MEMORY_BASIC_INFORMATION info;
  if (VirtualQuery(address, &info, sizeof info) != sizeof info || info.State == MEM_FREE)
    return false;
  void* const base = info.AllocationBase;
  out->begin = reinterpret_cast<uintptr_t>(base);
  out->is_mapping = info.AllocationProtect == kMapping;
  for (out->end = out->begin;
       VirtualQuery(reinterpret_cast<void*>(out->end), &info, sizeof info) == sizeof info &&
       info.State != MEM_FREE && info.AllocationBase == base;)
    out->end += info.RegionSize;
  return out->end != out->begin;
}

// The system refuses a range over two reservations, and the heap may have two side by side.
template <class Act>
bool for_each_reservation(void* address, size_t bytes, Act act) {
  bool done = true;
  for (uintptr_t at = reinterpret_cast<uintptr_t>(address), end = at + bytes; at < end;) {
    Reservation found;
    if (!find_reservation(reinterpret_cast<void*>(at), &found)) return false;
    const uintptr_t stop = found.end < end ? found.end : end;
    done = act(reinterpret_cast<void*>(at), stop - at, found) && done;
    at = stop;
  }
  return done;
}

bool decommit_range(void* address, size_t bytes) {
  if (decommit_part(address, bytes)) return true;
  return for_each_reservation(address, bytes, [](void* at, size_t part, const Reservation&) {
    return decommit_part(at, part);
  });
}

bool commit_range(void* address, size_t bytes) {
  if (commit_once(address, bytes)) return true;
  return for_each_reservation(address, bytes, [](void* at, size_t part, const Reservation&) {
    return commit_part(at, part);
  });
}

// --- Places of a given alignment ---------------------------------------------------------------

// Windows 10 1803. Wine before 9 accepts the call but ignores these requirements, so the result is
// always checked.
struct AddressRequirements {
  void* lowest;
  void* highest;
  size_t alignment;
};
struct ExtendedParameter {
  uint64_t type;
  void* pointer;
};
constexpr uint64_t kAddressRequirements = 1;
using VirtualAlloc2Function = void*(WINAPI*)(HANDLE, void*, size_t, ULONG, ULONG,
                                             ExtendedParameter*, ULONG);

// relaxed: every thread finds the same function
constinit VirtualAlloc2Function virtual_alloc2 = nullptr;
constinit bool looked_for_virtual_alloc2 = false;

VirtualAlloc2Function find_virtual_alloc2() {
  if (!__atomic_load_n(&looked_for_virtual_alloc2, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&virtual_alloc2,
                     function_of<VirtualAlloc2Function>(L"kernelbase.dll", "VirtualAlloc2"),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&looked_for_virtual_alloc2, true,
                     __ATOMIC_RELEASE);  // pairs with the acquire above
  }
  return __atomic_load_n(&virtual_alloc2, __ATOMIC_RELAXED);
}

bool is_aligned(const void* address, size_t alignment) {
  return (reinterpret_cast<uintptr_t>(address) & (alignment - 1)) == 0;
}

// Bound: the number of searches for a place until it is refused: another thread may take a place
// between its search and its use. A further try takes a few microseconds.
constexpr unsigned kPlaceTries = 8;

void* take_aligned(size_t bytes, size_t alignment, DWORD access) {
  constexpr DWORD kind = MEM_RESERVE;
  if (alignment <= kPlace) return VirtualAlloc(nullptr, bytes, kind, access);
  if (const auto allocate = find_virtual_alloc2()) {
    AddressRequirements wanted{nullptr, nullptr, alignment};
    ExtendedParameter parameter{kAddressRequirements, &wanted};
    void* const p = allocate(nullptr, nullptr, bytes, kind, access, &parameter, 1);
    if (p != nullptr && is_aligned(p, alignment)) return p;
    if (p != nullptr) VirtualFree(p, 0, MEM_RELEASE);
  }
  for (unsigned i = 0; i < kPlaceTries; ++i) {
    void* const wide = VirtualAlloc(nullptr, bytes + alignment, MEM_RESERVE, kPlain);
    if (wide == nullptr) return nullptr;
    const uintptr_t place = round_up(reinterpret_cast<uintptr_t>(wide), alignment);
    VirtualFree(wide, 0, MEM_RELEASE);
    if (void* const p = VirtualAlloc(reinterpret_cast<void*>(place), bytes, kind, access)) return p;
  }
  return nullptr;
}

}  // namespace

ErrnoGuard::ErrnoGuard() : saved_(errno), system_saved_(GetLastError()) {}
ErrnoGuard::~ErrnoGuard() {
  errno = saved_;
  SetLastError(system_saved_);
}
void set_errno_out_of_memory() { errno = ENOMEM; }
void set_errno_invalid() { errno = EINVAL; }

size_t granularity() { return kPage; }

void* reserve(size_t bytes, size_t alignment) {
  LastErrorGuard guard;
  return take_aligned(bytes, alignment, kPlain);
}
void* reserve_held(size_t bytes, size_t alignment) { return reserve(bytes, alignment); }
void* reserve_metadata(size_t bytes, size_t alignment) { return reserve(bytes, alignment); }

bool commit(void* address, size_t bytes) {
  LastErrorGuard guard;
  return commit_range(address, bytes);
}
Committed commit_more(void* address, size_t bytes) {
  return commit(address, bytes) ? Committed::kYes : Committed::kRefused;
}
bool commit_sparse(void* address, size_t bytes) { return commit(address, bytes); }
void give_up(void* address, size_t bytes) { release(address, bytes); }

// No call of the system locks all memory of a process.
void stop_reserving() {}
bool is_reserving() { return true; }
bool can_stop_reserving() { return false; }
bool is_watched() { return false; }
void unmap_block(void* address, size_t bytes) { release(address, bytes); }
bool is_new_memory_locked(const void*, size_t) { return false; }
bool locks_new_memory() { return false; }
void unlock_zeros(void*, size_t) {}
bool lock_all_memory(int, Locked) {
  errno = ENOSYS;
  return false;
}

bool decommit(void* address, size_t bytes) {
  LastErrorGuard guard;
  return decommit_range(address, bytes);
}

// The only call after which memory reads as zero also returns its commit. This memory may be
// touched at any time, so it is committed again at once, and the charge that was just returned pays
// for that.
bool purge(void* address, size_t bytes) {
  LastErrorGuard guard;
  if (!decommit_range(address, bytes)) return false;
  while (!commit_range(address, bytes)) Sleep(kCommitPauseMs);  // another commit was faster
  return true;
}

bool discard(void* address, size_t bytes) { return decommit(address, bytes); }
bool commit_again(void* address, size_t bytes) { return commit(address, bytes); }

bool populate(void*, size_t) { return false; }
bool advise_huge(void*, size_t, bool) { return false; }

// A part of a reservation returns its memory and keeps its addresses. A mapping is returned as a
// whole, with the addresses into which it has not grown.
void release(void* address, size_t bytes) {
  LastErrorGuard guard;
  static_cast<void>(
      for_each_reservation(address, bytes, [](void* at, size_t part, const Reservation& whole) {
        const uintptr_t begin = reinterpret_cast<uintptr_t>(at), end = begin + part;
        const bool all =
            begin == whole.begin &&
            (end == whole.end || (whole.is_mapping && committed_in(reinterpret_cast<void*>(end),
                                                                   whole.end - end) == 0));
        return all ? release_reservation(at, part) : decommit_part(at, part);
      }));
}

// Windows has no call that moves page tables, so a mapping reserves twice its length. A block that
// grows step by step is then copied each time that its length has doubled. Addresses that are only
// reserved are not charged.
void* map_block(size_t bytes, size_t alignment) {
  LastErrorGuard guard;
  void* p = take_aligned(2 * bytes, alignment, kMapping);
  if (p == nullptr) p = take_aligned(bytes, alignment, kMapping);
  if (p == nullptr || commit_part(p, bytes)) return p;
  VirtualFree(p, 0, MEM_RELEASE);
  return nullptr;
}

// Committed memory behind the block belongs to another block, because the heap may use a mapping in
// two parts. A refusal is not tried again here: the caller then copies the block, and map_block()
// tries again.
void* remap_block(void* address, size_t old_bytes, size_t new_bytes, bool) {
  LastErrorGuard guard;
  if (new_bytes > old_bytes) {
    Reservation room;
    char* const end = bytes_of(address) + old_bytes;
    const size_t more = new_bytes - old_bytes;
    if (!find_reservation(end - 1, &room) || !room.is_mapping) return nullptr;
    if (room.end - reinterpret_cast<uintptr_t>(end) < more || committed_in(end, more) != 0)
      return nullptr;
    return commit_once(end, more) ? address : nullptr;
  }
  if (new_bytes < old_bytes && !decommit(bytes_of(address) + new_bytes, old_bytes - new_bytes))
    return nullptr;
  return address;
}
Moved move_to_block(void*, size_t, size_t) { return {}; }

void wait_while_equal(const uint32_t* word, uint32_t expected) {
  LastErrorGuard guard;
  // At the process's end the system has ended all other threads, and their locks stay held. Windows
  // ends a process that then waits for one of its locks, and this code does the same.
  using Ending = BOOLEAN(WINAPI*)();
  static constinit Ending is_ending = nullptr;
  Ending ask = __atomic_load_n(&is_ending, __ATOMIC_RELAXED);
  if (ask == nullptr) {
    ask = function_of<Ending>(L"ntdll.dll", "RtlDllShutdownInProgress");
    __atomic_store_n(&is_ending, ask, __ATOMIC_RELAXED);
  }
  if (ask != nullptr && ask()) {
    DWORD code = 0;
    if (!GetExitCodeProcess(GetCurrentProcess(), &code) || code == STILL_ACTIVE) code = 0;
    TerminateProcess(GetCurrentProcess(), code);
  }
  uint32_t wanted = expected;
  WaitOnAddress(const_cast<uint32_t*>(word), &wanted, sizeof wanted, INFINITE);
}

void wake_one(const uint32_t* word) { WakeByAddressSingle(const_cast<uint32_t*>(word)); }

// Wine's call does nothing and reports success.
bool barrier_all_threads() {
  LastErrorGuard guard;
  static constinit int is_wine = -1;
  int known = __atomic_load_n(&is_wine, __ATOMIC_RELAXED);
  if (known < 0) {
    known = function_of<void (*)()>(L"ntdll.dll", "wine_get_version") != nullptr ? 1 : 0;
    __atomic_store_n(&is_wine, known, __ATOMIC_RELAXED);
  }
  if (known != 0) return false;
  FlushProcessWriteBuffers();
  return true;
}

void yield() { SwitchToThread(); }
void sleep_ms(unsigned ms) { Sleep(ms); }

// --- Clocks ------------------------------------------------------------------------------------

namespace {

uint64_t of_file_time(const FILETIME& time) {
  return uint64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime;  // units of 100 ns
}

constexpr uint64_t kUnixEpoch = 116'444'736'000'000'000;  // in those units since 1601

}  // namespace

uint64_t now_coarse_ns() { return GetTickCount64() * 1'000'000; }

uint64_t now_ns() {
  LARGE_INTEGER ticks, frequency;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&frequency);
  const uint64_t t = static_cast<uint64_t>(ticks.QuadPart),
                 f = static_cast<uint64_t>(frequency.QuadPart);
  return t / f * 1'000'000'000 + t % f * 1'000'000'000 / f;
}

uint64_t running_ms() {
  LastErrorGuard guard;
  FILETIME created, ended, kernel, user;
  if (!GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user)) return 0;
  return (of_file_time(kernel) + of_file_time(user)) / 10'000;
}

uint64_t wall_clock_ns() {
  FILETIME now;
  GetSystemTimeAsFileTime(&now);
  return (of_file_time(now) - kUnixEpoch) * 100;
}

// --- Options -----------------------------------------------------------------------------------

namespace {

// "LOAM_NAME=value", each ended by 0. The C run-time's copy of the environment cannot be used here,
// because the run-time may not have started. Bound: all options together need less; what does not
// fit is not read.
constexpr size_t kOptionRoom = 4096;
constinit char options[kOptionRoom] = {};
constinit size_t options_length = 0;

constexpr wchar_t kOptionPrefix[] = L"LOAM_";
constexpr size_t kPrefixLength = sizeof kOptionPrefix / sizeof *kOptionPrefix - 1;

bool is_option(const wchar_t* entry) {
  for (size_t i = 0; i < kPrefixLength; ++i) {
    if (entry[i] != kOptionPrefix[i]) return false;
  }
  return true;
}

void copy_options() {
  wchar_t* const all = GetEnvironmentStringsW();
  if (all == nullptr) return;
  for (const wchar_t* entry = all; *entry != 0; entry += wcslen(entry) + 1) {
    if (!is_option(entry)) continue;
    const int room = static_cast<int>(kOptionRoom - 1 - options_length);
    const int written = WideCharToMultiByte(CP_UTF8, 0, entry, -1, options + options_length, room,
                                            nullptr, nullptr);
    if (written > 0) options_length += static_cast<size_t>(written);
  }
  FreeEnvironmentStringsW(all);
}

}  // namespace

// The library stays loaded, as libloam.so does on Linux. Blocks and threads' caches outlive each
// FreeLibrary(), and the next LoadLibrary() finds the same heap. A plugin with libloam.a inside may
// be unloaded.
void start() {
  LastErrorGuard guard;
#if defined(LOAM_BUILDS_DLL)
  stay_loaded();
#endif
  if (options_length == 0) copy_options();
}

const char* variable(const char* name) {
  const size_t length = text::length(name);
  for (size_t at = 0; at < options_length; at += text::length(options + at) + 1) {
    const char* const entry = options + at;
    if (text::begins_with(entry, name, length) && entry[length] == '=') return entry + length + 1;
  }
  return nullptr;
}

const char* option(const char* name) { return variable(name); }
bool has_options() { return options_length != 0; }

// --- Probes ------------------------------------------------------------------------------------

// The system has no such probes, so no profiler ever listens.
extern "C" {
volatile uint16_t loam_allocation_listeners = 0, loam_free_listeners = 0;
}
void probe_allocation(const void*, size_t, uint64_t) {}
void probe_free(const void*) {}

// --- Errors ------------------------------------------------------------------------------------

void write_error(const char* text, size_t length) {
  LastErrorGuard guard;
  const HANDLE to = GetStdHandle(STD_ERROR_HANDLE);
  while (length != 0 && to != nullptr && to != INVALID_HANDLE_VALUE) {
    DWORD written = 0;
    if (!WriteFile(to, text, static_cast<DWORD>(length), &written, nullptr) || written == 0) return;
    text += written;
    length -= written;
  }
}

void abort_process() {
  if (IsDebuggerPresent()) DebugBreak();
  TerminateProcess(GetCurrentProcess(), 3);  // as the C run-time's abort() ends it
  for (;;) __builtin_trap();
}

}  // namespace loam::os

#endif  // _WIN32
