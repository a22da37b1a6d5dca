// dl_loop loads and unloads this again and again. It allocates in its constructor, in its
// destructor and for a thread-local object, whose destructor runs when the thread ends.
#include <cstdlib>
#include <string>
#include <vector>

namespace {

struct PerThread {
  std::vector<std::string> lines{"first", "second"};
  ~PerThread() { lines.push_back(std::string(2000, 'p')); }
};
thread_local PerThread per_thread;

char* own_block = nullptr;

__attribute__((constructor)) void load() { own_block = static_cast<char*>(std::calloc(1, 5000)); }
__attribute__((destructor)) void unload() { std::free(own_block); }

}  // namespace

extern "C" char* plugin_make(std::size_t size) {
  per_thread.lines.push_back(std::string(size % 100, 'q'));
  return static_cast<char*>(std::malloc(size));
}

extern "C" void plugin_take(char* block) { std::free(block); }
