// Makes every mistake that hardening promises to find, each in a process of its own. The process
// ends by SIGABRT (SIGSEGV at a guard page) and prints one line with the text, the address, the
// class, the heap and the thread. Without the option the same mistake is not found, which shows
// that the option finds it. With LOAM_ON_CORRUPTION=report the line is printed and the program
// continues.
//
// `mistakes` runs all; `mistakes commit NUMBER` is the child.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../preload/check.h"

enum { kAddressPipe = 7 };

static void announce(const void* address) {
  const uintptr_t value = (uintptr_t)address;
  CHECK(write(kAddressPipe, &value, sizeof value) == (ssize_t)sizeof value);
}

// A store that is opaque to compilers. The value stored past a block's end is even, because no byte
// of a canary is.
static void poke(void* block, size_t offset, unsigned char value) {
  *(volatile unsigned char*)((char*)opaque(block) + offset) = value;
}
static unsigned char peek(void* block, size_t offset) {
  return *(volatile unsigned char*)((char*)opaque(block) + offset);
}

// ---- overflows --------------------------------------------------------------------------------

static char* announced(size_t size) {
  char* const block = opaque(malloc(size));
  CHECK(block != NULL);
  memset(block, 'x', size);
  announce(block);
  return block;
}

// The announced address is `offset` bytes from the block's start.
static char* announced_at(size_t size, ptrdiff_t offset) {
  char* const block = announced(size);
  announce(block + offset);
  return block;
}
static char* freed_block(size_t size, ptrdiff_t offset) {
  char* const block = announced_at(size, offset);
  free(block);
  return opaque(block);
}

// One byte: the terminator of a string that is one byte too long.
static void terminator(void) {
  char* const block = announced(24);
  poke(block, 24, 0);
  free(block);
}
static void exact_slot(void) {
  char* const block = announced(64);
  poke(block, 64, 0);
  free(block);
}
static void of_nothing(void) {
  char* const block = announced(0);
  poke(block, 0, 'x');
  free(block);
}
static void found_by_realloc(void) {
  char* const block = announced(100);
  poke(block, 100, 'x');
  free(opaque(realloc(block, 5000)));
}
static void after_shrinking(void) {
  char* block = announced(100);
  block = opaque(realloc(block, 90));
  poke(block, 90, 'x');
  free(block);
}
static void of_calloc(void) {
  char* const block = opaque(calloc(3, 11));
  announce(block);
  poke(block, 33, 'x');
  free(block);
}
static void of_aligned(void) {
  char* const block = opaque(aligned_alloc(256, 300));
  announce(block);
  CHECK_EQUAL((uintptr_t)block % 256, 0);
  poke(block, 300, 'x');
  free(block);
}
static void of_large(void) {
  char* const block = announced(100000);
  poke(block, 100000, 0);
  free(block);
}
static void of_whole_pages(void) {
  char* const block = announced(20 * 4096);
  poke(block, 20 * 4096, 0);
  free(block);
}
enum { kHuge = (40 << 20) + 100, kHugeResized = (50 << 20) + 100 };

static void of_huge(void) {
  const size_t size = kHuge;
  char* const block = opaque(malloc(size));
  announce(block);
  poke(block, size, 0);
  free(block);
}
static void of_huge_resized(void) {
  const size_t size = kHugeResized;
  char* const block = opaque(realloc(opaque(malloc(kHuge)), size));
  announce(block);
  poke(block, size, 0);
  free(block);
}
static void into_the_guard(void) {
  char* const block = announced(100000);
  announce(block + 102400);  // where its last page ends
  for (size_t i = 100000; i < 100000 + 3 * 4096; ++i) poke(block, i, 0);
}
static void read_the_guard_of_huge(void) {
  char* const block = opaque(malloc(kHuge));
  announce(block + kHuge + 4096);
  (void)peek(block, kHuge + 4096);
}

static void before_large(void) {
  char* const block = announced_at(kHuge, -1);
  poke(block, (size_t)-1, 0);
}
static void nothing_freed(void) {
  char* const block = announced(0);
  free(block);
  poke(block, 0, 'x');
}
static void found_at_exit(void) {
  poke(announced(24), 24, 0);
  exit(0);
}
static void large_found_at_exit(void) {
  poke(announced(100000), 100000, 0);
  exit(0);
}
static void huge_found_at_exit(void) {
  poke(announced(kHuge), kHuge, 0);
  exit(0);
}

// ---- uses after free --------------------------------------------------------------------------

// Frees other blocks until the block has left the quarantine.
static void churn(size_t bytes) {
  for (size_t done = 0; done < bytes; done += 200) free(opaque(malloc(200)));
}

static void read_large(void) { (void)peek(freed_block(200000, 1000), 1000); }
static void read_huge(void) { (void)peek(freed_block(kHuge, 0), 0); }
static void written_after_free(size_t size, size_t offset) {
  char* const block = announced(size);
  if (size > 32768) announce(block + offset);  // the report names the accessed address
  free(block);
  poke(block, offset, 1);
}
static void write_small(void) {
  written_after_free(40, 8);
  churn((size_t)2 << 20);
}
static void write_medium(void) {
  written_after_free(9000, 8999);
  churn((size_t)2 << 20);
}
static void write_large(void) {
  written_after_free(200000, 150000);
  churn((size_t)2 << 20);
}
static void write_found_at_trim(void) {
  written_after_free(40, 0);
  malloc_trim(0);
}
static void write_found_at_exit(void) {
  written_after_free(40, 39);
  exit(0);
}
// The poison is no valid address, so a pointer that is read from a freed block cannot be followed.
static void follow_a_freed_pointer(void) {
  static char target[64];
  void** const block = (void**)(void*)announced(40);
  block[0] = target;
  free(block);
  void** const read = *(void** volatile*)opaque(block);
  *(void* volatile*)read = NULL;
}

// ---- frees ------------------------------------------------------------------------------------

static void twice(size_t size) {
  void* const block = announced(size);
  free(block);
  free(opaque(block));
}
static void twice_small(void) { twice(40); }
static void twice_large(void) { twice(200000); }
static void twice_after_many(void) {
  void* const block = announced(40);
  free(block);
  // After thousands of other frees the block has left the quarantine.
  for (int i = 0; i < 20000; ++i) free(opaque(malloc(5000)));
  free(opaque(block));
}
static void twice_where_its_span_waits(void) {
  enum { kBlocks = 128 };
  void* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) blocks[i] = opaque(malloc(16384));
  announce(blocks[0]);
  // The thread keeps the last few blocks. The spans of the other blocks are empty, and wait for a
  // request of that size: a heap so small gives nothing back yet.
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  free(opaque(blocks[0]));
}
static void* free_it(void* block) {
  free(block);
  return NULL;
}
static void twice_in_two_threads(void) {
  void* const block = announced(300);
  pthread_t thread;
  CHECK_EQUAL(pthread_create(&thread, NULL, free_it, block), 0);
  pthread_join(thread, NULL);
  free(opaque(block));
}
static void inside(void) {
  char* const block = opaque(malloc(200));
  announce(block + 16);
  free(opaque(block + 16));
}
static void inside_freed(void) {
  char* const block = opaque(malloc(200));
  free(block);
  announce(block + 32);
  free(opaque(block + 32));
}
// This mistake has another report. When the block is freed again, its pages are those of small
// blocks.
static void twice_where_others_live(void) {
  char* const block = freed_block(200000, 0);
  for (int i = 0; i < 4000; ++i) (void)opaque(malloc(1000));
  free(block);
}
static void twice_huge(void) { free(freed_block(kHuge, 0)); }
static void usable_of_freed(void) { (void)opaque_size(malloc_usable_size(freed_block(100, 0))); }
static void usable_inside(void) {
  (void)opaque_size(malloc_usable_size(announced_at(100, 16) + 16));
}
static void realloc_of_freed(void) {
  void* const block = announced(40);
  free(block);
  (void)opaque(realloc(opaque(block), 60));
}

static void sized(const char* name, size_t size, size_t said) {
  // The C library may not have such a function yet; the heap has.
  void (*const free_with_size)(void*, size_t) = (void (*)(void*, size_t))dlsym(RTLD_DEFAULT, name);
  CHECK(free_with_size != NULL);
  free_with_size(announced(size), said);
}
static void smaller(void) { sized("free_sized", 100, 90); }
static void larger_within_the_slot(void) { sized("free_sized", 100, 101); }
static void sized_delete(void) { sized("_ZdlPvm", 48, 24); }
static void sized_delete_of_large(void) { sized("_ZdaPvm", 48000, 47999); }

typedef struct {
  const char* name;
  const char* options;  // of LOAM_HARDEN; "full" is LOAM_CHECK_FREE=full
  int signal;
  const char* text;   // of the line; NULL: none (the system ends the process)
  bool seen_without;  // also found without the option
  void (*commit)(void);
} Mistake;

static const Mistake kMistakes[] = {
    {"overflow by a terminator", "canary", SIGABRT, "overflow: byte 24 of a block of 24 bytes",
     false, terminator},
    {"overflow of a full slot", "canary", SIGABRT, "overflow: byte 64 of a block of 64 bytes",
     false, exact_slot},
    {"overflow of no bytes", "canary", SIGABRT, "overflow: byte 0 of a block of 0 bytes", false,
     of_nothing},
    {"overflow, realloc", "canary", SIGABRT, "overflow: byte 100 of a block of 100 bytes", false,
     found_by_realloc},
    {"overflow, shrunk", "canary", SIGABRT, "overflow: byte 90 of a block of 90 bytes", false,
     after_shrinking},
    {"overflow, calloc", "canary", SIGABRT, "overflow: byte 33 of a block of 33 bytes", false,
     of_calloc},
    {"overflow, aligned", "canary", SIGABRT, "overflow: byte 300 of a block of 300 bytes", false,
     of_aligned},
    {"overflow, large", "canary", SIGABRT, "overflow: byte 100000 of", false, of_large},
    {"overflow, whole pages", "canary", SIGABRT, "overflow: byte 81920 of", false, of_whole_pages},
    {"overflow, guarded", "canary,guards", SIGABRT, "overflow: byte 100000 of", false, of_large},
    {"overflow, huge resized", "canary", SIGABRT, "overflow: byte 52428900 of", false,
     of_huge_resized},
    {"overflow, huge and guarded", "canary,guards", SIGABRT, "overflow: byte 41943140 of", false,
     of_huge},
    {"overflow into a wall", "guards", SIGSEGV, "overflow: access behind a block", false,
     into_the_guard},
    {"read of a wall, huge", "guards", SIGSEGV, "block of 41943140 bytes", true,
     read_the_guard_of_huge},
    {"write before a large block", "guards", SIGSEGV, "underflow: access before a block", true,
     before_large},
    {"write to no bytes", "guards", SIGSEGV, "overflow: access to a block of 0 bytes", false,
     of_nothing},
    {"write to no bytes, freed", "guards", SIGSEGV, "use after free of a block of 0 bytes", false,
     nothing_freed},
    {"overflow, never freed", "canary", SIGABRT, "overflow: byte 24 of a block of 24 bytes", false,
     found_at_exit},
    {"overflow, large, never freed", "canary", SIGABRT, "overflow: byte 100000 of", false,
     large_found_at_exit},
    {"overflow, huge, never freed", "guards", SIGABRT, "overflow: byte 41943140 of", false,
     huge_found_at_exit},
    {"read after free, large", "quarantine", SIGSEGV, "use after free", false, read_large},
    {"read after free, huge", "guards", SIGSEGV, "freed block of 41943140 bytes", true, read_huge},
    {"double free, its pages another's", "quarantine", SIGABRT, "freed block of 200000 bytes",
     false, twice_where_others_live},
    {"double free, huge", "trace", SIGABRT, "freed block of 41943140 bytes", true, twice_huge},
    {"usable size of a freed block", "full", SIGABRT, "malloc_usable_size of a freed block", false,
     usable_of_freed},
    {"usable size inside a block", "full", SIGABRT,
     "malloc_usable_size of a pointer that is no block", false, usable_inside},
    {"write after free, small", "quarantine=64K", SIGABRT, "use after free: byte 8 of", false,
     write_small},
    {"write after free, medium", "quarantine=256K", SIGABRT, "use after free: byte 8999 of", false,
     write_medium},
    {"write after free, large", "quarantine", SIGSEGV, "150000 bytes into the block", false,
     write_large},
    {"write after free, trim", "quarantine", SIGABRT, "use after free: byte 0 of", false,
     write_found_at_trim},
    {"write after free, exit", "quarantine", SIGABRT, "use after free: byte 39 of", false,
     write_found_at_exit},
    {"pointer out of a freed block", "quarantine", SIGSEGV, NULL, false, follow_a_freed_pointer},
    {"double free", "canary", SIGABRT, "double free", true, twice_small},
    {"double free, large", "quarantine", SIGABRT, "double free", true, twice_large},
    {"double free, long after", "quarantine=64K", SIGABRT, "double free", true, twice_after_many},
    {"double free, long after, full", "full", SIGABRT, "double free", true, twice_after_many},
    {"double free, its span empty", "full", SIGABRT, "double free", true,
     twice_where_its_span_waits},
    {"double free, two threads", "zero", SIGABRT, "double free", false, twice_in_two_threads},
    {"interior pointer", "canary", SIGABRT, "middle of a block", false, inside},
    {"interior pointer, freed", "quarantine", SIGABRT, "middle of a block", false, inside_freed},
    {"realloc of a freed block", "random", SIGABRT, "realloc of a freed block", true,
     realloc_of_freed},
    {"free_sized, too small", "canary", SIGABRT, "wrong size: 90 bytes for a block of 100", false,
     smaller},
    {"free_sized, too large", "full", SIGABRT, "wrong size: 101 bytes", false,
     larger_within_the_slot},
    {"sized delete", "trace", SIGABRT, "wrong size: 24 bytes for a block of 48", false,
     sized_delete},
    {"sized delete[], large", "guards", SIGABRT, "wrong size: 47999", false, sized_delete_of_large},
};

typedef struct {
  int status;
  uintptr_t address;
  char text[4096];
} Outcome;

static void run_child(const Mistake* mistake, const char* options, bool report, Outcome* out) {
  int addresses[2], complaints[2];
  CHECK(pipe(addresses) == 0 && pipe(complaints) == 0);
  char number[16];
  snprintf(number, sizeof number, "%d", (int)(mistake - kMistakes));
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (dup2(complaints[1], 2) < 0 || dup2(addresses[1], kAddressPipe) < 0) _exit(1);
    unsetenv("LOAM_HARDEN");
    if (options != NULL)
      setenv(strcmp(options, "full") == 0 ? "LOAM_CHECK_FREE" : "LOAM_HARDEN", options, 1);
    if (report) setenv("LOAM_ON_CORRUPTION", "report", 1);
    execl("/proc/self/exe", "mistakes", "commit", number, (char*)NULL);
    _exit(1);
  }
  close(addresses[1]);
  close(complaints[1]);
  out->address = 0;
  while (read(addresses[0], &out->address, sizeof out->address) == (ssize_t)sizeof out->address)
    continue;
  close(addresses[0]);
  read_all(complaints[0], out->text, sizeof out->text);
  CHECK(waitpid(pid, &out->status, 0) == pid);
}

static int complain(const Mistake* mistake, const char* what, const Outcome* out) {
  dprintf(2, "%s: %s (wait status 0x%x, address 0x%lx): %s\n", mistake->name, what,
          (unsigned)out->status, (unsigned long)out->address, out->text);
  return 1;
}

static bool says(const Outcome* out, const char* text) {
  char address[40];
  snprintf(address, sizeof address, "(address 0x%lx", (unsigned long)out->address);
  const char* const end = strchr(out->text, '\n');
  return strstr(out->text, text) != NULL && strstr(out->text, address) != NULL &&
         strstr(out->text, ", thread ") != NULL && end != NULL && end[1] == '\0';
}

static int try_mistake(const Mistake* mistake) {
  Outcome out;
  run_child(mistake, mistake->options, false, &out);
  if (!WIFSIGNALED(out.status) || WTERMSIG(out.status) != mistake->signal) {
    return complain(mistake, "did not end as it should", &out);
  }
  if (mistake->text == NULL) {
    if (out.text[0] != '\0') return complain(mistake, "said something", &out);
  } else if (!says(&out, mistake->text)) {
    return complain(mistake, "did not say one line with text, address and thread", &out);
  }
  if (mistake->text != NULL && strstr(mistake->name, "no bytes") == NULL &&
      strstr(mistake->name, "double free, huge") == NULL &&
      strstr(out.text, "heap default") == NULL) {
    return complain(mistake, "did not name the heap", &out);
  }
  if (!mistake->seen_without) {
    run_child(mistake, NULL, false, &out);
    if (out.status != 0) return complain(mistake, "was found without the option", &out);
  }
  if (mistake->text != NULL && mistake->signal == SIGABRT) {
    run_child(mistake, mistake->options, true, &out);
    if (out.status != 0) return complain(mistake, "did not go on after the report", &out);
    if (!says(&out, mistake->text)) return complain(mistake, "was not reported in one line", &out);
  }
  return 0;
}

// The line names the code that freed it first, as module and offset.
static int try_trace(void) {
  int wrong = 0;
  for (size_t i = 0; i < sizeof kMistakes / sizeof kMistakes[0]; ++i) {
    if (kMistakes[i].commit != twice_small && kMistakes[i].commit != write_small) continue;
    Outcome out;
    run_child(&kMistakes[i], "quarantine=64K,trace", false, &out);
    const char* const by = strstr(out.text, "; freed by thread ");
    if (by == NULL || strstr(by, "mistakes+0x") == NULL) {
      wrong += complain(&kMistakes[i], "does not name who freed it", &out);
    }
  }
  return wrong;
}

// A misspelt word never removes the protection. Known words are obeyed, an unknown word counts as
// all, and one line says so. Only the canary finds this mistake.
static int try_words(void) {
  static const struct {
    const char* options;
    bool is_understood;
    bool is_found;
  } kCases[] = {
      {"all,foo", false, true},
      {"foo,all", false, true},
      {"ALL", true, true},
      {"1", false, true},
      {"all ", true, true},
      {" all", true, true},
      {"\tAll\n", true, true},
      {"on", false, true},
      {"canary,nonsense", false, true},
      {"canarys", false, true},
      {"canary,quarantine=", false, true},
      {"canary,quarantine=1", false, true},
      {"zero,quarantine=4Q", false, true},
      {"canary=1", false, true},
      {"al", false, true},
      {"canary zero", false, true},
      {"canary;zero", false, true},
      {"true", false, true},
      {"0", false, true},
      {"o", false, true},
      {",", false, true},
      {"zero , Canary", true, true},
      {"canary,", true, true},
      {",,canary,,", true, true},
      {"off,canary", true, true},
      {"canary,off", true, true},
      {"CANARY,Quarantine=4m", true, true},
      {"quarantine=999999999G,zero", false, true},
      {"off", true, false},
      {"OFF", true, false},
      {" off ", true, false},
      {"", true, false},
      {" ", true, false},
      {"off,", true, false},
      {"zero", true, false},
      {"zero,", true, false},
  };
  const Mistake* overflow = NULL;
  for (size_t i = 0; i < sizeof kMistakes / sizeof kMistakes[0] && overflow == NULL; ++i) {
    const Mistake* const each = &kMistakes[i];
    if (each->options != NULL && strcmp(each->options, "canary") == 0 && each->text != NULL)
      overflow = each;
  }
  CHECK(overflow != NULL);
  int wrong = 0;
  for (size_t i = 0; i < sizeof kCases / sizeof kCases[0]; ++i) {
    Outcome out;
    run_child(overflow, kCases[i].options, true, &out);
    const bool complains =
        strstr(out.text, "loam: LOAM_HARDEN must be off, all, or a list") == out.text;
    const bool finds = strstr(out.text, overflow->text) != NULL;
    const char* const first_end = strchr(out.text, '\n');
    const bool again = complains && strstr(first_end, "LOAM_HARDEN") != NULL;
    if (complains == kCases[i].is_understood || finds != kCases[i].is_found || again) {
      wrong += complain(overflow, kCases[i].options, &out);
    }
  }
  return wrong;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "commit") == 0) {
    alarm(120);
    kMistakes[atoi(argv[2])].commit();
    // After a report the heap must still be in order.
    for (size_t size = 1; size < 1 << 20; size = size * 2 + 1) free(opaque(malloc(size)));
    _exit(0);
  }
  int wrong = try_trace() + try_words();
  for (size_t i = 0; i < sizeof kMistakes / sizeof kMistakes[0]; ++i)
    wrong += try_mistake(&kMistakes[i]);
  CHECK_EQUAL(wrong, 0);
  return 0;
}
