// A C++ program that is linked without -static: strings, streams and exceptions pass between it and
// the DLL of the C++ run-time. All of them are the heap's.
#include <loam/loam.h>

#include <map>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"

namespace {

bool owns(const void* block) { return loam_heap_of(block) != nullptr; }

void large_blocks() {
  for (std::size_t i = 0; i < 40; ++i) {
    std::vector<char> bytes((i + 1) << 20);
    bytes[5] = 1;
    CHECK(owns(bytes.data()));
  }
}

void strings_that_the_dll_makes() {
  std::ostringstream out;
  for (int i = 0; i < 5000; ++i) out << i << ' ';
  std::string text = out.str();
  CHECK(owns(text.data()));
  text += text;
  text.insert(3, text);
  CHECK(owns(text.data()));
  std::map<int, std::string> parts;
  for (int i = 0; i < 3000; ++i) parts[i] = text.substr(std::size_t(i), std::size_t(i));
  CHECK(owns(parts[2000].data()));
  std::istringstream in("one two three");
  for (std::string word; in >> word;) parts[9999] += word;
  CHECK(parts[9999] == "onetwothree");
}

void exceptions_and_forms() {
  try {
    throw std::runtime_error(std::string(100'000, 'x'));
  } catch (const std::exception& thrown) {
    CHECK(std::string(thrown.what()).size() == 100'000);
  }
  struct alignas(64) Wide {
    char bytes[64];
  };
  Wide* const wide = new Wide[10];
  CHECK(owns(wide));
  delete[] wide;
  int* const numbers = new (std::nothrow) int[100];
  CHECK(owns(numbers));
  delete[] numbers;
  CHECK(new (std::nothrow) char[std::size_t{1} << 60] == nullptr);
}

}  // namespace

int main() {
  large_blocks();
  strings_that_the_dll_makes();
  exceptions_and_forms();
}
