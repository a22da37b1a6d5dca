// A process that becomes another program, five times.
#include <string.h>
#include <unistd.h>

#include "program.h"

int main(int count, char** arguments) {
  const int left = count > 1 ? atoi(arguments[1]) : 5;
  for (int i = 0; i < 10; ++i) free(malloc(401));
  if (left > 0) {
    char number[] = {(char)('0' + left - 1), 0};
    execl(arguments[0], arguments[0], number, (char*)NULL);
    return 1;
  }
  expect_size(401, 60, 60);
  printf("expect processes 6\n");
  return 0;
}
