// Libraries for fast networks remember ("register") which physical pages a buffer has. To hear of
// pages that went, they put a jump to their own code at the beginning of the C library's munmap(),
// madvise(), mremap() and mmap(), at any moment of the program's life. Others put their functions
// into the dynamic linker's tables of all modules ("table"), or define the symbols (BY_SYMBOL).
// Here such a library remembers a buffer, and the program frees it. As long as the buffer counts as
// registered, its pages must be the same: a pipe keeps the first one, as a network card would. The
// hooks allocate and free, as libraries do.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char* buffer;
static size_t buffer_bytes;
static int registered;
static _Thread_local int inside;

static void gone(const char* address, size_t bytes) {
  if (address < buffer + buffer_bytes && buffer < address + bytes) registered = 0;
  if (inside++ == 0) {
    void* blocks[64];
    for (int i = 0; i < 64; ++i) blocks[i] = malloc((size_t)1 << (i % 22));
    for (int i = 0; i < 64; ++i) free(blocks[i]);
  }
  --inside;
}

static long enter(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

static int own_munmap(void* address, size_t bytes) {
  gone(address, bytes);
  return (int)enter(SYS_munmap, (long)address, (long)bytes, 0, 0, 0, 0);
}
static int own_madvise(void* address, size_t bytes, int advice) {
  if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE) gone(address, bytes);
  return (int)enter(SYS_madvise, (long)address, (long)bytes, advice, 0, 0, 0);
}
static void* own_mremap(void* address, size_t old, size_t bytes, int flags, void* to) {
  gone(address, old);
  return (void*)enter(SYS_mremap, (long)address, (long)old, (long)bytes, flags, (long)to, 0);
}

static void hook(const char* name, const void* own) {
  unsigned char* const function = dlsym(RTLD_DEFAULT, name);
  if (function == NULL) _exit(77);
  const uintptr_t page = (uintptr_t)function & ~(uintptr_t)4095;
  if (enter(SYS_mprotect, (long)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, 0, 0, 0) != 0)
    _exit(77);
  unsigned char code[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};  // by way of r11
  memcpy(code + 2, &own, 8);
  memcpy(function, code, sizeof code);
  enter(SYS_mprotect, (long)page, 8192, PROT_READ | PROT_EXEC, 0, 0, 0);
}

// The entry of a name in the tables of every module.
typedef struct Entry {
  const char* name;
  const void* own;
} Entry;

static int replace(struct dl_phdr_info* module, size_t size, void* context) {
  (void)size;
  const Entry* entry = context;
  const ElfW(Dyn)* dynamic = NULL;
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    if (module->dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = (const ElfW(Dyn)*)(module->dlpi_addr + module->dlpi_phdr[i].p_vaddr);
  }
  const ElfW(Sym)* symbols = NULL;
  const char* names = NULL;
  const ElfW(Rela) * tables[2] = {NULL, NULL};
  size_t bytes[2] = {0, 0};
  for (; dynamic != NULL && dynamic->d_tag != DT_NULL; ++dynamic) {
    const uintptr_t at = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym)*)at;
    if (dynamic->d_tag == DT_STRTAB) names = (const char*)at;
    if (dynamic->d_tag == DT_RELA) tables[0] = (const ElfW(Rela)*)at;
    if (dynamic->d_tag == DT_JMPREL) tables[1] = (const ElfW(Rela)*)at;
    if (dynamic->d_tag == DT_RELASZ) bytes[0] = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_PLTRELSZ) bytes[1] = dynamic->d_un.d_val;
  }
  // The kernel's own module has addresses that nobody has moved.
  if ((uintptr_t)symbols < module->dlpi_addr || names == NULL) return 0;
  for (int table = 0; table < 2; ++table) {
    for (size_t i = 0; tables[table] != NULL && i < bytes[table] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela)* one = &tables[table][i];
      const unsigned type = ELF64_R_TYPE(one->r_info);
      if (type != R_X86_64_GLOB_DAT && type != R_X86_64_JUMP_SLOT) continue;
      if (strcmp(names + symbols[ELF64_R_SYM(one->r_info)].st_name, entry->name) != 0) continue;
      const uintptr_t place = module->dlpi_addr + one->r_offset;
      enter(SYS_mprotect, (long)(place & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE, 0, 0, 0);
      memcpy((void*)place, &entry->own, sizeof entry->own);
    }
  }
  return 0;
}

static int by_table;

static void watch(const char* name, const void* own) {
  Entry entry = {name, own};
  if (by_table)
    dl_iterate_phdr(&replace, &entry);
  else
    hook(name, own);
}

#if defined(BY_SYMBOL)
int munmap(void* address, size_t bytes) { return own_munmap(address, bytes); }
int madvise(void* address, size_t bytes, int advice) { return own_madvise(address, bytes, advice); }
#endif

static void check(size_t bytes) {
  for (int round = 0; round < 8; ++round) {
    char* block = NULL;
    if (posix_memalign((void**)&block, 4096, bytes) != 0) _exit(2);
    memset(block, 'a', bytes);
    buffer = block, buffer_bytes = bytes, registered = 1;
    int pipe_ends[2];
    struct iovec first = {block, 4096};
    if (pipe(pipe_ends) != 0) _exit(2);
    if (vmsplice(pipe_ends[1], &first, 1, 0) != 4096) _exit(77);
    if (round % 3 == 1) block = realloc(block, bytes / 2);
    if (round % 3 == 2) block = realloc(block, bytes * 2);
    free(block);
    void* others[40];
    for (int i = 0; i < 40; ++i) memset(others[i] = malloc(300000), 1, 300000);
    for (int i = 0; i < 40; ++i) free(others[i]);
    malloc_trim(0);
    if (posix_memalign((void**)&block, 4096, bytes) != 0) _exit(2);
    memset(block, 'b', bytes);
    char seen[4096];
    if (read(pipe_ends[0], seen, sizeof seen) != (ssize_t)sizeof seen) _exit(2);
    if (block == buffer && registered && seen[0] != 'b') {
      dprintf(2, "a buffer of %zu bytes is registered, and has other pages\n", bytes);
      _exit(1);
    }
    registered = 0;
    free(block);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
  }
}

int main(int count, char** arguments) {
  free(malloc(1));
  by_table = count > 1 && strcmp(arguments[1], "table") == 0;
#if !defined(BY_SYMBOL)
  watch("munmap", (const void*)(uintptr_t)&own_munmap);
  watch("madvise", (const void*)(uintptr_t)&own_madvise);
  watch("mremap", (const void*)(uintptr_t)&own_mremap);
#else
  (void)&watch;
  (void)&own_mremap;
#endif
  for (size_t bytes = 40000; bytes <= (size_t)80 << 20; bytes *= 8) check(bytes);
  return 0;
}
