// Linux: the folder and the files in which a program publishes (counters/publisher.h).
//
// A folder is opened one component after the other, and none through a link. No other user may be
// able to replace a component. All work in the folder uses its descriptor, so that the meaning of
// the path cannot change in between. No descriptor stays open, because programs close descriptors
// that they do not know, or count them.
//
// The owner of a file is the living process that holds a lock on it. A process number would not do:
// it means nothing in another namespace of numbers. A lock (flock) lasts as long as the open file.
// A mapping keeps the file open and costs no descriptor. It ends with the process, however that
// ends, and with exec(); a child of fork() does not have it.
#if defined(__linux__)

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "base/text.h"
#include "os/kernel.h"
#include "os/os.h"

namespace loam::os {

namespace {

class File {
 public:
  explicit File(long number) : number_(number) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] bool good() const { return number_ >= 0; }
  [[nodiscard]] long number() const { return number_; }
  void close() {
    if (number_ >= 0) kernel::call(SYS_close, number_);
    number_ = -1;
  }
  void release() { number_ = -1; }
  void become(long number) {
    close();
    number_ = number;
  }

 private:
  long number_;
};

uid_t own_user() { return static_cast<uid_t>(kernel::call(SYS_geteuid)); }

long open_in(const File& folder, const char* name, int flags, long mode = 0) {
  return kernel::call(SYS_openat, folder.number(), name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
}

bool examine(const File& file, struct stat* out) {
  return kernel::call(SYS_newfstatat, file.number(), "", out, AT_EMPTY_PATH) == 0;
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void remove_in(const File& folder, const char* name) {
  kernel::call(SYS_unlinkat, folder.number(), name, 0);
}

// Only root and the user may replace an entry of that folder. In a sticky folder (/tmp) this holds
// for entries that belong to one of them, which the next check requires.
const char* why_unsafe(const struct stat& folder) {
  if (folder.st_uid != 0 && folder.st_uid != own_user())
    return "a folder on the path belongs to another user";
  if ((folder.st_mode & 022) != 0 && (folder.st_mode & S_ISVTX) == 0)
    return "others may write to a folder on the path";
  return nullptr;
}

// The folder, for work in it; its last component is made if it is missing. Null: `why` says why.
const char* open_folder(const char* path, File* out) {
  out->become(kernel::call(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
  struct stat found {};
  for (const char* at = path;;) {
    if (!out->good() || !examine(*out, &found))
      return "a part of the path is a link, or no folder, or closed to the user";
    while (*at == '/') ++at;
    if (*at == '\0') break;
    if (const char* why = why_unsafe(found)) return why;
    char name[256];
    const size_t length = text::length_until(at, '/');
    if (length >= sizeof name) return "a part of the path is too long";
    memcpy(name, at, length);
    name[length] = '\0';
    at += length;
    while (*at == '/') ++at;
    if (*at == '\0') kernel::call(SYS_mkdirat, out->number(), name, 0700);
    out->become(open_in(*out, name, O_PATH | O_DIRECTORY));
  }
  if (found.st_uid != own_user()) return "the folder is not the user's own";
  return (found.st_mode & 077) != 0 ? "the folder is not closed to others" : nullptr;
}

// Writes two texts and, unless it is kNoNumber, a number; false when they do not fit.
constexpr uint64_t kNoNumber = UINT64_MAX;
bool print_path(char* out, size_t size, const char* first, const char* more,
                uint64_t number = kNoNumber) {
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

constexpr char kNewSuffix[] = ".new";

// "4711.image", or "4711.image.new": the names of publish_file().
bool is_image(const char* name) {
  const char* at = name;
  while (*at >= '0' && *at <= '9') ++at;
  constexpr char kImage[] = ".image";
  if (at == name || !text::begins_with(at, kImage, sizeof kImage - 1)) return false;
  at += sizeof kImage - 1;
  return *at == '\0' || text::same(at, kNewSuffix);
}

// The lock on the file that was published last. It is this process's: a child of fork() drops it.
constinit void* held_lock = nullptr;
// One more than the descriptor of the file that is being written, and otherwise 0. A child of a
// fork() at that moment would hold the lock, and closes the descriptor. (A variable that is not 0
// at the start would be in the library's file, and each process would copy it.)
constinit std::atomic<long> open_file{0};
constinit ino_t open_inode = 0;

void release_lock(void* lock) {
  if (lock != nullptr) kernel::unmap(lock, granularity());
}

bool write_all(const File& file, const char* from, size_t bytes) {
  while (bytes != 0) {
    const long written = kernel::call(SYS_write, file.number(), from, bytes);
    if (written == -EINTR) continue;
    if (written <= 0) return false;
    from += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

// A new file with all of the data, under its lock, and the mapping that keeps the lock. False when
// the system refuses.
bool write_locked(const File& folder, const char* name, const void* data, size_t bytes,
                  void** lock) {
  File file(open_in(folder, name, O_RDWR | O_CREAT | O_EXCL, 0600));
  struct stat found {};
  if (!file.good() || !examine(file, &found)) return false;
  open_inode = found.st_ino;
  open_file.store(file.number() + 1, std::memory_order_relaxed);
  // Refused where the file system has no such locks. Other processes then take the file for a dead
  // process's, and the next file follows soon. A sweep at this moment has the lock, and removes the
  // file.
  bool good = kernel::call(SYS_flock, file.number(), LOCK_EX | LOCK_NB) != -EWOULDBLOCK;
  good = good && write_all(file, static_cast<const char*>(data), bytes);
  if (good) {
    *lock = kernel::as_pointer(
        kernel::call(SYS_mmap, 0, granularity(), PROT_NONE, MAP_SHARED, file.number(), 0));
    good = *lock != nullptr;
    if (good) kernel::call(SYS_madvise, *lock, granularity(), MADV_DONTFORK);
  }
  open_file.store(0, std::memory_order_relaxed);
  return good;
}

// Whether a living process holds its lock; otherwise the file is removed.
bool is_held(const File& folder, const char* name) {
  // O_NONBLOCK, so that a pipe does not make the call wait.
  const File file(open_in(folder, name, O_RDONLY | O_NONBLOCK));
  if (!file.good()) return false;
  const long locked = kernel::call(SYS_flock, file.number(), LOCK_EX | LOCK_NB);
  if (locked != 0) return locked == -EWOULDBLOCK;
  struct stat found {
  }, named{};
  // The file may have been replaced since it was opened. Then the name belongs to a living process.
  const bool is_named =
      examine(file, &found) && S_ISREG(found.st_mode) &&
      kernel::call(SYS_newfstatat, folder.number(), name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      is_same(found, named);
  if (is_named) remove_in(folder, name);
  return false;
}

}  // namespace

const char* private_folder(const char* wanted, char* out, size_t size) {
  if (getauxval(AT_SECURE) != 0) return "the program is privileged";
  File folder(-1);
  if (wanted[0] == '/') {
    if (!print_path(out, size, wanted, "")) return "the path is too long";
    return open_folder(out, &folder);
  }
  const char* runtime = variable("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && print_path(out, size, runtime, "/loam") &&
      open_folder(out, &folder) == nullptr) {
    return nullptr;
  }
  if (!print_path(out, size, "/tmp", "/loam-", own_user())) return "the path is too long";
  return open_folder(out, &folder);
}

bool publish_file(const char* path, const char* name, const void* data, size_t bytes) {
  File folder(-1);
  char beside[64];
  if (!print_path(beside, sizeof beside, name, kNewSuffix) || open_folder(path, &folder) != nullptr)
    return false;
  remove_in(folder, beside);  // left by an earlier process of this number
  void* lock = nullptr;
  // The new file gets the name at once; a reader that has the old one open goes on reading it.
  if (write_locked(folder, beside, data, bytes, &lock) &&
      kernel::call(SYS_renameat2, folder.number(), beside, folder.number(), name, 0) == 0) {
    release_lock(held_lock);
    held_lock = lock;
    return true;
  }
  release_lock(lock);
  remove_in(folder, beside);
  return false;
}

unsigned remove_dead_files(const char* path) {
  File folder(-1);
  if (open_folder(path, &folder) != nullptr) return 0;
  const File list(open_in(folder, ".", O_RDONLY | O_DIRECTORY));
  unsigned living = 0;
  struct Entry {  // the kernel's linux_dirent64
    uint64_t inode, offset;
    uint16_t length;
    uint8_t type;
    char name[];
  };
  alignas(Entry) char entries[2048];
  for (;;) {
    const long got =
        list.good() ? kernel::call(SYS_getdents64, list.number(), entries, sizeof entries) : 0;
    if (got <= 0) return living;
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const Entry*>(entries + at);
      at += entry->length;
      if (is_image(entry->name)) living += is_held(folder, entry->name);
    }
  }
}

void remove_file(const char* path, const char* name) {
  File folder(-1);
  if (open_folder(path, &folder) == nullptr) remove_in(folder, name);
}

void forget_files_after_fork() {
  held_lock = nullptr;
  File left(open_file.exchange(0, std::memory_order_relaxed) - 1);
  struct stat found {};
  // If the parent opened it between the copies of its descriptors and of its memory, the number is
  // another file's.
  if (left.good() && (!examine(left, &found) || found.st_ino != open_inode)) left.release();
}

uint64_t process_number() { return static_cast<uint64_t>(kernel::call(SYS_getpid)); }

}  // namespace loam::os

#endif  // __linux__
