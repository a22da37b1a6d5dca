#include "cache/draws.h"

#include "cache/pointer_checks.h"

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
constexpr uint64_t kFreesPerLook = PointerChecks::kFreesPerLook;

}  // namespace

// A block is drawn with a chance that grows with its size, as if its bytes were drawn. The usual
// size keeps the number of samples independent of the sizes.
//
//   P(a block of s bytes) = s / (usual bytes * kLooksPerGuard * kFreesPerLook)
//
// Each request that a magazine serves takes a block that a free or a refill put there. So to draw
// one of these frees, or one block of a refill, is to draw one of the requests: the one that takes
// that block. In a magazine this is the request that finds the head above the block.
bool Draws::draws_guard(unsigned size_class, unsigned blocks) {
  const uint64_t bytes = uint64_t{class_info(size_class).bytes} << kUsualShift;
  const uint64_t followed = kUsualLooks * kFreesPerLook;
  const uint64_t usual = usual_bytes_ == 0 ? bytes : usual_bytes_;
  const uint64_t counted = blocks < followed ? blocks : followed;
  usual_bytes_ = static_cast<uint32_t>((usual * (followed - counted) + bytes * counted) / followed);
  return (random_.bits() >> 11) % (kLooksPerGuard * kFreesPerLook * usual) < bytes * blocks;
}

void Draws::aim_guard(unsigned size_class, void** at) {
  guard_class_ = static_cast<uint8_t>(size_class);
  guard_at_ = at;
}

void Draws::aim_guard_between(unsigned size_class, void** first, void** end) {
  aim_guard(size_class, first + random_.bits() % static_cast<size_t>(end - first));
}

void Draws::keep_aim(unsigned size_class, Magazine m) {
  if (size_class != guard_class_) return;
  // The block may have left by the bottom, or the array may be another one.
  if (guard_at_ <= m.base || guard_at_ > m.head) {
    guard_at_ = nullptr;
  } else if (m.low != m.head) {
    m.low = guard_at_;
  }
}

uint32_t Draws::random_below(uint32_t limit) {
  for (uint32_t result;;) {
    if (LOAM_UNLIKELY(random_left_ == 0)) {
      random_source.take(random_halves_, kRandomHalves);
      random_left_ = kRandomHalves;
    }
    if (draws_below<16>(random_halves_[--random_left_], limit, &result)) return result;
  }
}

}  // namespace loam
