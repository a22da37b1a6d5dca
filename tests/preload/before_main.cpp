// Allocation works before main - in preinit_array, constructors and static initialisers - and such
// blocks live on into main, into atexit handlers and into static destructors.
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"

namespace {

constexpr std::size_t kSize = 3000;

char* from_preinit = nullptr;
char* from_constructor = nullptr;
char* kept_until_exit = nullptr;

void preinit() {
  from_preinit = static_cast<char*>(malloc(kSize));
  if (from_preinit != nullptr) fill_pattern(from_preinit, kSize, 1);
}

__attribute__((constructor(101))) void construct_early() {
  from_constructor = static_cast<char*>(calloc(kSize, 1));
  CHECK(from_constructor != nullptr);
  from_constructor = static_cast<char*>(realloc(from_constructor, 2 * kSize));
  CHECK(from_constructor != nullptr);
  fill_pattern(from_constructor, kSize, 2);
}

struct Keeper {
  std::vector<std::string> names;
  Keeper() {
    for (int i = 0; i < 1000; ++i) names.push_back("name number " + std::to_string(i));
  }
  ~Keeper() {
    CHECK(names.size() == 1000 && names[999] == "name number 999");
    for (int i = 0; i < 1000; ++i) names.push_back(std::string(500, 'z'));
  }
};
Keeper keeper;

void at_exit() {
  CHECK(has_pattern(kept_until_exit, kSize, 3));
  free(kept_until_exit);
  for (int i = 0; i < 1000; ++i) free(opaque(malloc(static_cast<std::size_t>(i))));
}

__attribute__((destructor(101))) void destruct_late() {
  for (int i = 0; i < 1000; ++i) free(opaque(malloc(static_cast<std::size_t>(i) * 100)));
  free(from_constructor);
}

}  // namespace

extern "C" {
__attribute__((section(".preinit_array"), used)) void (*const loam_test_preinit)() = preinit;
}

int main() {
  CHECK(from_preinit != nullptr && has_pattern(from_preinit, kSize, 1));
  free(from_preinit);
  CHECK(has_pattern(from_constructor, kSize, 2));
  kept_until_exit = static_cast<char*>(malloc(kSize));
  CHECK(kept_until_exit != nullptr);
  fill_pattern(kept_until_exit, kSize, 3);
  CHECK(std::atexit(at_exit) == 0);
  CHECK(keeper.names[500] == "name number 500");
  return 0;
}
