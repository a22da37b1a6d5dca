/* A sandboxed worker: after its start only the calls pass that memory, threads and output need; any
 * other kills it. filtered HOW: `loop` small blocks, `large` blocks of their own mapping, `thread`
 * a new one; `clock` needs no filter: the program's clock_gettime() allocates. */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALLOW(name)                                      \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void* volatile sink;
static long calls;

int clock_gettime(clockid_t clock, struct timespec* time) {
  (void)clock;
  ++calls;
  sink = malloc(64);
  free(sink);
  time->tv_sec = 1000000000 + calls * 10;
  time->tv_nsec = 0;
  return 0;
}

static void work(long count, size_t size) {
  for (long i = 0; i < count; ++i) {
    char* block = malloc(size);
    block[0] = 1;
    sink = block;
    free(block);
  }
}

static void* thread(void* argument) {
  work(10000, 100);
  return argument;
}

int main(int count, char** words) {
  const char* how = count > 1 ? words[1] : "loop";
  work(100, 100);
  static struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(read),
      ALLOW(write),
      ALLOW(brk),
      ALLOW(mmap),
      ALLOW(munmap),
      ALLOW(mremap),
      ALLOW(mprotect),
      ALLOW(madvise),
      ALLOW(futex),
      ALLOW(exit),
      ALLOW(exit_group),
      ALLOW(fstat),
      ALLOW(newfstatat),
      ALLOW(rt_sigprocmask),
      ALLOW(rt_sigaction),
      ALLOW(clone),
      ALLOW(clone3),
      ALLOW(set_robust_list),
      ALLOW(rseq),
      ALLOW(rt_sigreturn),
      ALLOW(getrandom),
      ALLOW(sched_yield),
      ALLOW(close),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (strcmp(how, "clock") != 0) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
  }
  work(300000, 100);
  if (!strcmp(how, "large")) work(200, 300000);
  if (!strcmp(how, "thread")) {
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
  }
  return write(1, "survived\n", 9) == 9 ? 0 : 1;
}
