// The plugin of plugins.c: C++, with a constructor and a destructor of its own.
#include <string>

namespace {
struct Kept {
  char* block = new char[801];
  ~Kept() { delete[] block; }
} kept;
}  // namespace

extern "C" void work() {
  for (int i = 0; i < 10; ++i) {
    auto* block = new std::string(802, 'x');
    delete block;
  }
}
