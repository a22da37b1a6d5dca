// The whole port: what Loam needs of an operating system. One file a system implements it
// (linux.cpp), and tests/fake_system implements it with pretend addresses and injected failures.
// The seam is the linker, so that no layer above carries a template parameter for it.
//
// Rules. Addresses and sizes are multiples of granularity() unless a line says otherwise; sizes are
// not zero. No function changes errno or takes a lock of Loam's. None calls what a program or a
// tool may have in the C library's place, and which may allocate, unless its line says that no lock
// may be held. A `bool` is false when the system refused; the caller counts that and carries on.
//
//   reserve --> PROT_NONE --commit--> readable, writable, zero --purge--> zero, unbacked --release--> gone
//                         <--decommit--
//
// Where the program locks its memory (mlockall()), what is reserved would count as locked. From
// stop_reserving() on nothing is reserved: reserve() names a place where nothing lies, and
// commit_more() maps there what is used.
#pragma once

#include "base/config.h"

namespace loam::os {

/// The system's page size in bytes (a multiple of the heap's 4 KiB page).
[[nodiscard]] size_t granularity();

/// Address space without access or backing. `alignment` is a power of two. Null when refused.
[[nodiscard]] void* reserve(size_t bytes, size_t alignment);

/// The same, and nobody else's mapping can come to lie there, whether memory is locked or not. It
/// does not count as locked.
[[nodiscard]] void* reserve_held(size_t bytes, size_t alignment);

/// As reserve, for Loam's own tables: real memory even under the fake. Null when refused.
[[nodiscard]] void* reserve_metadata(size_t bytes, size_t alignment);

/// Makes reserved memory readable and writable; its content is zero. It is locked if the program
/// had all new memory locked.
[[nodiscard]] bool commit(void* address, size_t bytes);

enum class Committed : uint8_t {
  kYes,
  kRefused,
  kTaken,  ///< somebody else's mapping lies there, now that nothing is reserved
};
/// commit() of a part of what reserve() or reserve_metadata() gave for an alignment above
/// granularity().
[[nodiscard]] Committed commit_more(void* address, size_t bytes);
/// Returns what was so reserved and never committed.
void give_up(void* address, size_t bytes);

/// From here on nothing is reserved. The caller has returned all that was, and never calls
/// release() for what is not committed.
void stop_reserving();
[[nodiscard]] bool is_reserving();
/// Whether mapped memory is locked.
[[nodiscard]] bool is_locked(const void* address);
/// Whether new memory will be. Some system calls.
[[nodiscard]] bool locks_new_memory();
/// Of committed memory that reads as zero: it is neither locked nor backed.
void unlock_zeros(void* address, size_t bytes);
/// commit() of a table of which little is ever used: it is not locked, whatever the program asked
/// for.
[[nodiscard]] bool commit_sparse(void* address, size_t bytes);
/// mlockall(), or that of its flags which are about memory that is there, or will be. Sets errno
/// when refused.
enum class Locked : uint8_t { kAll, kPresent, kFuture };
[[nodiscard]] bool lock_all_memory(int flags, Locked which);

/// Gives the backing of committed memory back at once; it reads as zero afterwards.
[[nodiscard]] bool purge(void* address, size_t bytes);

/// Backs committed memory in one call instead of a fault a page. Content is kept.
[[nodiscard]] bool populate(void* address, size_t bytes);

/// Whether the page at any address of committed memory, or of a mapping, holds memory; true where
/// the system does not tell. A system call.
[[nodiscard]] bool holds_memory(const void* address);

/// Lets (true) or forbids (false) the system to back the range by huge pages.
[[nodiscard]] bool advise_huge(void* address, size_t bytes, bool allow);

/// Returns the address space itself.
void release(void* address, size_t bytes);

/// A mapping of its own for one large block: readable, writable, zero. Null when refused.
[[nodiscard]] void* map_block(size_t bytes, size_t alignment);

/// Grows or shrinks a mapping made by map_block; it may move unless `in_place`. Null when refused,
/// and then the old mapping is as it was.
[[nodiscard]] void* remap_block(void* address, size_t old_bytes, size_t new_bytes, bool in_place);

/// Moves what committed memory holds to a mapping of `new_bytes` as map_block() makes them, without
/// a copy: the memory stays committed, reads as zero and is unbacked then. Null when refused, or
/// where the system cannot; all is then as it was. pre: bytes <= new_bytes
[[nodiscard]] void* move_to_block(void* address, size_t bytes, size_t new_bytes);

/// Nanoseconds of a clock that never goes back; coarse (some milliseconds) and cheap.
[[nodiscard]] uint64_t now_coarse_ns();
[[nodiscard]] inline uint64_t now_coarse_ms() { return now_coarse_ns() / 1'000'000; }

/// The same clock, fine.
[[nodiscard]] uint64_t now_ns();

/// Milliseconds that all threads of the process together have run on processors; a system call.
[[nodiscard]] uint64_t running_ms();

/// Sleeps while *word == expected (spurious returns allowed); wakes one sleeper.
void wait_while_equal(const uint32_t* word, uint32_t expected);
void wake_one(const uint32_t* word);

/// Makes every running thread of the process pass a full memory barrier: what they stored before is
/// seen here afterwards, what this thread stored before is seen by them. False where the system has
/// no such call.
[[nodiscard]] bool barrier_all_threads();

/// Whether the process has one thread, for certain: that of the caller. False where the C library
/// does not say, as before start().
[[nodiscard]] LOAM_INLINE bool is_single_threaded();

/// Lets another thread run.
void yield();

/// Starts a detached thread with a small stack that receives no signals; it may allocate from the
/// heap meanwhile, so no lock may be held. False when the system refused.
[[nodiscard]] bool start_thread(void (*body)());
void sleep_ms(unsigned ms);

/// A folder that belongs to the user and is closed to others, made if it is not there: `wanted` if
/// it begins with
/// "/", otherwise the usual place for such. Null when there is one, else why not. No link leads to
/// it, nor can another user put anything in the place of a folder on its path. None in setuid and
/// setgid programs. No lock may be held.
[[nodiscard]] const char* private_folder(const char* wanted, char* out, size_t size);
/// Writes the file "NUMBER.image" in such a folder beside the old one and renames it; readable by
/// the user only. It is known for this process's until the process ends, whichever way, or
/// publishes the next. One thread.
[[nodiscard]] bool publish_file(const char* folder, const char* name, const void* data,
                                size_t bytes);
/// Removes such files that no living process published. Returns how many others there are.
unsigned remove_dead_files(const char* folder);
void remove_file(const char* folder, const char* name);
/// In the child of a fork(), which published nothing.
void forget_files_after_fork();
[[nodiscard]] uint64_t process_number();
/// Nanoseconds since 1970.
[[nodiscard]] uint64_t wall_clock_ns();

/// Page faults of the process so far: served from memory, and from a disk.
void count_faults(uint64_t* minor, uint64_t* major);

/// Once the C library is ready, and without a lock: what later calls go by.
void start();

/// Runs `callback(argument)` when the calling thread ends; one callback a process. False when the
/// system refused. The C library may allocate in here, so no lock of the heap's may be held.
bool arm_thread_exit(void (*callback)(void*), void* argument);

/// Runs the callbacks around fork(). Only the first call counts, and it may come before start(). No
/// lock may be held.
void register_fork(void (*prepare)(), void (*parent)(), void (*child)());

/// An environment variable's value, or null; always null in a setuid or setgid program. No lock may
/// be held.
[[nodiscard]] const char* option(const char* name);

/// The same in every program: for what decides no more than where something of the user's goes.
[[nodiscard]] const char* variable(const char* name);

/// True when a variable of the environment may be an option of ours ("LOAM_..."). Cheaper than
/// asking for one.
[[nodiscard]] bool has_options();

/// Fills memory with random bytes of the system's best source; never fails (see the implementation
/// for what it falls back to).
void random_bytes(void* out, size_t bytes);

/// A number of the calling thread for people: what the system's tools show.
[[nodiscard]] uint32_t thread_number();

/// Undoes commit(), or that part of map_block(): the memory is gone, the addresses are inaccessible
/// and stay reserved.
[[nodiscard]] bool decommit(void* address, size_t bytes);

/// Has `report` called with the address when the program touches memory that is inaccessible;
/// false: it knows nothing of the address. The process then ends by the fault, as it would have.
/// Does nothing where the program handles such faults, or does so later. `report` runs in a signal
/// handler.
void report_faults(bool (*report)(const void* address));

/// "module+0xoffset" of a code address, null-terminated, where offset counts from the module's
/// first mapping, as debuggers want it; false when no module is mapped there. Allocates nothing,
/// takes no lock.
[[nodiscard]] bool describe_code(const void* code, char* out, size_t size);

/// Writes to standard error; never fails.
void write_error(const char* text, size_t length);

[[noreturn]] void abort_process();

/// Keeps errno, and what else the system calls its last error, as it was across a scope.
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

/// A byte of the C library's that is not 0 while there is one thread, cleared before the second
/// starts. Null: none.
extern const char* single_thread_flag;

bool is_single_threaded() {
  const char* const flag = single_thread_flag;
  return flag != nullptr && *flag != 0;
}

/// Sets errno to ENOMEM or EINVAL.
void set_errno_out_of_memory();
void set_errno_invalid();

}  // namespace loam::os
