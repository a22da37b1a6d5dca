// The harness's calls of the operating system: memory for its own tables, clocks, and figures about
// this process.
//
// The heap under test is the `malloc` of the process, so nothing here may allocate from it: files
// are read with raw read(2) into static buffers, and tables come from mmap. This is the only file
// of the harness that names the system (besides allocator.h); a port replaces it. Everything but
// now_ns() and map_memory() is for one thread at a time.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace lab {

inline constexpr size_t kPageBytes = 4096;  // the step at which blocks are touched

// Exit statuses: 0 success, 2 wrong usage (arguments.h), 1 any failure while running.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

inline void write_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// One line on standard error, in pieces, so that no text is formatted in heap memory.
template <typename... Pieces>
[[noreturn]] void fail(int status, Pieces... pieces) {
  (write_error(std::string_view(pieces)), ...);
  write_error("\n");
  _exit(status);
}

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

// Processor time of all threads of this process: it depends less on the machine's other work.
inline uint64_t processor_ns() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

inline void sleep_ms(uint64_t ms) {
  timespec t{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

// Memory for the harness itself, already backed. A table that faulted in during the experiment
// would count as the allocator's memory and as its page faults.
inline size_t mapped_bytes = 0;  // by all calls of map_memory(), in whole pages
inline void* map_memory(size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail(kExitFailed, "workload: no memory for the harness's tables (mmap)");
  for (size_t i = 0; i < bytes; i += kPageBytes) static_cast<volatile char*>(p)[i] = 0;
  mapped_bytes += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return p;
}

// Where the host takes free memory back from a virtual machine, the first touch of a page may take
// ten times as long as later ones. Who runs first would pay for all.
struct Heat {
  double first_ns, again_ns;  // a page, of the first touch and of one directly after
};
// Touches as much memory as the experiment will need, and gives it back to the system. Twice, so
// that one can see whether it helped. Where that much is not to be had, it does nothing.
inline Heat heat(size_t bytes) {
  const auto touch = [&] {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 0.0;
    const uint64_t began = now_ns();
    for (size_t i = 0; i < bytes; i += kPageBytes) static_cast<volatile char*>(p)[i] = 1;
    const uint64_t took = now_ns() - began;
    ::munmap(p, bytes);
    return static_cast<double>(took) / static_cast<double>(bytes / kPageBytes + 1);
  };
  const double first = touch();
  return {first, touch()};
}

// An array from mmap; it lives until the process ends.
template <typename T>
class Table {
 public:
  Table() = default;
  explicit Table(size_t n) : data_(static_cast<T*>(map_memory(n * sizeof(T) + 1))), size_(n) {}
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* data() { return data_; }
  size_t size() const { return size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// Memory for one part of an experiment, mapped and touched once, and used again by the next part.
// Tables that are mapped between checkpoints would count as the allocator's.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : data_(static_cast<char*>(map_memory(bytes))), capacity_(bytes) {}

  // Zeroed memory for `n` objects, which the caller constructs if they need it.
  template <typename T>
  T* take(size_t n) {
    const size_t at = (used_ + kLine - 1) / kLine * kLine;
    if (at + n * sizeof(T) > capacity_) {
      fail(kExitFailed, "workload: the harness's own tables are too small for these parameters");
    }
    used_ = at + n * sizeof(T);
    std::memset(data_ + at, 0, n * sizeof(T));
    return reinterpret_cast<T*>(data_ + at);
  }
  void rewind() { used_ = 0; }

 private:
  static constexpr size_t kLine = 64;  // no two takes share a cache line
  char* data_;
  size_t capacity_, used_ = 0;
};

inline unsigned core_count() {
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? static_cast<unsigned>(n) : 1;
}

inline uint64_t machine_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : 0;
}

// Reads a file of /proc whole into `buffer`; returns the part that fits, empty if it cannot be
// read.
inline std::string_view read_proc(const char* path, char* buffer, size_t capacity) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  size_t used = 0;
  while (used < capacity) {
    const ssize_t n = ::read(fd, buffer + used, capacity - used);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    used += static_cast<size_t>(n);
  }
  ::close(fd);
  return {buffer, used};
}

// The number after "\nName:" in a file of /proc (in kB, as those files have it), as bytes.
inline uint64_t proc_field_bytes(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    at += name.size();
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
    uint64_t kb = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
      kb = kb * 10 + static_cast<uint64_t>(text[at++] - '0');
    }
    return kb * 1024;
  }
  return 0;
}

struct MemoryFigures {
  uint64_t resident = 0;   // smaps_rollup Rss: exact; statm is batched per CPU
  uint64_t lazyfree = 0;   // part of `resident` that the kernel may take (MADV_FREE)
  uint64_t huge = 0;       // part of `resident` in transparent huge pages
  uint64_t anonymous = 0;  // part of `resident` that is no file's
};

inline MemoryFigures memory_figures() {
  static char buffer[4096];
  const auto text = read_proc("/proc/self/smaps_rollup", buffer, sizeof buffer);
  if (text.empty()) {
    fail(kExitFailed,
         "workload: cannot read /proc/self/smaps_rollup (Linux 4.14 or newer, /proc "
         "mounted); resident memory cannot be measured");
  }
  return {proc_field_bytes(text, "Rss:"), proc_field_bytes(text, "LazyFree:"),
          proc_field_bytes(text, "AnonHugePages:"), proc_field_bytes(text, "Anonymous:")};
}

inline uint64_t resident_high_water() {
  static char buffer[8192];
  return proc_field_bytes(read_proc("/proc/self/status", buffer, sizeof buffer), "VmHWM:");
}

// Sets the kernel's high-water mark to the present. Otherwise a peak would include start-up.
inline bool reset_resident_high_water() {
  const int fd = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = ::write(fd, "5", 1) == 1;
  ::close(fd);
  return ok;
}

inline uint64_t mapping_count() {
  static char buffer[1 << 16];
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  uint64_t lines = 0;
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    for (ssize_t i = 0; i < n; ++i) lines += buffer[i] == '\n';
  }
  ::close(fd);
  return lines;
}

struct Usage {
  uint64_t minor_faults = 0, major_faults = 0;
  uint64_t voluntary_switches = 0, involuntary_switches = 0;
  double user_seconds = 0, system_seconds = 0;
};

inline Usage process_usage() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const auto& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {static_cast<uint64_t>(u.ru_minflt),
          static_cast<uint64_t>(u.ru_majflt),
          static_cast<uint64_t>(u.ru_nvcsw),
          static_cast<uint64_t>(u.ru_nivcsw),
          seconds(u.ru_utime),
          seconds(u.ru_stime)};
}

}  // namespace lab
