// The clocks. The kernel maps code into every process that reads them without a system call, and
// the recorder finds that code itself: a program or a tool may replace the C library's
// clock_gettime() by one that allocates, or that moves time.
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"

typedef int (*ReadClock)(clockid_t, struct timespec*);

#if defined(__x86_64__)
static const char kName[] = "__vdso_clock_gettime";
#else
static const char kName[] = "__kernel_clock_gettime";
#endif

static int ask_kernel(clockid_t clock, struct timespec* out) {
  return (int)syscall(SYS_clock_gettime, clock, out);
}

// Null until the first look. The code that it points to never changes.
static _Atomic(ReadClock) known;

// The number of symbols, by whichever of the two tables is there.
static size_t count_symbols(const uint32_t* hash, const uint32_t* gnu_hash) {
  if (hash != NULL) return hash[1];
  if (gnu_hash == NULL) return 0;
  const uint32_t buckets = gnu_hash[0], first = gnu_hash[1];
  const uint32_t* const bucket = gnu_hash + 4 + 2 * gnu_hash[2];
  const uint32_t* const chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i) last = bucket[i] > last ? bucket[i] : last;
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;  // the last one of a chain is odd
  return last + 1;
}

// The kernel itself where it maps no such code: an emulator, or an old processor.
static ReadClock find(void) {
  const char* const image = (const char*)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
  if (image == NULL) return ask_kernel;
  const ElfW(Ehdr)* header = (const void*)image;
  const ElfW(Phdr)* segments = (const void*)(image + header->e_phoff);
  const char* base = NULL;
  const ElfW(Dyn)* entry = NULL;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type == PT_LOAD && base == NULL)
      base = image + segments[i].p_offset - segments[i].p_vaddr;
    if (segments[i].p_type == PT_DYNAMIC) entry = (const void*)(image + segments[i].p_offset);
  }
  const ElfW(Sym)* symbols = NULL;
  const char* names = NULL;
  const uint32_t *hash = NULL, *gnu_hash = NULL;
  for (; entry != NULL && entry->d_tag != DT_NULL; ++entry) {
    const void* at = base + entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) symbols = at;
    if (entry->d_tag == DT_STRTAB) names = at;
    if (entry->d_tag == DT_HASH) hash = at;
    if (entry->d_tag == DT_GNU_HASH) gnu_hash = at;
  }
  if (symbols == NULL || names == NULL) return ask_kernel;
  for (size_t i = count_symbols(hash, gnu_hash); i-- > 0;)
    if (symbols[i].st_shndx != SHN_UNDEF && strcmp(names + symbols[i].st_name, kName) == 0)
      return (ReadClock)(uintptr_t)(base + symbols[i].st_value);
  return ask_kernel;
}

static uint64_t read_clock(clockid_t clock) {
  ReadClock read = atomic_load_explicit(&known, memory_order_relaxed);
  if (read == NULL) {
    read = find();
    atomic_store_explicit(&known, read, memory_order_relaxed);
  }
  struct timespec time = {0, 0};
  read(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t kernel_monotonic(void) { return read_clock(CLOCK_MONOTONIC); }
uint64_t kernel_realtime(void) { return read_clock(CLOCK_REALTIME); }
