// Lets this program control the calls by which the heap takes and returns memory. The calls go
// through the import table's pointers, which this header replaces. Include it in one file.
#pragma once

#include <windows.h>

#include <cstddef>
#include <cstdint>

#include "check.h"

namespace system_calls {

inline int refusals = 0;      // of commits to come
inline int taken_places = 0;  // of reservations to come at a given address

using Allocate = void*(WINAPI*)(void*, SIZE_T, DWORD, DWORD);
using Free = BOOL(WINAPI*)(void*, SIZE_T, DWORD);

// The function is looked up each time, because the first call comes before the result can be kept.
template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(
      reinterpret_cast<void*>(GetProcAddress(GetModuleHandleA("kernelbase.dll"), name)));
}

// The reservations in which memory was committed, in no order. It does not matter how they were
// made, because memory is committed in them here. For one thread.
inline void* reservations[1 << 16];
inline size_t reservation_count = 0;

inline void note_reservation(void* within) {
  MEMORY_BASIC_INFORMATION info;
  CHECK(VirtualQuery(within, &info, sizeof info) == sizeof info);
  for (size_t i = 0; i < reservation_count; ++i) {
    if (reservations[i] == info.AllocationBase) return;
  }
  CHECK(reservation_count < sizeof reservations / sizeof *reservations);
  reservations[reservation_count++] = info.AllocationBase;
}

inline void* WINAPI allocate(void* address, SIZE_T bytes, DWORD kind, DWORD access) {
  if ((kind & MEM_COMMIT) != 0 && refusals > 0) {
    --refusals;
    SetLastError(ERROR_COMMITMENT_LIMIT);
    return nullptr;
  }
  if (address != nullptr && kind == MEM_RESERVE && taken_places > 0) {
    --taken_places;
    SetLastError(ERROR_INVALID_ADDRESS);
    return nullptr;
  }
  void* const p = real<Allocate>("VirtualAlloc")(address, bytes, kind, access);
  if (p != nullptr && (kind & MEM_COMMIT) != 0) note_reservation(p);
  return p;
}

inline BOOL WINAPI release(void* address, SIZE_T bytes, DWORD kind) {
  const BOOL done = real<Free>("VirtualFree")(address, bytes, kind);
  for (size_t i = 0; done && kind == MEM_RELEASE && i < reservation_count; ++i) {
    if (reservations[i] == address) reservations[i] = reservations[--reservation_count];
  }
  return done;
}

// The bytes that the system reports as committed in those reservations.
inline size_t committed_bytes() {
  size_t sum = 0;
  for (size_t i = 0; i < reservation_count; ++i) {
    MEMORY_BASIC_INFORMATION info;
    for (uintptr_t at = reinterpret_cast<uintptr_t>(reservations[i]);
         VirtualQuery(reinterpret_cast<void*>(at), &info, sizeof info) == sizeof info &&
         info.AllocationBase == reservations[i];
         at += info.RegionSize) {
      if (info.State == MEM_COMMIT) sum += info.RegionSize;
    }
  }
  return sum;
}

}  // namespace system_calls

extern "C" {
void* loam_test_virtual_alloc asm("__imp_VirtualAlloc") =
    reinterpret_cast<void*>(&system_calls::allocate);
void* loam_test_virtual_free asm("__imp_VirtualFree") =
    reinterpret_cast<void*>(&system_calls::release);
}
