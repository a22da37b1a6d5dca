// Misuse ends the process with SIGABRT and one line on standard error that names the address. With
// LOAM_ON_CORRUPTION=report the line is printed and the program continues. Each kind runs in a
// child.
//
// Some kinds are found at once. Others are found when the block leaves the thread's cache (a trim,
// a full magazine, the thread's end), so these call go_home() after the fault. With
// LOAM_CHECK_FREE=full all kinds are found at once.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"

// The address that the line must name. It is written to the parent before the fault is committed.
static int report_to_parent;
static void announce(const void* address) {
  const uintptr_t value = (uintptr_t)address;
  CHECK(write(report_to_parent, &value, sizeof value) == (ssize_t)sizeof value);
}

static void go_home(void) {
  const char* const checks = getenv("LOAM_CHECK_FREE");
  if (checks == NULL || strcmp(checks, "full") != 0) malloc_trim(0);
}

static void free_twice(size_t size) {
  void* const block = opaque(malloc(size));
  CHECK(block != NULL);
  announce(block);
  free(block);
  free(opaque(block));
}
static void small_twice(void) { free_twice(40); }
static void medium_twice(void) { free_twice(5000); }
static void large_twice(void) { free_twice(200000); }
static void huge_twice(void) { free_twice((size_t)100 << 20); }

// Frees other blocks of the class in between, so that the block is not the last cached one.
static void twice_with_others_between(void) {
  void* blocks[64];
  for (int i = 0; i < 64; ++i) blocks[i] = opaque(malloc(72));
  announce(blocks[3]);
  for (int i = 0; i < 5; ++i) free(blocks[i]);
  free(opaque(blocks[3]));
}

// By then the block has left every cache.
static void twice_after_trim(void) {
  void* const block = opaque(malloc(72));
  void* const neighbour = opaque(malloc(72));
  announce(block);
  free(block);
  malloc_trim(0);
  free(opaque(block));
  go_home();
  free(neighbour);
}

static void* free_it(void* block) {
  free(block);
  return NULL;
}
static void twice_from_two_threads(void) {
  void* const block = opaque(malloc(300));
  announce(block);
  pthread_t thread;
  CHECK_EQUAL(pthread_create(&thread, NULL, free_it, block), 0);
  pthread_join(thread, NULL);
  free(opaque(block));
  go_home();
}

static void free_inside(size_t size, size_t offset) {
  char* const block = opaque(malloc(size));
  CHECK(block != NULL);
  announce(block + offset);
  free(opaque(block + offset));
}
static void inside_small(void) {
  free_inside(200, 16);
  go_home();
}
static void inside_small_misaligned(void) { free_inside(200, 3); }
static void inside_large(void) { free_inside(200000, 64); }
static void inside_large_second_page(void) { free_inside(200000, 8192); }
static void inside_huge(void) { free_inside((size_t)100 << 20, 4096); }

static void on_the_stack(void) {
  char local[64];
  announce(local);
  free(opaque(local));
}
static char static_data[64] __attribute__((aligned(64)));
static void in_static_data(void) {
  announce(static_data);
  free(opaque(static_data));
}
static void from_mmap(void) {
  void* const mapped =
      mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  announce(mapped);
  free(opaque(mapped));
}
#if defined(__GLIBC__)  // of blocks of another C library, nothing is known
// A block of the C library's own allocator is freed there. A pointer near one is not.
static void* system_block(size_t size) {
  void* const library = dlopen("libc.so.6", RTLD_NOW);
  CHECK(library != NULL);
  void* (*their_malloc)(size_t);
  *(void**)(&their_malloc) = dlsym(library, "__libc_malloc");
  char* const block = their_malloc(size);
  CHECK(block != NULL);
  memset(block, 0x5a, size);
  return block;
}
static void inside_system_block(void) {
  char* const block = system_block(1000);
  announce(block + 64);
  free(opaque(block + 64));
}
static void inside_system_mapping(void) {
  char* const block = system_block(1 << 20);
  announce(block + 4080);
  free(opaque(block + 4080));
}
static void behind_system_block(void) {
  char* const block = system_block(1000);
  announce(block + malloc_usable_size(block) + 8);
  free(opaque(block + malloc_usable_size(block) + 8));
}
static void realloc_inside_system_block(void) {
  char* const block = system_block(1000);
  announce(block + 64);
  void* const again = opaque(realloc(opaque(block + 64), 3000));
  (void)again;
}
#endif
static void small_number(void) {
  announce((void*)(uintptr_t)0x1230);
  free(opaque((void*)(uintptr_t)0x1230));
}
static void outside_user_space(void) {
  announce((void*)(uintptr_t)0xFFFF800000001230u);
  free(opaque((void*)(uintptr_t)0xFFFF800000001230u));
}
static void realloc_of_freed(void) {
  void* const block = opaque(malloc(3000));
  announce(block);
  free(block);
  void* const again = opaque(realloc(opaque(block), 90000));
  (void)again;
}
static void realloc_inside(void) {
  char* const block = opaque(malloc(200));
  announce(block + 16);
  void* const again = opaque(realloc(opaque(block + 16), 3000));
  (void)again;
}
static void realloc_of_foreign(void) {
  announce(static_data);
  void* const again = opaque(realloc(opaque(static_data), 1000));
  (void)again;
}

typedef struct {
  const char* name;
  void (*commit)(void);
} Misuse;

static const Misuse kKinds[] = {
    {"double free, small", small_twice},
    {"double free, medium", medium_twice},
    {"double free, large", large_twice},
    {"double free, huge", huge_twice},
    {"double free, others in between", twice_with_others_between},
    {"double free, after trim", twice_after_trim},
    {"double free, from two threads", twice_from_two_threads},
    {"interior pointer, small", inside_small},
    {"interior pointer, small, misaligned", inside_small_misaligned},
    {"interior pointer, large", inside_large},
    {"interior pointer, large, page-aligned", inside_large_second_page},
    {"interior pointer, huge", inside_huge},
    {"pointer to the stack", on_the_stack},
    {"pointer to static data", in_static_data},
    {"pointer from mmap", from_mmap},
#if defined(__GLIBC__)
    {"pointer into a block of the C library", inside_system_block},
    {"pointer into a mapping of the C library", inside_system_mapping},
    {"pointer to what is free in the C library", behind_system_block},
    {"realloc into a block of the C library", realloc_inside_system_block},
#endif
    {"pointer to nothing", small_number},
    {"pointer outside user space", outside_user_space},
    {"realloc of a freed block", realloc_of_freed},
    {"realloc of an interior pointer", realloc_inside},
    {"realloc of a foreign pointer", realloc_of_foreign},
};

// Commits one misuse in a child; returns the number of complaints about it.
static int try_misuse(const Misuse* misuse, bool report) {
  int addresses[2];
  int complaints[2];
  CHECK(pipe(addresses) == 0 && pipe(complaints) == 0);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(complaints[1], 2);
    report_to_parent = addresses[1];
    alarm(60);
    misuse->commit();
    // After a report the heap must still be in order.
    for (size_t size = 1; size < 1 << 20; size = size * 2 + 1) free(opaque(malloc(size)));
    _exit(0);
  }
  close(addresses[1]);
  close(complaints[1]);
  uintptr_t address = 0;
  char text[4096];
  const bool announced = read(addresses[0], &address, sizeof address) == (ssize_t)sizeof address;
  close(addresses[0]);
  const size_t length = read_all(complaints[0], text, sizeof text);
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);

  int wrong = 0;
  if (!announced) {
    dprintf(2, "%s: the child ended before its fault\n", misuse->name);
    ++wrong;
  }
  if (report ? status != 0 : !(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)) {
    dprintf(2, "%s: ended with wait status 0x%x, wanted %s\n", misuse->name, (unsigned)status,
            report ? "exit 0" : "SIGABRT");
    ++wrong;
  }
  char wanted[32];
  snprintf(wanted, sizeof wanted, "%lx", (unsigned long)address);
  if (strstr(text, wanted) == NULL) {
    dprintf(2, "%s: no address 0x%s in: %s\n", misuse->name, wanted, text);
    ++wrong;
  }
  const char* const newline = strchr(text, '\n');
  if (newline == NULL || newline != text + length - 1) {
    dprintf(2, "%s: not exactly one line: \"%s\"\n", misuse->name, text);
    ++wrong;
  }
  return wrong;
}

int main(void) {
  const char* const mode = getenv("LOAM_ON_CORRUPTION");
  const bool report = mode != NULL && strcmp(mode, "report") == 0;
  int wrong = 0;
  for (size_t i = 0; i < sizeof kKinds / sizeof kKinds[0]; ++i) {
    wrong += try_misuse(&kKinds[i], report);
  }
  CHECK_EQUAL(wrong, 0);
  return 0;
}
