// A program that forks with live blocks. The child frees most of the inherited blocks, and
// continues with a heap of its own.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { kBlocks = 2000, kBytes = 30000, kOfChild = 500, kBytesOfChild = 20000 };

static void* filled(size_t bytes) {
  void* block = malloc(bytes);
  CHECK(block != NULL);
  memset(block, 1, bytes);
  return block;
}

// inherits [MILLISECONDS]: pauses this long after each step.
int main(int argc, char** argv) {
  const unsigned rest = argc > 1 ? (unsigned)atoi(argv[1]) * 1000u : 0;
  static void* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) blocks[i] = filled(kBytes);
  usleep(rest);
  fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    usleep(rest);
    // Frees the last blocks first, so that the end of the heap is released.
    for (int i = kBlocks - 1; i >= kBlocks / 4; --i) free(blocks[i]);
    usleep(rest);
    for (int i = 0; i < kOfChild; ++i) blocks[kBlocks / 4 + i] = filled(kBytesOfChild);
    usleep(rest);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  expect_size(kBytes, kBlocks, kBlocks);
  expect_size(kBytesOfChild, kOfChild, 0);
  printf("expect processes 2\n");
  return 0;
}
