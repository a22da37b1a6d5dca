#include "map/metadata.h"

#include <cstring>

#include "base/bits.h"
#include "base/check.h"
#include "base/units.h"

namespace loam {

constinit MetadataArena metadata;

unsigned MetadataArena::size_index(size_t bytes) {
  if (bytes <= kSmallestPiece) return 0;
  return highest_bit(bytes - 1) + 1 - 6;
}

alignas(kPageBytes) constinit char MetadataArena::first_chunk_[kFirstChunk] = {};

namespace {

constexpr size_t kCommitStep = size_t{64} << 10;
constexpr size_t kUnitsPerPage = kPageBytes / MetadataArena::kSmallestPiece;

}  // namespace

bool MetadataArena::add_chunk() {
  if (this == &metadata && bump_ == nullptr) {
    bump_ = first_chunk_;
    committed_ = end_ = bump_ + kFirstChunk;
    return true;
  }
  char* const chunk = static_cast<char*>(os::reserve_metadata(kChunk, kChunk));
  if (chunk == nullptr) return false;
  char* const begin = chunk + kGuard;
  if (os::commit_more(begin, kCommitStep) != os::Committed::kYes) {
    os::give_up(chunk, kChunk);
    return false;
  }
  Chunk* const header = reinterpret_cast<Chunk*>(begin);
  header->next = chunks_;
  chunks_ = header;
  bump_ = begin + round_up(sizeof(Chunk), kSmallestPiece);
  committed_ = begin + kCommitStep;
  end_ = chunk + kChunk - kGuard;
  return true;
}

// Moves bump_ to a place where a piece of that size may start, with room behind it. The gap before
// it becomes smaller pieces, but not in the library's own memory, whose pages never go back.
bool MetadataArena::make_room(size_t size) {
  size_t gap = 0;
  for (;;) {
    if (chunk_of(bump_) != nullptr) gap = -reinterpret_cast<uintptr_t>(bump_) & (size - 1);
    if (bump_ != nullptr && static_cast<size_t>(end_ - bump_) >= gap + size) break;
    if (!add_chunk()) return false;
  }
  while (static_cast<size_t>(committed_ - bump_) < gap + size) {
    // Commits in steps, so that overcommit_memory=2 is charged only for used memory.
    const os::Committed got = os::commit_more(committed_, kCommitStep);
    if (got == os::Committed::kTaken) end_ = committed_;
    if (got != os::Committed::kYes) return got == os::Committed::kTaken && make_room(size);
    committed_ += kCommitStep;
  }
  change(held_bytes_, gap);
  while (gap != 0) {
    const size_t piece = reinterpret_cast<uintptr_t>(bump_) & -reinterpret_cast<uintptr_t>(bump_);
    push(bump_, size_index(piece));
    bump_ += piece;
    gap -= piece;
  }
  return true;
}

// The piece's chunk; null for a piece of the library's own memory, and for null.
MetadataArena::Chunk* MetadataArena::chunk_of(const void* piece) const {
  const uintptr_t address = reinterpret_cast<uintptr_t>(piece);
  if (address == 0) return nullptr;
  if (address - reinterpret_cast<uintptr_t>(first_chunk_) < kFirstChunk) return nullptr;
  return reinterpret_cast<Chunk*>((address & ~(kChunk - 1)) + kGuard);
}

// Counts a piece that has joined or left the free pieces.
void MetadataArena::count_free(const FreePiece* piece, bool is_free) {
  Chunk* const chunk = chunk_of(piece);
  if (chunk == nullptr) return;
  const size_t size = kSmallestPiece << piece->index;
  const size_t here = (size < kPageBytes ? size : kPageBytes) / kSmallestPiece;
  const size_t first =
      (reinterpret_cast<uintptr_t>(piece) - reinterpret_cast<uintptr_t>(chunk)) >> kPageShift;
  uint32_t idle = idle_pages_.load(std::memory_order_relaxed);
  for (size_t p = first; p == first || p < first + (size >> kPageShift); ++p) {
    const size_t before = chunk->free_units[p], after = is_free ? before + here : before - here;
    chunk->free_units[p] = static_cast<uint8_t>(after);
    idle += uint32_t{after == kUnitsPerPage};
    idle -= uint32_t{before == kUnitsPerPage};
  }
  idle_pages_.store(idle, std::memory_order_relaxed);
}

void MetadataArena::push(void* place, unsigned index) {
  FreePiece* const piece = static_cast<FreePiece*>(place);
  piece->next = free_[index];
  piece->previous = nullptr;
  piece->index = index;
  if (piece->next != nullptr) piece->next->previous = piece;
  free_[index] = piece;
  count_free(piece, true);
}

void MetadataArena::take_out(FreePiece* piece) {
  if (piece->next != nullptr) piece->next->previous = piece->previous;
  (piece->previous != nullptr ? piece->previous->next : free_[piece->index]) = piece->next;
  count_free(piece, false);
}

// Cuts a range into free pieces; the lowest is handed out next. pre: no piece lies there
void MetadataArena::cut(char* begin, size_t bytes, unsigned index) {
  const size_t size = kSmallestPiece << index;
  for (size_t left = bytes; left != 0; left -= size) push(begin + left - size, index);
}

// Turns a purged page into pieces of that size; for a larger size it joins adjacent purged pages.
void MetadataArena::use_gone(unsigned index) {
  const size_t size = kSmallestPiece << index;
  const unsigned wanted = size <= kPageBytes ? 1 : static_cast<unsigned>(size >> kPageShift);
  for (Chunk* chunk = chunks_; chunk != nullptr; chunk = chunk->next) {
    // A chunk's pages are numbered from an address with the alignment of the largest piece.
    for (unsigned first = 0; (first = chunk->gone.find_set(first)) < kChunkPages;
         first = (first / wanted + 1) * wanted) {
      if (first % wanted != 0 || chunk->gone.find_clear(first) < first + wanted) continue;
      chunk->gone.clear_range(first, wanted);
      gone_pages_ -= wanted;
      change(held_bytes_, Pages(wanted).bytes());
      return cut(reinterpret_cast<char*>(chunk) + Pages(first).bytes(), Pages(wanted).bytes(),
                 index);
    }
  }
}

void MetadataArena::stop_reserving() {
  Lock lock(mutex_);
  if (!os::is_reserving()) return;
  if (chunks_ != nullptr && chunk_of(bump_) != nullptr && committed_ != end_) {
    os::release(committed_, static_cast<size_t>(end_ - committed_));
  }
  os::stop_reserving();
}

void* MetadataArena::allocate(size_t bytes) {
  const unsigned index = size_index(bytes);
  LOAM_ASSERT(index < kSizes);
  const size_t size = kSmallestPiece << index;
  Lock lock(mutex_);
  if (LOAM_UNLIKELY(gone_pages_ != 0) && free_[index] == nullptr) use_gone(index);
  void* place = free_[index];
  if (place != nullptr) {
    take_out(free_[index]);
    memset(place, 0, size);
  } else {
    if (!make_room(size)) return nullptr;
    place = bump_;  // the system's pages are zero at first
    bump_ += size;
    change(held_bytes_, size);
  }
  change(used_bytes_, size);
  return place;
}

void MetadataArena::free(void* piece, size_t bytes) {
  const unsigned index = size_index(bytes);
  Lock lock(mutex_);
  push(piece, index);
  change(used_bytes_, -(kSmallestPiece << index));
}

// Purges the system's pages that lie inside the run. pre: the run's pages hold only free pieces
size_t MetadataArena::purge_run(Chunk* chunk, unsigned first, unsigned count) {
  const size_t grain = os::granularity(), from = round_up(Pages(first).bytes(), grain);
  const size_t to = Pages(first + count).bytes() / grain * grain;
  if (from >= to) return 0;
  const size_t bytes = to - from;
  char* const begin = reinterpret_cast<char*>(chunk) + from;
  for (size_t at = 0; at < bytes;) {
    FreePiece* const piece = reinterpret_cast<FreePiece*>(begin + at);
    at += kSmallestPiece << piece->index;
    take_out(piece);
  }
  if (!os::purge(begin, bytes)) {
    cut(begin, bytes, size_index(kPageBytes));
    return 0;
  }
  const unsigned pages = static_cast<unsigned>(bytes >> kPageShift);
  chunk->gone.set_range(static_cast<unsigned>(from >> kPageShift), pages);
  gone_pages_ += pages;
  change(held_bytes_, -bytes);
  return bytes;
}

size_t MetadataArena::purge(size_t most) {
  if (idle_bytes() == 0) return 0;
  size_t purged = 0;
  Lock lock(mutex_);
  for (Chunk* chunk = chunks_; chunk != nullptr && purged < most; chunk = chunk->next) {
    for (unsigned first = 0; first < kChunkPages && purged < most;) {
      unsigned end = first;
      while (end < kChunkPages && chunk->free_units[end] == kUnitsPerPage) ++end;
      if (end != first) purged += purge_run(chunk, first, end - first);
      first = end + 1;
    }
  }
  return purged;
}

}  // namespace loam
