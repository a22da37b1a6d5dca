// Every form of operator new and delete works, and mixes freely with containers and alignment.
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "check.h"

namespace {

constexpr std::align_val_t kAligned{256};

bool is_aligned(const void* block) { return reinterpret_cast<std::uintptr_t>(block) % 256 == 0; }

// Writes the block so that an allocation that is too small shows, and hides it from the optimiser.
void* use(void* block, std::size_t size) {
  CHECK(block != nullptr);
  memset(block, 0x5A, size);
  return opaque(block);
}

void every_form(std::size_t size) {
  ::operator delete(use(::operator new(size), size));
  ::operator delete(use(::operator new(size), size), size);
  ::operator delete(use(::operator new(size, std::nothrow), size), std::nothrow);
  ::operator delete[](use(::operator new[](size), size));
  ::operator delete[](use(::operator new[](size), size), size);
  ::operator delete[](use(::operator new[](size, std::nothrow), size), std::nothrow);

  void* block = use(::operator new(size, kAligned), size);
  CHECK(is_aligned(block));
  ::operator delete(block, kAligned);
  block = use(::operator new(size, kAligned), size);
  ::operator delete(block, size, kAligned);
  block = use(::operator new(size, kAligned, std::nothrow), size);
  CHECK(is_aligned(block));
  ::operator delete(block, kAligned, std::nothrow);
  block = use(::operator new[](size, kAligned), size);
  CHECK(is_aligned(block));
  ::operator delete[](block, kAligned);
  block = use(::operator new[](size, kAligned), size);
  ::operator delete[](block, size, kAligned);
  block = use(::operator new[](size, kAligned, std::nothrow), size);
  CHECK(is_aligned(block));
  ::operator delete[](block, kAligned, std::nothrow);
}

struct alignas(128) Wide {
  char bytes[384];
};

void containers() {
  std::map<int, std::string> ordered;
  std::unordered_map<std::string, std::vector<int>> hashed;
  for (int i = 0; i < 20000; ++i) {
    ordered[i] = std::string(static_cast<std::size_t>(i % 300), 'x');
    hashed[std::to_string(i % 1000)].push_back(i);
    if (i % 3 == 0) ordered.erase(i / 2);
  }
  CHECK(hashed.size() == 1000 && hashed["7"].size() == 20);

  std::vector<std::unique_ptr<Wide>> wide;
  for (int i = 0; i < 1000; ++i) {
    wide.push_back(std::make_unique<Wide>());
    CHECK(reinterpret_cast<std::uintptr_t>(wide.back().get()) % alignof(Wide) == 0);
  }

  std::pmr::unsynchronized_pool_resource pool;
  std::pmr::vector<std::pmr::string> strings{&pool};
  for (int i = 0; i < 10000; ++i) strings.emplace_back(static_cast<std::size_t>(i % 200), 'y');
  CHECK(strings[199].size() == 199);
}

}  // namespace

int main() {
  ::operator delete(nullptr);
  ::operator delete[](nullptr, std::size_t{0});
  ::operator delete(nullptr, kAligned);

  void* const first = opaque(::operator new(0));
  void* const second = opaque(::operator new[](0));
  CHECK(first != nullptr && second != nullptr && first != second);
  ::operator delete(first);
  ::operator delete[](second);

  for (std::size_t size = 1; size < 3'000'000; size = size * 5 / 4 + 1) every_form(size);
  containers();
  return 0;
}
