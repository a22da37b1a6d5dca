// Commit charge: the heap's figure is the system's, to the byte. It falls with a purge and rises
// when purged memory is used. If the system refuses that, malloc() returns null, and nothing is
// lost.
#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "check.h"
#include "loam/stats.h"
#include "os/charge.h"
#include "system_calls.h"

namespace {

using system_calls::refusals;

constexpr size_t kMiB = size_t{1} << 20;

// Differences of both counts.
size_t charge() {
  struct loam_stats stats;
  stats.size = sizeof stats;
  CHECK(loam_stats(nullptr, &stats) == LOAM_OK);
  CHECK(stats.charged_bytes == system_calls::committed_bytes());
  return stats.charged_bytes;
}

void trim() { CHECK(loam_trim(nullptr) == LOAM_OK); }

template <size_t kCount>
void fill(char* (&blocks)[kCount], size_t bytes) {
  for (char*& block : blocks) {
    block = static_cast<char*>(malloc(bytes));
    CHECK(block != nullptr);
    memset(block, 7, bytes);
  }
}
template <size_t kCount>
void free_each(char* (&blocks)[kCount], size_t step) {
  for (size_t i = 0; i < kCount; ++i) {
    if (step != 0 && i % step == 0) continue;
    free(blocks[i]);
    blocks[i] = nullptr;
  }
}

char* few[64];
char* many[1 << 14];

void a_purge_lowers_it() {
  trim();
  const size_t before = charge();
  fill(few, kMiB);
  fill(many, 4096);
  const size_t full = charge();
  CHECK(full >= before + 128 * kMiB);
  // Every fourth block stays, and those between are freed.
  free_each(few, 4);
  trim();
  const size_t half = charge();
  CHECK(half <= full - 40 * kMiB);
  free_each(few, 0);
  free_each(many, 0);
  trim();
  CHECK(charge() <= before + 4 * kMiB);
}

void what_went_comes_back_as_zeros() {
  fill(few, kMiB);
  free_each(few, 2);
  trim();
  const size_t without = charge();
  for (char*& block : few) {
    if (block != nullptr) continue;
    block = static_cast<char*>(calloc(1, kMiB));
    CHECK(block != nullptr);
    for (size_t i = 0; i < kMiB; i += 512) CHECK(block[i] == 0);
    memset(block, 9, kMiB);
  }
  CHECK(charge() >= without + 31 * kMiB);
  free_each(few, 0);
}

// Commits are refused once, twice, ..., and for good: for every length of a run, and for blocks
// that grow in place.
void refused_it_is_null_and_nothing_is_lost() {
  unsigned nulls = 0, served = 0;
  for (size_t bytes : {size_t{8192}, size_t{100'000}, kMiB, 5 * kMiB, 40 * kMiB}) {
    fill(few, kMiB);
    free_each(few, 8);
    trim();
    for (int times : {1, 3, 1000}) {
      const size_t before = charge();
      refusals = times;
      errno = 0;
      void* const block = malloc(bytes);
      const bool asked = refusals != times;
      refusals = 0;
      if (block == nullptr) {
        CHECK(asked && errno == ENOMEM);
        CHECK(charge() <= before);
        ++nulls;
      } else {
        memset(block, 1, bytes);
        served += asked;
        free(block);
        trim();
      }
      // The remaining blocks have not changed.
      for (char* one : few) CHECK(one == nullptr || (one[0] == 7 && one[kMiB - 1] == 7));
      char* const zeros = static_cast<char*>(calloc(1, bytes));
      CHECK(zeros != nullptr);
      for (size_t i = 0; i < bytes; i += 512) CHECK(zeros[i] == 0);
      free(zeros);
      trim();
    }
    free_each(few, 0);
  }
  CHECK(nulls != 0 && served != 0);
}

void blocks_that_grow_where_they_stand_are_committed() {
  fill(few, kMiB);
  free_each(few, 2);
  trim();
  for (char*& block : few) {
    if (block == nullptr) continue;
    refusals = block == few[2] ? 1000 : 0;
    char* const longer = static_cast<char*>(realloc(block, kMiB + kMiB / 2));
    CHECK(longer != nullptr || refusals != 0);
    refusals = 0;
    const char* const kept = longer != nullptr ? longer : block;
    CHECK(kept[0] == 7 && kept[kMiB - 1] == 7);
    if (longer == nullptr) continue;
    memset(longer, 8, kMiB + kMiB / 2);
    block = longer;
  }
  static_cast<void>(charge());
  free_each(few, 0);
}

}  // namespace

int main() {
  a_purge_lowers_it();
  what_went_comes_back_as_zeros();
  refused_it_is_null_and_nothing_is_lost();
  blocks_that_grow_where_they_stand_are_committed();
  return 0;
}
