// A program with 800 KB of static thread-local memory. The C library takes it out of each thread's
// stack, and the thread that purges in the background starts all the same.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local volatile char large[800 << 10];

static int threads(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == NULL) _exit(77);
  while (readdir(tasks) != NULL) ++count;
  closedir(tasks);
  return count - 2;
}

int main(int count, char** arguments) {
  (void)arguments;
  large[count] = 1;
  static void* blocks[2000];
  // The thread starts at one of these calls.
  for (int i = 0; i < 2000; ++i) memset(blocks[i] = malloc(100000), 1, 100000);
  for (int i = 0; i < 2000; ++i) free(blocks[i]);
  while (threads() < 2) {
    free(malloc(100000));
    usleep(1000);
  }
  return 0;
}
