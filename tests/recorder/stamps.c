// Events share stamps while only one thread writes events, but not across pauses. No events share
// stamps while threads take turns. A thread that then continues alone shares stamps again.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "program.h"

enum { kBlocks = 20000, kTurns = 2000, kPauses = 8, kPause = 100000, kBeats = 3, kHeartbeat = 24 };

static _Atomic int turn;

static void* take_turns(void* unused) {
  for (int i = 0; i < kTurns; ++i) {
    while (atomic_load(&turn) != 1) sched_yield();
    free(malloc(802));
    atomic_store(&turn, 0);
  }
  return unused;
}

static void allocate(size_t size) {
  for (int i = 0; i < kBlocks; ++i) free(malloc(size));
}

static uint64_t heartbeat(int session) {
  uint64_t beat = 0;
  CHECK(pread(session, &beat, sizeof beat, kHeartbeat) == sizeof beat);
  return beat;
}

static void see_heartbeat(int session) {
  const uint64_t before = heartbeat(session);
  while (heartbeat(session) == before) usleep(1000);
}

int main(void) {
  char path[512];
  snprintf(path, sizeof path, "%s/session", getenv("LOAM_RECORD"));
  const int session = open(path, O_RDONLY);
  CHECK(session >= 0);
  allocate(801);
  for (int i = 0; i < kPauses; ++i) {
    free(malloc(804));
    see_heartbeat(session);
  }
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, take_turns, NULL) == 0);
  for (int i = 0; i < kTurns; ++i) {
    free(malloc(803));
    atomic_store(&turn, 1);
    while (atomic_load(&turn) != 0) sched_yield();
  }
  CHECK(pthread_join(thread, NULL) == 0);
  // The thread gets the lease at one heartbeat, and shares stamps from a later one on.
  for (int i = 0; i < kBeats; ++i) {
    see_heartbeat(session);
    free(malloc(802));
  }
  allocate(805);
  expect_size(801, kBlocks, kBlocks);
  expect_size(803, kTurns, kTurns);
  expect_size(805, kBlocks, kBlocks);
  printf("expect shared 801\nexpect own 803\nexpect apart 804\nexpect shared 805\n");
  return 0;
}
