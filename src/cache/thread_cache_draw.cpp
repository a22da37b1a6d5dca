// The random decisions of a thread's cache: which calls are sampled, which block gets guards, which
// slot of a magazine is handed out.
#include "cache/thread_cache.h"
#include "os/os.h"
#include "os/random.h"

namespace loam {

namespace {

// One block between guards for the frees of so many looks, on average. Chosen: the four system
// calls of such a block then cost a hundredth of a program that does little else than allocate and
// free.
constexpr uint64_t kLooksPerGuard = 20;
// The usual size follows the latest looks of about this number. Chosen: fewer would follow single
// large blocks.
constexpr uint32_t kUsualLooks = 32;
// Of usual_bytes_, whose changes are small.
constexpr unsigned kUsualShift = 8;

}  // namespace

// A block is drawn with a chance that grows with its size, as if its bytes were drawn. The usual
// size keeps the number of samples independent of the sizes.
//
//   P(a block of s bytes) = s / (usual bytes * kLooksPerGuard * kFreesPerLook)
//
// Each request that a magazine serves takes a block that a free or a refill put there. So to draw
// one of these frees, or one block of a refill, is to draw one of the requests: the one that takes
// that block. In a magazine this is the request that finds the head above the block.
bool ThreadCache::draws_guard(unsigned size_class, unsigned blocks) {
  const uint64_t bytes = uint64_t{class_info(size_class).bytes} << kUsualShift;
  const uint64_t followed = uint64_t{kUsualLooks} * kFreesPerLook;
  const uint64_t usual = usual_bytes_ == 0 ? bytes : usual_bytes_;
  const uint64_t counted = blocks < followed ? blocks : followed;
  usual_bytes_ = static_cast<uint32_t>((usual * (followed - counted) + bytes * counted) / followed);
  return (random_bits() >> 11) % (kLooksPerGuard * kFreesPerLook * usual) < bytes * blocks;
}

void ThreadCache::aim_guard(unsigned size_class, void** at) {
  guard_class_ = static_cast<uint8_t>(size_class);
  guard_at_ = at;
}

void ThreadCache::keep_aim(unsigned size_class) {
  if (size_class != guard_class_) return;
  const Magazine m = magazine(size_class);
  // The block may have left by the bottom, or the array may be another one.
  if (guard_at_ <= m.base || guard_at_ > m.head) {
    guard_at_ = nullptr;
  } else if (m.low != m.head) {
    m.low = guard_at_;
  }
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
