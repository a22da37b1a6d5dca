// Linux: the clocks. The kernel maps code into every process that reads them without a system call.
// The heap finds that code itself: a program or a tool may replace the C library's clock_gettime(),
// and the heap reads the clock while it holds locks.
#if defined(__linux__)

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <atomic>
#include <ctime>

#include "base/text.h"
#include "os/kernel.h"
#include "os/os.h"

namespace loam::os {

namespace {

using ReadClock = int (*)(clockid_t, timespec*);

int ask_kernel(clockid_t clock, timespec* out) {
#if LOAM_OS_DIRECT
  return static_cast<int>(kernel::call(SYS_clock_gettime, clock, out));
#else
  ErrnoGuard guard;
  return clock_gettime(clock, out);
#endif
}

// Null: the kernel is asked. relaxed throughout: the code that it points to never changes
constinit std::atomic<ReadClock> mapped_clock{nullptr};

#if LOAM_OS_DIRECT

// Apart from the other texts: src/api/layout.ld puts it beside the other data of a start.
#if defined(__x86_64__)
constexpr char kClockName[] = "__vdso_clock_gettime";
#else
constexpr char kClockName[] = "__kernel_clock_gettime";
#endif

// The number of symbols of a table, by whichever of the two indices is there.
size_t count_symbols(const uint32_t* hash, const uint32_t* gnu_hash) {
  if (hash != nullptr) return hash[1];
  if (gnu_hash == nullptr) return 0;
  const uint32_t buckets = gnu_hash[0], first = gnu_hash[1], filter_words = gnu_hash[2];
  const uint32_t* const bucket = gnu_hash + 4 + 2 * filter_words;
  const uint32_t* const chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i) last = bucket[i] > last ? bucket[i] : last;
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;  // the last one of a chain is odd
  return last + 1;
}

// Null where the kernel has no such code: an emulator, or an old processor.
ReadClock find_in(uintptr_t image) {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(image);
  if (header == nullptr) return nullptr;
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(image + header->e_phoff);
  uintptr_t base = 0;
  const ElfW(Dyn)* entry = nullptr;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type == PT_LOAD && base == 0)
      base = image + segments[i].p_offset - segments[i].p_vaddr;
    if (segments[i].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const ElfW(Dyn)*>(image + segments[i].p_offset);
  }
  if (entry == nullptr) return nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  const uint32_t* hash = nullptr;
  const uint32_t* gnu_hash = nullptr;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const uintptr_t at = base + entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(at);
    if (entry->d_tag == DT_HASH) hash = reinterpret_cast<const uint32_t*>(at);
    if (entry->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const uint32_t*>(at);
  }
  if (symbols == nullptr || names == nullptr) return nullptr;
  for (size_t i = count_symbols(hash, gnu_hash); i-- > 0;) {
    if (symbols[i].st_shndx == SHN_UNDEF || !text::same(names + symbols[i].st_name, kClockName))
      continue;
    return reinterpret_cast<ReadClock>(base + symbols[i].st_value);
  }
  return nullptr;
}

#endif

uint64_t read_clock(clockid_t clock) {
  timespec t{};
  const ReadClock mapped = mapped_clock.load(std::memory_order_relaxed);
  (mapped != nullptr ? mapped : &ask_kernel)(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

void kernel::find_clock() {
#if LOAM_OS_DIRECT
  mapped_clock.store(find_in(getauxval(AT_SYSINFO_EHDR)), std::memory_order_relaxed);
#endif
}

uint64_t now_coarse_ns() { return read_clock(CLOCK_MONOTONIC_COARSE); }
uint64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }
uint64_t running_ms() { return read_clock(CLOCK_PROCESS_CPUTIME_ID) / 1'000'000; }
uint64_t wall_clock_ns() { return read_clock(CLOCK_REALTIME); }

}  // namespace loam::os

#endif  // __linux__
