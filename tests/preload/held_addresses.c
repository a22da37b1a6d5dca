// Under a limit of 3 GB of address space, addresses that the hardened heap holds of freed large
// blocks go back before a request is refused (LOAM_HARDEN=guards, quarantine, all).
#include "check.h"

int main(int count, char** arguments) {
  if (count == 1) {
    const struct rlimit limit = {(size_t)3 << 30, (size_t)3 << 30};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    execl("/proc/self/exe", arguments[0], "limited", NULL);
    CHECK(!"started");
  }
  for (int i = 0; i < 400; ++i) {
    char* const block = opaque(malloc((size_t)10 << 20));
    CHECK(block != NULL);
    block[0] = 1;
    free(block);
  }
  for (size_t i = 0; i < 200; ++i) CHECK(opaque(malloc(100 + i * 100)) != NULL);
  return 0;
}
