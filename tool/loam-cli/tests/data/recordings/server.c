#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// 200 blocks that a second thread frees at once, 50 blocks of 1,000 bytes of which 39 are freed.
static void *work(void *argument) {
  for (int i = 0; i < 200; ++i) {
    void *block = malloc(100 + i);
    memset(block, 1, 100);
    free(block);
  }
  return argument;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  char *blocks[50];
  for (int i = 0; i < 50; ++i) {
    blocks[i] = malloc(1000);
    memset(blocks[i], i, 1000);
  }
  blocks[0] = realloc(blocks[0], 5000);
  for (int i = 1; i < 40; ++i) free(blocks[i]);
  void *aligned = aligned_alloc(256, 512);
  pthread_join(thread, NULL);
  return aligned == NULL || blocks[0] == NULL;
}
