// A program that grows by order, for the tests of `loam record --growth` and `loam doctor
// --stacks`.
//
//   leak N     N MiB in blocks of 200 bytes that stay, by keep_session()
//   order N    N objects of the class shop::Order that stay, by keep_order()
//   large N    N blocks of 1 MiB that stay, by keep_image(), filled by read() from /dev/zero
//   thread N   N MiB by a thread that begins now, by keep_in_thread()
//   fork N     a child that loses N MiB and ends, by keep_in_child()
//   exec       becomes `sleep 60`
//   churn N    a block of N MiB that comes and goes, by pass_by()
//   serve N    N blocks of 1 KiB that come and go, a hundred of them at a time, by serve()
//   hurry N    N small blocks that come and go as fast as they can
//   steadily   from now on a thread leaks until the program ends, by keep_steadily()
//   storm      from now on a thread takes and gives back memory, as fast as it can, by pass_by()
//   count      answers how many bytes the steady thread has lost
//   quit

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define FUNCTION extern "C" __attribute__((noinline, used))

namespace {
constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kBlock = 200;
// Nothing of it is read again: the blocks are lost.
void* volatile lost;
std::atomic<std::size_t> steady_bytes{0};

// Four pages a millisecond: a tool that waits for its turn on a busy machine still reads each
// sample.
void pace(std::size_t& unpaced, std::size_t bytes) {
  unpaced += bytes;
  if (unpaced < 4 * 4096) return;
  unpaced = 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
}  // namespace

namespace shop {
struct Order {
  virtual ~Order() = default;
  virtual int price() const { return items[0]; }
  int items[100] = {};
};
}  // namespace shop

FUNCTION void keep_order(std::size_t count) {
  std::size_t unpaced = 0;
  for (std::size_t i = 0; i < count; i++) {
    lost = new shop::Order;
    pace(unpaced, sizeof(shop::Order));
  }
}

FUNCTION void keep_session(std::size_t count) {
  std::size_t unpaced = 0;
  for (std::size_t i = 0; i < count; i++) {
    char* block = new char[kBlock];
    std::memset(block, 1, kBlock);
    lost = block;
    pace(unpaced, kBlock);
  }
}

FUNCTION void keep_image(std::size_t count) {
  int zeros = open("/dev/zero", O_RDONLY);
  for (std::size_t i = 0; i < count; i++) {
    void* block = std::malloc(kMiB);
    constexpr std::size_t kPart = 16 << 10;
    for (std::size_t at = 0; at < kMiB; at += kPart) {
      if (read(zeros, static_cast<char*>(block) + at, kPart) != static_cast<ssize_t>(kPart))
        std::abort();
      std::size_t unpaced = 0;
      pace(unpaced, kPart);
    }
    lost = block;
  }
  close(zeros);
}

FUNCTION void keep_in_thread(std::size_t count) {
  std::size_t unpaced = 0;
  for (std::size_t i = 0; i < count; i++) {
    lost = std::memset(std::malloc(kBlock), 1, kBlock);
    pace(unpaced, kBlock);
  }
}

FUNCTION void keep_in_child(std::size_t count) {
  for (std::size_t i = 0; i < count; i++) lost = std::memset(std::malloc(kBlock), 1, kBlock);
}

FUNCTION void serve(std::size_t count) {
  static void* kept[100];
  std::size_t unpaced = 0;
  for (std::size_t i = 0; i < count; i++) {
    std::free(kept[i % 100]);
    kept[i % 100] = std::memset(std::malloc(1024), 2, 1024);
    pace(unpaced, 1024);
  }
}

FUNCTION void pass_by(std::size_t bytes) {
  void* block = std::malloc(bytes);
  lost = std::memset(block, 1, bytes);
  std::free(block);
}

FUNCTION void keep_steadily() {
  for (;;) {
    for (int i = 0; i < 2'000; i++) lost = std::memset(std::malloc(kBlock), 1, kBlock);
    steady_bytes.fetch_add(2'000 * (kBlock + 8), std::memory_order_relaxed);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::puts("ready");
  char line[100];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    char what[20];
    std::size_t count = 0;
    if (std::sscanf(line, "%19s %zu", what, &count) < 1) return 1;
    const std::string order = what;
    const std::size_t blocks = count * kMiB / kBlock;
    if (order == "leak") {
      keep_session(blocks);
    } else if (order == "order") {
      keep_order(count);
    } else if (order == "large") {
      keep_image(count);
    } else if (order == "thread") {
      std::thread(keep_in_thread, blocks).join();
    } else if (order == "serve") {
      serve(count);
    } else if (order == "hurry") {
      for (std::size_t i = 0; i < count; i++) {
        void* const block = std::malloc(48);
        lost = block;
        std::free(block);
      }
    } else if (order == "fork") {
      const pid_t child = fork();
      if (child == 0) {
        keep_in_child(blocks);
        _exit(0);
      }
      int status = 0;
      if (waitpid(child, &status, 0) != child || status != 0) return 1;
    } else if (order == "exec") {
      execlp("sleep", "sleep", "60", nullptr);
      return 1;
    } else if (order == "churn") {
      pass_by(count * kMiB);
    } else if (order == "steadily") {
      std::thread(keep_steadily).detach();
    } else if (order == "storm") {
      std::thread([] {
        for (;;) pass_by(16 * kMiB);
      }).detach();
    } else if (order == "count") {
      std::printf("%zu\n", steady_bytes.load(std::memory_order_relaxed));
      continue;
    } else {
      std::puts("bye");
      return 0;
    }
    std::puts("done");
  }
}
