// Functions on zero-terminated texts, as in <cstring>. For cold code: the dynamic linker has to
// look up each C library function that this library names, at every program's start (decision 18).
#pragma once

#include <cstddef>
#include <cstdint>

namespace loam::text {

inline size_t length(const char* text) {
  size_t n = 0;
  while (text[n] != '\0') {
    ++n;
    asm("" : "+r"(n));  // gcc would turn this loop into a call of strlen()
  }
  return n;
}

constexpr bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}

/// True if `text` begins with the `count` bytes of `start`; it may be shorter than those.
constexpr bool begins_with(const char* text, const char* start, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (text[i] != start[i] || text[i] == '\0') return false;
  }
  return true;
}

/// Number of bytes before the first `stop`, or of all bytes.
constexpr size_t length_until(const char* text, char stop) {
  size_t n = 0;
  while (text[n] != '\0' && text[n] != stop) ++n;
  return n;
}

/// Copies as much of `text` as fits, with a terminating zero. pre: size != 0
constexpr void copy(char* out, const char* text, size_t size) {
  size_t n = 0;
  for (; n + 1 < size && text[n] != '\0'; ++n) out[n] = text[n];
  out[n] = '\0';
}

/// A number as a text of decimal digits.
class Decimal {
 public:
  constexpr explicit Decimal(uint64_t number) {
    do digits_[--first_] = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
  }
  [[nodiscard]] constexpr const char* digits() const { return digits_ + first_; }
  [[nodiscard]] constexpr size_t length() const { return kMost - first_; }

 private:
  static constexpr size_t kMost = 20;  // digits of 2^64 - 1
  size_t first_ = kMost;
  char digits_[kMost + 1] = {};
};

}  // namespace loam::text
