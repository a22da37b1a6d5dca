#include "hardening/canary.h"

#include <atomic>
#include <cstring>

#include "base/check.h"
#include "os/fatal.h"
#include "os/mutex.h"
#include "os/os.h"

namespace loam {

namespace {

constinit Mutex canary_mutex;
constinit std::atomic<bool> canary_drawn{false};
constinit uint64_t canary_secret[2] = {};

// The eight bytes that repeat behind a block; the first is for addresses that are multiples of 8.
// Two rounds of multiply and fold (as in wyhash, Wang Yi 2019) keep one canary from revealing the
// secret.
uint64_t pattern_of(const void* block) {
  uint64_t x = reinterpret_cast<uintptr_t>(block) ^ canary_secret[0];
  for (int round = 0; round < 2; ++round) {
    const auto product = static_cast<unsigned __int128>(x ^ canary_secret[1]) * 0x9e3779b97f4a7c15u;
    x = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  return x | 0x0101010101010101u;  // no zero byte
}

}  // namespace

void start_canaries() {
  // acquire: pairs with the release below, which publishes the secret
  if (canary_drawn.load(std::memory_order_acquire)) return;
  Lock lock(canary_mutex);
  if (canary_drawn.load(std::memory_order_relaxed)) return;
  os::random_bytes(canary_secret, sizeof canary_secret);
  canary_drawn.store(true, std::memory_order_release);
}

namespace {

// Those bytes of a word that lie at its address and the `skipped` ones behind it. (Little-endian,
// as pattern_of() has it.)
constexpr uint64_t bytes_from(size_t skipped) { return ~uint64_t{0} << (skipped * 8); }

uint64_t word_at(const void* at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

// Blocks are aligned to 16 and slots are whole words, so an offset's low bits are its address's,
// and the word in which a canary begins is the block's.
void write_canary(void* block, size_t from, size_t to) {
  const uint64_t pattern = pattern_of(block);
  auto* bytes = static_cast<unsigned char*>(block);
  if (from >= to) return;
  if (from % 8 != 0) {
    const uint64_t mask = bytes_from(from % 8);
    from -= from % 8;
    const uint64_t word = (word_at(bytes + from) & ~mask) | (pattern & mask);
    memcpy(bytes + from, &word, sizeof word);
    from += 8;
  }
  for (; from < to; from += 8) memcpy(bytes + from, &pattern, sizeof pattern);
}

size_t first_overwritten(const void* block, size_t from, size_t to) {
  const uint64_t pattern = pattern_of(block);
  const auto* bytes = static_cast<const unsigned char*>(block);
  const auto is_whole = [&](size_t at) {
    return bytes[at] == static_cast<unsigned char>(pattern >> (at % 8 * 8));
  };
  size_t at = from;
  // The program may write the bytes before `from` meanwhile, so their word is not read as a whole.
  for (; at % 8 != 0; ++at) {
    if (LOAM_UNLIKELY(!is_whole(at))) return at;
  }
  for (; at < to; at += 8) {
    if (LOAM_UNLIKELY(word_at(bytes + at) != pattern)) break;
  }
  while (at < to && is_whole(at)) ++at;
  return at;
}

void report_overflow(const void* block, size_t offset, size_t requested, Mutex* held) {
  ReportLine what;
  what.add("overflow: byte ").add_number(offset).add(" of a block of ").add_number(requested);
  report_misuse(what.add(" bytes was overwritten").text(), block, held);
}

}  // namespace loam
