// Requests of a server. Each has many blocks of its own, which are freed with it. It leaves one
// block of a session and, one time in four, one of a log. The remaining blocks lie among freed
// ones: sessions keep most of the sparse pages, the log a quarter of that.
//
//   pins [apart]    `apart`: these blocks come before all requests, and keep almost no sparse pages
//
// At its end it prints the places of its blocks, a line each: site, address, size. Then it waits
// for the end of its input.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRequests = 4000, kBlocks = 60, kSession = 120, kLog = 120 };

static void* sessions[kRequests];
static void* logs[kRequests];

__attribute__((noinline)) void* remembers_a_session(void) {
  return memset(malloc(kSession), 1, kSession);
}

__attribute__((noinline)) void* writes_a_log(void) { return memset(malloc(kLog), 1, kLog); }

__attribute__((noinline)) void serves(int request, void** blocks) {
  for (int i = 0; i < kBlocks; ++i) {
    size_t size = 64 + (size_t)((request * 31 + i * 17) % 200);
    blocks[i] = memset(malloc(size), 1, size);
    if (i == kBlocks / 2 && !sessions[request]) sessions[request] = remembers_a_session();
    if (i == kBlocks / 4 && request % 4 == 0 && !logs[request]) logs[request] = writes_a_log();
  }
}

static void* all[kRequests][kBlocks];

int main(int count, char** arguments) {
  static char buffer[1 << 16];
  setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  if (count > 1 && strcmp(arguments[1], "apart") == 0) {
    for (int i = 0; i < kRequests; ++i) {
      sessions[i] = remembers_a_session();
      if (i % 4 == 0) logs[i] = writes_a_log();
    }
  }
  for (int i = 0; i < kRequests; ++i) serves(i, all[i]);
  for (int i = 0; i < kRequests; ++i)
    for (int j = 0; j < kBlocks; ++j) free(all[i][j]);
  for (int i = 0; i < kRequests; ++i) {
    printf("remembers_a_session %zu %d\n", (size_t)sessions[i], kSession);
    if (logs[i]) printf("writes_a_log %zu %d\n", (size_t)logs[i], kLog);
  }
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}
