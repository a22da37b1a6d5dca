#include "cache/cache_budget.h"

namespace loam {

namespace {

// The class with most `bytes_of(c)`; 0 if none has any.
template <class BytesOf>
unsigned largest(unsigned end, BytesOf bytes_of) {
  unsigned largest = 0;
  size_t most = 0;
  for (unsigned c = 1; c < end; ++c) {
    const size_t bytes = bytes_of(c);
    if (bytes <= most) continue;
    most = bytes;
    largest = c;
  }
  return largest;
}

}  // namespace

unsigned CacheBudget::largest_other(const Tuning* tuning, unsigned end, unsigned size_class) {
  return largest(end, [&](unsigned c) -> size_t {
    const unsigned capacity = tuning[c].capacity, initial = initial_capacity(c);
    return c == size_class || capacity <= initial ? 0 : (capacity - initial) * block_bytes(c);
  });
}

unsigned CacheBudget::longest(const Tuning* tuning, unsigned end) {
  if (LOAM_LIKELY(!has_long_)) return 0;
  const unsigned longest = largest(end, [&](unsigned c) -> size_t {
    const unsigned capacity = tuning[c].capacity;
    const size_t bytes = block_bytes(c);
    return magazine_policy::is_long(bytes, capacity) ? capacity * bytes : 0;
  });
  has_long_ = longest != 0;
  return longest;
}

unsigned CacheBudget::next_idle(const Tuning* tuning, unsigned end) {
  if (slow_operations_ < kIdleAfter) return 0;
  for (unsigned looks = kLooksForIdle; looks != 0; --looks) {
    next_idle_ = static_cast<uint8_t>(next_idle_ % (end - 1) + 1);
    const unsigned c = next_idle_;
    const Tuning& t = tuning[c];
    if (c != kMixedClass && t.use == Use::kNone && t.capacity > initial_capacity(c)) return c;
  }
  return 0;
}

}  // namespace loam
