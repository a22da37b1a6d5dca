// Windows: the DLL of the C++ run-time, for a program or plugin that is linked with it.
//
// Blocks of C++ pass between that DLL and the code that uses it: a string that the DLL allocates is
// freed by an inlined destructor, and vice versa. The operators of the two must therefore allocate
// from one heap. Those of the DLL call the C run-time's functions through the DLL's import table.
// There the entries are replaced by the heap's functions. No code is changed.
#if defined(_WIN32)

#include "os/windows.h"

#include <cstring>

#include "os/system_heap.h"

extern "C" const IMAGE_DOS_HEADER __ImageBase;  // of this module; the linker defines it

namespace loam::os {

namespace {

constexpr const char* kCxxRuntimes[] = {"libstdc++-6.dll", "libc++.dll", "libc++abi.dll"};

template <class Type>
Type* at(const void* base, size_t offset) {
  return reinterpret_cast<Type*>(reinterpret_cast<uintptr_t>(base) + offset);
}

// The modules that `base` imports from, up to one without a name.
const IMAGE_IMPORT_DESCRIPTOR* imports_of(const void* base) {
  const auto* const head = at<IMAGE_NT_HEADERS>(
      base, static_cast<size_t>(static_cast<const IMAGE_DOS_HEADER*>(base)->e_lfanew));
  const IMAGE_DATA_DIRECTORY& directory =
      head->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_IMPORT];
  return directory.Size == 0 ? nullptr
                             : at<IMAGE_IMPORT_DESCRIPTOR>(base, directory.VirtualAddress);
}

// False for an entry that another module with a heap has replaced: its heap then serves the DLL.
bool is_of_c_runtime(const void* function) {
  HMODULE module;
  if (!GetModuleHandleExW(
          GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
          static_cast<const wchar_t*>(function), &module))
    return false;
  for (const wchar_t* runtime : kCRuntimes) {
    if (module == GetModuleHandleW(runtime)) return true;
  }
  return false;
}

void replace(void** entry, void* function) {
  DWORD before;
  if (!VirtualProtect(entry, sizeof *entry, PAGE_READWRITE, &before)) return;
  __atomic_store_n(entry, function, __ATOMIC_RELAXED);
  VirtualProtect(entry, sizeof *entry, before, &before);
}

void serve(const void* dll, const Replacement* list, size_t count) {
  const IMAGE_IMPORT_DESCRIPTOR* from = imports_of(dll);
  for (; from != nullptr && from->Name != 0; ++from) {
    if (from->OriginalFirstThunk == 0) continue;
    const auto* name = at<IMAGE_THUNK_DATA>(dll, from->OriginalFirstThunk);
    void** entry = at<void*>(dll, from->FirstThunk);
    for (; name->u1.AddressOfData != 0; ++name, ++entry) {
      if (IMAGE_SNAP_BY_ORDINAL(name->u1.Ordinal)) continue;
      const auto* const by_name =
          at<IMAGE_IMPORT_BY_NAME>(dll, static_cast<size_t>(name->u1.AddressOfData));
      // Its characters are bytes without a sign in some headers.
      const auto* const imported = reinterpret_cast<const char*>(by_name->Name);
      for (size_t i = 0; i < count; ++i) {
        if (strcmp(imported, list[i].name) == 0 && is_of_c_runtime(*entry))
          replace(entry, list[i].function);
      }
    }
  }
}

}  // namespace

void serve_cxx_runtime(const Replacement* list, size_t count) {
  LastErrorGuard guard;
  bool served = false;
  const IMAGE_IMPORT_DESCRIPTOR* from = imports_of(&__ImageBase);
  for (; from != nullptr && from->Name != 0; ++from) {
    const char* const name = at<char>(&__ImageBase, from->Name);
    for (const char* runtime : kCxxRuntimes) {
      if (_stricmp(name, runtime) != 0) continue;
      const HMODULE dll = GetModuleHandleA(name);
      if (dll == nullptr) continue;
      serve(dll, list, count);
      served = true;
    }
  }
  if (served) stay_loaded();  // the DLL calls this module from now on
}

}  // namespace loam::os

#endif  // _WIN32
