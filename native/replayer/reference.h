// The replayer's own memory, as it is on the C library's malloc.
//
// An allocator may hold memory before its first block: tables, caches, a reserve. A program on it
// pays for that. The replayer's own memory is measured by the same program without a preloaded
// library, and all beyond it is the allocator's.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string_view>

#include "harness/system.h"
#include "program.h"

namespace replay {

inline void print_own_bytes(uint64_t bytes) {
  char text[24];
  size_t at = sizeof text;
  text[--at] = '\n';
  do {
    text[--at] = static_cast<char>('0' + bytes % 10);
    bytes /= 10;
  } while (bytes != 0);
  for (size_t sent = at; sent < sizeof text;) {
    const ssize_t n = ::write(STDOUT_FILENO, text + sent, sizeof text - sent);
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

// The anonymous memory of `self --baseline 1 --program PATH` without a preloaded library; kUnknown
// without such a library, or if that program can not be run. Allocates nothing.
inline uint64_t reference_bytes(const char* self, std::string_view path) {
  const char* preloaded = ::getenv("LD_PRELOAD");
  int ends[2];
  if (preloaded == nullptr || *preloaded == 0 || ::pipe2(ends, O_CLOEXEC) != 0) return kUnknown;
  // The words live in the parent: a child of vfork() shares its memory.
  char* const words[] = {const_cast<char*>(self),        const_cast<char*>("--baseline"),
                         const_cast<char*>("1"),         const_cast<char*>("--program"),
                         const_cast<char*>(path.data()), nullptr};
  char* const nothing[] = {nullptr};
  const pid_t child = ::vfork();
  if (child == 0) {
    if (::dup2(ends[1], STDOUT_FILENO) >= 0) ::execve("/proc/self/exe", words, nothing);
    ::_exit(127);
  }
  ::close(ends[1]);
  uint64_t bytes = 0;
  bool is_number = false;
  char letter = 0;
  while (child > 0 && ::read(ends[0], &letter, 1) == 1 && letter != '\n') {
    is_number = letter >= '0' && letter <= '9';
    if (!is_number) break;
    bytes = bytes * 10 + static_cast<uint64_t>(letter - '0');
  }
  ::close(ends[0]);
  int status = 0;
  if (child > 0) (void)::waitpid(child, &status, 0);
  return child > 0 && is_number && status == 0 ? bytes : kUnknown;
}

}  // namespace replay
