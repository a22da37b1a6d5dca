// A program in an odd state, with a heap of which most could be trimmed. Argument: the number of
// the state, in the order of `states` below. It says "ready", and "whole" after its input has
// ended.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "blocks.h"

static size_t* broken;
static size_t was;
static pid_t child;

static void plain(void) {}

// A header that does not add up.
static void corrupted(void) {
  broken = (size_t*)blocks[kEvery * 10] - 1;
  was = *broken;
  *broken = 0x7777771;
}

static void mappings(void) {
  for (int at = 0; at < 60000; at++) {
    int protection = at % 2 == 0 ? PROT_READ : PROT_NONE;
    void* place = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) fail("mmap");
  }
}

static void filter(uint32_t call) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {4, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("prctl");
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) fail("a filter");
}

static void forbids(void) { filter(SYS_madvise); }
static void allows(void) { filter(SYS_swapoff); }
// Each range then has a call of its own.
static void allows_single(void) { filter(SYS_process_madvise); }

static void locked(void) {
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) fail("mlockall");
}

static void forked(void) {
  child = fork();
  while (child == 0) pause();
}

static void go_on(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  puts("ready");
  fflush(stdout);
  while (poll(&input, 1, 10) == 0) {
    // Pages that are shared stay so.
    if (broken == NULL && child == 0) churn(100);
  }
  if (broken != NULL) *broken = was;
  check_all();
  churn(kBlocks);
  if (child > 0) kill(child, SIGKILL);
  puts("whole");
  fflush(stdout);
  _exit(0);
}

static void* in_thread(void* leader) {
  pthread_join(*(pthread_t*)leader, NULL);
  go_on();
  return NULL;
}

// The first thread ends, and another one goes on.
static void without_leader(void) {
  static pthread_t leader;
  pthread_t thread;
  leader = pthread_self();
  if (pthread_create(&thread, NULL, in_thread, &leader) != 0) fail("a thread");
  pthread_exit(NULL);
}

static void* becomes_other(void* nothing) {
  char byte;
  if (read(0, &byte, 1) == 1) execl("/bin/sleep", "sleep", "1000", (char*)NULL);
  return nothing;
}

// Another thread makes the process another program when input comes.
static void becomes(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, becomes_other, NULL);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}

static void (*const states[])(void) = {plain,  corrupted, mappings,       forbids, allows,
                                       locked, forked,    without_leader, becomes, allows_single};

int main(int count, char** words) {
  // A buffer of its own: nothing is allocated any more when the heap is broken.
  static char line[64];
  setvbuf(stdout, line, _IOLBF, sizeof line);
  churn(kBlocks);
  states[count > 1 ? atoi(words[1]) : 0]();
  go_on();
}
