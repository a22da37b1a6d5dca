// A process that ends while its threads allocate. It must end, and with the given code.
#include <windows.h>

#include <cstdlib>
#include <thread>

#include "check.h"

namespace {

struct AtEnd {
  ~AtEnd() {
    for (size_t i = 0; i < 1'000; ++i) free(malloc(i * 50));
  }
};
AtEnd at_end;

}  // namespace

int main() {
  for (int i = 0; i < 4; ++i) {
    std::thread([] {
      void* blocks[64] = {};
      for (size_t n = 0;; ++n) {
        free(blocks[n % 64]);
        blocks[n % 64] = malloc(n * 37 % 100'000);
      }
    }).detach();
  }
  Sleep(50);
  exit(42);
}
