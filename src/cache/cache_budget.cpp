#include "cache/cache_budget.h"

namespace loam {

unsigned CacheBudget::largest_other(const Tuning* tuning, unsigned end, unsigned size_class) {
  unsigned largest = 0;
  size_t most = 0;
  for (unsigned c = 1; c < end; ++c) {
    const unsigned capacity = tuning[c].capacity;
    if (c == size_class || capacity <= initial_capacity(c)) continue;
    const size_t granted = (capacity - initial_capacity(c)) * block_bytes(c);
    if (granted > most) {
      most = granted;
      largest = c;
    }
  }
  return largest;
}

unsigned CacheBudget::longest(const Tuning* tuning, unsigned end) {
  if (LOAM_LIKELY(!has_long_)) return 0;
  unsigned longest = 0;
  size_t most = 0;
  for (unsigned c = 1; c < end; ++c) {
    const size_t bytes = tuning[c].capacity * block_bytes(c);
    if (bytes <= most || tuning[c].capacity <= magazine_policy::usual_capacity(block_bytes(c)))
      continue;
    most = bytes;
    longest = c;
  }
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
