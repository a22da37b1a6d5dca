// A sandbox filters system calls. It allows those of the C library's malloc, and ends the program
// for munlock() (issue 37, A2): the checks' tables need that call only for locked memory.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"

int main(void) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munlock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof program / sizeof program[0], program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    SKIP("no filters here");
  for (size_t size = 1; size < (size_t)256 << 20; size = size * 2 + 1) {
    char* const block = opaque(malloc(size));
    CHECK(block != NULL);
    block[size - 1] = 1;
    free(block);
  }
  return 0;
}
