// Ten thousand threads in waves use few rings. Each leaves a block to the next wave.
#include <pthread.h>

#include "program.h"

enum { kWaves = 1250, kWidth = 8 };

static void* wave(void* left) {
  free(left);
  free(malloc(601));
  return malloc(602);
}

int main(void) {
  void* left[kWidth] = {NULL};
  for (int i = 0; i < kWaves; ++i) {
    pthread_t threads[kWidth];
    for (int k = 0; k < kWidth; ++k) CHECK(pthread_create(&threads[k], NULL, wave, left[k]) == 0);
    for (int k = 0; k < kWidth; ++k) CHECK(pthread_join(threads[k], &left[k]) == 0);
  }
  for (int k = 0; k < kWidth; ++k) free(left[k]);
  expect_size(601, kWaves * kWidth, kWaves * kWidth);
  expect_size(602, kWaves * kWidth, kWaves * kWidth);
  printf("expect threads %d\nexpect rings 64\n", kWaves * kWidth + 1);
  return 0;
}
