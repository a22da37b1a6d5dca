// A program with an operator new and delete of its own, in front of libloam.a. Every form without
// an alignment then uses these two, as the standard says, and the aligned forms are the heap's.
#include <loam/loam.h>

#include <map>
#include <new>
#include <string>

#include "check.h"

namespace {

long live = 0, served = 0;

bool owns(const void* block) { return loam_heap_of(block) != nullptr; }

}  // namespace

// The block begins behind a note, so the heap would not recognise its address.
void* operator new(size_t bytes) {
  ++live, ++served;
  char* const block = static_cast<char*>(malloc(bytes + 16));
  CHECK(block != nullptr && owns(block));
  return block + 16;
}
void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  --live;
  free(static_cast<char*>(block) - 16);
}

int main() {
  const long before = live;
  ::operator delete[](keep(::operator new[](100)));
  ::operator delete (keep(::operator new(100)), size_t{100});
  ::operator delete[](keep(::operator new[](100)), size_t{100});
  ::operator delete(keep(::operator new(100, std::nothrow)), std::nothrow);
  ::operator delete[](keep(::operator new[](100, std::nothrow)), std::nothrow);
  CHECK(live == before && served >= 5);
  {
    std::map<int, std::string> map;
    for (int i = 0; i < 1000; ++i) map[i] = std::string(static_cast<size_t>(i), 'x');
    CHECK(live >= before + 1900);
  }
  CHECK(live == before);

  const long now = served;
  constexpr auto kAlign = std::align_val_t{256};
  void* const one = ::operator new(100, kAlign);
  void* const many = ::operator new[](100, kAlign, std::nothrow);
  CHECK(owns(one) && owns(many) && reinterpret_cast<uintptr_t>(many) % 256 == 0);
  ::operator delete (one, size_t{100}, kAlign);
  ::operator delete[](many, kAlign);
  CHECK(served == now && live == before);
  return 0;
}
