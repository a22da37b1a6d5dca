// Linux: the folder and the files in which a program publishes (heap/publisher.h).
#if defined(__linux__)

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/os.h"

namespace loam::os {

namespace {

// A folder of ours that nobody else can enter; made if it is not there.
bool is_private_folder(const char* path) {
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
  struct stat found;
  // lstat: a link that somebody put into /tmp leads wherever he wants.
  return lstat(path, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & 077) == 0;
}

bool print_path(char* out, size_t size, const char* format, const char* text, unsigned long number) {
  const int length = snprintf(out, size, format, text, number);
  return length > 0 && static_cast<size_t>(length) < size;
}

}  // namespace

bool private_folder(const char* wanted, char* out, size_t size) {
  ErrnoGuard guard;
  if (getauxval(AT_SECURE) != 0) return false;
  if (wanted[0] == '/') return print_path(out, size, "%s", wanted, 0) && is_private_folder(out);
  const char* runtime = ::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && print_path(out, size, "%s/loam", runtime, 0) &&
      is_private_folder(out)) {
    return true;
  }
  return print_path(out, size, "%s/loam-%lu", "/tmp", geteuid()) && is_private_folder(out);
}

bool replace_file(const char* path, const void* data, size_t bytes) {
  ErrnoGuard guard;
  char beside[512];
  if (!print_path(beside, sizeof beside, "%s.new", path, 0)) return false;
  unlink(beside);  // what an earlier process of this number left
  const int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const char* from = static_cast<const char*>(data);
  bool good = true;
  while (good && bytes != 0) {
    const ssize_t written = write(file, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    good = written > 0;
    if (good) {
      from += written;
      bytes -= static_cast<size_t>(written);
    }
  }
  good = close(file) == 0 && good;
  // The new one takes the name at once: who has the old one open goes on reading that.
  if (good && rename(beside, path) == 0) return true;
  unlink(beside);
  return false;
}

void remove_file(const char* path) {
  ErrnoGuard guard;
  unlink(path);
}

uint64_t process_number() { return static_cast<uint64_t>(getpid()); }

uint64_t wall_clock_ns() {
  ErrnoGuard guard;
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace loam::os

#endif  // __linux__
