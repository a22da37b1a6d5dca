// One line to standard error without allocation, then the end (or not, for report_misuse).
#include <atomic>

#include "base/check.h"
#include "os/fatal.h"
#include "os/os.h"

namespace loam {

namespace {

// relaxed throughout: nothing else depends on when a thread sees it
constinit std::atomic<CorruptionPolicy> policy{CorruptionPolicy::kAbort};

struct Line {
  char text[256];
  size_t length = 0;

  void add(const char* s) {
    while (*s != '\0' && length < sizeof text - 1) text[length++] = *s++;
  }
  void add_hex(uintptr_t value) {
    add("0x");
    for (int shift = 60; shift >= 0; shift -= 4) {
      const unsigned digit = static_cast<unsigned>(value >> shift) & 15;
      if (value >> shift == 0 && shift != 0) continue;
      const char c[2] = {"0123456789abcdef"[digit], '\0'};
      add(c);
    }
  }
  void write(const char* what, const void* address) {
    add("loam: ");
    add(what);
    if (address != nullptr) {
      add(" (address ");
      add_hex(reinterpret_cast<uintptr_t>(address));
      add(")");
    }
    add("\n");
    os::write_error(text, length);
  }
};

}  // namespace

void set_corruption_policy(CorruptionPolicy to) { policy.store(to, std::memory_order_relaxed); }
CorruptionPolicy corruption_policy() { return policy.load(std::memory_order_relaxed); }

void fatal(const char* what, const void* address) {
  Line line;
  line.write(what, address);
  os::abort_process();
}

void report_misuse(const char* what, const void* address) {
  if (corruption_policy() != CorruptionPolicy::kReport) fatal(what, address);
  Line line;
  line.write(what, address);
}

}  // namespace loam
