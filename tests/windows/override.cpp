// Linked with libloam.a. The C run-time's allocation functions and the operators are the heap's.
// Blocks that a run-time's DLL made itself are returned to it.
#include <direct.h>
#include <loam/loam.h>
#include <malloc.h>
#include <windows.h>

#include <cstring>
#include <cwchar>
#include <map>
#include <new>
#include <string>

#include "check.h"

namespace {

bool owns(const void* block) { return loam_heap_of(block) != nullptr; }

void blocks_are_the_heaps() {
  void* const block = malloc(1);
  CHECK(owns(block));
  free(block);
  int* const number = new int(3);
  CHECK(owns(number));
  delete number;
  struct alignas(64) Wide {
    char bytes[100];
  };
  Wide* const wide = new Wide[3];
  CHECK(owns(wide) && reinterpret_cast<uintptr_t>(wide) % 64 == 0);
  delete[] wide;
  char* const text = _strdup("text");
  CHECK(owns(text) && strcmp(text, "text") == 0);
  free(text);
  wchar_t* const words = _wcsdup(L"words");
  CHECK(owns(words) && wcscmp(words, L"words") == 0);
  free(words);
  char* const zeros = static_cast<char*>(calloc(100, 10));
  CHECK(owns(zeros) && zeros[0] == 0 && zeros[999] == 0);
  free(zeros);
  std::map<int, std::string> map;
  for (int i = 0; i < 10'000; ++i) map[i] = std::string(static_cast<size_t>(i % 300), 'x');
  CHECK(owns(map[299].data()));
}

void underscored_names_work_on_them() {
  char* block = static_cast<char*>(_aligned_malloc(100, 4096));
  CHECK(owns(block) && reinterpret_cast<uintptr_t>(block) % 4096 == 0);
  memset(block, 7, 100);
  block = static_cast<char*>(_aligned_realloc(block, 100'000, 4096));
  CHECK(block[99] == 7 && reinterpret_cast<uintptr_t>(block) % 4096 == 0);
  _aligned_free(block);
  block = static_cast<char*>(_aligned_offset_malloc(100, 64, 24));
  CHECK((reinterpret_cast<uintptr_t>(block) + 24) % 64 == 0);
  _aligned_free(block);
  block = static_cast<char*>(malloc(100));
  CHECK(_msize(block) >= 100);
  CHECK(_expand(block, 1'000'000) == nullptr);
  block = static_cast<char*>(realloc(block, 1'000'000));
  CHECK(_msize(block) >= 1'000'000);
  free(block);
}

// The DLL is linked with the C run-time's DLL, without the heap.
void blocks_of_others_go_home(const char* library) {
  char* const folder = _getcwd(nullptr, 0);
  CHECK(folder != nullptr && !owns(folder));
  free(folder);
  const HMODULE module = LoadLibraryA(library);
  CHECK(module != nullptr);
  const auto symbol = [&](const char* name) {
    return reinterpret_cast<void*>(GetProcAddress(module, name));
  };
  const auto make = reinterpret_cast<void* (*)(size_t)>(symbol("others_make"));
  const auto live = reinterpret_cast<long (*)()>(symbol("others_block_is_live"));
  for (size_t bytes : {size_t{1}, size_t{1000}, size_t{1'000'000}}) {
    void* const block = make(bytes);
    CHECK(block != nullptr && !owns(block) && live() == 1);
    char* const moved = static_cast<char*>(realloc(block, bytes + 100));
    CHECK(owns(moved) && moved[0] == 'o' && live() == 0);
    free(moved);
    void* const second = make(bytes);
    free(second);
    CHECK(live() == 0);
  }
}

}  // namespace

int main(int, char** arguments) {
  blocks_are_the_heaps();
  underscored_names_work_on_them();
  blocks_of_others_go_home(arguments[1]);
  return 0;
}
