// Texts of bytes that end with a zero, as in <cstring>. For cold code: each function of the C
// library that this library names is one more that the dynamic linker looks up in every program's
// start (decision 18).
#pragma once

#include <cstddef>
#include <cstdint>

namespace loam::text {

inline size_t length(const char* text) {
  size_t n = 0;
  while (text[n] != '\0') {
    ++n;
    asm("" : "+r"(n));  // gcc would make it a call of strlen()
  }
  return n;
}

constexpr bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}

/// `text` begins with the `count` bytes of `start`; it may be shorter than those.
constexpr bool begins_with(const char* text, const char* start, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (text[i] != start[i] || text[i] == '\0') return false;
  }
  return true;
}

/// Bytes before the first `stop`, or all of them.
constexpr size_t length_until(const char* text, char stop) {
  size_t n = 0;
  while (text[n] != '\0' && text[n] != stop) ++n;
  return n;
}

/// As much of `text` as fits, with its end. pre: size != 0
constexpr void copy(char* out, const char* text, size_t size) {
  size_t n = 0;
  for (; n + 1 < size && text[n] != '\0'; ++n) out[n] = text[n];
  out[n] = '\0';
}

/// A number in decimal digits, as a text.
class Decimal {
 public:
  constexpr explicit Decimal(uint64_t number) {
    do digits_[--first_] = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
  }
  [[nodiscard]] constexpr const char* digits() const { return digits_ + first_; }
  [[nodiscard]] constexpr size_t length() const { return kMost - first_; }

 private:
  static constexpr size_t kMost = 20;  // of 2^64 - 1
  size_t first_ = kMost;
  char digits_[kMost + 1] = {};
};

}  // namespace loam::text
