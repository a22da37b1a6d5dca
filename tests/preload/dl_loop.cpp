// dlopen, dlsym, dlerror and dlclose in a loop, from one thread and from several: they allocate
// (dlsym and dlerror even from inside libdl), the plugin allocates while it is loaded and unloaded,
// and memory does not grow with the number of rounds.
#include <dlfcn.h>

#include <thread>
#include <vector>

#include "check.h"

namespace {

struct Plugin {
  void* handle = nullptr;
  char* (*make)(std::size_t) = nullptr;
  void (*take)(char*) = nullptr;
};

Plugin load(const char* path) {
  Plugin plugin;
  plugin.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (plugin.handle == nullptr) dprintf(2, "%s\n", dlerror());
  CHECK(plugin.handle != nullptr);
  plugin.make = reinterpret_cast<char* (*)(std::size_t)>(dlsym(plugin.handle, "plugin_make"));
  plugin.take = reinterpret_cast<void (*)(char*)>(dlsym(plugin.handle, "plugin_take"));
  CHECK(plugin.make != nullptr && plugin.take != nullptr);
  return plugin;
}

void use(const Plugin& plugin, std::size_t size) {
  plugin.take(plugin.make(size));
  free(opaque(plugin.make(700)));                        // the plugin's blocks, freed here
  plugin.take(static_cast<char*>(opaque(malloc(700))));  // our blocks, freed there
}

void ask_for_what_is_not_there(const Plugin& plugin) {
  CHECK(dlsym(plugin.handle, "no_such_function") == nullptr);
  CHECK(dlerror() != nullptr);
  CHECK(dlsym(RTLD_NEXT, "malloc") != nullptr);
  CHECK(dlopen("/nonexistent/library.so", RTLD_NOW) == nullptr);
  CHECK(dlerror() != nullptr);
}

// The plugin's thread-local object pins it until its thread ends. So each round uses it on a thread
// of its own, and the plugin is then really unloaded.
void load_and_unload(const char* path, std::size_t rounds) {
  for (std::size_t round = 0; round < rounds; ++round) {
    const Plugin plugin = load(path);
    std::thread(use, plugin, round * 37 % 3000).join();
    ask_for_what_is_not_there(plugin);
    CHECK(dlclose(plugin.handle) == 0);
    CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == nullptr);
  }
}

void load_at_once(const char* path, std::size_t rounds) {
  for (std::size_t round = 0; round < rounds; ++round) {
    const Plugin plugin = load(path);
    use(plugin, round * 37 % 3000);
    ask_for_what_is_not_there(plugin);
    CHECK(dlclose(plugin.handle) == 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_EQUAL(argc, 2);
  load_and_unload(argv[1], 20);
  const long before = resident_kib();
  load_and_unload(argv[1], 300);

  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(load_at_once, argv[1], 100);
  for (auto& thread : threads) thread.join();
  CHECK(resident_kib() - before < 32 * 1024);
  return 0;
}
