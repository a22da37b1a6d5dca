// Threads that are cancelled while they allocate. No call of the recorder may be the point at which
// they end.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "program.h"

static atomic_ulong allocated;
static atomic_ulong freed;
static pthread_key_t key;

static void clean(void* block) {
  free(block);
  atomic_fetch_add(&freed, 1);
}

static void* allocate(void* unused) {
  (void)unused;
  // A destructor of thread data frees too, after the thread's function has ended.
  pthread_setspecific(key, malloc(1101));
  atomic_fetch_add(&allocated, 1);
  for (;;) {
    void* block = malloc(1101);
    atomic_fetch_add(&allocated, 1);
    pthread_cleanup_push(clean, block);
    pthread_testcancel();
    pthread_cleanup_pop(1);
  }
  return NULL;
}

int main(void) {
  CHECK(pthread_key_create(&key, clean) == 0);
  for (int i = 0; i < 200; ++i) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0);
    if (i % 2 == 0) usleep(500);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  // A thread that was cancelled before it began allocated nothing.
  expect_size(1101, atomic_load(&allocated), atomic_load(&freed));
  CHECK(atomic_load(&allocated) == atomic_load(&freed));
  return 0;
}
