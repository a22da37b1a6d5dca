// A program with an operator new and delete of its own: the library's operator new[] and its sized
// operator delete call them, also while the program is recorded, and each free is one event.
#include <cstdlib>
#include <new>

#include "program.h"

static int made;
static int gone;

void* operator new(std::size_t size) {
  ++made;
  void* block = std::malloc(size + 8);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void operator delete(void* block) noexcept {
  ++gone;
  std::free(block);
}

// As the library's form does. A program with this form has it for a compiler's warning only.
void operator delete(void* block, std::size_t) noexcept { ::operator delete(block); }

int main() {
  for (int i = 0; i < 100; ++i) {
    ::operator delete[](::operator new[](1501));
    ::operator delete[](::operator new[](1501), std::size_t{1501});
    ::operator delete (::operator new(1501), std::size_t{1501});
  }
  CHECK(made == 300 && gone == 300);
  expect_size(1509, 300, 300);
}
