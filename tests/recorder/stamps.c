// Events of a process's only thread share stamps, but not over pauses. As soon as another thread
// has allocated, none does.
#include <pthread.h>
#include <unistd.h>

#include "program.h"

enum { kBlocks = 20000, kPauses = 8, kPause = 100000 };

static void* once(void* unused) {
  free(malloc(802));
  return unused;
}

static void allocate(size_t size) {
  for (int i = 0; i < kBlocks; ++i) free(malloc(size));
}

int main(void) {
  allocate(801);
  for (int i = 0; i < kPauses; ++i) {
    free(malloc(804));
    usleep(kPause);
  }
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, once, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  allocate(803);
  expect_size(801, kBlocks, kBlocks);
  expect_size(803, kBlocks, kBlocks);
  printf("expect shared 801\nexpect own 803\nexpect apart 804\n");
  return 0;
}
