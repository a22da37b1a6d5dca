// Linux: the system's part of reports and hardening: random bytes, and names for threads and code.
#if defined(__linux__)

#include <sys/random.h>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "os/kernel.h"
#include "os/linux_maps.h"
#include "os/os.h"

namespace loam::os {

void random_bytes(void* out, size_t bytes) {
  char* to = static_cast<char*>(out);
  size_t got = 0;
  while (got < bytes) {
    const long some = kernel::call(SYS_getrandom, to + got, bytes - got, GRND_NONBLOCK);
    if (some <= 0) break;
    got += static_cast<size_t>(some);
  }
  if (got == bytes) return;
  // A sandbox may forbid the call, or it may be too early in the system's life. The kernel gave
  // every process sixteen random bytes; the clock makes two calls differ.
  const unsigned char* const seed = kernel::boot_random;
  uint64_t state = now_ns() ^ reinterpret_cast<uintptr_t>(out);
  for (; got < bytes; ++got) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    to[got] = static_cast<char>((state >> 56) ^ (seed != nullptr ? seed[got % 16] : 0));
  }
}

uint32_t thread_number() { return static_cast<uint32_t>(kernel::call(SYS_gettid)); }

namespace {

using FaultReport = bool (*)(const void* address);
constinit FaultReport fault_report = nullptr;

// The system already restored the default action (SA_RESETHAND). When this returns, the same access
// faults again, and ends the process as it would have without this handler. A signal that another
// process sent does not come again by itself.
void handle_fault(int signal, siginfo_t* info, void*) {
  ErrnoGuard guard;
  if (info->si_code > 0) {
    static_cast<void>(fault_report(info->si_addr));
  } else {
    kernel::call(SYS_tgkill, kernel::call(SYS_getpid), kernel::call(SYS_gettid), signal);
  }
}

}  // namespace

void report_faults(bool (*report)(const void* address)) {
  ErrnoGuard guard;
  struct sigaction now {};
  if (sigaction(SIGSEGV, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 ||
      now.sa_handler != SIG_DFL)
    return;
  fault_report = report;
  struct sigaction ours {};
  ours.sa_sigaction = &handle_fault;
  ours.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
  sigaction(SIGSEGV, &ours, nullptr);
}

namespace {

// Null where there is no slash.
const char* after_last_slash(const char* text) {
  const char* found = nullptr;
  for (; *text != '\0'; ++text) {
    if (*text == '/') found = text + 1;
  }
  return found;
}

// The kernel reads the eight bytes as a set of signals before it sees that it knows no such change.
bool can_read(uintptr_t address) {
  return kernel::call(SYS_rt_sigprocmask, -1, address, nullptr, 8) != -EFAULT;
}

// Bound: a stack ends at a longer frame. That of a function with a large array is shorter.
constexpr uintptr_t kLongestFrame = uintptr_t{1} << 20;

}  // namespace

size_t callers(Caller caller, const void** out, size_t most) {
  const size_t grain = granularity();
  uintptr_t words[2] = {reinterpret_cast<uintptr_t>(caller.frame),  // the next frame
                        reinterpret_cast<uintptr_t>(caller.code)};
  uintptr_t at = reinterpret_cast<uintptr_t>(words);
  uintptr_t readable = at / grain;
  for (size_t count = 0; count < most;) {
    if (words[1] == 0) return count;
    out[count++] = reinterpret_cast<const void*>(words[1]);
    const uintptr_t next = words[0];
    if (next <= at || next - at > kLongestFrame || next % sizeof(uintptr_t) != 0) return count;
    const uintptr_t ends[] = {next, next + sizeof(uintptr_t)};
    for (const uintptr_t word : ends) {
      if (word / grain == readable) continue;
      if (!can_read(word)) return count;
      readable = word / grain;
    }
    memcpy(words, reinterpret_cast<const void*>(next), sizeof words);
    at = next;
  }
  return most;
}

// "7f00-7f10 r-xp 00001000 08:01 123   /usr/lib/libc.so.6". The mappings of a module follow each
// other, and the one of the file's beginning comes first.
bool describe_code(const void* code, char* out, size_t size) {
  const uint64_t wanted = reinterpret_cast<uintptr_t>(code);
  MapsReader maps;
  uint64_t base = 0;
  while (const char* line = maps.next()) {
    const char* at = line;
    const uint64_t begin = parse_hex(at);
    if (*at++ != '-') continue;
    const uint64_t end = parse_hex(at);
    for (int words = 0; words < 2; ++words) {
      while (*at == ' ') ++at;
      while (*at != ' ' && *at != '\0' && words == 0) ++at;
    }
    if (parse_hex(at) == 0) base = begin;
    if (wanted < begin || wanted >= end) continue;
    const char* name = after_last_slash(line);
    if (name == nullptr) return false;
    size_t length = 0;
    for (; name[length] != '\0' && length + 24 < size; ++length) {
      // A file's name must not break the line or control a terminal.
      const unsigned char c = static_cast<unsigned char>(name[length]);
      out[length] = c < 0x20 || c == 0x7f ? '?' : name[length];
    }
    if (length + 24 > size) return false;
    out[length++] = '+';
    out[length++] = '0';
    out[length++] = 'x';
    const uint64_t offset = wanted - base;
    for (int shift = 60; shift >= 0; shift -= 4) {
      if (offset >> shift != 0 || shift == 0)
        out[length++] = "0123456789abcdef"[(offset >> shift) & 15];
    }
    out[length] = '\0';
    return true;
  }
  return false;
}

}  // namespace loam::os

#endif  // __linux__
