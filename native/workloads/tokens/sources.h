// The files that the preprocessor works on, and the folders in which it searches for their
// includes.
//
// A unit is a source text that includes many headers, as a program would that includes its system's
// whole interface:
//   c++      every header of the C++ standard library (the folder that GCC's version names)
//   c        the C library's headers and the kernel's (sys/, linux/, net/, ...)
//   windows  windows.h of mingw-w64, where it is installed
// Names are sorted, so that every run on a machine does the same. This part runs once, before the
// measured part, and takes its memory from mmap.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "harness/system.h"

namespace tokens {

// Text that stays: names and unit sources.
class TextStore {
 public:
  TextStore() : data_(static_cast<char*>(lab::map_memory(kCapacity))) {}
  void append(std::string_view text) {
    if (used_ + text.size() + 1 > kCapacity) {
      lab::fail(lab::kExitFailed, "tokens: the system has more headers than the harness has room");
    }
    std::memcpy(data_ + used_, text.data(), text.size());
    used_ += text.size();
  }
  // The text appended since the last finish(), zero-terminated.
  std::string_view finish() {
    const std::string_view text(data_ + began_, used_ - began_);
    data_[used_++] = '\0';
    began_ = used_;
    return text;
  }

 private:
  static constexpr size_t kCapacity = 1 << 20;
  char* data_;
  size_t used_ = 0, began_ = 0;
};

inline bool is_file(const char* path) {
  struct stat s;
  return ::stat(path, &s) == 0 && S_ISREG(s.st_mode);
}
inline bool is_folder(const char* path) {
  struct stat s;
  return ::stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

// The sorted names in a folder. getdents64 itself, because opendir takes its buffer from malloc.
class Listing {
 public:
  static constexpr size_t kMost = 8192;
  Listing() : names_(kMost) {}

  void read(const char* folder, TextStore& store) {
    count_ = 0;
    const int fd = ::open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    alignas(8) static char buffer[32768];
    for (;;) {
      const long n = ::syscall(SYS_getdents64, fd, buffer, sizeof buffer);
      if (n <= 0) break;
      for (long at = 0; at < n;) {
        // struct linux_dirent64: inode 8, offset 8, record length 2, type 1, name
        uint16_t length;
        std::memcpy(&length, buffer + at + 16, sizeof length);
        const std::string_view name(buffer + at + 19);
        if (name != "." && name != ".." && count_ < kMost) {
          store.append(name);
          names_[count_++] = store.finish();
        }
        at += length;
      }
    }
    ::close(fd);
    std::sort(names_.begin(), names_.begin() + count_);
  }
  std::string_view* begin() { return names_.begin(); }
  std::string_view* end() { return names_.begin() + count_; }

 private:
  lab::Table<std::string_view> names_;
  size_t count_ = 0;
};

// Folder searched, in order. Ends at the first empty one.
inline constexpr size_t kMostFolders = 8;

struct Unit {
  std::string_view name;
  std::string_view text = {};  // the source: lines of #include <...>
  bool cplusplus = false;
  bool windows = false;
  std::string_view folders[kMostFolders] = {};
};

class Sources {
 public:
  // `which`: one unit's name, "system" for c++ and c, "all" for all present units. `most`: headers
  // named in a unit's source, 0 for all.
  Sources(std::string_view which, uint64_t most) : most_(most) {
    find_compiler();
    if (which == "c++" || which == "system" || which == "all") add_cplusplus();
    if (which == "c" || which == "system" || which == "all") add_c();
    if (which == "windows" || which == "all") add_windows();
    if (count_ == 0) {
      lab::fail(lab::kExitFailed, "tokens: found no headers for --units ", which,
                "; install a C++ compiler (Debian packages g++ and libc6-dev) or, for windows, "
                "mingw-w64-x86-64-dev");
    }
  }
  const Unit* begin() const { return units_; }
  const Unit* end() const { return units_ + count_; }

 private:
  // The last of the names that begins with a digit and is a folder: the newest version. Versions
  // are compared by their leading number.
  std::string_view newest_version(std::string_view folder) {
    listing_.read(folder.data(), store_);
    std::string_view best;
    unsigned long best_number = 0;
    for (const auto name : listing_) {
      const unsigned long number = std::strtoul(name.data(), nullptr, 10);
      if (number > best_number) {
        best = name;
        best_number = number;
      }
    }
    return best;
  }
  template <typename... Pieces>
  std::string_view text(Pieces... pieces) {
    (store_.append(pieces), ...);
    return store_.finish();
  }

  void find_compiler() {
    static constexpr std::string_view kTriples[] = {"x86_64-linux-gnu", "aarch64-linux-gnu",
                                                    "x86_64-pc-linux-gnu", "x86_64-redhat-linux"};
    for (const auto triple : kTriples) {
      const auto gcc = text("/usr/lib/gcc/", triple);
      if (!is_folder(gcc.data())) continue;
      const auto version = newest_version(gcc);
      if (version.empty()) continue;
      triple_ = triple;
      gcc_include_ = text(gcc, "/", version, "/include");
      break;
    }
    const auto version = newest_version("/usr/include/c++");
    if (!version.empty()) cplusplus_ = text("/usr/include/c++/", version);
  }

  void append_system_folders(Unit& unit, size_t at) {
    if (!gcc_include_.empty()) unit.folders[at++] = gcc_include_;
    unit.folders[at++] = "/usr/local/include";
    if (!triple_.empty()) unit.folders[at++] = text("/usr/include/", triple_);
    unit.folders[at++] = "/usr/include";
  }

  void include(std::string_view folder, std::string_view name) {
    if (most_ != 0 && named_ == most_) return;
    ++named_;
    source_.append("#include <");
    source_.append(folder);
    source_.append(name);
    source_.append(">\n");
  }

  void add_cplusplus() {
    if (cplusplus_.empty()) return;
    Unit unit{.name = "c++", .cplusplus = true};
    listing_.read(cplusplus_.data(), store_);
    named_ = 0;
    for (const auto name : listing_) {
      if (name.find('.') != std::string_view::npos) continue;
      if (is_file(text(cplusplus_, "/", name).data())) include("", name);
    }
    unit.text = source_.finish();
    unit.folders[0] = cplusplus_;
    unit.folders[1] =
        text("/usr/include/", triple_, "/c++/", cplusplus_.substr(cplusplus_.rfind('/') + 1));
    unit.folders[2] = text(cplusplus_, "/backward");
    append_system_folders(unit, 3);
    if (named_ != 0) units_[count_++] = unit;
  }

  void add_c() {
    // The C library's and the kernel's own; other packages' headers would differ by machine.
    static constexpr std::string_view kPlain[] = {
        "aio.h",         "alloca.h",        "ar.h",
        "argp.h",        "argz.h",          "arpa/inet.h",
        "assert.h",      "byteswap.h",      "complex.h",
        "cpio.h",        "crypt.h",         "ctype.h",
        "dirent.h",      "dlfcn.h",         "elf.h",
        "endian.h",      "envz.h",          "err.h",
        "errno.h",       "error.h",         "execinfo.h",
        "fcntl.h",       "fenv.h",          "fmtmsg.h",
        "fnmatch.h",     "fstab.h",         "fts.h",
        "ftw.h",         "getopt.h",        "glob.h",
        "grp.h",         "iconv.h",         "ifaddrs.h",
        "inttypes.h",    "langinfo.h",      "libgen.h",
        "limits.h",      "link.h",          "locale.h",
        "malloc.h",      "math.h",          "mntent.h",
        "monetary.h",    "mqueue.h",        "net/ethernet.h",
        "net/if.h",      "net/if_arp.h",    "net/route.h",
        "netdb.h",       "netinet/icmp6.h", "netinet/in.h",
        "netinet/ip.h",  "netinet/ip6.h",   "netinet/ip_icmp.h",
        "netinet/tcp.h", "netinet/udp.h",   "nl_types.h",
        "obstack.h",     "paths.h",         "poll.h",
        "printf.h",      "pthread.h",       "pty.h",
        "pwd.h",         "regex.h",         "resolv.h",
        "sched.h",       "search.h",        "semaphore.h",
        "setjmp.h",      "shadow.h",        "signal.h",
        "spawn.h",       "stdio.h",         "stdlib.h",
        "string.h",      "strings.h",       "syslog.h",
        "tar.h",         "termios.h",       "tgmath.h",
        "threads.h",     "time.h",          "uchar.h",
        "ucontext.h",    "ulimit.h",        "unistd.h",
        "utime.h",       "utmpx.h",         "wchar.h",
        "wctype.h",      "wordexp.h"};
    Unit unit{.name = "c"};
    named_ = 0;
    for (const auto name : kPlain) {
      if (exists(name)) include("", name);
    }
    for (const std::string_view folder : {"sys/", "linux/"}) {
      listing_.read(existing_folder(folder).data(), store_);
      for (const auto name : listing_) {
        if (name.ends_with(".h")) include(folder, name);
      }
    }
    unit.text = source_.finish();
    append_system_folders(unit, 0);
    if (named_ != 0) units_[count_++] = unit;
  }
  bool exists(std::string_view name) {
    return is_file(text("/usr/include/", name).data()) ||
           is_file(text("/usr/include/", triple_, "/", name).data());
  }
  std::string_view existing_folder(std::string_view folder) {
    const auto own = text("/usr/include/", triple_, "/", folder);
    return is_folder(own.data()) ? own : text("/usr/include/", folder);
  }

  void add_windows() {
    for (const std::string_view folder :
         {"/usr/x86_64-w64-mingw32/include", "/usr/share/mingw-w64/include"}) {
      if (!is_file(text(folder, "/windows.h").data())) continue;
      Unit unit{.name = "windows", .windows = true};
      named_ = 0;
      for (const std::string_view name : {"winsock2.h", "windows.h", "commctrl.h", "shlobj.h"}) {
        if (is_file(text(folder, "/", name).data())) include("", name);
      }
      unit.text = source_.finish();
      if (!gcc_include_.empty()) unit.folders[0] = gcc_include_;
      unit.folders[gcc_include_.empty() ? 0 : 1] = folder;
      units_[count_++] = unit;
      return;
    }
  }

  TextStore store_, source_;
  Listing listing_;
  uint64_t most_, named_ = 0;
  std::string_view triple_ = "", gcc_include_, cplusplus_;
  Unit units_[3];
  size_t count_ = 0;
};

}  // namespace tokens
