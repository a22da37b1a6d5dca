// Finds lock sections in a stream of atomic operations, whatever the allocator calls its locks.
//
//   begin   a core's read-modify-write with acquire order changes a word from `before`
//   end     the same core, with release order, makes the word `before` again
//
// If another core changes the word in between, or fails to, it has met a held lock. It counts once
// a section. A list that is pushed to and taken from does not restore its word, so it is no lock. A
// bit that one thread claims and gives back is a lock.
#pragma once

#include <bit>
#include <cstdint>
#include <unordered_map>

namespace cores {

class LockFinder {
 public:
  struct Ended {
    bool section = false;
    unsigned collisions = 0;  ///< cores that met the lock while it was held
  };

  /// A word is `before`, and becomes `after`, or stays because a comparison failed.
  Ended change(unsigned core, uintptr_t word, uint64_t before, uint64_t after, bool acquires,
               bool releases) {
    const auto found = open_.find(word);
    if (found == open_.end()) {
      if (acquires && before != after) open_[word] = {before, 0, core};
      return {};
    }
    Section& section = found->second;
    if (section.core != core) {
      section.met |= uint64_t{1} << core;
      return {};
    }
    if (releases && after == section.before) {
      const Ended ended{true, static_cast<unsigned>(std::popcount(section.met))};
      open_.erase(found);
      return ended;
    }
    if (acquires && before != after) section = {before, 0, core};
    return {};
  }

 private:
  struct Section {
    uint64_t before, met;
    unsigned core;
  };
  std::unordered_map<uintptr_t, Section> open_;
};

}  // namespace cores
