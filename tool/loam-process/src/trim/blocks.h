// A heap of 20 MB, of which a fortieth lives, for the programs that tests trim.
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kBlocks = 2000, kSize = 10000, kEvery = 40 };
static unsigned char* blocks[kBlocks];

static inline void fail(const char* what) {
  printf("broken: %s: %s\n", what, strerror(errno));
  fflush(stdout);
  _exit(3);
}

static inline void check(int at) {
  for (int byte = 0; byte < kSize; byte++) {
    if (blocks[at][byte] != (unsigned char)at) fail("a byte of a block");
  }
}

static inline void check_all(void) {
  for (int at = 0; at < kBlocks; at += kEvery) check(at);
}

// Each turn fills the heap's first part anew, so that each trim has work.
static inline void churn(int count) {
  for (int at = 0; at < count; at++) {
    if (blocks[at] == NULL) blocks[at] = malloc(kSize);
    memset(blocks[at], at, kSize);
  }
  for (int at = 0; at < count; at++) {
    check(at);
    if (at % kEvery == 0) continue;
    free(blocks[at]);
    blocks[at] = NULL;
  }
}
