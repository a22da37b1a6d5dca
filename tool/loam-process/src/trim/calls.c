// A program that waits in one system call again and again, and checks each answer: none may tell
// of a stop. Arguments: the number of the call, in the order of `calls` below. It says "ready", or
// "absent" where the kernel refuses the call, and "whole" after its input has ended.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "blocks.h"

enum { kWaitMs = 15 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double begun;

static void begin(void) { begun = now(); }

static void require_time(const char* what) {
  if (now() - begun < 1e-3 * kWaitMs) fail(what);
}

static int place;  // what the call waits at

static void epoll_make(void) { place = epoll_create1(0); }
static void epoll_call(void) {
  struct epoll_event event;
  if (epoll_wait(place, &event, 1, kWaitMs) != 0) fail("epoll_wait");
  require_time("the time of epoll_wait");
}

static void none_make(void) {}
static void futex_call(void) {
  static uint32_t word = 7;
  struct timespec time = {0, kWaitMs * 1000000};
  if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, &time, NULL, 0) != -1) fail("futex");
  if (errno != ETIMEDOUT) fail("the answer of futex");
  require_time("the time of futex");
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static void condition_call(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  time.tv_nsec += kWaitMs * 1000000;
  if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
  pthread_mutex_lock(&mutex);
  if (pthread_cond_timedwait(&condition, &mutex, &time) != ETIMEDOUT) fail("a condition");
  pthread_mutex_unlock(&mutex);
  require_time("the time of a condition");
}

static pid_t other;  // a process that does what is waited for

// Makes the other process, before there is a heap that it would share.
static int is_other(void) {
  pid_t parent = getpid();
  other = fork();
  if (other < 0) fail("fork");
  if (other > 0) return 0;
  // It does not outlive the program.
  if (getppid() != parent) _exit(0);
  return 1;
}

static void rest(void) {
  struct timespec time = {0, kWaitMs * 1000000};
  nanosleep(&time, NULL);
}

static void pipe_make(void) {
  int ends[2];
  if (pipe(ends) != 0) fail("pipe");
  if (is_other()) {
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    for (unsigned char next = 0; write(ends[1], &next, 1) == 1; next++) rest();
    _exit(0);
  }
  close(ends[1]);
  place = ends[0];
}
static void pipe_call(void) {
  static unsigned char next;
  unsigned char byte;
  if (read(place, &byte, 1) != 1 || byte != next++) fail("read");
}

static void accept_make(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  place = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(place, (struct sockaddr*)&address, length) != 0 || listen(place, 5) != 0) fail("listen");
  getsockname(place, (struct sockaddr*)&address, &length);
  if (is_other()) {
    close(place);
    for (;;) {
      int client = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(client, (struct sockaddr*)&address, length) != 0) _exit(0);
      close(client);
      rest();
    }
  }
}
static void accept_call(void) {
  int client = accept(place, NULL, NULL);
  if (client < 0) fail("accept");
  close(client);
}

static void wait_call(void) {
  pid_t child = vfork();
  if (child == 0) {
    execl("/bin/sleep", "sleep", "0.01", (char*)NULL);
    _exit(7);
  }
  int status = 0;
  if (wait4(child, &status, 0, NULL) != child || status != 0) fail("wait4");
}

static struct io_uring_params ring;
static unsigned char *submitted, *completed;
static struct io_uring_sqe* entries;
static int ring_make(void) {
  place = (int)syscall(SYS_io_uring_setup, 4, &ring);
  if (place < 0) return 0;
  int both = PROT_READ | PROT_WRITE;
  submitted = mmap(NULL, 4096, both, MAP_SHARED, place, IORING_OFF_SQ_RING);
  completed = mmap(NULL, 4096, both, MAP_SHARED, place, IORING_OFF_CQ_RING);
  entries = mmap(NULL, 4096, both, MAP_SHARED, place, IORING_OFF_SQES);
  if (submitted == MAP_FAILED || completed == MAP_FAILED || entries == MAP_FAILED) fail("mmap");
  return 1;
}
static void ring_call(void) {
  static struct __kernel_timespec time = {0, kWaitMs * 1000000};
  unsigned* tail = (unsigned*)(submitted + ring.sq_off.tail);
  unsigned mask = *(unsigned*)(submitted + ring.sq_off.ring_mask), at = *tail & mask;
  entries[at] = (struct io_uring_sqe){
      .opcode = IORING_OP_TIMEOUT, .fd = -1, .addr = (uintptr_t)&time, .len = 1, .user_data = 5};
  ((unsigned*)(submitted + ring.sq_off.array))[at] = at;
  __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
  long done = syscall(SYS_io_uring_enter, place, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
  if (done < 0) fail("io_uring_enter");
  // A call that was begun again submitted its entry before.
  unsigned* head = (unsigned*)(completed + ring.cq_off.head);
  if (__atomic_load_n((unsigned*)(completed + ring.cq_off.tail), __ATOMIC_ACQUIRE) == *head) {
    fail("an entry of io_uring");
  }
  __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
  require_time("the time of io_uring_enter");
}

static void semaphore_make(void) { place = semget(IPC_PRIVATE, 1, 0600); }
static void semaphore_call(void) {
  struct sembuf takes = {0, -1, 0};
  struct timespec time = {0, kWaitMs * 1000000};
  if (semtimedop(place, &takes, 1, &time) != -1 || errno != EAGAIN) fail("semtimedop");
  require_time("the time of semtimedop");
}

static void signal_call(void) {
  sigset_t set;
  struct timespec time = {0, kWaitMs * 1000000};
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  if (sigtimedwait(&set, NULL, &time) != -1 || errno != EAGAIN) fail("sigtimedwait");
  require_time("the time of sigtimedwait");
}

static const struct {
  void (*make)(void);
  void (*call)(void);
} calls[] = {
    {epoll_make, epoll_call}, {none_make, futex_call},          {none_make, condition_call},
    {pipe_make, pipe_call},   {accept_make, accept_call},       {none_make, wait_call},
    {none_make, ring_call},   {semaphore_make, semaphore_call}, {none_make, signal_call},
};

int main(int count, char** words) {
  int number = count > 1 ? atoi(words[1]) : 0;
  calls[number].make();
  if (calls[number].call == ring_call && !ring_make()) {
    puts("absent");
    return 0;
  }
  churn(kBlocks);
  puts("ready");
  fflush(stdout);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  while (poll(&input, 1, 0) == 0) {
    begin();
    calls[number].call();
    churn(100 + rand() % 100);
  }
  check_all();
  if (other > 0) kill(other, SIGKILL);
  if (calls[number].call == semaphore_call) semctl(place, 0, IPC_RMID);
  puts("whole");
  return 0;
}
