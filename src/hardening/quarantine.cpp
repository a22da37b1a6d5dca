#include "hardening/quarantine.h"

#include <cstring>

#include "base/check.h"
#include "base/cpu.h"
#include "map/own_table.h"
#include "os/fatal.h"

namespace loam {

namespace {

// Blocks that come out before the prefetched one. Chosen: some hundred nanoseconds of calls.
constexpr size_t kAhead = 4;

}  // namespace

bool Quarantine::start(size_t limit_bytes) {
  // One place in the ring for every 32 bytes: smaller blocks use up the places before the bytes.
  size_t places = 64;
  while (places < limit_bytes / 32) places *= 2;
  mask_ = places - 1;
  limit_ = limit_bytes;
  Lock lock(stripes_[0].mutex);
  if (open(stripes_[0])) return true;
  limit_ = 0;
  return false;
}

bool Quarantine::open(Stripe& stripe) {
  stripe.ring = static_cast<Entry*>(map_own_table((mask_ + 1) * sizeof(Entry)));
  if (stripe.ring == nullptr) return false;
  // relaxed: a stripe that learns of its smaller share late gives blocks back late
  share_.store(limit_ / (in_use_.fetch_add(1, std::memory_order_relaxed) + 1),
               std::memory_order_relaxed);
  return true;
}

unsigned Quarantine::exchange(unsigned thread, const Entry& entry, Entry out[kMostOut],
                              bool* pushed) {
  Stripe& stripe = stripes_[thread % kStripes];
  Lock lock(stripe.mutex);
  if (LOAM_UNLIKELY(stripe.ring == nullptr) && !open(stripe)) {
    // There is no memory for a ring: the block is not held back.
    out[0] = entry;
    *pushed = true;
    return 1;
  }
  const size_t share = share_.load(std::memory_order_relaxed);
  // A block that comes out soon was written long ago, and is in no near cache. It is prefetched
  // now, so that it is near by then.
  if (stripe.count > kAhead) {
    const Entry& soon = stripe.ring[(stripe.first + kAhead) & mask_];
    prefetch_for_write(soon.block);
  }
  unsigned taken = 0;
  while (taken < kMostOut && stripe.count != 0 &&
         (stripe.count > mask_ || stripe.held_bytes + entry.bytes > share)) {
    out[taken] = stripe.ring[stripe.first];
    stripe.held_bytes -= out[taken++].bytes;
    stripe.first = (stripe.first + 1) & mask_;
    --stripe.count;
  }
  // A single block may be larger than a share.
  *pushed =
      stripe.count <= mask_ && (stripe.count == 0 || stripe.held_bytes + entry.bytes <= share);
  if (LOAM_LIKELY(*pushed)) {
    stripe.ring[(stripe.first + stripe.count++) & mask_] = entry;
    stripe.held_bytes += entry.bytes;
  }
  return taken;
}

void Quarantine::lock() {
  for (Stripe& stripe : stripes_) stripe.mutex.lock();
}

void Quarantine::unlock() {
  for (Stripe& stripe : stripes_) stripe.mutex.unlock();
}

void Quarantine::reset_after_fork() {
  for (Stripe& stripe : stripes_) stripe.mutex.reset_after_fork();
}

void poison(void* block, size_t bytes) { memset(block, Quarantine::kPoison, bytes); }

size_t first_unpoisoned(const void* block, size_t bytes) {
  constexpr uint64_t kWord = Quarantine::kPoison * 0x0101010101010101u;
  constexpr size_t kBegin = 4 * sizeof(uint64_t);
  const auto* at = static_cast<const unsigned char*>(block);
  // Compares the first words, and then every byte with the byte kBegin before it: the C library
  // compares many at a time.
  if (LOAM_LIKELY(bytes >= kBegin)) {
    uint64_t word[4];
    memcpy(word, at, sizeof word);
    const uint64_t wrong =
        (word[0] ^ kWord) | (word[1] ^ kWord) | (word[2] ^ kWord) | (word[3] ^ kWord);
    if (LOAM_LIKELY(wrong == 0 && memcmp(at, at + kBegin, bytes - kBegin) == 0)) return bytes;
  }
  size_t i = 0;
  while (i < bytes && at[i] == Quarantine::kPoison) ++i;
  return i;
}

void report_poison(const void* block, size_t offset, Mutex* held) {
  ReportLine what;
  what.add("use after free: byte ").add_number(offset).add(" of a freed block was overwritten");
  report_misuse(what.text(), block, held);
}

}  // namespace loam
