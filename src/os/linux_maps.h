// Linux: /proc/self/maps, read without allocation.
#pragma once

#include <fcntl.h>

#include "base/config.h"
#include "os/kernel.h"

namespace loam::os {

// One line of /proc/self/maps at a time, through a small buffer: the file may be megabytes long.
class MapsReader {
 public:
  MapsReader()
      : file_(kernel::call(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0)) {}
  ~MapsReader() {
    if (file_ >= 0) kernel::call(SYS_close, file_);
  }
  MapsReader(const MapsReader&) = delete;
  MapsReader& operator=(const MapsReader&) = delete;

  // The next line without its end, cut to what fits; null at the end.
  const char* next() {
    size_t length = 0;
    for (;;) {
      if (at_ == held_) {
        const long got = file_ < 0 ? 0 : kernel::call(SYS_read, file_, buffer_, sizeof buffer_);
        if (got <= 0) return nullptr;
        at_ = 0;
        held_ = static_cast<size_t>(got);
      }
      const char c = buffer_[at_++];
      if (c == '\n') break;
      if (length < sizeof line_ - 1) line_[length++] = c;
    }
    line_[length] = '\0';
    return line_;
  }

 private:
  long file_;
  size_t at_ = 0, held_ = 0;
  char buffer_[1024];
  char line_[512];
};

inline uint64_t parse_hex(const char*& at) {
  uint64_t value = 0;
  for (;; ++at) {
    if (*at >= '0' && *at <= '9') {
      value = value * 16 + static_cast<uint64_t>(*at - '0');
    } else if (*at >= 'a' && *at <= 'f') {
      value = value * 16 + static_cast<uint64_t>(*at - 'a' + 10);
    } else {
      return value;
    }
  }
}

}  // namespace loam::os
