// Every form of operator new and delete but the nothrow forms of new (nothrow_shared.cpp,
// nothrow_static.cpp).
//
// The throwing forms need the C++ runtime's new-handler and bad_alloc. Loam must not depend on that
// runtime, so both are weak: a program that can throw has loaded them. The dynamic linker may have
// loaded them where Loam's references do not find them (a C program with a C++ plugin, which may
// have a static runtime); then they are found from the caller when they are needed.
//
// A program may replace some forms only, and the standard defines most forms by other forms
// ([new.delete]):
//
//   base                  new(n)   new(n, align)   delete(p)   delete(p, align)
//   by the base           new[]    new[](align)    delete[]    delete[](align)
//   by the rows above     the sized and the nothrow forms: arrays by arrays, aligned by aligned
//
// So the derived forms here serve the heap themselves only while the eight forms in the first two
// rows, as the program sees them, are those of this file. Otherwise each derived form calls the
// form that defines it by its symbol. src/api/operators.list keeps the linker from binding that
// symbol to the form here (decision 4).
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <new>

#include "api/operators.h"
#include "base/check.h"
#include "heap/heap.h"

namespace std {
// libstdc++ and libc++ both export these under these names.
__attribute__((noreturn, weak)) void __throw_bad_alloc();  // as libstdc++ declares it, for clang
__attribute__((weak)) new_handler get_new_handler() noexcept;
}  // namespace std

// The first byte of this file in memory, and the first byte behind it; the linker defines both.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start, _end;

namespace {

using namespace loam;

using New = void* (*)(size_t);
using AlignedNew = void* (*)(size_t, std::align_val_t);
using Delete = void (*)(void*) noexcept;
using AlignedDelete = void (*)(void*, std::align_val_t) noexcept;
using GetHandler = std::new_handler (*)();
using Throw = void (*)();

bool is_in_this_library(const void* address) { return address >= &__ehdr_start && address < &_end; }

// A function of the C library that only failing calls need. As an import it would cost every
// program's start a look-up.
template <class Function>
Function* rarely_used(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// A module that is loaded, and what it depends on. Null if it lacks the symbol, or has this
// library's.
void* symbol_in(const char* module, const char* name) {
  void* const handle = dlopen(module, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const found = dlsym(handle, name);
  if (auto* const close = rarely_used<decltype(dlclose)>("dlclose")) close(handle);
  return is_in_this_library(found) ? nullptr : found;
}

}  // namespace

// The caller's module comes before the names: it may be linked with a static runtime, and be loaded
// where no other module's references look (RTLD_LOCAL).
void* operators::symbol_of_runtime(const char* name, const void* caller) {
  auto* const look_up = rarely_used<decltype(dladdr)>("dladdr");
  Dl_info module;
  if (look_up != nullptr && look_up(caller, &module) != 0 && module.dli_fname != nullptr) {
    if (void* found = symbol_in(module.dli_fname, name)) return found;
  }
  for (const char* library : {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"}) {
    if (void* found = symbol_in(library, name)) return found;
  }
  return nullptr;
}

void operators::throw_bad_alloc(const void* caller) {
  if (&std::__throw_bad_alloc != nullptr) std::__throw_bad_alloc();
  constexpr const char* kThrow = "_ZSt17__throw_bad_allocv";
  void* thrower = dlsym(RTLD_DEFAULT, kThrow);
  if (thrower == nullptr) thrower = symbol_of_runtime(kThrow, caller);
  if (thrower != nullptr) reinterpret_cast<Throw>(thrower)();
  // A static runtime has only what its module needs. Its operator new is there, and throws for a
  // size that no malloc() can serve.
  if (void* const form = symbol_of_runtime("_Znwm", caller))
    static_cast<void>(reinterpret_cast<New>(form)(~size_t{0}));
  fatal("operator new: out of memory, and no C++ runtime to throw bad_alloc");
}

std::new_handler operators::new_handler(const void* caller) {
  if (&std::get_new_handler != nullptr) return std::get_new_handler();
  constexpr const char* kGet = "_ZSt15get_new_handlerv";
  void* get = dlsym(RTLD_DEFAULT, kGet);
  if (get == nullptr) get = symbol_of_runtime(kGet, caller);
  return get != nullptr ? reinterpret_cast<GetHandler>(get)() : nullptr;
}

// The defining forms, by which other forms are defined: the program's, if it has replaced them.
LOAM_REPLACEABLE void* operator new(size_t);
LOAM_REPLACEABLE void* operator new[](size_t);
LOAM_REPLACEABLE void* operator new(size_t, std::align_val_t);
LOAM_REPLACEABLE void* operator new[](size_t, std::align_val_t);
LOAM_REPLACEABLE void operator delete(void*) noexcept;
LOAM_REPLACEABLE void operator delete[](void*) noexcept;
LOAM_REPLACEABLE void operator delete(void*, std::align_val_t) noexcept;
LOAM_REPLACEABLE void operator delete[](void*, std::align_val_t) noexcept;

// This file's definitions, whatever form their symbols are bound to.
#define LOAM_OWN(symbol) __attribute__((visibility("hidden"), alias(symbol)))
#define LOAM_OWN_NEW(symbol) LOAM_OWN(symbol) __attribute__((malloc, alloc_size(1)))
extern "C" {
LOAM_OWN_NEW("_Znwm") void* loam_own_new(size_t);
LOAM_OWN_NEW("_Znam") void* loam_own_new_array(size_t);
LOAM_OWN_NEW("_ZnwmSt11align_val_t") void* loam_own_new_aligned(size_t, std::align_val_t);
LOAM_OWN_NEW("_ZnamSt11align_val_t") void* loam_own_new_array_aligned(size_t, std::align_val_t);
LOAM_OWN("_ZdlPv") void loam_own_delete(void*) noexcept;
LOAM_OWN("_ZdaPv") void loam_own_delete_array(void*) noexcept;
LOAM_OWN("_ZdlPvSt11align_val_t") void loam_own_delete_aligned(void*, std::align_val_t) noexcept;
LOAM_OWN("_ZdaPvSt11align_val_t")
void loam_own_delete_array_aligned(void*, std::align_val_t) noexcept;
}

namespace {

// True if all defining forms are those of this file. It reads what the dynamic linker has written,
// without a lock.
bool defining_forms_are_ours() {
  return New{&operator new } == & loam_own_new && New{
      &operator new[] } == & loam_own_new_array &&
      AlignedNew{&operator new } == & loam_own_new_aligned && AlignedNew{
          &operator new[] } == & loam_own_new_array_aligned &&
          Delete{&operator delete } == & loam_own_delete && Delete{
              &operator delete[] } == & loam_own_delete_array &&
              AlignedDelete{&operator delete } == & loam_own_delete_aligned &&
                            AlignedDelete{&operator delete[] } == & loam_own_delete_array_aligned;
}

// True if a program's reference to any form ends in this file. If none does, this library was
// loaded late (dlopen), behind the C++ runtime: a caller that asks for the address of these forms
// then wants exactly these.
bool serves_the_program() {
  constexpr const char* kForms[] = {"_ZdlPvm",
                                    "_Znam",
                                    "_ZdaPv",
                                    "_ZdaPvm",
                                    "_ZnwmRKSt9nothrow_t",
                                    "_ZnamRKSt9nothrow_t",
                                    "_ZdlPvRKSt9nothrow_t",
                                    "_ZdaPvRKSt9nothrow_t",
                                    "_ZnamSt11align_val_t",
                                    "_ZdaPvSt11align_val_t",
                                    "_ZdlPvmSt11align_val_t",
                                    "_ZdaPvmSt11align_val_t",
                                    "_ZnwmSt11align_val_tRKSt9nothrow_t",
                                    "_ZnamSt11align_val_tRKSt9nothrow_t",
                                    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
                                    "_ZdaPvSt11align_val_tRKSt9nothrow_t"};
  for (const char* form : kForms) {
    const void* found = dlsym(RTLD_DEFAULT, form);
    // If the form is not found, it is in an executable that does not export it.
    if (found == nullptr || is_in_this_library(found)) return true;
  }
  return false;
}

enum class Forms : uint8_t { kUnknown, kServe, kCompose };
// relaxed: every thread finds the same value
constinit std::atomic<Forms> forms{Forms::kUnknown};

LOAM_COLD bool must_compose() {
  Forms known = forms.load(std::memory_order_relaxed);
  if (known == Forms::kUnknown) {
    known = serves_the_program() ? Forms::kCompose : Forms::kServe;
    forms.store(known, std::memory_order_relaxed);
  }
  return known == Forms::kCompose;
}

}  // namespace

void operators::start() { static_cast<void>(attach_thread()); }

bool operators::attach_thread() {
  if (!defining_forms_are_ours() && must_compose()) return false;
  // The value is still unused_cache before the thread's first block, and while calls are recorded.
  // Then this function runs again at the next call.
  os::store_pointer(operators_cache, os::load_pointer(fast_cache));
  // Recording may have begun meanwhile, and may have written both variables before this store.
  if (LOAM_UNLIKELY(is_on_slow_path())) os::store_pointer(operators_cache, &unused_cache);
  return true;
}

namespace {

using operators::aligned_or_throw;
using operators::allocate_or_throw;
using operators::serves_itself;

// These are separate functions, and each ends in a jump: free_slow() and its callees read the
// return address to name the caller.
LOAM_NOINLINE void* new_array_slow(size_t bytes) {
  return serves_itself() ? allocate_or_throw(bytes) : ::operator new(bytes);
}
LOAM_NOINLINE void delete_array_slow(void* block) {
  serves_itself() ? heap::free_slow(block) : ::operator delete(block);
}
LOAM_NOINLINE void delete_sized_slow(void* block, size_t bytes) {
  serves_itself() ? heap::free_sized_slow(block, bytes) : ::operator delete(block);
}
LOAM_NOINLINE void delete_array_sized_slow(void* block, size_t bytes) {
  serves_itself() ? heap::free_sized_slow(block, bytes) : ::operator delete[](block);
}

}  // namespace

// NOLINTBEGIN: the forms are the standard's
LOAM_REPLACEABLE void* operator new(size_t n) { return allocate_or_throw(n); }
LOAM_REPLACEABLE void* operator new(size_t n, std::align_val_t a) { return aligned_or_throw(n, a); }
LOAM_REPLACEABLE void operator delete(void* p) noexcept { loam::heap::free(p); }
LOAM_REPLACEABLE void operator delete(void* p, std::align_val_t) noexcept { loam::heap::free(p); }

LOAM_REPLACEABLE void* operator new[](size_t n) {
  void* block = heap::allocate_cached(operators_cache, n);
  return LOAM_LIKELY(block != nullptr) ? block : new_array_slow(n);
}
LOAM_REPLACEABLE void* operator new[](size_t n, std::align_val_t a) {
  return serves_itself() ? aligned_or_throw(n, a) : ::operator new(n, a);
}

LOAM_REPLACEABLE void operator delete[](void* p) noexcept {
  if (LOAM_UNLIKELY(!heap::free_cached(operators_cache, p))) delete_array_slow(p);
}
LOAM_REPLACEABLE void operator delete(void* p, size_t n) noexcept {
  if (LOAM_UNLIKELY(!heap::free_cached(operators_cache, p))) delete_sized_slow(p, n);
}
LOAM_REPLACEABLE void operator delete[](void* p, size_t n) noexcept {
  if (LOAM_UNLIKELY(!heap::free_cached(operators_cache, p))) delete_array_sized_slow(p, n);
}
LOAM_REPLACEABLE void operator delete(void* p, const std::nothrow_t&) noexcept {
  serves_itself() ? heap::free(p) : ::operator delete(p);
}
LOAM_REPLACEABLE void operator delete[](void* p, const std::nothrow_t&) noexcept {
  serves_itself() ? heap::free(p) : ::operator delete[](p);
}
LOAM_REPLACEABLE void operator delete[](void* p, std::align_val_t a) noexcept {
  serves_itself() ? heap::free(p) : ::operator delete(p, a);
}
LOAM_REPLACEABLE void operator delete(void* p, size_t n, std::align_val_t a) noexcept {
  serves_itself() ? heap::free_sized(p, n) : ::operator delete(p, a);
}
LOAM_REPLACEABLE void operator delete[](void* p, size_t n, std::align_val_t a) noexcept {
  serves_itself() ? heap::free_sized(p, n) : ::operator delete[](p, a);
}
LOAM_REPLACEABLE void operator delete(void* p, std::align_val_t a, const std::nothrow_t&) noexcept {
  serves_itself() ? heap::free(p) : ::operator delete(p, a);
}
LOAM_REPLACEABLE void operator delete[](void* p, std::align_val_t a,
                                        const std::nothrow_t&) noexcept {
  serves_itself() ? heap::free(p) : ::operator delete[](p, a);
}
// NOLINTEND
