/* The first thread ends. Another one holds the memory, and ends the process when its input says so
 * or after a while. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* stay(void* nothing) {
  (void)nothing;
  char* blocks[32];
  for (int i = 0; i < 32; ++i) {
    blocks[i] = malloc(1 << 20);
    memset(blocks[i], 1, 1 << 20);
    usleep(100 * 1000);
  }
  for (int i = 0; i < 32; ++i) free(blocks[i]);
  exit(0);
}

int main(void) {
  pthread_t other;
  pthread_create(&other, 0, stay, 0);
  pthread_exit(0);
}
