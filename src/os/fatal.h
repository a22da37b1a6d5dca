// The policy after a mistake of the caller was found (base/check.h has the calls), and the line
// that reports it.
#pragma once

#include "base/config.h"

namespace loam {

enum class CorruptionPolicy {
  kAbort,      ///< one line, then abort(): the default
  kReport,     ///< one line, the operation is dropped, the program goes on
  kTerminate,  ///< as kAbort; calls that could answer with a status abort too
};

/// Thread-safe.
void set_corruption_policy(CorruptionPolicy to);
[[nodiscard]] CorruptionPolicy corruption_policy();

/// A line of text on the stack. Text that does not fit is cut off, and nothing is allocated. Signal
/// handlers may use it.
class ReportLine {
 public:
  ReportLine& add(const char* text);
  ReportLine& add(const char* text, size_t length);
  ReportLine& add_hex(uintptr_t value);
  ReportLine& add_number(uint64_t value);

  /// Null-terminated.
  [[nodiscard]] const char* text() const { return text_; }
  [[nodiscard]] size_t length() const { return length_; }

 private:
  static constexpr size_t kCapacity = 512;
  char text_[kCapacity + 1] = {};
  size_t length_ = 0;
};

/// Only the line of report_misuse(): the reported fault ends the process, or is about to end it.
void write_report(const char* what, const void* address);

/// `describe` adds the known facts of an address to every report: ", class 48, ...". It must accept
/// any value, and take no lock that the heap may hold while it reports. There is one such function;
/// null for none.
void set_report_details(void (*describe)(ReportLine& line, const void* address));

}  // namespace loam
