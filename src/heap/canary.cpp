#include "heap/canary.h"

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

// The eight bytes that repeat behind a block, first the one for addresses that are multiples of 8. Two rounds of
// multiply and fold (as in wyhash, Wang Yi 2019) keep the secret from showing in one canary.
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

void write_canary(void* block, size_t from, size_t to) {
  const uint64_t pattern = pattern_of(block);
  auto* bytes = static_cast<unsigned char*>(block);
  // Blocks are aligned to 16, so an offset's low bits are its address's.
  for (; from < to && from % 8 != 0; ++from) bytes[from] = static_cast<unsigned char>(pattern >> (from % 8 * 8));
  for (; from + 8 <= to; from += 8) memcpy(bytes + from, &pattern, 8);
  for (; from < to; ++from) bytes[from] = static_cast<unsigned char>(pattern >> (from % 8 * 8));
}

namespace {

bool same_word(const unsigned char* bytes, uint64_t pattern) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return word == pattern;
}

}  // namespace

size_t first_overwritten(const void* block, size_t from, size_t to) {
  const uint64_t pattern = pattern_of(block);
  const auto* bytes = static_cast<const unsigned char*>(block);
  for (; from < to; ++from) {
    while (from % 8 == 0 && from + 8 <= to && same_word(bytes + from, pattern)) from += 8;
    if (from < to && bytes[from] != static_cast<unsigned char>(pattern >> (from % 8 * 8))) return from;
  }
  return to;
}

void report_overflow(const void* block, size_t offset, size_t requested) {
  ReportLine what;
  what.add("overflow: byte ").add_number(offset).add(" of a block of ").add_number(requested);
  report_misuse(what.add(" bytes was overwritten").text(), block);
}

}  // namespace loam
