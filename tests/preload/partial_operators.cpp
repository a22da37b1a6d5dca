// gperftools#1569: a program replaces some forms of operator new and delete, each with a header
// before its blocks. Every other form ends in the form that defines it ([new.delete]), in any
// thread, before main too. The macros say which pairs are replaced.
#include <new>
#include <thread>

#include "check.h"

#if !defined(WITH_SINGLE) && !defined(WITH_ARRAY) && !defined(WITH_ALIGNED) && \
    !defined(WITH_ALIGNED_ARRAY) && !defined(WITH_NEW_ALONE)
#define WITH_SINGLE
#endif

namespace {

enum Pair { kSingle, kArray, kAligned, kAlignedArray, kPairs, kHeaps };
unsigned long made[kHeaps + 1], gone[kHeaps + 1];
bool refuses = false;
constexpr std::size_t kHeader = 64;

#if defined(WITH_SINGLE) || defined(WITH_ARRAY) || defined(WITH_ALIGNED) || \
    defined(WITH_ALIGNED_ARRAY)
void* make(Pair pair, std::size_t bytes) {
  if (refuses) throw std::bad_alloc();
  void* whole = nullptr;
  CHECK(posix_memalign(&whole, 64, bytes + kHeader) == 0);
  *static_cast<unsigned long*>(whole) = 0x4C4F414Dul + pair;
  ++made[pair];
  return static_cast<char*>(whole) + kHeader;
}

void discard(Pair pair, void* block) {
  if (block == nullptr) return;
  char* whole = static_cast<char*>(block) - kHeader;
  CHECK_EQUAL(*reinterpret_cast<unsigned long*>(whole), 0x4C4F414Dul + pair);
  *reinterpret_cast<unsigned long*>(whole) = 0;
  ++gone[pair];
  free(whole);
}
#endif

#ifdef WITH_SINGLE
constexpr Pair kForSingle = kSingle;
#else
constexpr Pair kForSingle = kHeaps;
#endif
#ifdef WITH_ARRAY
constexpr Pair kForArray = kArray;
#else
constexpr Pair kForArray = kForSingle;
#endif
#ifdef WITH_ALIGNED
constexpr Pair kForAligned = kAligned;
#else
constexpr Pair kForAligned = kHeaps;
#endif
#ifdef WITH_ALIGNED_ARRAY
constexpr Pair kForAlignedArray = kAlignedArray;
#else
constexpr Pair kForAlignedArray = kForAligned;
#endif

}  // namespace

#ifdef WITH_SINGLE
void* operator new(std::size_t n) { return make(kSingle, n); }
void operator delete(void* p) noexcept { discard(kSingle, p); }
#endif
#ifdef WITH_ARRAY
void* operator new[](std::size_t n) { return make(kArray, n); }
void operator delete[](void* p) noexcept { discard(kArray, p); }
#endif
#ifdef WITH_ALIGNED
void* operator new(std::size_t n, std::align_val_t) { return make(kAligned, n); }
void operator delete(void* p, std::align_val_t) noexcept { discard(kAligned, p); }
#endif
#ifdef WITH_ALIGNED_ARRAY
void* operator new[](std::size_t n, std::align_val_t) { return make(kAlignedArray, n); }
void operator delete[](void* p, std::align_val_t) noexcept { discard(kAlignedArray, p); }
#endif
#ifdef WITH_NEW_ALONE
namespace {
unsigned long news;
}
void* operator new(std::size_t n) {
  if (refuses) throw std::bad_alloc();
  ++news;
  return malloc(n);
}
#endif

namespace {

template <typename New, typename Delete>
void both(int line, Pair pair, New allocate, Delete release) {
  for (std::size_t bytes : {1, 80, 3000, 100000}) {
    const unsigned long made_before = made[pair], gone_before = gone[pair];
    void* block = opaque(allocate(bytes));
    CHECK(block != nullptr);
    memset(block, 7, bytes);
    release(block, bytes);
    const bool ends_here =
        pair == kHeaps || (made[pair] == made_before + 1 && gone[pair] == gone_before + 1);
    if (!ends_here)
      dprintf(2, "line %d: made %lu, gone %lu\n", line, made[pair] - made_before,
              gone[pair] - gone_before);
    CHECK(ends_here);
  }
}
#define BOTH(pair, allocate, release)                                  \
  both(                                                                \
      __LINE__, pair, [](std::size_t n) -> void* { return allocate; }, \
      [](void* p, std::size_t n) {                                     \
        (void)n;                                                       \
        release;                                                       \
      })

constexpr std::align_val_t kTo{64};

void every_form() {
  BOTH(kForSingle, ::operator new(n), ::operator delete(p));
  BOTH(kForSingle, ::operator new(n), ::operator delete(p, n));
  BOTH(kForSingle, ::operator new(n), ::operator delete(p, std::nothrow));
  BOTH(kForSingle, ::operator new(n, std::nothrow), ::operator delete(p));
  BOTH(kForSingle, ::operator new(n, std::nothrow), ::operator delete(p, n));
  BOTH(kForArray, ::operator new[](n), ::operator delete[](p));
  BOTH(kForArray, ::operator new[](n), ::operator delete[](p, n));
  BOTH(kForArray, ::operator new[](n), ::operator delete[](p, std::nothrow));
  BOTH(kForArray, ::operator new[](n, std::nothrow), ::operator delete[](p, n));
  BOTH(kForAligned, ::operator new(n, kTo), ::operator delete(p, kTo));
  BOTH(kForAligned, ::operator new(n, kTo), ::operator delete(p, n, kTo));
  BOTH(kForAligned, ::operator new(n, kTo), ::operator delete(p, kTo, std::nothrow));
  BOTH(kForAligned, ::operator new(n, kTo, std::nothrow), ::operator delete(p, n, kTo));
  BOTH(kForAlignedArray, ::operator new[](n, kTo), ::operator delete[](p, kTo));
  BOTH(kForAlignedArray, ::operator new[](n, kTo), ::operator delete[](p, n, kTo));
  BOTH(kForAlignedArray, ::operator new[](n, kTo), ::operator delete[](p, kTo, std::nothrow));
  BOTH(kForAlignedArray, ::operator new[](n, kTo, std::nothrow), ::operator delete[](p, n, kTo));
  ::operator delete (opaque(nullptr), std::size_t{8});
  ::operator delete[](opaque(nullptr));
}

struct BeforeMain {
  BeforeMain() { every_form(); }
} before_main __attribute__((init_priority(101)));

template <typename Allocate>
void refused(Pair pair, Allocate nothrow) {
  refuses = true;
  void* block = opaque(nothrow());
  refuses = false;
  CHECK(pair == kHeaps || block == nullptr);
  CHECK(pair != kHeaps || block != nullptr);
}

}  // namespace

int main() {
  for (int i = 0; i < 100; ++i) every_form();
  std::thread([] { every_form(); }).join();
#ifdef WITH_NEW_ALONE
  CHECK(news >= 100 * 9 * 4);  // single and array, nothrow included
  constexpr Pair single = kSingle, array = kSingle;
#else
  constexpr Pair single = kForSingle, array = kForArray;
#endif
  // If a program's own form throws, the nothrow forms return null.
  refused(single, [] { return ::operator new(8, std::nothrow); });
  refused(array, [] { return ::operator new[](8, std::nothrow); });
  refused(kForAligned, [] { return ::operator new(64, kTo, std::nothrow); });
  refused(kForAlignedArray, [] { return ::operator new[](64, kTo, std::nothrow); });
  every_form();
  return 0;
}
