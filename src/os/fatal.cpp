// One line to standard error without an allocation, and then the end of the process (or not, for
// report_misuse).
#include "os/fatal.h"

#include <atomic>

#include "base/check.h"
#include "base/text.h"
#include "os/os.h"

namespace loam {

namespace {

// relaxed throughout: no other data depends on the moment at which a thread sees it
constinit std::atomic<CorruptionPolicy> policy{CorruptionPolicy::kAbort};
constinit std::atomic<void (*)(ReportLine&, const void*)> report_details{nullptr};

void write_line(const char* what, const void* address, bool details) {
  ReportLine line;
  line.add("loam: ").add(what);
  if (address != nullptr) {
    line.add(" (address ").add_hex(reinterpret_cast<uintptr_t>(address));
    const auto describe = report_details.load(std::memory_order_relaxed);
    if (details && describe != nullptr) describe(line, address);
    line.add(")");
  }
  line.add("\n");
  os::write_error(line.text(), line.length());
}

}  // namespace

ReportLine& ReportLine::add(const char* text) {
  size_t length = 0;
  while (text[length] != '\0') ++length;
  return add(text, length);
}

ReportLine& ReportLine::add(const char* text, size_t length) {
  // The last two places are kept, so that a line that was cut still ends as a line.
  const bool ends = length == 1 && (text[0] == '\n' || text[0] == ')');
  const size_t limit = ends ? kCapacity : kCapacity - 2;
  for (size_t i = 0; i < length && length_ < limit; ++i) text_[length_++] = text[i];
  return *this;
}

ReportLine& ReportLine::add_hex(uintptr_t value) {
  add("0x");
  for (int shift = 60; shift >= 0; shift -= 4) {
    const unsigned digit = static_cast<unsigned>(value >> shift) & 15;
    if (value >> shift == 0 && shift != 0) continue;
    add(&"0123456789abcdef"[digit], 1);
  }
  return *this;
}

ReportLine& ReportLine::add_number(uint64_t value) {
  const text::Decimal decimal(value);
  return add(decimal.digits(), decimal.length());
}

void set_corruption_policy(CorruptionPolicy to) { policy.store(to, std::memory_order_relaxed); }
CorruptionPolicy corruption_policy() { return policy.load(std::memory_order_relaxed); }

void set_report_details(void (*describe)(ReportLine& line, const void* address)) {
  report_details.store(describe, std::memory_order_relaxed);
}

void fatal(const char* what, const void* address) {
  write_line(what, address, false);
  os::abort_process();
}

void write_report(const char* what, const void* address) { write_line(what, address, true); }

void report_misuse(const char* what, const void* address) {
  write_line(what, address, true);
  if (corruption_policy() != CorruptionPolicy::kReport) os::abort_process();
}

}  // namespace loam
