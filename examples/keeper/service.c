// A service with a report that takes much memory for a moment, and a little of it for good: what
// lives on lies between what is freed, so that the C library's malloc keeps nearly all of it.
//
//   cc -O1 -pthread -o service service.c && ./service [busy]
//
// It says "ready". `report MIB` makes a report and answers with the resident bytes, `resident`
// answers with these, and `check` with "whole" if all that lives on is as it was. With `busy` a
// second thread calls malloc and free all the time.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kEvery = 200, kMost = 1 << 20 };

static unsigned char *lives[kMost];
static size_t lives_count;
static unsigned seed = 1;

static size_t next_size(void) { return 100 + (size_t)rand_r(&seed) % 1900; }

static void report(size_t bytes) {
  size_t room = bytes / 100 + 1, count = 0;
  unsigned char **all = malloc(room * sizeof *all);
  for (size_t sum = 0; sum < bytes && count < room; count++) {
    size_t size = next_size();
    all[count] = malloc(size);
    memset(all[count], (int)(count % 251), size);
    all[count][0] = (unsigned char)(lives_count % 251);
    sum += size;
  }
  for (size_t i = 0; i < count; i++) {
    if (i % kEvery == 0 && lives_count < kMost) {
      all[i][0] = (unsigned char)(lives_count % 251);
      lives[lives_count++] = all[i];
    } else {
      free(all[i]);
    }
  }
  free(all);
}

static int is_whole(void) {
  for (size_t i = 0; i < lives_count; i++) {
    if (lives[i][0] != i % 251) return 0;
  }
  return 1;
}

static long resident(void) {
  long all = 0, there = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &all, &there) != 2) exit(1);
  fclose(file);
  return there * sysconf(_SC_PAGESIZE);
}

static void *calls(void *nothing) {
  unsigned mine = 7;
  for (;;) {
    void *blocks[50];
    for (int i = 0; i < 50; i++) blocks[i] = malloc(16 + (size_t)rand_r(&mine) % 3000);
    for (int i = 0; i < 50; i++) free(blocks[i]);
    usleep(1000);
  }
  return nothing;
}

int main(int count, char **words) {
  char line[64];
  pthread_t thread;
  if (count > 1 && strcmp(words[1], "busy") == 0) pthread_create(&thread, NULL, calls, NULL);
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) != NULL) {
    size_t mib = 0;
    if (sscanf(line, "report %zu", &mib) == 1) report(mib << 20);
    if (strncmp(line, "check", 5) == 0) {
      puts(is_whole() ? "whole" : "broken");
    } else {
      printf("%ld\n", resident());
    }
    fflush(stdout);
  }
  return 0;
}
