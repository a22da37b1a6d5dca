// A failing operator new calls the new_handler until that gives up, and throws bad_alloc. The
// nothrow forms return null. The heap continues afterwards.
#include <new>

#include "check.h"

namespace {

constexpr std::size_t kImpossible = std::size_t{1} << 60;
constexpr std::align_val_t kAligned{128};

int handler_calls = 0;

void give_up_on_third_call() {
  if (++handler_calls == 3) std::set_new_handler(nullptr);
}

void throw_at_once() {
  ++handler_calls;
  throw std::bad_alloc();
}

template <typename Allocate>
bool throws_bad_alloc(Allocate allocate) {
  try {
    opaque(allocate());
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

template <typename Allocate>
void check_throwing(Allocate allocate) {
  CHECK(throws_bad_alloc(allocate));
  handler_calls = 0;
  std::set_new_handler(give_up_on_third_call);
  CHECK(throws_bad_alloc(allocate));
  CHECK_EQUAL(handler_calls, 3);
}

template <typename Allocate>
void check_nothrow(Allocate allocate) {
  CHECK(allocate() == nullptr);
  handler_calls = 0;
  std::set_new_handler(give_up_on_third_call);
  CHECK(allocate() == nullptr);
  CHECK_EQUAL(handler_calls, 3);
  // The nothrow form catches the exception of the handler.
  handler_calls = 0;
  std::set_new_handler(throw_at_once);
  CHECK(allocate() == nullptr);
  CHECK_EQUAL(handler_calls, 1);
  std::set_new_handler(nullptr);
}

}  // namespace

int main() {
  const std::size_t size = opaque_size(kImpossible);
  check_throwing([=] { return ::operator new(size); });
  check_throwing([=] { return ::operator new[](size); });
  check_throwing([=] { return ::operator new(size, kAligned); });
  check_throwing([=] { return ::operator new[](size, kAligned); });
  check_nothrow([=] { return opaque(::operator new(size, std::nothrow)); });
  check_nothrow([=] { return opaque(::operator new[](size, std::nothrow)); });
  check_nothrow([=] { return opaque(::operator new(size, kAligned, std::nothrow)); });
  check_nothrow([=] { return opaque(::operator new[](size, kAligned, std::nothrow)); });

  // An exception of the handler passes through operator new.
  std::set_new_handler(throw_at_once);
  handler_calls = 0;
  CHECK(throws_bad_alloc([=] { return ::operator new(size); }));
  CHECK_EQUAL(handler_calls, 1);
  std::set_new_handler(nullptr);

  // Array new with a count that overflows is refused by the language before it reaches us.
  CHECK(throws_bad_alloc([=] { return static_cast<void*>(new long[size]); }));

  for (int i = 0; i < 1000; ++i) delete[] static_cast<char*>(opaque(new char[1000]));
  return 0;
}
