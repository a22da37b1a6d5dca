// The cache lines of many cores under the MESI protocol: which cores hold a line, and which core
// wrote to it last.
//
//   a line:  holders (a bit a core)    dirty (the core whose write is in no other place, or none)
//   dirty != none  =>  holders == {dirty}
//
// Each core has a cache without limit, so a line leaves a cache only because of another core. A
// read or a write has one of these outcomes; all but the first two are traffic between cores:
//
//   kHit           the core holds the line, and alone where it writes
//   kCold          no other core has written to the line since this core had it (memory serves it)
//   kReadMoved     the line is read, and was modified in another core's cache
//   kWriteMoved    the line is written, and was modified in another core's cache
//   kInvalidated   the line is written, and other cores have clean copies, which become invalid
//
// One thread uses a directory at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace cores {

inline constexpr unsigned kMostCores = 64;
inline constexpr size_t kLine = 64;

enum class Outcome : uint8_t { kHit, kCold, kReadMoved, kWriteMoved, kInvalidated };

class Directory {
 public:
  Outcome read(unsigned core, uintptr_t address) {
    Line& line = find(address);
    if (holds(line, core)) return Outcome::kHit;
    const bool moved = line.dirty != kNone;
    line.dirty = kNone;
    line.holders |= bit(core);
    return moved ? Outcome::kReadMoved : Outcome::kCold;
  }

  Outcome write(unsigned core, uintptr_t address) {
    Line& line = find(address);
    const Line old = line;
    line = {bit(core), static_cast<uint8_t>(core)};
    if (old.dirty != kNone) return old.dirty == core ? Outcome::kHit : Outcome::kWriteMoved;
    if ((old.holders & ~bit(core)) != 0) return Outcome::kInvalidated;
    return old.holders != 0 ? Outcome::kHit : Outcome::kCold;
  }

  /// The system has the memory back, so its lines are in no cache.
  void drop(uintptr_t address, size_t bytes) {
    for (uintptr_t page = address / kPage; page < (address + bytes) / kPage; ++page) {
      pages_.erase(page);
    }
    last_ = nullptr;
  }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr uint8_t kNone = 0xff;
  struct Line {
    uint64_t holders = 0;
    uint8_t dirty = kNone;
  };
  using Page = std::array<Line, kPage / kLine>;

  static constexpr uint64_t bit(unsigned core) { return uint64_t{1} << core; }
  static bool holds(const Line& line, unsigned core) { return (line.holders & bit(core)) != 0; }
  Line& find(uintptr_t address) {
    const uintptr_t page = address / kPage;
    if (last_ == nullptr || page != last_page_) {
      last_ = &pages_[page];
      last_page_ = page;
    }
    return (*last_)[address % kPage / kLine];
  }

  std::unordered_map<uintptr_t, Page> pages_;  // other pages do not move when a page is added
  uintptr_t last_page_ = 0;
  Page* last_ = nullptr;
};

}  // namespace cores
