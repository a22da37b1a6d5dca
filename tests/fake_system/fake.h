// The pretended system behind os/os.h for tests, and the handles by which a test controls it.
//
//   data       addresses only: never mapped, never to be touched, so terabytes cost a few map nodes
//   metadata   real memory (Loam writes its records there)
//   clock      stands still until a test moves it
//
// Every call is checked: ranges are not empty, are multiples of the granularity, and lie inside
// reserved memory (and committed memory, where os.h requires it). A violation is the caller's
// mistake and ends the process with one line.
//
// The model of backing: a test says which bytes a program would have written (touch), and purge()
// removes the backing and the content. So resident_bytes() is the count that a system would have.
// written_bytes() shows whether memory is zero that the heap calls zero, and whether live memory
// was lost.
//
// Thread-safe. The process has one state. reset() clears it, and later addresses are always new.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"

namespace loam::os::fake {

enum class Call : uint8_t {
  kReserve,
  kReserveMetadata,
  kCommit,
  kCommitMetadata,
  kPurge,
  kPurgeMetadata,
  kPopulate,
  kAdviseHuge,
  kRelease,
  kReleaseMetadata,
  kMapBlock,
  kRemapBlock,
  kMoveToBlock,
  kKeepPlace,  ///< of a move: where it is refused, a foreign mapping takes the old place
  kRegisterThreadExit,
  kBarrier,
};
inline constexpr unsigned kCalls = 16;

struct Record {
  Call call;
  uintptr_t address;  ///< the result where the call returns an address; 0 when it was refused
  size_t bytes;
  bool refused;
};

/// Forgets reservations, failures, counters, log, clock and options. Address space is not reused.
void reset();

// ---- the machine ------------------------------------------------------------------------------

/// The page size: 4, 16 or 64 KiB. Set it before anything is reserved.
void set_granularity(size_t bytes);
/// Reserved bytes, data and metadata together, that may exist at once: RLIMIT_AS.
void limit_reserved(size_t bytes);
/// Whether released data addresses are handed out again, lowest first. Initially not.
void reuse_addresses(bool reuse);
/// The address of the next data reservations, which go upwards. It may be above kAddressBits.
void place_next_at(uintptr_t address);
/// The value that option() returns; null removes it.
void set_option(const char* name, const char* value);

// ---- the clock --------------------------------------------------------------------------------

void set_clock_ms(uint64_t ms);
void advance_ms(uint64_t ms);
/// Sets the number of threads that have run all the time; 1 at first.
void set_running_threads(unsigned threads);

// ---- the probes -------------------------------------------------------------------------------

/// A profiler attaches or detaches.
void listen_to_probes(bool allocations, bool frees);
struct Probed {
  const void* block;
  size_t bytes;
  uint64_t weight;  ///< 0: the block was freed
};
/// What the probes reported since the last call.
std::vector<Probed> take_probed();

// ---- injected failures ------------------------------------------------------------------------

inline constexpr uint64_t kForever = UINT64_MAX;
/// Refuses calls number `nth` (1 is the next one) and the `count` - 1 after it, of one kind.
void fail(Call call, uint64_t nth = 1, uint64_t count = kForever);
/// The same for calls of all kinds that may be refused.
void fail_any(uint64_t nth, uint64_t count = 1);
void clear_failures();

// ---- what happened ----------------------------------------------------------------------------

[[nodiscard]] uint64_t calls(Call call);
[[nodiscard]] uint64_t refusals(Call call);
/// How often since reset() a thread found a lock held and began, or resumed, waiting for it.
[[nodiscard]] uint64_t waits();
/// The number of calls of all kinds that may be refused: the range worth trying with fail_any().
[[nodiscard]] uint64_t fallible_calls();
/// Calls since reset() or the last clear_log().
[[nodiscard]] std::vector<Record> log();
void clear_log();

[[nodiscard]] size_t reserved_bytes();   ///< data
[[nodiscard]] size_t metadata_bytes();   ///< reserved for metadata
[[nodiscard]] size_t committed_bytes();  ///< data
[[nodiscard]] bool is_reserved(uintptr_t address, size_t bytes);
[[nodiscard]] bool is_committed(uintptr_t address, size_t bytes);

/// Says that the program wrote these bytes: the system's pages around them become backed.
/// pre: committed
void touch(uintptr_t address, size_t bytes);
/// How many bytes of the range were written and not purged since.
[[nodiscard]] size_t written_bytes(uintptr_t address, size_t bytes);
[[nodiscard]] size_t resident_bytes();

/// The text that went to standard error since reset() or the last call of this.
std::string take_errors();

struct ForkHooks {
  void (*prepare)();
  void (*parent)();
  void (*child)();
};
/// The callbacks that were registered for fork(); null if there are none.
[[nodiscard]] ForkHooks fork_hooks();

}  // namespace loam::os::fake
