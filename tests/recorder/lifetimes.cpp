// Objects that live before and after main, and in threads.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Early {
  char* block = static_cast<char*>(malloc(1201));
  ~Early() { free(block); }
};
Early early;
thread_local Early in_thread;

__attribute__((constructor(101))) void very_early() { free(malloc(1202)); }
void at_exit() { free(malloc(1203)); }

}  // namespace

int main() {
  std::atexit(at_exit);
  std::vector<std::thread> threads;
  for (int i = 0; i < 50; ++i) threads.emplace_back([] { in_thread.block[0] = 1; });
  for (auto& thread : threads) thread.join();
  std::printf("expect size 1201 allocated 51 freed 51\nexpect size 1202 allocated 1 freed 1\n");
  std::printf("expect size 1203 allocated 1 freed 1\n");
}
