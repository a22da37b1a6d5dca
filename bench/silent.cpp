// silent: what is resident two seconds after a peak, when the program waits.
//
//   silent --form FORM [--peak BYTES] [--sizes LEAST-MOST] [--keep N] [--order ORDER] [--rounds N]
//
// FORM: sleep, epoll, light (ten pairs of calls each 100 ms), worker (its thread has the peak and
// waits in read), pool (eight threads have the peak together and wait for a condition), many (64
// threads), turns (64 threads that have an eighth of the peak one after the other), fork (a child
// has the peak and waits in poll), other (another thread frees), reads and condition (a child has
// the peak, and its only thread waits in read, or for a condition). ORDER: forward, backward,
// random. One block in N stays, the first, the last, or spread over all; 0: none. The peak comes
// --rounds times. Every byte is written, and the tables lie outside the heap. Prints one line of
// JSON: live and resident bytes above the start: right after, in the end, and after malloc_trim(0).
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "harness/arguments.h"
#include "harness/block.h"
#include "harness/random.h"
#include "harness/system.h"

namespace {

using namespace lab;

struct Peak {
  uint64_t bytes;
  uint32_t least, most, keep;
  std::string which;
  std::string order;
  unsigned rounds;
};

/// The blocks of one thread.
class Blocks {
 public:
  Blocks(const Peak& peak, uint64_t bytes, uint64_t seed)
      : peak_(peak),
        bytes_(bytes),
        table_(bytes / ((peak.least + peak.most) / 2) * 5 / 4 + 64),
        stays_(bytes / ((peak.least + peak.most) / 2) * 5 / 4 + 64),
        random_(seed) {}

  void fill() {
    for (uint64_t held = live_; held < bytes_;) {
      const uint32_t bytes = random_.between(peak_.least, peak_.most);
      held += bytes;
      const bool stays = this->stays(held);
      if (stays) live_ += bytes;
      stays_[count_] = stays;
      table_[count_] = must(std::malloc(bytes), bytes);
      std::memset(table_[count_++], 1, bytes);
    }
  }
  void fall() {
    size_t go = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (!stays_[i]) table_[go++] = table_[i];
    }
    count_ = 0;
    for (size_t i = go; i > 1 && peak_.order == "random"; --i) {
      const size_t other = random_.below(static_cast<uint32_t>(i));
      void* const block = table_[i - 1];
      table_[i - 1] = table_[other];
      table_[other] = block;
    }
    for (size_t i = 0; i < go; ++i) std::free(table_[peak_.order == "backward" ? go - 1 - i : i]);
  }
  /// Each later peak is what the first one freed.
  void run() {
    for (unsigned round = 0; round < peak_.rounds; ++round) {
      fill();
      fall();
    }
  }
  [[nodiscard]] uint64_t live() const { return live_; }

 private:
  [[nodiscard]] bool stays(uint64_t held) const {
    if (peak_.keep == 0 || live_ >= bytes_ / peak_.keep) return false;
    if (peak_.which == "last") return held + bytes_ / peak_.keep > bytes_;
    return peak_.which == "first" || count_ % peak_.keep == 0;
  }
  const Peak& peak_;
  uint64_t bytes_, live_ = 0;
  Table<void*> table_;
  Table<char> stays_;
  size_t count_ = 0;
  Random random_;
};

/// The compiler may not leave the pair out.
void one_pair() {
  void* block = must(std::malloc(100), 100);
  asm volatile("" : "+r"(block));
  std::free(block);
}

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t never = PTHREAD_COND_INITIALIZER;
int ready[2], idle[2];

struct Work {
  Blocks* blocks;
  bool waits_in_read;
};

void* work(void* argument) {
  const Work& own = *static_cast<Work*>(argument);
  own.blocks->run();
  char byte = 0;
  if (write(ready[1], &byte, 1) != 1) std::abort();
  if (own.waits_in_read) return reinterpret_cast<void*>(read(idle[0], &byte, 1));
  pthread_mutex_lock(&mutex);
  for (;;) pthread_cond_wait(&never, &mutex);
}

void start(Work& work_of_it) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, work, &work_of_it) != 0) std::abort();
}
void wait_for_one() {
  char byte;
  if (read(ready[0], &byte, 1) != 1) std::abort();
}

void light(unsigned ms) {
  for (unsigned i = 0; i < ms / 100; ++i) {
    for (int pair = 0; pair < 10; ++pair) one_pair();
    usleep(100'000);
  }
}

constexpr int kSilence = 2000;  // ms
constexpr unsigned kMany = 64;

void measure(const std::string& form, const Peak& peak) {
  one_pair();
  if (pipe(ready) != 0 || pipe(idle) != 0) std::abort();
  const unsigned threads = form == "worker"                    ? 1
                           : form == "pool"                    ? 8
                           : form == "many" || form == "turns" ? kMany
                                                               : 0;
  // The tables are there before the first look.
  static std::optional<Blocks> blocks[kMany];
  static Work works[kMany];
  const uint64_t bytes = form == "pool" || form == "turns" ? peak.bytes / 8
                         : form == "many"                  ? peak.bytes / kMany
                                                           : peak.bytes;
  for (unsigned i = 0; i == 0 || i < threads; ++i) {
    blocks[i].emplace(peak, bytes, i + 1);
    works[i] = {&*blocks[i], form == "worker"};
  }
  const uint64_t before = memory_figures().resident;
  if (threads == 0 && form == "other") {
    blocks[0]->fill();
    pthread_t thread;
    const auto fall = [](void*) -> void* { return blocks[0]->fall(), nullptr; };
    if (pthread_create(&thread, nullptr, fall, nullptr) != 0) std::abort();
    pthread_join(thread, nullptr);
  } else if (threads == 0) {
    blocks[0]->run();
  }
  for (unsigned i = 0; i < threads; ++i) {
    start(works[i]);
    if (form == "turns") wait_for_one();
  }
  for (unsigned i = 0; i < threads && form != "turns"; ++i) wait_for_one();
  uint64_t live = 0;
  for (unsigned i = 0; i == 0 || i < threads; ++i) live += blocks[i]->live();
  const uint64_t after = memory_figures().resident;
  if (form == "epoll") {
    epoll_event event;
    epoll_wait(epoll_create1(0), &event, 1, kSilence);
  } else if (form == "fork") {
    poll(nullptr, 0, kSilence);
  } else if (form == "light") {
    light(kSilence);
  } else {
    usleep(kSilence * 1000);
  }
  const uint64_t silent = memory_figures().resident;
  malloc_trim(0);
  const uint64_t trimmed = memory_figures().resident;
  std::printf("{\"live\": %llu, \"after\": %lld, \"silent\": %lld, \"trimmed\": %lld}\n",
              static_cast<unsigned long long>(live), static_cast<long long>(after - before),
              static_cast<long long>(silent - before), static_cast<long long>(trimmed - before));
  std::fflush(stdout);
  _exit(0);
}

// What only another process can look at: nothing of this one runs meanwhile.
struct Report {
  uint64_t live, before, after;
};

uint64_t resident_of(pid_t process) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/smaps_rollup", static_cast<int>(process));
  std::FILE* const file = std::fopen(path, "re");
  char line[256];
  unsigned long long kib = 0;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "Rss: %llu kB", &kib) == 1) break;
  }
  if (file != nullptr) std::fclose(file);
  return kib * 1024;
}

[[noreturn]] void wait_alone(const std::string& form, const Peak& peak) {
  one_pair();
  Blocks blocks(peak, peak.bytes, 1);
  Report report{0, resident_of(getpid()), 0};
  blocks.run();
  report.live = blocks.live();
  report.after = resident_of(getpid());
  if (write(ready[1], &report, sizeof report) != sizeof report) std::abort();
  pthread_mutex_lock(&mutex);
  if (form == "condition") pthread_cond_wait(&never, &mutex);
  char byte;
  _exit(read(idle[0], &byte, 1) == 1 ? 0 : 1);
}

void watch(const std::string& form, const Peak& peak) {
  if (pipe(ready) != 0 || pipe(idle) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) wait_alone(form, peak);
  Report report;
  if (read(ready[0], &report, sizeof report) != sizeof report) std::abort();
  usleep(kSilence * 1000);
  const uint64_t silent = resident_of(child);
  kill(child, SIGKILL);
  std::printf("{\"live\": %llu, \"after\": %lld, \"silent\": %lld, \"trimmed\": 0}\n",
              static_cast<unsigned long long>(report.live),
              static_cast<long long>(report.after - report.before),
              static_cast<long long>(silent - report.before));
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args("silent", "what is resident two seconds after a peak, when the program waits",
                 argc, argv);
  const std::string form(args.choice("form",
                                     {"sleep", "epoll", "light", "worker", "pool", "many", "turns",
                                      "fork", "other", "reads", "condition"},
                                     "what waits"));
  const uint64_t bytes =
      args.bytes("peak", 200'000'000, 40'000'000, 1 << 20, uint64_t{1} << 40, "bytes at the peak");
  const std::string_view sizes = args.text("sizes", "16-1515", "LEAST-MOST bytes of a block");
  const uint64_t keep = args.number("keep", 12, 12, 0, 1'000'000, "one block in so many stays");
  const std::string_view stay = args.choice("stays", {"first", "last", "spread"}, "which blocks");
  const std::string_view order =
      args.choice("order", {"forward", "backward", "random"}, "in which blocks are freed");
  const uint64_t rounds = args.number("rounds", 1, 1, 1, 1000, "peaks, one after the other");
  args.done();
  Peak peak{bytes,
            0,
            0,
            static_cast<uint32_t>(keep),
            std::string(stay),
            std::string(order),
            static_cast<unsigned>(rounds)};
  const char* const end = sizes.data() + sizes.size();
  const auto first = std::from_chars(sizes.data(), end, peak.least);
  const bool has_dash = first.ptr != end && *first.ptr == '-';
  const auto second = has_dash ? std::from_chars(first.ptr + 1, end, peak.most) : first;
  if (second.ec != std::errc() || second.ptr != end || peak.least == 0 || peak.most < peak.least)
    fail(kExitUsage, "silent", ": --sizes wants LEAST-MOST, such as 16-512");
  if (form == "reads" || form == "condition") return watch(form, peak), 0;
  if (form == "fork") {
    one_pair();
    if (const pid_t child = fork(); child != 0) {
      int status = 0;
      return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
    }
  }
  measure(form, peak);
}
