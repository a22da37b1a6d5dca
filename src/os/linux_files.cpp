// Linux: the folder and the files in which a program publishes (heap/publisher.h).
#if defined(__linux__)

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "base/text.h"
#include "os/kernel.h"
#include "os/os.h"

namespace loam::os {

namespace {

// A folder of ours that nobody else can enter; made if it is not there.
bool is_private_folder(const char* path) {
  const long made = kernel::call(SYS_mkdirat, AT_FDCWD, path, 0700);
  if (made != 0 && made != -EEXIST) return false;
  struct stat found;
  // Not through a link: one that somebody put into /tmp leads wherever he wants.
  return kernel::call(SYS_newfstatat, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == static_cast<uid_t>(kernel::call(SYS_geteuid)) && (found.st_mode & 077) == 0;
}

// Two texts and, unless it is kNoNumber, a number behind each other; false when they do not fit.
constexpr uint64_t kNoNumber = UINT64_MAX;
bool print_path(char* out, size_t size, const char* first, const char* more, uint64_t number = kNoNumber) {
  size_t length = 0;
  for (const char* part : {first, more}) {
    for (; *part != '\0' && length < size; ++part) out[length++] = *part;
  }
  const text::Decimal decimal(number);
  const size_t count = number != kNoNumber ? decimal.length() : 0;
  if (length + count >= size) return false;
  memcpy(out + length, decimal.digits(), count);
  out[length + count] = '\0';
  return true;
}

void remove(const char* path) { kernel::call(SYS_unlinkat, AT_FDCWD, path, 0); }

}  // namespace

bool private_folder(const char* wanted, char* out, size_t size) {
  if (getauxval(AT_SECURE) != 0) return false;
  if (wanted[0] == '/') return print_path(out, size, wanted, "") && is_private_folder(out);
  const char* runtime = variable("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && print_path(out, size, runtime, "/loam") &&
      is_private_folder(out)) {
    return true;
  }
  return print_path(out, size, "/tmp", "/loam-", static_cast<uint64_t>(kernel::call(SYS_geteuid))) && is_private_folder(out);
}

bool replace_file(const char* path, const void* data, size_t bytes) {
  char beside[512];
  if (!print_path(beside, sizeof beside, path, ".new")) return false;
  remove(beside);  // what an earlier process of this number left
  const long file =
      kernel::call(SYS_openat, AT_FDCWD, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const char* from = static_cast<const char*>(data);
  bool good = true;
  while (good && bytes != 0) {
    const long written = kernel::call(SYS_write, file, from, bytes);
    if (written == -EINTR) continue;
    good = written > 0;
    if (good) {
      from += written;
      bytes -= static_cast<size_t>(written);
    }
  }
  good = kernel::call(SYS_close, file) == 0 && good;
  // The new one takes the name at once: who has the old one open goes on reading that.
  if (good && kernel::call(SYS_renameat2, AT_FDCWD, beside, AT_FDCWD, path, 0) == 0) return true;
  remove(beside);
  return false;
}

void remove_file(const char* path) { remove(path); }

uint64_t process_number() { return static_cast<uint64_t>(kernel::call(SYS_getpid)); }

}  // namespace loam::os

#endif  // __linux__
