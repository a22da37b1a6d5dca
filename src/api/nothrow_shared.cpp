// The nothrow forms of operator new, of libloam.so.
//
// They must call the new-handler, and swallow what it or a program's own operator throws. Code without exceptions cannot catch,
// but the C++ runtime's own nothrow form can: it calls the throwing form inside a try block (decision 4).
#include <dlfcn.h>

#include <atomic>

#include "api/operators.h"

namespace {

using namespace loam;
using operators::serves_itself;
using operators::try_aligned;

class RuntimesForm {
 public:
  template <size_t length>
  explicit constexpr RuntimesForm(const char (&symbol)[length]) {
    static_assert(length <= sizeof symbol_);
    for (size_t i = 0; i < length; ++i) symbol_[i] = symbol[i];
  }

  template <class... Arguments>
  LOAM_COLD void* call(Arguments... arguments) {
    auto* form = reinterpret_cast<void* (*)(Arguments..., const std::nothrow_t&)>(find());
    return form != nullptr ? form(arguments..., std::nothrow_t{}) : nullptr;
  }

  LOAM_COLD void* find() {
    // relaxed: any thread finds the same
    void* found = found_.load(std::memory_order_relaxed);
    if (found == nullptr) {
      found = dlsym(RTLD_NEXT, symbol_);
      found_.store(found, std::memory_order_relaxed);
    }
    return found;
  }

 private:
  char symbol_[40] = {};  // no pointer, which every start would have to relocate
  std::atomic<void*> found_{nullptr};
};

constinit RuntimesForm single("_ZnwmRKSt9nothrow_t");
constinit RuntimesForm array("_ZnamRKSt9nothrow_t");
constinit RuntimesForm aligned("_ZnwmSt11align_val_tRKSt9nothrow_t");
constinit RuntimesForm aligned_array("_ZnamSt11align_val_tRKSt9nothrow_t");

// Found while no other thread runs: later, dlsym() could wait for a dlopen() that waits for this thread.
__attribute__((constructor(101))) void start_nothrow() {
  if (serves_itself()) return;
  for (RuntimesForm* form : {&single, &array, &aligned, &aligned_array}) form->find();
}

}  // namespace

// NOLINTBEGIN: the forms are the standard's
LOAM_REPLACEABLE void* operator new(size_t n, const std::nothrow_t&) noexcept {
  void* block = serves_itself() ? heap::allocate(n) : nullptr;
  return LOAM_LIKELY(block != nullptr) ? block : single.call(n);
}
LOAM_REPLACEABLE void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  void* block = serves_itself() ? heap::allocate(n) : nullptr;
  return LOAM_LIKELY(block != nullptr) ? block : array.call(n);
}
LOAM_REPLACEABLE void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  void* block = serves_itself() ? try_aligned(n, a) : nullptr;
  return block != nullptr ? block : aligned.call(n, a);
}
LOAM_REPLACEABLE void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  void* block = serves_itself() ? try_aligned(n, a) : nullptr;
  return block != nullptr ? block : aligned_array.call(n, a);
}
// NOLINTEND
