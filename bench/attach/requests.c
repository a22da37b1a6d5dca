/* A server of requests, and a client that times it: requests SOCKET serve | SOCKET ask SECONDS
 *
 * The server has a thread for each of four connections. A request allocates 40 blocks of mixed
 * sizes, writes to each, frees all but one, and keeps that one in the place of an older one. The
 * client asks 500 times a second on each connection, at times that are set before: a request that
 * waits because an earlier one took long counts from the time at which it was due (Gil Tene,
 * "coordinated omission"). It prints how many there were, and p50, p99, p99.9 and the longest, in
 * microseconds. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { kConnections = 4, kEach = 500, kBlocks = 40, kKept = 2000 };

static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void fail(const char *what) {
  fprintf(stderr, "requests: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void *serve(void *given) {
  const int connection = (int)(long)given;
  static __thread char *kept[kKept];
  unsigned seed = (unsigned)connection;
  char *blocks[kBlocks], request;
  while (read(connection, &request, 1) == 1) {
    for (int i = 0; i < kBlocks; ++i) {
      seed = seed * 1103515245u + 12345u;
      const size_t size = 16 + (seed >> 12) % 2000;
      blocks[i] = malloc(size);
      memset(blocks[i], i, size);
    }
    char **const place = &kept[(seed >> 8) % kKept];
    free(*place);
    *place = blocks[0];
    for (int i = 1; i < kBlocks; ++i) free(blocks[i]);
    if (write(connection, &request, 1) != 1) break;
  }
  close(connection);
  return NULL;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double begun, *took[kConnections];
static int count;

static void *ask(void *given) {
  const long me = (long)given;
  const int connection = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(connection, (struct sockaddr *)&address, sizeof(address)) != 0) fail("connect");
  for (int i = 0; i < count; ++i) {
    const double due = begun + ((double)i + (double)me / kConnections) / kEach;
    const struct timespec at = {(time_t)due, (long)((due - (double)(time_t)due) * 1e9)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    char request = 1;
    if (write(connection, &request, 1) != 1 || read(connection, &request, 1) != 1) fail("ask");
    took[me][i] = now() - due;
  }
  close(connection);
  return NULL;
}

static int less(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int words, char **word) {
  if (words < 3) return 2;
  strncpy(address.sun_path, word[1], sizeof(address.sun_path) - 1);
  pthread_t thread;
  if (strcmp(word[2], "serve") == 0) {
    const int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&address, sizeof(address)) != 0) fail(word[1]);
    if (listen(listening, kConnections) != 0) fail("listen");
    puts("ready");
    fflush(stdout);
    for (;;) {
      const long connection = accept(listening, NULL, NULL);
      if (connection < 0) fail("accept");
      if (pthread_create(&thread, NULL, serve, (void *)connection) != 0) fail("thread");
      pthread_detach(thread);
    }
  }
  if (words < 4) return 2;
  count = atoi(word[3]) * kEach;
  begun = now() + 0.01;
  pthread_t threads[kConnections];
  for (long i = 0; i < kConnections; ++i) {
    took[i] = calloc((size_t)count, sizeof(double));
    if (pthread_create(&threads[i], NULL, ask, (void *)i) != 0) fail("thread");
  }
  const int all = count * kConnections;
  double *const sorted = malloc((size_t)all * sizeof(double));
  for (int i = 0; i < kConnections; ++i) {
    pthread_join(threads[i], NULL);
    memcpy(sorted + i * count, took[i], (size_t)count * sizeof(double));
  }
  qsort(sorted, (size_t)all, sizeof(double), less);
  printf("%d %.0f %.0f %.0f %.0f\n", all, 1e6 * sorted[all / 2], 1e6 * sorted[all / 100 * 99],
         1e6 * sorted[all / 1000 * 999], 1e6 * sorted[all - 1]);
  return 0;
}
