// The whole port: everything that Loam needs of an operating system. One file a system implements
// it (linux.cpp), and tests/fake_system implements it with pretended addresses and injected
// failures. The linker chooses the system, so that no higher layer has a template parameter for it.
//
// Rules. Addresses and sizes are multiples of granularity() unless a line says otherwise; sizes are
// not zero. No function changes errno or takes a lock of Loam's. A function that a program or a
// tool can replace in the C library may allocate. No function here calls one, unless its line says
// that no lock may be held. A `bool` is false when the system refused; the caller counts that and
// carries on.
//
//   reserve --> PROT_NONE --commit--> readable, writable, zero --purge--> zero, unbacked
//           --release--> gone
//                         <--decommit--
//
// A program may lock its memory (mlockall()), and reserved memory would then count as locked. So
// after stop_reserving() nothing is reserved: reserve() names a free place, and commit_more() maps
// the used part of it.
#pragma once

#include "base/config.h"

namespace loam::os {

/// The system's page size in bytes (a multiple of the heap's 4 KiB page).
[[nodiscard]] size_t granularity();

/// Address space without access or backing. `alignment` is a power of two. Null when refused.
[[nodiscard]] void* reserve(size_t bytes, size_t alignment);

/// The same, and no foreign mapping can come to lie there, whether memory is locked or not. It does
/// not count as locked.
[[nodiscard]] void* reserve_held(size_t bytes, size_t alignment);

/// As reserve, for Loam's own tables: real memory even under the fake. Null when refused.
[[nodiscard]] void* reserve_metadata(size_t bytes, size_t alignment);

/// Makes reserved memory readable and writable; its content is zero. It is locked if the program
/// locked all new memory.
[[nodiscard]] bool commit(void* address, size_t bytes);

enum class Committed : uint8_t {
  kYes,
  kRefused,
  kTaken,  ///< a foreign mapping lies there, because nothing is reserved
};
/// commit() for a part of memory that reserve() or reserve_metadata() returned for an alignment
/// above granularity().
[[nodiscard]] Committed commit_more(void* address, size_t bytes);
/// Returns the never committed part of such memory.
void give_up(void* address, size_t bytes);

/// From here on nothing is reserved. The caller has returned all reserved memory, and never calls
/// release() for uncommitted memory.
void stop_reserving();
[[nodiscard]] bool is_reserving();
/// Whether the system can do without.
[[nodiscard]] bool can_stop_reserving();
/// Whether some of this memory is locked. pre: it holds nothing: it is reserved, or was committed
/// just now and not touched
[[nodiscard]] bool is_new_memory_locked(const void* address, size_t bytes);
/// Whether new memory will be locked. Costs some system calls.
[[nodiscard]] bool locks_new_memory();
/// Makes committed memory that reads as zero neither locked nor backed.
void unlock_zeros(void* address, size_t bytes);
/// commit() of a table of which little is ever used: it is not locked, even if the program locks
/// new memory.
[[nodiscard]] bool commit_sparse(void* address, size_t bytes);
/// mlockall(), or one of its flags that are about present or future memory. Sets errno when
/// refused.
enum class Locked : uint8_t { kAll, kPresent, kFuture };
[[nodiscard]] bool lock_all_memory(int flags, Locked which);

/// Whether a library of the process listens to the C library's munmap(), to learn which memory went
/// (decision 121). Then no part of a live or freed block goes back but by unmap_block().
[[nodiscard]] bool is_watched();
/// release() of a mapping that map_block() made, so that such libraries hear of it. They may
/// allocate meanwhile, so no lock may be held.
void unmap_block(void* address, size_t bytes);

/// Gives the backing of committed memory back at once; it reads as zero afterwards. Refused where
/// the memory is watched.
[[nodiscard]] bool purge(void* address, size_t bytes);

/// Backs committed memory in one call instead of one fault for each page. Content is kept.
[[nodiscard]] bool populate(void* address, size_t bytes);

/// Lets (true) or forbids (false) the system to back the range by huge pages.
[[nodiscard]] bool advise_huge(void* address, size_t bytes, bool allow);

/// Returns the address space itself.
void release(void* address, size_t bytes);

/// A mapping of its own for one large block: readable, writable, zero. Null when refused.
[[nodiscard]] void* map_block(size_t bytes, size_t alignment);

/// Grows or shrinks a mapping made by map_block; it may move unless `in_place`. Null when refused,
/// and then the old mapping is as it was.
[[nodiscard]] void* remap_block(void* address, size_t old_bytes, size_t new_bytes, bool in_place);

/// The result of move_to_block().
struct Moved {
  void* block = nullptr;   ///< null: refused, or the system cannot; nothing has changed then
  bool has_place = false;  ///< the old memory is committed, reads as zero and is unbacked; false:
                           ///< it is lost, because a foreign mapping may lie there
};
/// Moves the content of committed memory to a mapping of `new_bytes`, as map_block() makes them,
/// without a copy. pre: bytes <= new_bytes
[[nodiscard]] Moved move_to_block(void* address, size_t bytes, size_t new_bytes);

/// Nanoseconds of a clock that never goes back; coarse (some milliseconds) and cheap.
[[nodiscard]] uint64_t now_coarse_ns();
[[nodiscard]] inline uint64_t now_coarse_ms() { return now_coarse_ns() / 1'000'000; }

/// The same clock, fine.
[[nodiscard]] uint64_t now_ns();

/// Milliseconds for which the process's threads together have run on processors; a system call.
[[nodiscard]] uint64_t running_ms();

/// Sleeps while *word == expected (spurious returns allowed); wakes one sleeper.
void wait_while_equal(const uint32_t* word, uint32_t expected);
void wake_one(const uint32_t* word);

/// Makes every running thread of the process pass a full memory barrier. Their earlier stores are
/// seen here afterwards, and they see this thread's earlier stores. False where the system has no
/// such call.
[[nodiscard]] bool barrier_all_threads();

/// Whether the process certainly has one thread, the caller's. False where the C library does not
/// say, as before start().
[[nodiscard]] LOAM_INLINE bool is_single_threaded();

/// Lets another thread run.
void yield();

/// Starts a detached thread with a small stack that receives no signals. It may allocate from the
/// heap meanwhile, so no lock may be held. False when the system refused.
[[nodiscard]] bool start_thread(void (*body)());
void sleep_ms(unsigned ms);

/// A folder that belongs to the user and is closed to other users, made if it is missing: `wanted`
/// if it begins with "/", otherwise the usual place for such folders. Null when there is one, else
/// the reason. No link leads to it, and no other user can replace a folder on its path. There is
/// none in setuid and setgid programs. No lock may be held.
[[nodiscard]] const char* private_folder(const char* wanted, char* out, size_t size);
/// Writes the file "NUMBER.image" in such a folder beside the old one and renames it; only the user
/// can read it. It counts as this process's until the process ends, in any way, or publishes the
/// next. One thread.
[[nodiscard]] bool publish_file(const char* folder, const char* name, const void* data,
                                size_t bytes);
/// Removes such files that no living process published. Returns the number of the remaining ones.
unsigned remove_dead_files(const char* folder);
void remove_file(const char* folder, const char* name);
/// In the child of a fork(), which published nothing.
void forget_files_after_fork();
[[nodiscard]] uint64_t process_number();
/// Nanoseconds since 1970.
[[nodiscard]] uint64_t wall_clock_ns();

/// Page faults of the process so far: served from memory, and from a disk.
void count_faults(uint64_t* minor, uint64_t* major);

/// Reads the values that later calls need. Call it when the C library is ready, and without a lock.
void start();

/// Runs `callback(argument)` when the calling thread ends; one callback a process. False when the
/// system refused. The C library may allocate in this call, so no lock of the heap's may be held.
bool arm_thread_exit(void (*callback)(void*), void* argument);

/// Runs the callbacks around fork(). Only the first call counts, and it may come before start(). No
/// lock may be held.
void register_fork(void (*prepare)(), void (*parent)(), void (*child)());

/// An environment variable's value, or null; always null in a setuid or setgid program. No lock may
/// be held.
[[nodiscard]] const char* option(const char* name);

/// The same in every program. Only for values that decide where the user's own output goes.
[[nodiscard]] const char* variable(const char* name);

/// True when a variable of the environment may be an option of Loam ("LOAM_..."). Cheaper than a
/// look for one.
[[nodiscard]] bool has_options();

/// Fills memory with random bytes of the system's best source; never fails (the implementation
/// describes its replacement for a missing source).
void random_bytes(void* out, size_t bytes);

/// The number of the calling thread that the system's tools show to people.
[[nodiscard]] uint32_t thread_number();

/// Undoes commit(), or the commit of map_block(): the memory is gone, the addresses are
/// inaccessible and stay reserved.
[[nodiscard]] bool decommit(void* address, size_t bytes);

/// Calls `report` with the address when the program touches inaccessible memory; `report` answers
/// false if it knows nothing of the address. The process then ends by the fault, as it would have.
/// Does nothing if the program handles such faults, now or later. `report` runs in a signal
/// handler.
void report_faults(bool (*report)(const void* address));

/// "module+0xoffset" of a code address, null-terminated, where offset counts from the module's
/// first mapping, as debuggers want it; false when no module is mapped there. Allocates nothing,
/// takes no lock.
[[nodiscard]] bool describe_code(const void* code, char* out, size_t size);

/// Who called a function: where it returns to, and what the register of frame pointers had.
struct Caller {
  const void* code;
  const void* frame;
};
/// Return addresses from that one outwards, as far as frame pointers lead; returns how many. Reads
/// only what can be read: code without frame pointers uses that register for anything.
[[nodiscard]] size_t callers(Caller caller, const void** out, size_t most);

/// How many profilers listen to OpenTelemetry's memory probes, of allocations and of frees. The
/// system writes them.
extern "C" [[gnu::visibility("hidden")]] volatile uint16_t loam_allocation_listeners;
extern "C" [[gnu::visibility("hidden")]] volatile uint16_t loam_free_listeners;
[[nodiscard]] LOAM_INLINE bool allocations_are_probed() {
  return __atomic_load_n(&loam_allocation_listeners, __ATOMIC_RELAXED) != 0;
}
[[nodiscard]] LOAM_INLINE bool frees_are_probed() {
  return __atomic_load_n(&loam_free_listeners, __ATOMIC_RELAXED) != 0;
}
/// The probes: otel_memory:alloc(block, bytes, weight) and otel_memory:free(block).
void probe_allocation(const void* block, size_t bytes, uint64_t weight);
void probe_free(const void* block);

/// Writes to standard error; never fails.
void write_error(const char* text, size_t length);

[[noreturn]] void abort_process();

/// Keeps errno, and the system's own last error, as they were across a scope.
class ErrnoGuard {
 public:
  ErrnoGuard();
  ~ErrnoGuard();
  ErrnoGuard(const ErrnoGuard&) = delete;
  ErrnoGuard& operator=(const ErrnoGuard&) = delete;

 private:
  int saved_;
  [[maybe_unused]] uint32_t system_saved_;  ///< where the system has one
};

/// A byte of the C library that is not 0 while there is one thread, and that is cleared before the
/// second thread starts. Null: there is no such byte.
extern const char* single_thread_flag;

bool is_single_threaded() {
  const char* const flag = single_thread_flag;
  return flag != nullptr && *flag != 0;
}

/// Sets errno to ENOMEM or EINVAL.
void set_errno_out_of_memory();
void set_errno_invalid();

}  // namespace loam::os
