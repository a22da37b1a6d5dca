// The heap's part of this process's anonymous memory: mappings in which a block was ever seen.
//
// A map of granules of 64 KiB, one bit each over 2^47 bytes, has a bit for each in which a block
// began. It is sparse: a page of it stands for 2 GiB of addresses.
#pragma once

#include <atomic>
#include <cstdint>

#include "own.h"

namespace replay {

class Residence {
 public:
  Residence()
      : words_(static_cast<std::atomic<uint64_t>*>(own_memory(kGranules / 8, false))),
        buffer_(static_cast<char*>(own_memory(kBuffer, true))) {}

  void saw(const void* block) {
    const uint64_t granule = reinterpret_cast<uint64_t>(block) >> kShift;
    if (granule >= kGranules) return;
    auto& word = words_[granule / 64];
    const uint64_t bit = uint64_t{1} << (granule % 64);
    // Relaxed: read only at samples, where every thread has come to the barrier.
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }

  // Resident anonymous bytes of mappings that hold a block.
  uint64_t heap_bytes() const {
    const int file = ::open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (file < 0) lab::fail(lab::kExitFailed, "replay: cannot read /proc/self/smaps");
    uint64_t sum = 0;
    bool is_heap = false;
    size_t used = 0;
    for (;;) {
      const ssize_t n = ::read(file, buffer_ + used, kBuffer - used);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      used += static_cast<size_t>(n);
      size_t begin = 0;
      for (size_t at = 0; at < used; ++at) {
        if (buffer_[at] != '\n') continue;
        line({buffer_ + begin, at - begin}, is_heap, sum);
        begin = at + 1;
      }
      // A line that is longer than the buffer has a long name, which is not needed.
      if (begin == 0 && used == kBuffer) begin = used;
      std::memmove(buffer_, buffer_ + begin, used - begin);
      used -= begin;
    }
    ::close(file);
    return sum;
  }

 private:
  static constexpr unsigned kShift = 16;
  static constexpr uint64_t kGranules = uint64_t{1} << (47 - kShift);
  static constexpr size_t kBuffer = 1 << 16;

  void line(std::string_view text, bool& is_heap, uint64_t& sum) const {
    uint64_t first = 0, end = 0;
    size_t at = 0;
    if (hex(text, at, first) && at < text.size() && text[at] == '-' && hex(text, ++at, end)) {
      is_heap = holds_block(first, end);
      return;
    }
    constexpr std::string_view kName = "Anonymous:";
    if (!is_heap || !text.starts_with(kName)) return;
    uint64_t kb = 0;
    for (const char c : text.substr(kName.size())) {
      if (c >= '0' && c <= '9') kb = kb * 10 + static_cast<uint64_t>(c - '0');
    }
    sum += kb * 1024;
  }

  static bool hex(std::string_view text, size_t& at, uint64_t& value) {
    const size_t begin = at;
    for (; at < text.size(); ++at) {
      const char c = text[at];
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) break;
      value = value << 4 | static_cast<uint64_t>(digit);
    }
    return at > begin;
  }

  bool holds_block(uint64_t first, uint64_t end) const {
    uint64_t granule = first >> kShift;
    const uint64_t last = (end - 1) >> kShift;
    if (last >= kGranules) return false;
    while (granule <= last) {
      const uint64_t word = words_[granule / 64].load(std::memory_order_relaxed) >> (granule % 64);
      const uint64_t left = last - granule + 1, bits = 64 - granule % 64;
      const uint64_t mask = left < bits ? (uint64_t{1} << left) - 1 : ~uint64_t{0};
      if (word & mask) return true;
      granule += bits;
    }
    return false;
  }

  std::atomic<uint64_t>* words_;
  char* buffer_;
};

}  // namespace replay
