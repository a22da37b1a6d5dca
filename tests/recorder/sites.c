// Three functions that allocate, each a known number of bytes. One keeps its blocks, one frees at
// once, and one grows a block. The stacks of a recording must show this, within their error.
#include "../../include/loam/record.h"

#include <stdlib.h>
#include <string.h>

static void* kept[4000];

__attribute__((noinline)) void keeps_blocks(void) {
  for (int i = 0; i < 4000; ++i) memset(kept[i] = malloc(10000), 1, 10000);
}

__attribute__((noinline)) void frees_at_once(void) {
  for (int i = 0; i < 200000; ++i) {
    volatile char* block = malloc(300);
    block[0] = 1;
    free((void*)block);
  }
}

__attribute__((noinline)) void* grows_a_block(void) {
  char* block = NULL;
  for (size_t size = 1000; size <= 1000000; size += 1000) block = realloc(block, size);
  return block;
}

int main(void) {
  void* grown = grows_a_block();
  loam_mark("keep");
  keeps_blocks();
  loam_mark("churn");
  frees_at_once();
  loam_mark("end");
  free(grown);
  return 0;
}
