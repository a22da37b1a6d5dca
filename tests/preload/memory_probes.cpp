// A profiler attaches to a running program, reads the notes of OpenTelemetry's memory probes, and
// learns of a sample of blocks. The weights add up to the requested bytes, and every sampled
// block's free is reported. Nothing is reported before the profiler attaches or after it detaches.
//
// The profiler is a child that traces its parent. It raises the notes' semaphores in the parent's
// memory, and stops the parent at the notes' addresses, as the system does for other profilers. Its
// findings are in memory that both share.
//
// `memory_probes work BLOCKS` is for another profiler. It waits for a line on standard input,
// allocates that many blocks, and prints their bytes.
#include <elf.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <unordered_set>
#include <vector>

#include "check.h"

namespace {

constexpr uint64_t kBlocks = 10'000'000, kFewBlocks = 100'000, kLargest = 32 << 10;

// --- the program -------------------------------------------------------------------------------

struct Worker {
  uint64_t random = 1;
  void* slots[1000] = {};
  double bytes = 0;

  void* make(uint64_t i) {
    uint64_t size = 1 + next_random(&random) % kLargest;
    void* block = nullptr;
    switch (i % 64) {
      case 0:
        block = calloc(1, size);
        break;
      case 1:
        CHECK(posix_memalign(&block, 64, size) == 0);
        break;
      case 2:
        block = malloc(size = 100'000 + size);
        break;
      case 3:
        block = operator new(size);
        break;
      case 4:  // a block that moves counts as two
        block = malloc(size);
        bytes += static_cast<double>(size);
        block = realloc(block, size += 50'000);
        break;
      default:
        block = malloc(size);
    }
    CHECK(block != nullptr);
    bytes += static_cast<double>(size);
    return opaque(block);
  }
  void run(uint64_t blocks) {
    bytes = 0;
    for (uint64_t i = 0; i < blocks; ++i) {
      void*& slot = slots[next_random(&random) % 1000];
      free(slot);
      slot = make(i);
    }
    for (void*& slot : slots) {
      free(slot);
      slot = nullptr;
    }
  }
};

// --- the notes ---------------------------------------------------------------------------------

struct Probe {
  uint64_t place = 0, semaphore = 0;
  std::string arguments;
};

struct Notes {
  Probe alloc, free;
};

std::string read_file(const std::string& path) {
  FILE* file = fopen(path.c_str(), "re");
  CHECK(file != nullptr);
  std::string text;
  char part[65536];
  for (size_t got; (got = fread(part, 1, sizeof part, file)) != 0;) text.append(part, got);
  fclose(file);
  return text;
}

template <typename T>
T at(const std::string& file, uint64_t offset) {
  T value;
  CHECK(offset + sizeof value <= file.size());
  memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

// The probes of a library, at the addresses in its file.
Notes notes_of(const std::string& path) {
  const std::string file = read_file(path);
  const auto head = at<Elf64_Ehdr>(file, 0);
  const auto names = at<Elf64_Shdr>(file, head.e_shoff + head.e_shstrndx * sizeof(Elf64_Shdr));
  Notes notes;
  for (unsigned i = 0; i < head.e_shnum; ++i) {
    const auto section = at<Elf64_Shdr>(file, head.e_shoff + i * sizeof(Elf64_Shdr));
    if (std::string(file.c_str() + names.sh_offset + section.sh_name) != ".note.stapsdt") continue;
    for (uint64_t offset = section.sh_offset; offset < section.sh_offset + section.sh_size;) {
      const auto note = at<Elf64_Nhdr>(file, offset);
      const uint64_t begin = offset + sizeof note + (note.n_namesz + 3) / 4 * 4;
      const std::string provider = file.c_str() + begin + 24;
      const std::string name = file.c_str() + begin + 25 + provider.size();
      const std::string arguments = file.c_str() + begin + 26 + provider.size() + name.size();
      CHECK(note.n_type == 3 && std::string(file.c_str() + offset + sizeof note) == "stapsdt");
      if (provider == "otel_memory") {
        (name == "alloc" ? notes.alloc : notes.free) = {at<uint64_t>(file, begin),
                                                        at<uint64_t>(file, begin + 16), arguments};
      }
      offset = begin + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return notes;
}

struct Library {
  std::string path;
  uint64_t base = 0;
};

Library library_of(pid_t process) {
  char path[64], line[1024], name[512];
  snprintf(path, sizeof path, "/proc/%d/maps", process);
  FILE* maps = fopen(path, "re");
  CHECK(maps != nullptr);
  Library found;
  while (fgets(line, sizeof line, maps) != nullptr) {
    unsigned long begin, offset;
    if (sscanf(line, "%lx-%*x %*s %lx %*s %*s %511s", &begin, &offset, name) == 3 && offset == 0 &&
        strstr(name, "libloam.so") != nullptr && found.path.empty())
      found = {name, begin};
  }
  fclose(maps);
  return found;
}

// --- the profiler ------------------------------------------------------------------------------

#if defined(__x86_64__)
using Registers = user_regs_struct;
constexpr uint8_t kBreak[] = {0xcc};
constexpr uint64_t kStopsBehind = 1;
unsigned long long& counter_of(Registers& r) { return r.rip; }
uint64_t value_of(const Registers& r, const std::string& name) {
  const std::pair<const char*, uint64_t> known[] = {
      {"%rax", r.rax}, {"%rbx", r.rbx}, {"%rcx", r.rcx}, {"%rdx", r.rdx}, {"%rsi", r.rsi},
      {"%rdi", r.rdi}, {"%rbp", r.rbp}, {"%r8", r.r8},   {"%r9", r.r9},   {"%r10", r.r10},
      {"%r11", r.r11}, {"%r12", r.r12}, {"%r13", r.r13}, {"%r14", r.r14}, {"%r15", r.r15}};
  for (const auto& [its, value] : known) {
    if (name == its) return value;
  }
  CHECK(!"a register that the test knows");
  return 0;
}
#elif defined(__aarch64__)
using Registers = user_regs_struct;
constexpr uint8_t kBreak[] = {0x00, 0x00, 0x20, 0xd4};
constexpr uint64_t kStopsBehind = 0;
unsigned long long& counter_of(Registers& r) { return r.pc; }
uint64_t value_of(const Registers& r, const std::string& name) {
  CHECK(name[0] == 'x');
  return r.regs[atoi(name.c_str() + 1)];
}
#endif

enum Command : int { kListen = 1, kGo, kEnd };
struct Found {
  std::atomic<Command> command;  // the profiler's task when the signal comes
  std::atomic<bool> attached;
  double weights, sizes, objects;
  uint64_t samples, frees, unknown_frees, live;
};

class Profiler {
 public:
  Profiler(pid_t target, Found& found) : target_(target), found_(found) {
    const Library library = library_of(target);
    CHECK(!library.path.empty());
    notes_ = notes_of(library.path);
    CHECK(notes_.alloc.place != 0 && notes_.free.place != 0);
    base_ = library.base;
    CHECK(ptrace(PTRACE_SEIZE, target, nullptr, nullptr) == 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", target);
    memory_ = open(path, O_RDWR | O_CLOEXEC);
    CHECK(memory_ >= 0);
    for (const Probe& probe : {notes_.alloc, notes_.free})
      CHECK(pwrite(memory_, kBreak, sizeof kBreak, place(probe)) == sizeof kBreak);
  }

  void raise(int16_t by) {
    for (const Probe& probe : {notes_.alloc, notes_.free}) {
      int16_t listeners = 0;
      const off_t where = static_cast<off_t>(base_ + probe.semaphore);
      CHECK(pread(memory_, &listeners, sizeof listeners, where) == sizeof listeners);
      listeners = static_cast<int16_t>(listeners + by);
      CHECK(pwrite(memory_, &listeners, sizeof listeners, where) == sizeof listeners);
    }
  }

  // Runs until the target needs no more, or has ended.
  void serve() {
    for (;;) {
      int status = 0;
      CHECK(waitpid(target_, &status, __WALL) == target_);
      if (WIFEXITED(status) || WIFSIGNALED(status)) return;
      const int signal = WSTOPSIG(status);
      int pass_on = 0;
      if (status >> 16 != 0) {
        // no stop of ours
      } else if (signal == SIGTRAP) {
        stop();
      } else if (signal != SIGUSR2) {
        pass_on = signal;
      } else if (found_.command == kEnd) {
        CHECK(ptrace(PTRACE_DETACH, target_, nullptr, nullptr) == 0);
        return;
      } else {
        raise(found_.command == kListen ? 1 : -1);
      }
      CHECK(ptrace(PTRACE_CONT, target_, nullptr, pass_on) == 0);
    }
  }

 private:
  off_t place(const Probe& probe) const { return static_cast<off_t>(base_ + probe.place); }

  // "8@%rdi 8@%rsi": the values in an argument list.
  static std::vector<uint64_t> values(const Registers& registers, const std::string& arguments) {
    std::vector<uint64_t> result;
    for (size_t begin = 0; begin < arguments.size();) {
      const size_t end = std::min(arguments.find(' ', begin), arguments.size());
      CHECK(arguments.compare(begin, 2, "8@") == 0);
      result.push_back(value_of(registers, arguments.substr(begin + 2, end - begin - 2)));
      begin = end + 1;
    }
    return result;
  }

  void stop() {
    Registers registers;
    iovec area{&registers, sizeof registers};
    CHECK(ptrace(PTRACE_GETREGSET, target_, NT_PRSTATUS, &area) == 0);
    const off_t where = static_cast<off_t>(counter_of(registers) - kStopsBehind);
    if (where == place(notes_.alloc)) {
      const auto v = values(registers, notes_.alloc.arguments);
      CHECK(v.size() == 3 && v[1] != 0);
      if (!live_.insert(v[0]).second) ++found_.unknown_frees;
      ++found_.samples;
      found_.weights += static_cast<double>(v[2]);
      found_.objects += static_cast<double>(v[2]) / static_cast<double>(v[1]);
    } else {
      CHECK(where == place(notes_.free));
      const auto v = values(registers, notes_.free.arguments);
      CHECK(v.size() == 1);
      ++found_.frees;
      if (live_.erase(v[0]) == 0) ++found_.unknown_frees;
    }
    found_.live = live_.size();
    if (kStopsBehind == 0) {
      counter_of(registers) += sizeof kBreak;
      CHECK(ptrace(PTRACE_SETREGSET, target_, NT_PRSTATUS, &area) == 0);
    }
  }

  pid_t target_;
  Found& found_;
  Notes notes_;
  uint64_t base_ = 0;
  int memory_ = -1;
  std::unordered_set<uint64_t> live_;
};

// When this returns, the profiler has done its task: it stops the signal and does not deliver it.
void tell(Found& found, Command command) {
  found.command = command;
  raise(SIGUSR2);
}

Worker worker;

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "work") == 0) {
    const uint64_t blocks = strtoull(argv[2], nullptr, 10);
    worker.run(kFewBlocks);
    if (getchar() == EOF) return 2;
    worker.run(blocks);
    printf("%.0f\n", worker.bytes);
    return 0;
  }
#if !defined(__x86_64__) && !defined(__aarch64__)
  SKIP("the test knows this processor's registers not");
#endif
  void* shared =
      mmap(nullptr, sizeof(Found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  Found& found = *new (shared) Found{};
  const pid_t parent = getpid();
  int ready[2];
  CHECK(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    char word;
    close(ready[1]);
    CHECK(read(ready[0], &word, 1) == 1);  // the parent allows it
    Profiler profiler(parent, found);
    found.attached = true;
    profiler.serve();
    _exit(0);
  }
  prctl(PR_SET_PTRACER, child, 0, 0, 0);
  CHECK(write(ready[1], "x", 1) == 1);
  while (!found.attached) {
    int status = 0;
    CHECK(waitpid(child, &status, WNOHANG) == 0);  // the profiler failed and printed the reason
    usleep(1000);
  }

  worker.run(kFewBlocks);
  CHECK_EQUAL(found.samples + found.frees, 0);

  // Hardened calls are slow, and few blocks say little about a sample.
  const bool is_hardened = getenv("LOAM_HARDEN") != nullptr;
  tell(found, kListen);
  worker.run(is_hardened ? kFewBlocks : kBlocks);
  printf("%llu samples: %.4f of the bytes, %.4f of the blocks; %llu frees\n",
         static_cast<unsigned long long>(found.samples), found.weights / worker.bytes,
         found.objects / (kBlocks * 65 / 64), static_cast<unsigned long long>(found.frees));
  if (!is_hardened) {
    // The standard deviations are 0.2 and 0.4 %.
    CHECK(found.weights > 0.99 * worker.bytes && found.weights < 1.01 * worker.bytes);
    CHECK(found.objects > 0.97 * kBlocks && found.objects < 1.05 * kBlocks);
  }
  CHECK_EQUAL(found.frees, found.samples);
  CHECK_EQUAL(found.unknown_frees, 0);
  CHECK_EQUAL(found.live, 0);

  // A block that could not grow is still live. Long blocks are almost certainly sampled.
  for (const size_t bytes : {size_t{16} << 20, size_t{64} << 20}) {
    void* const block = malloc(bytes);
    CHECK(block != nullptr && realloc(block, size_t{1} << 60) == nullptr);
    CHECK_EQUAL(found.live, 1);
    free(block);
    CHECK_EQUAL(found.live, 0);
  }

  tell(found, kGo);
  const uint64_t before = found.samples + found.frees;
  worker.run(kFewBlocks);
  CHECK_EQUAL(found.samples + found.frees, before);
  tell(found, kEnd);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}
