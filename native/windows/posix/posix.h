// The POSIX functions that tests/heaps, tests/stress, tests/hardening and the workloads call. With
// them these programs compile for Windows unchanged. This file is included before everything else,
// and <sys/mman.h> and other headers beside it lead here.
//
// fork() fails as on a machine that has reached its limit of processes. Calls that Windows does not
// have fail too. malloc()'s relatives without a Windows name are the heap's own.
//
// Under Wine the process is a Linux process, and Linux knows its memory. So a file whose name
// begins with '/' is read by Linux's own calls, with Linux's lengths and line ends. (Wine would let
// its server open the files of /proc, and the server would then read about itself.)
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <loam/loam.h>
#include <malloc.h>
#include <process.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

// Functions of kernel32, declared without <windows.h> and its thousand names. They have names of
// their own here, because some programs include <windows.h> too.
#define LOAM_POSIX_SYSTEM(name) __asm__(#name)
void* posix_VirtualAlloc(void*, size_t, unsigned long, unsigned long)
    LOAM_POSIX_SYSTEM(VirtualAlloc);
int posix_VirtualFree(void*, size_t, unsigned long) LOAM_POSIX_SYSTEM(VirtualFree);

// ---- <sys/mman.h> ------------------------------------------------------------------------------

enum { PROT_NONE = 0, PROT_READ = 1, PROT_WRITE = 2 };
enum { MAP_PRIVATE = 2, MAP_ANONYMOUS = 0x20, MAP_NORESERVE = 0x4000 };
#define MAP_FAILED ((void*)-1)

static inline void* mmap(void* at, size_t bytes, int access, int kind, int file, long offset) {
  (void)at, (void)access, (void)kind, (void)file, (void)offset;
  void* const p =
      posix_VirtualAlloc(NULL, bytes, 0x3000 /* reserved and committed */, 4 /* writable */);
  return p != NULL ? p : MAP_FAILED;
}
static inline int munmap(void* p, size_t bytes) {
  (void)bytes;
  return posix_VirtualFree(p, 0, 0x8000) ? 0 : -1;
}

// ---- Linux's files, under Wine alone -----------------------------------------------------------

void* posix_GetModuleHandleA(const char*) LOAM_POSIX_SYSTEM(GetModuleHandleA);
void* posix_GetProcAddress(void*, const char*) LOAM_POSIX_SYSTEM(GetProcAddress);

static inline int is_wine(void) {
  return posix_GetProcAddress(posix_GetModuleHandleA("ntdll.dll"), "wine_get_version") != NULL;
}

enum {
  kLinuxRead = 0,
  kLinuxWrite = 1,
  kLinuxOpen = 2,
  kLinuxClose = 3,
  kLinuxStat = 4,
  kLinuxFstat = 5,
  kLinuxRusage = 98,
  SYS_getdents64 = 217
};
static inline intptr_t linux_call(intptr_t number, intptr_t a, intptr_t b, intptr_t c) {
  intptr_t result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c)
                   : "rcx", "r11", "memory");
  return result;
}

// Linux's descriptors begin at this number. The run-time has none there.
enum { kFirstLinux = 1 << 20 };

enum { O_DIRECTORY = 0x10000 };  // as Linux numbers it

static inline int posix_open(const char* path, int how, ...) {
  if (*path != '/' || (how & O_CREAT) != 0 || !is_wine())
    return open(path, (how & ~O_DIRECTORY) | O_BINARY, 0600);
  const intptr_t file = linux_call(kLinuxOpen, (intptr_t)path, how & (3 | O_DIRECTORY), 0);
  if (file >= 0) return (int)file + kFirstLinux;
  errno = ENOENT;
  return -1;
}
static inline long long posix_read(int file, void* to, size_t bytes) {
  if (file < kFirstLinux) return read(file, to, (unsigned)bytes);
  return linux_call(kLinuxRead, file - kFirstLinux, (intptr_t)to, (intptr_t)bytes);
}
static inline long long posix_write(int file, const void* from, size_t bytes) {
  if (file < kFirstLinux) return write(file, from, (unsigned)bytes);
  return linux_call(kLinuxWrite, file - kFirstLinux, (intptr_t)from, (intptr_t)bytes);
}
static inline int posix_close(int file) {
  if (file < kFirstLinux) return close(file);
  return (int)linux_call(kLinuxClose, file - kFirstLinux, 0, 0);
}

struct posix_stat {  // as Linux lays it out
  uint64_t st_dev, st_ino, st_nlink;
  uint32_t st_mode, st_uid, st_gid, unused_;
  uint64_t st_rdev;
  int64_t st_size, st_blksize, st_blocks;
  uint64_t rest_[9];
};
static inline int posix_stat(const char* path, struct posix_stat* out) {
  return is_wine() ? (int)linux_call(kLinuxStat, (intptr_t)path, (intptr_t)out, 0) : -1;
}
static inline int posix_fstat(int file, struct posix_stat* out) {
  if (file < kFirstLinux) return -1;
  return (int)linux_call(kLinuxFstat, file - kFirstLinux, (intptr_t)out, 0);
}
static inline long syscall(int number, int file, void* to, size_t bytes) {
  if (file < kFirstLinux) return -1;
  return (long)linux_call(number, file - kFirstLinux, (intptr_t)to, (intptr_t)bytes);
}
#define open posix_open
#define read posix_read
#define write posix_write
#define close posix_close
#undef stat
#undef fstat
#define stat posix_stat
#define fstat posix_fstat

// ---- processes ---------------------------------------------------------------------------------

enum { WNOHANG = 1 };
#define WIFEXITED(status) 1
#define WEXITSTATUS(status) (status)

static inline pid_t fork(void) {
  errno = EAGAIN;
  return -1;
}
static inline pid_t waitpid(pid_t child, int* status, int how) {
  (void)child, (void)status, (void)how;
  errno = ECHILD;
  return -1;
}
static inline int kill(pid_t process, int signal) {
  (void)process, (void)signal;
  return -1;
}

static inline unsigned alarm(unsigned seconds) {
  (void)seconds;
  return 0;
}

#define SIGBUS SIGSEGV
enum { SA_RESETHAND = 1, SA_NODEFER = 2 };
struct sigaction {
  void (*sa_handler)(int);
  int sa_flags;
};
static inline int sigaction_(int number, const struct sigaction* action) {
  return signal(number, action->sa_handler) == SIG_ERR ? -1 : 0;
}
#define sigaction(number, action, before) sigaction_(number, action)

// ---- <sys/resource.h>, <unistd.h> --------------------------------------------------------------

enum { RLIMIT_AS, RLIMIT_CORE };
struct rlimit {
  size_t rlim_cur, rlim_max;
};

enum { RUSAGE_SELF = 0, RUSAGE_THREAD = 1 };
struct posix_time {
  long long tv_sec, tv_usec;
};
struct rusage {  // as Linux lays it out
  struct posix_time ru_utime, ru_stime;
  long long ru_maxrss, ru_ixrss, ru_idrss, ru_isrss, ru_minflt, ru_majflt, ru_nswap, ru_inblock,
      ru_oublock, ru_msgsnd, ru_msgrcv, ru_nsignals, ru_nvcsw, ru_nivcsw;
};
static inline int getrlimit(int what, struct rlimit* limit) {
  (void)what;
  limit->rlim_cur = limit->rlim_max = SIZE_MAX;
  return 0;
}
static inline int setrlimit(int what, const struct rlimit* limit) {
  (void)what, (void)limit;
  errno = ENOSYS;
  return -1;
}
static inline int getrusage(int who, struct rusage* usage) {
  memset(usage, 0, sizeof *usage);
  if (!is_wine()) {
    errno = ENOSYS;
    return -1;
  }
  return (int)linux_call(kLinuxRusage, who, (intptr_t)usage, 0);
}

struct posix_memory_status {
  unsigned long length, load;
  unsigned long long physical, rest[6];
};
int posix_GlobalMemoryStatusEx(void*) LOAM_POSIX_SYSTEM(GlobalMemoryStatusEx);
unsigned long posix_GetActiveProcessorCount(unsigned short)
    LOAM_POSIX_SYSTEM(GetActiveProcessorCount);

enum { _SC_PAGESIZE, _SC_PHYS_PAGES, _SC_NPROCESSORS_ONLN };
static inline long sysconf(int what) {
  if (what == _SC_NPROCESSORS_ONLN) return (long)posix_GetActiveProcessorCount(0xffff);
  if (what == _SC_PAGESIZE) return 4096;
  struct posix_memory_status status;
  status.length = sizeof status;
  return posix_GlobalMemoryStatusEx(&status) ? (long)(status.physical / 4096) : -1;
}

#ifndef O_CLOEXEC
#define O_CLOEXEC O_NOINHERIT
#endif

__attribute__((format(__MINGW_PRINTF_FORMAT, 2, 3))) static inline int dprintf(int to,
                                                                               const char* format,
                                                                               ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const int most = (int)sizeof text - 1;
  return (int)write(to, text, (size_t)(length < most ? length : most));
}

// ---- malloc()'s relatives ----------------------------------------------------------------------

static inline void* memalign(size_t alignment, size_t bytes) {
  return loam_aligned_alloc(loam_default(), alignment, bytes);
}
static inline void* aligned_alloc(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}
static inline void* valloc(size_t bytes) { return memalign(4096, bytes); }
static inline void* pvalloc(size_t bytes) { return memalign(4096, (bytes + 4095) & ~(size_t)4095); }
static inline int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* const p = memalign(alignment, bytes);
  if (p == NULL) return ENOMEM;
  *out = p;
  return 0;
}
static inline void* reallocarray(void* block, size_t count, size_t bytes) {
  size_t all;
  if (!__builtin_mul_overflow(count, bytes, &all)) return realloc(block, all);
  errno = ENOMEM;
  return NULL;
}
#if defined(LOAM_POSIX_SYSTEM_HEAP)  // native/windows/system_heap.cpp
int malloc_trim(size_t left);
static inline size_t malloc_usable_size(void* block) { return block != NULL ? _msize(block) : 0; }
#else
static inline size_t malloc_usable_size(void* block) {
  return block != NULL ? loam_usable_size(loam_heap_of(block), block) : 0;
}
static inline int malloc_trim(size_t left) {
  (void)left;
  return loam_trim(loam_default()) == LOAM_OK;
}
#endif

struct mallinfo2 {
  size_t arena;
};
static inline struct mallinfo2 mallinfo2(void) {
  struct loam_heap_summary summary;
  summary.size = sizeof summary;
  struct mallinfo2 info = {loam_summary(loam_default(), &summary) == LOAM_OK ? summary.reserved
                                                                             : 0};
  return info;
}

#ifdef __cplusplus
}
#endif
