/* Programs for the tests of `loam advise`: troubles TROUBLE. Each has one trouble that no allocator
 * cures, and a twin without it. A run takes about a second, so that `loam record` sees its memory
 * often enough.
 *
 *   mixed, apart     long-lived blocks among short-lived ones; all blocks live equally long
 *   above, fitting   blocks of 25 bytes, just above one of glibc's sizes; blocks of 24
 *   steps, doubling  strings that grow by 16 bytes at a time; strings that double
 *   largest, cutoff  a cache that keeps the largest buffer; one that keeps none above 2000 bytes
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t state = 88172645463325252ULL;

static size_t below(size_t most) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (size_t)(state >> 11) % most;
}

static void* block(size_t bytes) {
  void* found = malloc(bytes);
  if (!found) abort();
  return memset(found, 1, bytes);
}

static void rest(long milliseconds) {
  const struct timespec time = {0, milliseconds * 1000000};
  nanosleep(&time, NULL);
}

/* A program's memory from its start. A nearly empty heap could not be replayed well. */
static void begin(void) {
  for (int i = 0; i < 20000; ++i) *(volatile char*)block(100 + below(200)) = 2;
}

enum { BATCH = 30000, BATCHES = 12 };

/* Stacks show which of these two functions allocated a block. */
__attribute__((noinline)) static char* request(void) { return block(200 + below(300)); }
__attribute__((noinline)) static char* session(void) { return block(80 + below(100)); }

/* Each batch of requests leaves some sessions behind, and is then freed as a whole. */
static void serve(int has_sessions) {
  static char* requests[BATCH];
  static char* sessions[BATCHES * BATCH / 12];
  size_t count = 0;
  begin();
  for (int batch = 0; batch < BATCHES; ++batch) {
    for (size_t i = 0; i < BATCH; ++i) {
      requests[i] = request();
      if (has_sessions && i % 12 == 0) sessions[count++] = session();
      if (i % 10000 == 9999) rest(10);
    }
    for (size_t i = 0; i < BATCH; ++i) free(requests[i]);
    rest(80);
  }
  for (size_t i = 0; i < count; ++i) free(sessions[i]);
}

static void fill(size_t bytes) {
  enum { COUNT = 400000 };
  static void* all[COUNT];
  for (size_t i = 0; i < COUNT; ++i) {
    all[i] = block(bytes);
    if (i % 10000 == 9999) rest(10);
  }
  rest(400);
  for (size_t i = 0; i < COUNT; ++i) free(all[i]);
}

static void grow(int doubles) {
  enum { STRINGS = 400 };
  static char* strings[STRINGS];
  static size_t lengths[STRINGS];
  for (int step = 0; step < 400; ++step) {
    for (size_t i = 0; i < STRINGS; ++i) {
      const size_t length = lengths[i] + 16;
      const int is_full = doubles ? (length & (length - 1)) == 0 || !lengths[i] : 1;
      if (is_full) strings[i] = realloc(strings[i], doubles ? 2 * length : length);
      if (!strings[i]) abort();
      memset(strings[i] + lengths[i], 1, 16);
      lengths[i] = length;
    }
    if (step % 4 == 3) rest(10);
  }
  rest(200);
}

/* Article 003's cache of one buffer. */
struct buffer {
  size_t bytes;
};
static struct buffer* cached;
static size_t cutoff;

static struct buffer* get(size_t bytes) {
  if (cached && cached->bytes >= bytes) {
    struct buffer* found = cached;
    cached = NULL;
    return found;
  }
  struct buffer* fresh = block(bytes);
  fresh->bytes = bytes;
  return fresh;
}

static void give_back(struct buffer* buffer) {
  const int is_kept =
      cutoff ? !cached && buffer->bytes <= cutoff : !cached || buffer->bytes > cached->bytes;
  if (!is_kept) {
    free(buffer);
    return;
  }
  free(cached);
  cached = buffer;
}

static void cache(size_t its_cutoff) {
  enum { MOST = 3000 };
  static struct buffer* live[MOST];
  size_t count = 0;
  cutoff = its_cutoff;
  for (int step = 0; step < 200000; ++step) {
    if (count < MOST && (count == 0 || below(16) < 9)) {
      size_t bytes = 1000;
      while (bytes < 1024 * 1024 && below(4) == 0) bytes *= 2;
      live[count++] = get(bytes);
    } else {
      const size_t victim = below(count);
      give_back(live[victim]);
      live[victim] = live[--count];
    }
    if (step % 2000 == 1999) rest(10);
  }
}

int main(int count, char** words) {
  const char* trouble = count > 1 ? words[1] : "";
  if (!strcmp(trouble, "mixed")) return serve(1), 0;
  if (!strcmp(trouble, "apart")) return serve(0), 0;
  if (!strcmp(trouble, "above")) return fill(25), 0;
  if (!strcmp(trouble, "fitting")) return fill(24), 0;
  if (!strcmp(trouble, "steps")) return grow(0), 0;
  if (!strcmp(trouble, "doubling")) return grow(1), 0;
  if (!strcmp(trouble, "largest")) return cache(0), 0;
  if (!strcmp(trouble, "cutoff")) return cache(2000), 0;
  fputs("usage: troubles mixed|apart|above|fitting|steps|doubling|largest|cutoff\n", stderr);
  return 2;
}
