// The nothrow forms of operator new in libloam.so.
//
// They must call the new-handler, and swallow an exception of it or of a program's own operator.
// Code without exceptions cannot catch, but the C++ runtime's own nothrow form can: it calls the
// throwing form inside a try block (decision 4).
#include <dlfcn.h>

#include <atomic>

#include "api/operators.h"

namespace {

using namespace loam;
using operators::serves_itself;
using operators::try_aligned;

enum Form : unsigned { kSingle, kArray, kAligned, kAlignedArray, kForms };

// These are arrays: the dynamic linker would have to relocate pointers at every program's start.
constexpr char kSymbols[kForms][36] = {"_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t",
                                       "_ZnwmSt11align_val_tRKSt9nothrow_t",
                                       "_ZnamSt11align_val_tRKSt9nothrow_t"};
constinit std::atomic<void*> runtimes_forms[kForms];

LOAM_COLD void* find(Form form, const void* caller) {
  // relaxed: every thread finds the same value
  void* found = runtimes_forms[form].load(std::memory_order_relaxed);
  if (found != nullptr) return found;
  found = dlsym(RTLD_NEXT, kSymbols[form]);
  // A form of a plugin is not kept, because the plugin may be unloaded.
  if (found == nullptr) return operators::symbol_of_runtime(kSymbols[form], caller);
  runtimes_forms[form].store(found, std::memory_order_relaxed);
  return found;
}

template <class... Arguments>
LOAM_COLD void* nothrow_by_runtime(Form form, const void* caller, Arguments... arguments) {
  auto* runtimes =
      reinterpret_cast<void* (*)(Arguments..., const std::nothrow_t&)>(find(form, caller));
  return runtimes != nullptr ? runtimes(arguments..., std::nothrow_t{}) : nullptr;
}

}  // namespace

// NOLINTBEGIN: the forms are the standard's
LOAM_REPLACEABLE void* operator new(size_t n, const std::nothrow_t&) noexcept {
  void* block = serves_itself() ? heap::allocate(n) : nullptr;
  return LOAM_LIKELY(block != nullptr)
             ? block
             : nothrow_by_runtime(kSingle, __builtin_return_address(0), n);
}
LOAM_REPLACEABLE void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  void* block = serves_itself() ? heap::allocate(n) : nullptr;
  return LOAM_LIKELY(block != nullptr) ? block
                                       : nothrow_by_runtime(kArray, __builtin_return_address(0), n);
}
LOAM_REPLACEABLE void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  void* block = serves_itself() ? try_aligned(n, a) : nullptr;
  return block != nullptr ? block : nothrow_by_runtime(kAligned, __builtin_return_address(0), n, a);
}
LOAM_REPLACEABLE void* operator new[](size_t n, std::align_val_t a,
                                      const std::nothrow_t&) noexcept {
  void* block = serves_itself() ? try_aligned(n, a) : nullptr;
  return block != nullptr ? block
                          : nothrow_by_runtime(kAlignedArray, __builtin_return_address(0), n, a);
}
// NOLINTEND
