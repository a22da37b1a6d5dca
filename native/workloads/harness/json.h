// Writes one JSON object a line to standard output, from a buffer that mmap gave, without iostream,
// printf or the heap. A line is written by one write(2) as soon as it is complete. So a reader can
// follow, and a crash loses no finished checkpoint.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string_view>

#include "system.h"

namespace lab {

class JsonLine {
 public:
  JsonLine() : buffer_(static_cast<char*>(map_memory(kCapacity))) {}

  void begin() {
    used_ = 0;
    first_ = true;
    raw('{');
  }

  // Completes the line and sends it.
  void end() {
    raw('}');
    raw('\n');
    for (size_t sent = 0; sent < used_;) {
      const ssize_t n = ::write(STDOUT_FILENO, buffer_ + sent, used_ - sent);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        fail(kExitFailed, "workload: cannot write results to standard output: ", strerror(errno));
      }
      sent += static_cast<size_t>(n);
    }
  }

  JsonLine& add(std::string_view key, std::string_view value) {
    name(key);
    quoted(value);
    return *this;
  }
  JsonLine& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonLine& add(std::string_view key, bool value) {
    name(key);
    raw(value ? "true" : "false");
    return *this;
  }
  template <std::integral T>
  JsonLine& add(std::string_view key, T value) {
    name(key);
    number(value);
    return *this;
  }
  // JSON has neither "not a number" nor infinity; both mean "no such figure" here.
  JsonLine& add(std::string_view key, double value) {
    if (!std::isfinite(value)) return null(key);
    name(key);
    number(value);
    return *this;
  }
  JsonLine& null(std::string_view key) {
    name(key);
    raw("null");
    return *this;
  }
  // A fingerprint does not fit a double, so it is text.
  JsonLine& hex(std::string_view key, uint64_t value) {
    char digits[16];
    for (int i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[(value >> (60 - 4 * i)) & 15];
    return add(key, std::string_view(digits, 16));
  }
  JsonLine& open(std::string_view key) {
    name(key);
    raw('{');
    first_ = true;
    return *this;
  }
  JsonLine& close() {
    raw('}');
    first_ = false;
    return *this;
  }

 private:
  static constexpr size_t kCapacity = 1 << 16;

  void name(std::string_view key) {
    if (!first_) raw(',');
    first_ = false;
    quoted(key);
    raw(':');
  }
  template <typename T>
  void number(T value) {
    char text[40];
    std::to_chars_result result;
    if constexpr (std::floating_point<T>) {  // nine digits: more is noise, and long lines
      result = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 9);
    } else {
      result = std::to_chars(text, text + sizeof text, value);
    }
    raw(std::string_view(text, static_cast<size_t>(result.ptr - text)));
  }
  void quoted(std::string_view text) {
    raw('"');
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        raw('\\');
        raw(c);
      } else if (static_cast<unsigned char>(c) < 0x20) {
        raw("\\u00");
        raw("0123456789abcdef"[(c >> 4) & 15]);
        raw("0123456789abcdef"[c & 15]);
      } else {
        raw(c);
      }
    }
    raw('"');
  }
  void raw(char c) {
    if (used_ == kCapacity) fail(kExitFailed, "workload: a result line is longer than its buffer");
    buffer_[used_++] = c;
  }
  void raw(std::string_view text) {
    for (const char c : text) raw(c);
  }

  char* buffer_;
  size_t used_ = 0;
  bool first_ = true;
};

}  // namespace lab
