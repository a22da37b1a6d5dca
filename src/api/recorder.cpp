// Loads libloam-record.so into this process, for `loam record --pid` (heap/recording.h).
#include <dlfcn.h>

#include "heap/heap.h"
#include "heap/recording.h"

namespace loam {

const Recorder* load_recorder(const char* file, const char** why) {
  // By dlsym(), so that a program that is linked statically is linked without dlopen(), and no
  // start looks dlerror() up.
  using Open = void* (*)(const char*, int);
  const auto open = reinterpret_cast<Open>(dlsym(RTLD_DEFAULT, "dlopen"));
  if (open == nullptr) {
    *why = "the program is linked statically, and can load no recorder";
    return nullptr;
  }
  void* const library = open(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const auto last_error = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "dlerror"));
    const char* const error = last_error != nullptr ? last_error() : nullptr;
    *why = error != nullptr ? error : "the recorder can not be loaded";
    return nullptr;
  }
  using Find = const Recorder* (*)(void* (*)(size_t), size_t (*)(void*));
  const auto find = reinterpret_cast<Find>(dlsym(library, "loam_recorder"));
  if (find == nullptr) {
    *why = "the recorder is of an earlier version";
    return nullptr;
  }
  return find([](size_t bytes) { return heap::allocate(bytes); },
              [](void* block) { return heap::usable_size(block); });
}

}  // namespace loam
