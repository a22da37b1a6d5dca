// A program opens a plug-in that has the heap inside, uses it and closes it, again and again.
// Threads that used it end later, and its blocks stay what they are.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* path;
static void* plugin;
static void* (*take)(size_t);
static void (*give)(void*);

static void open_plugin(void) {
  plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    _exit(2);
  }
  *(void**)&take = dlsym(plugin, "plugin_malloc");
  *(void**)&give = dlsym(plugin, "plugin_free");
}

static void use(void) {
  void* blocks[300];
  for (size_t i = 0; i < 300; ++i) memset(blocks[i] = take(i * 211 + 1), 1, i * 211 + 1);
  for (int i = 0; i < 300; ++i) give(blocks[i]);
}

static void* in_a_thread(void* ignored) {
  open_plugin();
  use();
  dlclose(plugin);
  return ignored;
}

static atomic_int used, closed;
static void* ends_later(void* ignored) {
  use();
  used = 1;
  while (!closed) usleep(1000);
  return ignored;
}

static long address_space_mib(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld", &pages) != 1) _exit(2);
  fclose(file);
  return pages / 256;
}

int main(int count, char** arguments) {
  if (count < 2) return 2;
  path = arguments[1];
  pthread_t thread;
  for (int i = 0; i < 5; ++i) {
    pthread_create(&thread, NULL, &in_a_thread, NULL);
    pthread_join(thread, NULL);
  }
  open_plugin();
  char* const block = take(1000);
  memset(block, 7, 1000);
  pthread_create(&thread, NULL, &ends_later, NULL);
  while (!used) usleep(1000);
  dlclose(plugin);
  closed = 1;
  pthread_join(thread, NULL);
  const long before = address_space_mib();
  for (int i = 0; i < 30; ++i) {
    open_plugin();
    use();
    dlclose(plugin);
  }
  if (address_space_mib() > before + 64) {
    fprintf(stderr, "30 times: %ld MiB and then %ld\n", before, address_space_mib());
    return 1;
  }
  return block[999] == 7 ? 0 : 1;
}
