// Every form of operator new and delete, once. Failures are thrown too, and later events are
// recorded as before.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "program.h"

namespace {
constexpr std::align_val_t kAlignment{64};

void every_form() {
  ::operator delete(::operator new(1301));
  ::operator delete (::operator new(1301), std::size_t{1301});
  ::operator delete(::operator new(1301, std::nothrow), std::nothrow);
  ::operator delete[](::operator new[](1302));
  ::operator delete[](::operator new[](1302), std::size_t{1302});
  ::operator delete[](::operator new[](1302, std::nothrow), std::nothrow);
  ::operator delete(::operator new(1344, kAlignment), kAlignment);
  ::operator delete (::operator new(1344, kAlignment), std::size_t{1344}, kAlignment);
  ::operator delete(::operator new(1344, kAlignment, std::nothrow), kAlignment, std::nothrow);
  ::operator delete[](::operator new[](1408, kAlignment), kAlignment);
  ::operator delete[](::operator new[](1408, kAlignment), std::size_t{1408}, kAlignment);
  ::operator delete[](::operator new[](1408, kAlignment, std::nothrow), kAlignment, std::nothrow);
}

[[gnu::noinline]] bool throws(int depth) {
  volatile char deeper[256];
  deeper[0] = 0;
  if (depth > 0) return throws(depth - 1) && deeper[0] == 0;
  try {
    volatile std::size_t much = std::size_t{1} << 60;
    ::operator delete(::operator new(much));
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}
}  // namespace

int main() {
  for (int i = 0; i < 100; ++i) every_form();
  for (int i = 0; i < 100; ++i) CHECK(throws(i));
  for (int i = 0; i < 100; ++i) std::free(std::malloc(1305));
  expect_size(1301, 300, 300);
  expect_size(1302, 300, 300);
  expect_size(1344, 300, 300);
  expect_size(1408, 300, 300);
  expect_size(1305, 100, 100);
  if (std::getenv("LOAM_EXACT_FAMILIES") != nullptr) {
    std::printf("expect family new[] allocated 300\nexpect family aligned-new allocated 300\n");
    std::printf("expect family aligned-new[] allocated 300\n");
  }
}
