// What the files of the Windows port share. Windows 8 and later, x86-64.
#pragma once

#undef _WIN32_WINNT
#define _WIN32_WINNT 0x0602  // Windows 8
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
// Ordinary words that the header defines as macros.
#undef far
#undef near
#undef small
#undef interface

// A thread's block is read at its 64-bit offsets (os/thread_pointer.h).
static_assert(sizeof(void*) == 8, "Loam needs 64-bit addresses: take a compiler for x86-64");

namespace loam::os {

/// Keeps the thread's last error as it was across a scope: a program may read it after an
/// allocation, as it may errno.
class LastErrorGuard {
 public:
  LastErrorGuard() : saved_(GetLastError()) {}
  ~LastErrorGuard() { SetLastError(saved_); }
  LastErrorGuard(const LastErrorGuard&) = delete;
  LastErrorGuard& operator=(const LastErrorGuard&) = delete;

 private:
  DWORD saved_;
};

/// The DLLs of the C run-time; each has a heap of the system.
inline constexpr const wchar_t* kCRuntimes[] = {L"ucrtbase.dll", L"msvcrt.dll"};

/// Keeps the heap's module loaded for good: a program, loam.dll, or a plugin with libloam.a inside.
/// Call before the system gets addresses of its code or data.
void stay_loaded();

/// Returns the thread slots when the module is unloaded; from then on each slot is refused.
void free_thread_slots();

/// A function of a module that is loaded already; null if there is none.
template <class Function>
Function function_of(const wchar_t* module, const char* name) {
  const HMODULE handle = GetModuleHandleW(module);
  const FARPROC found = handle != nullptr ? GetProcAddress(handle, name) : nullptr;
  return reinterpret_cast<Function>(reinterpret_cast<void*>(found));
}

}  // namespace loam::os
