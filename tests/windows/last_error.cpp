// The thread's last error belongs to the program. No call of the heap changes it, whether the call
// succeeds, fails, is a thread's first, or meets a system that refuses to commit.
//
//   last_error LOAM.DLL        every name that the DLL exports is among the calls
#include <loam/loam.h>
#include <loam/stats.h>
#include <malloc.h>
#include <unistd.h>
#include <windows.h>

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "check.h"
#include "system_calls.h"

extern "C" {
size_t _aligned_msize(void* block, size_t alignment, size_t offset);
char* strdup(const char* text);
wchar_t* wcsdup(const wchar_t* text);
}

namespace {

using system_calls::refusals;

// Volatile, so that the compiler knows neither value and does not warn.
volatile size_t too_much = SIZE_MAX / 2, some = 100;
constexpr size_t kLarge = size_t{3} << 20;
constexpr auto kAlign = std::align_val_t{256};

loam_heap* own = nullptr;
char* of_runtime = nullptr;  // a block that the C run-time's DLL made

void write_nowhere(void*, const char*, size_t) {}
int go_on(void*, const loam_walk_entry*) { return 0; }

void both(void* small, void* large) {
  keep(small);
  keep(large);
  free(large);
  free(small);
}

template <class Record>
Record sized() {
  Record record{};
  record.size = sizeof record;
  return record;
}

struct Call {
  const char* name;
  void (*run)();
};
const Call calls[] = {
    // The C run-time's functions.
    {"malloc", [] { both(malloc(some), malloc(kLarge)); }},
    {"malloc", [] { CHECK(malloc(too_much) == nullptr); }},
    {"calloc", [] { both(calloc(some, 10), calloc(kLarge, 2)); }},
    {"calloc", [] { CHECK(calloc(too_much, 4) == nullptr); }},
    {"realloc", [] { both(realloc(malloc(some), 5000), realloc(malloc(kLarge), 3 * kLarge)); }},
    {"realloc",
     [] {
       void* const block = malloc(some);
       CHECK(realloc(block, too_much) == nullptr);
       free(block);
     }},
    {"free", [] { free(nullptr); }},
    {"free", [] { free(std::exchange(of_runtime, nullptr)); }},
    {"strdup", [] { both(strdup("text"), _strdup("text")); }},
    {"wcsdup", [] { both(wcsdup(L"text"), _wcsdup(L"text")); }},
    {"_msize, _expand",
     [] {
       void* const block = malloc(some);
       CHECK(_msize(block) >= some && _expand(block, 50) == block);
       CHECK(_expand(block, kLarge) == nullptr);
       free(block);
     }},
    {"_recalloc", [] { both(_recalloc(nullptr, 10, 10), _recalloc(malloc(some), 10, 1000)); }},
    {"_heapchk", [] { CHECK(_heapchk() == _HEAPOK); }},
    {"_heapmin", [] { CHECK(_heapmin() == 0); }},
    {"_aligned",
     [] {
       void* block = _aligned_malloc(some, 1024);
       CHECK(_aligned_msize(block, 1024, 0) >= some);
       block = _aligned_realloc(block, 5000, 1024);
       _aligned_free(_aligned_recalloc(block, 10, 1000, 1024));
       CHECK(_aligned_malloc(too_much, 1024) == nullptr);
     }},
    {"_aligned_offset",
     [] {
       void* block = _aligned_offset_malloc(some, 1024, 8);
       block = _aligned_offset_realloc(block, 5000, 1024, 8);
       _aligned_free(_aligned_offset_recalloc(block, 10, 1000, 1024, 8));
     }},
    // The operators.
    {"new", [] { ::operator delete(keep(::operator new(some))); }},
    {"new[]", [] { ::operator delete[](keep(::operator new[](some))); }},
    {"new, sized", [] { ::operator delete (keep(::operator new(100)), size_t{100}); }},
    {"new, aligned", [] { ::operator delete(keep(::operator new(some, kAlign)), kAlign); }},
    {"new[], aligned", [] { ::operator delete[](keep(::operator new[](some, kAlign)), kAlign); }},
    {"new, nothrow",
     [] {
       ::operator delete(keep(::operator new(some, std::nothrow)), std::nothrow);
       CHECK(::operator new(too_much, std::nothrow) == nullptr);
       CHECK(::operator new(too_much, kAlign, std::nothrow) == nullptr);
     }},
    // <loam/loam.h>.
    {"loam_heap_create", [] { own = loam_heap_create(nullptr); }},
    {"loam_alloc, loam_free",
     [] { CHECK(loam_free(own, keep(loam_alloc(own, some))) == LOAM_OK); }},
    {"loam_alloc", [] { CHECK(loam_alloc(own, too_much) == nullptr); }},
    {"loam_zalloc", [] { CHECK(loam_free(own, keep(loam_zalloc(own, kLarge))) == LOAM_OK); }},
    {"loam_aligned_alloc",
     [] { CHECK(loam_free(own, keep(loam_aligned_alloc(own, 512, some))) == LOAM_OK); }},
    {"loam_realloc",
     [] { CHECK(loam_free(own, loam_realloc(own, loam_alloc(own, some), kLarge)) == LOAM_OK); }},
    {"loam_zrealloc",
     [] { CHECK(loam_free(own, loam_zrealloc(own, loam_alloc(own, some), kLarge)) == LOAM_OK); }},
    {"loam_aligned_realloc",
     [] {
       void* const block = loam_aligned_alloc(own, 256, some);
       CHECK(loam_free(own, loam_aligned_realloc(own, block, 256, kLarge, 0)) == LOAM_OK);
     }},
    {"loam_try_resize, loam_size, loam_usable_size, loam_heap_of, loam_validate, loam_free_sized",
     [] {
       void* const block = loam_alloc(own, 100);
       static_cast<void>(loam_try_resize(own, block, kLarge));
       CHECK(loam_size(own, block) >= 100 && loam_usable_size(own, block) >= 100);
       CHECK(loam_heap_of(block) == own && loam_validate(own, block) == LOAM_OK);
       CHECK(loam_validate(own, &own) != LOAM_OK && loam_free(own, &own) != LOAM_OK);
       CHECK(loam_free_sized(own, block, 100) == LOAM_OK);
     }},
    {"loam_walk_next",
     [] {
       auto entry = sized<loam_walk_entry>();
       static_cast<void>(loam_walk_next(own, &entry));
     }},
    {"loam_walk", [] { CHECK(loam_walk(own, &go_on, nullptr) == LOAM_OK); }},
    {"loam_summary",
     [] {
       auto summary = sized<loam_heap_summary>();
       CHECK(loam_summary(own, &summary) == LOAM_OK);
     }},
    {"loam_lock, loam_try_lock, loam_unlock",
     [] {
       CHECK(loam_lock(own) == LOAM_OK && loam_try_lock(own) == LOAM_OK);
       CHECK(loam_unlock(own) == LOAM_OK && loam_unlock(own) == LOAM_OK);
     }},
    {"loam_compact", [] { static_cast<void>(loam_compact(own, nullptr)); }},
    {"loam_trim", [] { CHECK(loam_trim(own) == LOAM_OK && loam_trim(nullptr) == LOAM_OK); }},
    {"loam_get_mode, loam_set_mode",
     [] { CHECK(loam_set_mode(own, 2) == LOAM_OK && loam_get_mode(own) == 2); }},
    {"loam_get_small_threshold, loam_set_small_threshold",
     [] { static_cast<void>(loam_set_small_threshold(own, loam_get_small_threshold(own))); }},
    {"loam_get_corruption_policy, loam_set_corruption_policy",
     [] { static_cast<void>(loam_set_corruption_policy(loam_get_corruption_policy())); }},
    {"loam_default, loam_heaps, loam_heap_name, loam_heap_flags",
     [] {
       loam_heap* heaps[4];
       CHECK(loam_heaps(heaps, 4) >= 2 && loam_default() != nullptr);
       static_cast<void>(loam_heap_name(own));
       static_cast<void>(loam_heap_flags(own));
     }},
    {"loam_stats, loam_class_count, loam_class_stats, loam_lock_stats, loam_stats_histogram",
     [] {
       auto stats = sized<struct loam_stats>();
       CHECK(loam_stats(nullptr, &stats) == LOAM_OK && loam_class_count() != 0);
       auto of_class = sized<struct loam_class_stats>();
       CHECK(loam_class_stats(nullptr, 0, &of_class) == LOAM_OK);
       auto of_lock = sized<struct loam_lock_stats>();
       CHECK(loam_lock_stats(0, &of_lock) == LOAM_OK);
       uint64_t bins[8];
       CHECK(loam_stats_histogram(LOAM_FREE_RUNS, bins, 8) != 0);
     }},
    {"loam_stats_json",
     [] { CHECK(loam_stats_json(nullptr, &write_nowhere, nullptr) == LOAM_OK); }},
    {"loam_stats_print", [] { CHECK(loam_stats_print(own, &write_nowhere, nullptr) == LOAM_OK); }},
    {"loam_version, loam_version_text, loam_status_text, loam_last_status",
     [] {
       CHECK(loam_version() != 0 && *loam_version_text() != 0 && *loam_status_text(0) != 0);
       static_cast<void>(loam_last_status());
     }},
    {"loam_heap_destroy", [] { CHECK(loam_heap_destroy(std::exchange(own, nullptr)) == LOAM_OK); }},
};

void run(const Call& call, DWORD error) {
  SetLastError(error);
  call.run();
  if (GetLastError() == error) return;
  std::fprintf(stderr, "%s: the last error was %lu and is %lu\n", call.name, error, GetLastError());
  std::_Exit(1);
}

void run_all(DWORD error) {
  for (const Call& call : calls) {
    if (of_runtime == nullptr) of_runtime = getcwd(nullptr, 0);
    run(call, error);
  }
}

// A thread's first call makes its cache, and its end empties it.
void each_as_the_first_of_a_thread() {
  for (const Call& call : calls) {
    if (of_runtime == nullptr) of_runtime = getcwd(nullptr, 0);
    const HANDLE thread = CreateThread(
        nullptr, 0, [](void* its) -> DWORD { return run(*static_cast<const Call*>(its), 4711), 0; },
        const_cast<Call*>(&call), 0, nullptr);
    CHECK(thread != nullptr && WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0);
    CloseHandle(thread);
  }
}

void refused_once() {
  for (size_t bytes : {some + 0, size_t{50'000}, kLarge, 20 * kLarge}) {
    SetLastError(4711);
    refusals = 1;
    void* const block = malloc(bytes);
    refusals = 0;
    CHECK(GetLastError() == 4711);
    free(block);
    CHECK(GetLastError() == 4711);
  }
}

// From the DLL's own table of names.
void every_export_is_among_them(const char* path) {
  const HMODULE module = LoadLibraryExA(path, nullptr, DONT_RESOLVE_DLL_REFERENCES);
  CHECK(module != nullptr);
  const char* const base = reinterpret_cast<const char*>(module);
  const auto* const dos = reinterpret_cast<const IMAGE_DOS_HEADER*>(base);
  const auto* const head = reinterpret_cast<const IMAGE_NT_HEADERS64*>(base + dos->e_lfanew);
  const auto& place = head->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_EXPORT];
  const auto* const table =
      reinterpret_cast<const IMAGE_EXPORT_DIRECTORY*>(base + place.VirtualAddress);
  const auto* const names = reinterpret_cast<const DWORD*>(base + table->AddressOfNames);
  std::string all = ", ";
  for (const Call& call : calls) all += std::string(call.name) + ", ";
  for (DWORD i = 0; i < table->NumberOfNames; ++i) {
    const std::string name = base + names[i];
    if (all.find(", " + name + ", ") != std::string::npos) continue;
    std::fprintf(stderr, "%s: the DLL exports it, and it is not tried here\n", name.c_str());
    std::_Exit(1);
  }
  CHECK(table->NumberOfNames > 40);
}

}  // namespace

int main(int, char** arguments) {
  run_all(0);
  run_all(1234);
  each_as_the_first_of_a_thread();
  refused_once();
  every_export_is_among_them(arguments[1]);
  return 0;
}
