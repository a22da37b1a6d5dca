// With LOAM_HARDEN=sample a report names who allocated the block, as far as frame pointers lead:
// for an access behind a live block, for one to a freed block, and for a second free. And code
// without frame pointers, which has anything in that register, does no harm.
#include <dlfcn.h>
#include <sys/wait.h>

#include "../preload/check.h"

static uintptr_t region;
static bool is_drawn(const void* block) { return (uintptr_t)block >> 30 != region; }

// Exported, so that dladdr() knows their names.
#define FRAMED __attribute__((noinline, noclone, optimize("no-omit-frame-pointer")))
FRAMED char* innermost(void);
FRAMED char* middle(void);
FRAMED char* outermost(void);
FRAMED char* innermost(void) {
  char* const block = malloc(1000);
  return opaque(block);
}
FRAMED char* middle(void) { return opaque(innermost()); }
FRAMED char* outermost(void) { return opaque(middle()); }

// A value in the register of frame pointers that leads nowhere, or to memory that cannot be read.
static char* unframed(uintptr_t value) {
  char* block = NULL;
#if defined(__x86_64__)
  __asm__ volatile(
      "push %%rbp\n\t"
      "mov %%rsp, %%rbx\n\t"
      "sub $256, %%rsp\n\t"  // below the red zone
      "and $-16, %%rsp\n\t"
      "mov %[value], %%rbp\n\t"
      "mov $1000, %%edi\n\t"
      "call *%[function]\n\t"
      "mov %%rbx, %%rsp\n\t"
      "pop %%rbp"
      : "=a"(block)
      : [value] "r"(value), [function] "r"(&malloc)
      : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
#else
  (void)value;
  block = malloc(1000);
#endif
  return block;
}

static char* draw(void) {
  for (;;) {
    char* const block = outermost();
    CHECK(block != NULL);
    if (is_drawn(block)) return block;
    free(block);
  }
}

// What a child of this program reports about a block that was drawn.
static void report_of(int mistake, char* text, size_t size) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(ends[1], 2);
    char* const block = draw();
    volatile char* const behind = block;
    if (mistake == 0) {
      for (int i = 1000; i < 5000; ++i) behind[i] = 1;  // one of both walls
      for (int i = 0; i < 5000; ++i) behind[-i] = 1;
    }
    free(block);
    if (mistake == 1) behind[5] = 1;
    if (mistake == 2) free(opaque(block));
    _exit(0);
  }
  close(ends[1]);
  read_all(ends[0], text, size);
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

int main(void) {
  region = (uintptr_t)opaque(malloc(1)) >> 30;
  Dl_info about;
  CHECK(dladdr((void*)(uintptr_t)&innermost, &about) != 0);
  const uintptr_t base = (uintptr_t)about.dli_fbase;
  for (int mistake = 0; mistake < 3; ++mistake) {
    char text[2000];
    report_of(mistake, text, sizeof text);
    const char* at = strstr(text, "; allocated by thread ");
    if (at == NULL) fprintf(stderr, "%s\n", text);
    CHECK(at != NULL);
    const char* const names[] = {"innermost", "middle", "outermost"};
    for (int i = 0; i < 3; ++i) {
      at = strstr(at, "+0x");
      CHECK(at != NULL);
      const uintptr_t code = base + strtoul(at + 1, NULL, 16);
      if (dladdr((void*)(code - 1), &about) == 0) about.dli_sname = NULL;
      if (about.dli_sname == NULL || strcmp(about.dli_sname, names[i]) != 0)
        fprintf(stderr, "%d: %s\n", i, text);
      CHECK(about.dli_sname != NULL && strcmp(about.dli_sname, names[i]) == 0);
      at += 3;
    }
  }
  const uintptr_t values[] = {0,
                              1,
                              16,
                              (uintptr_t)&base + 4096,
                              (uintptr_t)&base | 7,
                              region << 30,
                              UINTPTR_MAX - 15,
                              (uintptr_t)1 << 63};
  unsigned drawn = 0;
  for (unsigned i = 0; drawn < 64; ++i) {
    char* const block = unframed(values[i % (sizeof values / sizeof values[0])]);
    CHECK(block != NULL);
    drawn += is_drawn(block);
    free(block);
  }
  return 0;
}
