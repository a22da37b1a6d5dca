// A program for readers (watched.py): it holds memory, prints its heap's figures, and waits.
#include <cstdio>
#include <cstring>

#include "check.h"
#include "loam/stats.h"

int main() {
  static char* blocks[1000];
  for (char*& block : blocks) {
    block = static_cast<char*>(malloc(40'000));
    CHECK(block != nullptr);
    memset(block, 1, 40'000);
  }
  struct loam_stats stats;
  stats.size = sizeof stats;
  CHECK(loam_stats(nullptr, &stats) == LOAM_OK);
  std::printf("%llu %llu\n", static_cast<unsigned long long>(stats.live_blocks),
              static_cast<unsigned long long>(stats.charged_bytes));
  std::fflush(stdout);
  return getchar() == EOF ? 0 : 1;
}
