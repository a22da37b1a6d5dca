#include "os/random.h"

#include <bit>

#include "os/os.h"

namespace loam {

constinit RandomSource random_source;

namespace {

void quarter_round(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  a += b, d = std::rotl(d ^ a, 16);
  c += d, b = std::rotl(b ^ c, 12);
  a += b, d = std::rotl(d ^ a, 8);
  c += d, b = std::rotl(b ^ c, 7);
}

}  // namespace

void RandomSource::start() {
  Lock lock(mutex_);
  os::random_bytes(key_, sizeof key_);
  halves_left_ = 0;
}

void RandomSource::reset_after_fork() {
  mutex_.reset_after_fork();
  start();
}

void RandomSource::refill() {
  uint32_t in[kWords] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};  // "expand 32-byte k"
  for (unsigned i = 0; i < 12; ++i) in[4 + i] = key_[i];
  for (unsigned i = 0; i < kWords; ++i) output_[i] = in[i];
  uint32_t* x = output_;
  for (unsigned round = 0; round < 8; round += 2) {
    for (unsigned i = 0; i < 4; ++i) quarter_round(x[i], x[4 + i], x[8 + i], x[12 + i]);
    for (unsigned i = 0; i < 4; ++i)
      quarter_round(x[i], x[4 + (i + 1) % 4], x[8 + (i + 2) % 4], x[12 + (i + 3) % 4]);
  }
  for (unsigned i = 0; i < kWords; ++i) output_[i] += in[i];
  if (++key_[8] == 0) ++key_[9];
  halves_left_ = 2 * kWords;
}

uint32_t RandomSource::next_half() {
  if (halves_left_ == 0) refill();
  const unsigned at = 2 * kWords - halves_left_--;
  return output_[at / 2] >> (at % 2 * 16) & 0xffff;
}

void RandomSource::take(uint16_t* out, unsigned count) {
  Lock lock(mutex_);
  for (unsigned i = 0; i < count; ++i) out[i] = static_cast<uint16_t>(next_half());
}

uint32_t RandomSource::below(uint32_t limit) {
  Lock lock(mutex_);
  for (;;) {
    const uint64_t drawn = uint64_t{next_half()} << 16 | next_half();
    uint32_t result;
    if (draws_below<32>(drawn, limit, &result)) return result;
  }
}

uint64_t QuickRandom::bits() {
  // xorshift64 (Marsaglia 2003)
  if (state_ == 0) state_ = os::now_ns() ^ reinterpret_cast<uintptr_t>(this) ^ 1;
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return state_;
}

}  // namespace loam
