// Linked with the library, this program's malloc and operator new are Loam's, and the public header
// compiles as C++ and as C.
#if __has_include(<loam/loam.h>)
#include <loam/loam.h>
#endif
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

int main() {
  // In a static link, malloc is in the program itself.
#ifdef EXPECT_OWN_MALLOC
  Dl_info own;
  if (dladdr(reinterpret_cast<void*>(&main), &own) == 0) return 1;
  const char* const expected = own.dli_fname;
#else
  const char* const expected = "libloam.so";
#endif
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&malloc), &info) == 0 ||
      std::strstr(info.dli_fname, expected) == nullptr) {
    std::fprintf(stderr, "malloc comes from %s, not %s\n", info.dli_fname, expected);
    return 1;
  }
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < 10000; ++i) lines.emplace_back(i % 500, 'x');
  void* const block = std::malloc(12345);
  if (block == nullptr || lines[499].size() != 499) return 1;
  std::free(block);
  std::puts("served by loam");
  return 0;
}
