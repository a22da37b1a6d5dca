// A daemon: its parent ends first, and it closes every file.
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

int main(void) {
  for (int i = 0; i < 10; ++i) free(malloc(501));
  expect_size(501, 10, 10);
  expect_size(502, 1000, 1000);
  printf("expect processes 2\n");
  fflush(stdout);
  if (fork() != 0) return 0;
  setsid();
  if (fork() != 0) _exit(0);
  for (int file = 0; file < 1024; ++file) close(file);
  CHECK(chdir("/") == 0);
  usleep(200000);
  for (int i = 0; i < 1000; ++i) free(malloc(502));
  return 0;
}
