#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel.h"
#include "lease.h"
#include "real.h"
#include "slots.h"
#include "stamp.h"
#include "start.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static _Atomic uint32_t never;
_Atomic uint32_t* recording = &never;
const Session* session;
Control* control;
Slot* slots;

_Atomic int session_state = kNew;
static uint32_t generation;
static _Atomic uint32_t forks;
static uint32_t announced;
static char folder[512];
static char own_file[576];
static char maps_file[592];
static char parent_file[32];
static uint32_t own_process;
// Of its file, from the start on: the table, and the first rings where there is address space.
static size_t mapped_bytes;

// If the drainer is silent for longer, the system is asked whether it still exists.
static const uint64_t kSilence = 2000000000u;

enum { kTableBytes = kControlBytes + kSlots * kSlotBytes };

static void name_page(char* path, const char* end) {
  text_copy(text_copy(path, end, folder), end, "/" LOAM_SESSION_FILE);
}

static bool is_drained(void) {
  char path[sizeof folder + 16];
  name_page(path, path + sizeof path);
  return kernel_is_held(path);
}

static void off_silently(void) { atomic_store(&session_state, kOff); }

// In session_attach() a failure is returned to the caller, and is not written to the program's
// standard error.
static bool is_attaching;
static const char* refusal;

static void say_off(const char* what, int error) {
  if (is_attaching) {
    refusal = error != 0 ? error_text(error) : what;
    return;
  }
  char number[24];
  text_number(number, kernel_process());
  const char* words[] = {"loam record: process ", number,           " goes on unrecorded: ", what,
                         error != 0 ? ": " : "",  error_text(error)};
  kernel_say(words, sizeof words / sizeof *words);
}

void session_off(const char* what, int error) {
  const int before = atomic_exchange(&session_state, kOff);
  atomic_store(recording, 0);
  if (before == kOff) return;
  if (before == kOpen && control != NULL) {
    char* end = text_copy(control->why, control->why + sizeof control->why, what);
    if (error != 0) {
      end = text_copy(end, control->why + sizeof control->why, ": ");
      text_copy(end, control->why + sizeof control->why, error_text(error));
    }
    atomic_store(&control->state, kSwitchedOff);
  }
  say_off(what, error);
}

void session_off_over(void) {
  if (atomic_exchange(&session_state, kOff) == kOff) return;
  atomic_store(recording, 0);
  atomic_store(&control->state, kSwitchedOff);
}

void session_off_abandoned(void) {
  if (atomic_exchange(&session_state, kOff) == kOff) return;
  atomic_store(recording, 0);
  char path[sizeof folder + 16];
  name_page(path, path + sizeof path);
  kernel_unlink(own_file);
  kernel_unlink(maps_file);
  kernel_unlink(path);
  kernel_rmdir(folder);  // succeeds in the last process
  say_off("`loam record` has gone away", 0);
}

// In another time namespace the difference is any number, and the lock is looked at more often.
bool session_is_abandoned(void) {
  if (kernel_monotonic() - atomic_load_explicit(&session->heartbeat, memory_order_relaxed) <
      kSilence)
    return false;
  return !kernel_has_file(own_file) || !is_drained();
}

bool session_is_told(uint32_t what) {
  return (atomic_load_explicit(&control->told, memory_order_relaxed) & what) != 0;
}

char* session_window(uint64_t offset, uint64_t bytes) {
  return offset + bytes <= mapped_bytes ? (char*)control + offset : NULL;
}

int session_open_file(void) { return kernel_open(own_file, O_RDWR); }

void session_write_maps(void) { kernel_append("/proc/self/maps", maps_file); }

uint32_t session_next_fork(void) { return atomic_fetch_add(&forks, 1) + 1; }

void session_forked(uint32_t number) {
  announced = number;
  // The kernel has done this already, unless it is older than MADV_WIPEONFORK.
  atomic_store(recording, 0);
}

// Maps the drainer's page, once for a process and its children; false if this process is part of no
// recording. `named` is the folder.
static bool find_session(const char* named) {
  if (session != NULL) return true;
  if (named == NULL || *named == 0) return false;
  if (strlen(named) >= sizeof folder)
    return session_off("the path in LOAM_RECORD is too long", 0), false;
  text_copy(folder, folder + sizeof folder, named);
  char path[sizeof folder + 16];
  name_page(path, path + sizeof path);
  const int file = kernel_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  // The recording is over, and a program that was part of it started this one later.
  if (file == -ENOENT || file == -ENOTDIR) return false;
  if (file < 0) return session_off(path, -file), false;
  void* page = kernel_map(kControlBytes, PROT_READ, MAP_SHARED, file, 0);
  kernel_close(file);
  if (page == MAP_FAILED) return session_off(path, errno), false;
  const Session* found = page;
  if (found->magic != LOAM_RING_MAGIC || found->version != kRingVersion)
    return session_off("`loam record` and libloam-record.so are of different versions", 0), false;
  session = found;
  return true;
}

static int create_file(void) {
  for (uint32_t number = 0; number < 100000; ++number) {
    char* end = text_copy(own_file, own_file + sizeof own_file, folder);
    *end++ = '/';
    end = text_number(end, own_process);
    *end++ = '.';
    text_number(end, number);
    const int file = kernel_open(own_file, O_RDWR | O_CREAT | O_EXCL);
    if (file == -EEXIST) continue;
    const char* const end_of_maps = maps_file + sizeof maps_file;
    text_copy(text_copy(maps_file, end_of_maps, own_file), end_of_maps, ".maps");
    return file;
  }
  return -EEXIST;
}

static void fill_control(uint32_t how) {
  const bool is_fork = how == kBeganByFork;
  control->version = kRingVersion;
  control->pid = own_process;
  control->start = kernel_own_start();
  control->space = kernel_space("/proc/self/ns/pid");
  control->time_space = kernel_space("/proc/self/ns/time");
  control->ticks_per_second = stamp_rate();
  control->monotonic = kernel_monotonic();
  control->stamp = stamp_now();
  control->realtime = kernel_realtime();
  control->how = how;
  control->fork_number = is_fork ? announced : 0;
  control->parent = (uint32_t)getppid();
  text_copy(control->parent_file, control->parent_file + sizeof control->parent_file, parent_file);
  kernel_own_program(control->program, sizeof control->program);
  text_copy(control->allocator, control->allocator + sizeof control->allocator, real_file());
  atomic_store(&control->file_end, kTableBytes);
  atomic_store(&control->lease, LOAM_FIRST_LEASE);
}

// Makes the file with its first pages, and the word that a fork zeroes. False after a failure,
// which is reported.
static bool open_rings(uint32_t how) {
  const int file = create_file();
  if (file < 0) return session_off(own_file, -file), false;
  const int error = kernel_reserve(file, 0, kControlBytes + kControlBytes);
  const int access = PROT_READ | PROT_WRITE;
  void* table = MAP_FAILED;
  mapped_bytes = kTableBytes + kWindowBytes;
  if (error == 0 && kernel_extend(file, mapped_bytes))
    table = kernel_map(mapped_bytes, access, MAP_SHARED, file, 0);
  if (error == 0 && table == MAP_FAILED) {
    mapped_bytes = kTableBytes;
    table = kernel_map(mapped_bytes, access, MAP_SHARED, file, 0);
  }
  const int map_error = errno;
  kernel_close(file);
  if (table == MAP_FAILED) {
    kernel_unlink(own_file);
    return session_off(own_file, error != 0 ? error : map_error), false;
  }
  kernel_advise(table, mapped_bytes, MADV_DONTFORK);
  if (recording == &never) {
    void* word = kernel_map(kControlBytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED) return session_off("no page for a word", errno), false;
    kernel_advise(word, kControlBytes, MADV_WIPEONFORK);
    recording = word;
  }
  control = table;
  slots = (Slot*)((char*)table + kControlBytes);
  slots_forget();
  fill_control(how);
  // The drainer reads the magic first.
  __atomic_store_n(&control->magic, LOAM_RING_MAGIC, __ATOMIC_RELEASE);
  return true;
}

static bool begin(const char* where, uint32_t how) {
  const bool is_fork = how == kBeganByFork;
  if (!find_session(where)) return false;
  if (atomic_load(&session->is_over) != 0) return false;
  if (!is_drained()) return false;
  own_process = kernel_process();
  if (is_fork) {
    const char* name = strrchr(own_file, '/');
    text_copy(parent_file, parent_file + sizeof parent_file, name != NULL ? name + 1 : "");
  }
  if (!open_rings(how)) return false;
  text_copy(parent_file, parent_file + sizeof parent_file, "");
  announced = 0;
  return true;
}

bool session_begin(void) {
  int before = atomic_load(&session_state);
  // If the state is open and the word is zero, the word was wiped: this is a child with memory of
  // its own.
  if (before != kNew && before != kOpen) return false;
  // Before the C library has started there is no environment, so the answer is not known yet.
  if (before == kNew && environ == NULL) return false;
  if (before == kOpen && atomic_load(recording) != 0) return true;
  if (!atomic_compare_exchange_strong(&session_state, &before, kBeginning)) return false;
  const int saved = errno;
  const bool begins = begin(getenv("LOAM_RECORD"), before == kOpen ? kBeganByFork : kBeganByExec);
  if (begins) {
    ++generation;
    int expected = kBeginning;
    if (atomic_compare_exchange_strong(&session_state, &expected, kOpen))
      atomic_store(recording, generation);
    // The allocations of this call are recorded already.
    if (before == kNew) start_once();
  } else if (atomic_load(&session_state) != kOff) {
    off_silently();
  }
  errno = saved;
  return begins;
}

bool session_attach(const char* where, const char** why) {
  session_forget();
  atomic_store(&session_state, kBeginning);
  is_attaching = true;
  refusal = "the rings' folder can not be used";
  const bool begins = begin(where, kBeganByAttach);
  is_attaching = false;
  if (begins) {
    ++generation;
    atomic_store(&session_state, kOpen);
    atomic_store(recording, generation);
  } else {
    atomic_store(&session_state, kOff);
    *why = refusal;
  }
  return begins;
}

void session_forget(void) {
  atomic_store(recording, 0);
  // In a child of fork() nothing of this is mapped.
  if (own_process == kernel_process()) {
    if (control != NULL) {
      slots_unmap();
      kernel_unmap(control, mapped_bytes);
    }
    if (session != NULL) kernel_unmap((void*)(uintptr_t)session, kControlBytes);
  }
  control = NULL;
  slots = NULL;
  session = NULL;
}
