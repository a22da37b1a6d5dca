#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* As in linux/futex.h, which not every C library's compiler finds. */
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_LOCK_PI_PRIVATE = 6 | 128, FUTEX_TID_MASK = 0x3fffffff };

int kernel_open(const char* path, int flags) {
  const long file = syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
  return file < 0 ? -errno : (int)file;
}

void kernel_close(int file) { syscall(SYS_close, file); }
void kernel_unlink(const char* path) { syscall(SYS_unlinkat, AT_FDCWD, path, 0); }
void kernel_rmdir(const char* path) { syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); }

// On file systems without fallocate, writing zeros allocates the pages. No other process writes
// into a new part.
static int write_zeros(int file, uint64_t offset, uint64_t bytes) {
  static const char zeros[4096];
  for (uint64_t at = 0; at < bytes; at += sizeof zeros) {
    const long written = syscall(SYS_pwrite64, file, zeros, sizeof zeros, (long)(offset + at));
    if (written != (long)sizeof zeros) return written < 0 ? errno : ENOSPC;
  }
  return 0;
}

// A file that grows beyond this limit costs the process a signal, which would end it.
static bool is_within_limit(uint64_t end) {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         end <= limit.rlim_cur;
}

int kernel_reserve(int file, uint64_t offset, uint64_t bytes) {
  if (!is_within_limit(offset + bytes)) return EFBIG;
  long result;
  do {
    result = syscall(SYS_fallocate, file, 0, (long)offset, (long)bytes);
  } while (result < 0 && errno == EINTR);
  if (result == 0) return 0;
  if (errno == EOPNOTSUPP || errno == ENOSYS) return write_zeros(file, offset, bytes);
  return errno;
}

ssize_t kernel_read(int file, void* bytes, size_t size) {
  return syscall(SYS_read, file, bytes, size);
}

void kernel_append(const char* from, const char* to) {
  const int source = kernel_open(from, O_RDONLY);
  if (source < 0) return;
  const int target = kernel_open(to, O_WRONLY | O_CREAT | O_APPEND);
  uint64_t end = 0;
  while (target >= 0) {
    char text[4096];
    const ssize_t size = kernel_read(source, text, sizeof text);
    if (size <= 0 || !is_within_limit(end += (uint64_t)size)) break;
    if (syscall(SYS_write, target, text, (size_t)size) != size) break;
  }
  kernel_close(source);
  if (target >= 0) kernel_close(target);
}

size_t kernel_copy(uint32_t process, const struct iovec* to, size_t pieces, uintptr_t from) {
  enum { kPage = 4096, kMost = 32 };
  // A piece that cannot be read ends the copy, so each page is a piece.
  struct iovec pages[kMost];
  size_t left = to[0].iov_len + (pieces > 1 ? to[1].iov_len : 0);
  size_t count = 0;
  for (; left > 0 && count < kMost; ++count) {
    const size_t in_page = kPage - (from & (kPage - 1));
    pages[count].iov_base = (void*)from;
    pages[count].iov_len = left < in_page ? left : in_page;
    left -= pages[count].iov_len;
    from += pages[count].iov_len;
  }
  const long copied = syscall(SYS_process_vm_readv, (long)process, to, pieces, pages, count, 0);
  return copied > 0 ? (size_t)copied : 0;
}

void kernel_say(const char* const* words, size_t count) {
  struct iovec pieces[16];
  size_t used = 0;
  for (size_t i = 0; i < count && used < 15; ++i) {
    pieces[used].iov_base = (void*)(uintptr_t)words[i];
    pieces[used++].iov_len = strlen(words[i]);
  }
  pieces[used].iov_base = (void*)(uintptr_t) "\n";
  pieces[used++].iov_len = 1;
  syscall(SYS_writev, STDERR_FILENO, pieces, used);
}

// A wait for a word that never changes: filters of system calls that let threads exist let futex
// pass.
void kernel_sleep(uint64_t nanoseconds) {
  static uint32_t word;
  const struct timespec time = {.tv_sec = 0, .tv_nsec = (long)nanoseconds};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
}

uint32_t kernel_process(void) { return (uint32_t)syscall(SYS_getpid); }

// The kernel writes the thread's number into a lock that it takes for the thread. gettid, which is
// asked only without such locks, is missing in many filters.
uint32_t kernel_thread(void) {
  uint32_t lock = 0;
  const long failed = syscall(SYS_futex, &lock, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0);
  const uint32_t number = lock & FUTEX_TID_MASK;
  return failed == 0 && number != 0 ? number : (uint32_t)syscall(SYS_gettid);
}

void* kernel_map(size_t bytes, int protection, int flags, int file, uint64_t offset) {
  return (void*)syscall(SYS_mmap, NULL, bytes, protection, flags, file, (long)offset);
}

void kernel_map_over(void* address, size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  syscall(SYS_mmap, address, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
}

void kernel_unmap(void* address, size_t bytes) { syscall(SYS_munmap, address, bytes); }

int kernel_advise(void* address, size_t bytes, int advice) {
  return syscall(SYS_madvise, address, bytes, advice) == 0 ? 0 : errno;
}

bool kernel_extend(int file, uint64_t bytes) {
  return is_within_limit(bytes) && syscall(SYS_ftruncate, file, (long)bytes) == 0;
}

// A lock on the file, which the kernel gives back when its holder ends. Unlike a process's number
// it means the same in every namespace.
bool kernel_is_held(const char* path) {
  const int file = kernel_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const bool is_held = syscall(SYS_flock, file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  kernel_close(file);
  return is_held;
}
bool kernel_has_file(const char* path) { return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0; }

uint64_t kernel_space(const char* path) {
  char text[64];
  const long length = syscall(SYS_readlinkat, AT_FDCWD, path, text, sizeof text - 1);
  if (length <= 0) return 0;
  text[length] = 0;
  // As in `pid:[4026531836]`.
  const char* at = strchr(text, '[');
  uint64_t inode = 0;
  while (at != NULL && *++at >= '0' && *at <= '9') inode = inode * 10 + (uint64_t)(*at - '0');
  return inode;
}

bool kernel_is_filtered(void) {
  const int file = kernel_open("/proc/self/status", O_RDONLY);
  if (file < 0) return false;
  char text[4096];
  const ssize_t size = kernel_read(file, text, sizeof text - 1);
  kernel_close(file);
  text[size > 0 ? size : 0] = 0;
  const char* at = strstr(text, "\nSeccomp:");
  if (at == NULL) return false;
  for (at += 9; *at == ' ' || *at == '\t'; ++at) {
  }
  return *at != '0';
}

void kernel_own_program(char* out, size_t size) {
  const long length = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", out, size - 1);
  out[length > 0 ? length : 0] = 0;
}

uint64_t kernel_own_start(void) {
  const int file = kernel_open("/proc/self/stat", O_RDONLY);
  if (file < 0) return 0;
  char text[1024];
  const ssize_t size = kernel_read(file, text, sizeof text - 1);
  kernel_close(file);
  if (size <= 0) return 0;
  text[size] = 0;
  // The program's name may contain any character, also blanks and parentheses. The start is the
  // 20th word after its end.
  const char* at = strrchr(text, ')');
  for (int words = 0; at != NULL && words < 20; ++words) at = strchr(at + 1, ' ');
  if (at == NULL) return 0;
  uint64_t ticks = 0;
  for (++at; *at >= '0' && *at <= '9'; ++at) ticks = ticks * 10 + (uint64_t)(*at - '0');
  return ticks;
}

char* text_number(char* out, uint64_t value) {
  char digits[20];
  size_t count = 0;
  do {
    digits[count++] = (char)('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (count > 0) *out++ = digits[--count];
  *out = 0;
  return out;
}

char* text_copy(char* out, const char* end, const char* text) {
  while (out + 1 < end && *text != 0) *out++ = *text++;
  *out = 0;
  return out;
}

const char* error_text(int error) {
  switch (error) {
    case 0:
      return "";
    case EACCES:
      return "permission denied";
    case EAGAIN:
      return "too many threads at once";
    case EDQUOT:
      return "quota exceeded";
    case EFBIG:
      return "file too large";
    case EINVAL:
      return "invalid argument";
    case EMFILE:
      return "too many open files";
    case ENFILE:
      return "too many open files in the system";
    case ENOENT:
      return "no such file or folder";
    case ENOMEM:
      return "out of memory";
    case ENOSPC:
      return "no space left on the device";
    case EPERM:
      return "not permitted";
    case EROFS:
      return "read-only file system";
    default:
      return "the system refused";
  }
}
