#include "heap/quarantine.h"

#include <cstring>

#include "base/check.h"
#include "map/own_table.h"
#include "os/fatal.h"

namespace loam {

bool Quarantine::start(size_t limit_bytes) {
  // A place for every 32 bytes: smaller blocks run out of places before they run out of bytes.
  const size_t places = limit_bytes / 32 < 64 ? 64 : limit_bytes / 32;
  ring_ = static_cast<Entry*>(map_own_table(places * sizeof(Entry)));
  if (ring_ == nullptr) return false;
  capacity_ = places;
  limit_ = limit_bytes;
  return true;
}

unsigned Quarantine::make_room(size_t bytes, Entry out[kMostOut]) {
  Lock lock(mutex_);
  unsigned taken = 0;
  while (taken < kMostOut && count_ != 0 && (count_ == capacity_ || held_bytes_ + bytes > limit_)) {
    out[taken] = ring_[first_];
    held_bytes_ -= out[taken++].bytes;
    first_ = (first_ + 1) % capacity_;
    --count_;
  }
  return taken;
}

bool Quarantine::push(const Entry& entry) {
  Lock lock(mutex_);
  if (count_ == capacity_ || held_bytes_ + entry.bytes > limit_) return false;
  ring_[(first_ + count_) % capacity_] = entry;
  ++count_;
  held_bytes_ += entry.bytes;
  return true;
}

void poison(void* block, size_t bytes) { memset(block, Quarantine::kPoison, bytes); }

size_t first_unpoisoned(const void* block, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(block);
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, at + i, sizeof word);
    if (word != Quarantine::kPoison * 0x0101010101010101u) break;
  }
  while (i < bytes && at[i] == Quarantine::kPoison) ++i;
  return i;
}

void report_poison(const void* block, size_t offset) {
  ReportLine what;
  what.add("use after free: byte ").add_number(offset).add(" of a freed block was overwritten");
  report_misuse(what.text(), block);
}

}  // namespace loam
