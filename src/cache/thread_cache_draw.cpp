// The random decisions of a thread's cache: which calls are sampled, which block gets guards, which
// slot of a magazine is handed out.
#include "cache/thread_cache.h"
#include "os/os.h"
#include "os/random.h"

namespace loam {

namespace {

// The average number of looks (slow calls of free(), one in kFreesPerLook) from one block between
// guards to the next. Chosen: with 5,120 frees the four system calls of such a block cost a
// hundredth of a program that does little else than allocate and free.
constexpr uint64_t kLooksPerGuard = 20;

}  // namespace

// All magazines are armed, so that the next call of malloc() is a slow one whatever its class.
void ThreadCache::count_look() {
  if (LOAM_LIKELY(until_guard_ > 1)) {
    --until_guard_;
    return;
  }
  if (until_guard_ == 1) {
    guard_is_due_ = true;
    arm_all();
  }
  until_guard_ = static_cast<uint32_t>(draw(kLooksPerGuard));
}

void ThreadCache::notice_probes() {
  const uint32_t era = memory_probes.era();
  if (state() != State::kLive) return;  // all threads share the static caches
  probe_era_ = static_cast<uint8_t>(era);
  // Otherwise the next slow call of each class disarms its magazine.
  if ((era & 1) != 0) arm_all();
}

uint64_t ThreadCache::random_bits() {
  // xorshift64 (Marsaglia 2003)
  if (random_ == 0) random_ = os::now_ns() ^ reinterpret_cast<uintptr_t>(this) ^ 1;
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

// Uniform in [1, 2 * mean - 1], so that no rhythm of the program escapes the samples.
uint64_t ThreadCache::draw(uint64_t mean) { return 1 + (random_bits() >> 11) % (2 * mean - 1); }

bool ThreadCache::sample_is_due(uint64_t mean) {
  if (LOAM_LIKELY(until_sample_ > 1)) {
    --until_sample_;
    return false;
  }
  const bool due = until_sample_ == 1;
  until_sample_ = draw(mean);
  return due;
}

// pre: limit <= kMaxCapacity
uint32_t ThreadCache::random_below(uint32_t limit) {
  for (uint32_t result;;) {
    if (LOAM_UNLIKELY(random_left_ == 0)) {
      random_source.take(random_halves_, kRandomHalves);
      random_left_ = kRandomHalves;
    }
    if (draws_below<16>(random_halves_[--random_left_], limit, &result)) return result;
  }
}

void ThreadCache::mix(unsigned size_class) {
  const Magazine m = magazine(size_class);
  if (m.head == nullptr || m.head - m.base < 2) return;
  const bool armed = m.low == m.head;
  const unsigned top = static_cast<unsigned>(m.head - m.base) - 1;
  const unsigned other = random_below(top + 1);
  if (other == top) return;
  void* const last = m.base[top];
  void* const picked = m.base[other];
  // The top block leaves the magazine while the two change places. A fork() in between loses a
  // block in the child; any other order would have one there twice.
  __atomic_store_n(&m.head, m.base + top, __ATOMIC_RELEASE);
  __atomic_store_n(&m.base[other], last, __ATOMIC_RELEASE);
  __atomic_store_n(&m.base[top], picked, __ATOMIC_RELEASE);
  __atomic_store_n(&m.head, m.base + top + 1, __ATOMIC_RELEASE);
  LOAM_ASSERT(armed == (m.low == m.head));
  static_cast<void>(armed);
}

}  // namespace loam
