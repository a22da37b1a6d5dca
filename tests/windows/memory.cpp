// The port itself (src/os/os.h): alignment of reservations in both ways, zeros after a purge, parts
// of reservations, and a system that refuses to commit.
#include <cstring>
#include <initializer_list>

#include "check.h"
#include "os/os.h"
#include "system_calls.h"

namespace {

using namespace loam;
using system_calls::refusals;

enum class Extended { kSystem, kMisplaces, kLacking };
// VirtualAlloc2() of Wine before version 9, or of Windows before version 10 1803.
constexpr Extended kExtended = LOAM_TEST_EXTENDED;
int misplaced = 0;

void* WINAPI misplacing(HANDLE, void* address, SIZE_T bytes, ULONG kind, ULONG access, void*,
                        ULONG) {
  ++misplaced;
  return VirtualAlloc(address, bytes, kind, access);
}

}  // namespace

extern "C" {
struct CountedText {
  USHORT length, room;
  const char* text;
};
__declspec(dllimport) LONG NTAPI LdrGetProcedureAddress(HMODULE, const CountedText*, ULONG, void**);
}

namespace {

FARPROC WINAPI find(HMODULE module, const char* name) {
  if (reinterpret_cast<uintptr_t>(name) > 0xffff && strcmp(name, "VirtualAlloc2") == 0) {
    if (kExtended == Extended::kLacking) return nullptr;
    if (kExtended == Extended::kMisplaces)
      return reinterpret_cast<FARPROC>(reinterpret_cast<void*>(&misplacing));
  }
  const USHORT length = static_cast<USHORT>(strlen(name));
  const CountedText text{length, static_cast<USHORT>(length + 1), name};
  void* found = nullptr;
  if (LdrGetProcedureAddress(module, &text, 0, &found) != 0) return nullptr;
  return reinterpret_cast<FARPROC>(found);
}

}  // namespace

extern "C" {
void* loam_test_get_procedure asm("__imp_GetProcAddress") = reinterpret_cast<void*>(&find);
}

namespace {

void places_are_aligned() {
  for (const size_t alignment : {size_t{1} << 16, size_t{1} << 21, size_t{1} << 30}) {
    void* const p = os::reserve(size_t{4} << 20, alignment);
    CHECK(p != nullptr && reinterpret_cast<uintptr_t>(p) % alignment == 0);
    CHECK(os::commit(p, size_t{1} << 20));
    memset(p, 1, size_t{1} << 20);
    os::release(p, size_t{4} << 20);
    MEMORY_BASIC_INFORMATION info;
    CHECK(VirtualQuery(p, &info, sizeof info) == sizeof info && info.State == MEM_FREE);
  }
}

void purged_memory_is_zero() {
  const size_t bytes = size_t{1} << 20;
  char* const p = static_cast<char*>(os::reserve(bytes, size_t{1} << 21));
  CHECK(p != nullptr && os::commit(p, bytes));
  memset(p, 7, bytes);
  CHECK(os::purge(p + 4096, bytes / 2));
  CHECK(p[0] == 7 && p[4096] == 0 && p[bytes / 2 + 4095] == 0 && p[bytes / 2 + 4096] == 7);
  p[4096] = 1;
  CHECK(os::decommit(p, 4096));
  MEMORY_BASIC_INFORMATION info;
  CHECK(VirtualQuery(p, &info, sizeof info) == sizeof info && info.State == MEM_RESERVE);
  os::release(p, bytes / 2);  // a part: its memory is released, and its addresses stay reserved
  CHECK(VirtualQuery(p, &info, sizeof info) == sizeof info && info.State == MEM_RESERVE);
  CHECK(p[bytes - 1] == 7);
}

bool is_free(const void* address) {
  MEMORY_BASIC_INFORMATION info;
  return VirtualQuery(address, &info, sizeof info) == sizeof info && info.State == MEM_FREE;
}

// Doubles its length in place.
void a_mapping_grows_into_its_room() {
  constexpr size_t kMiB = size_t{1} << 20;
  char* const p = static_cast<char*>(os::map_block(kMiB, 4096));
  CHECK(p != nullptr);
  p[0] = 3;
  refusals = 1;
  CHECK(os::remap_block(p, kMiB, 2 * kMiB, false) == nullptr && refusals == 0);
  for (const bool in_place : {true, false}) {
    CHECK(os::remap_block(p, kMiB, 2 * kMiB, in_place) == p);
    CHECK(p[0] == 3 && p[kMiB] == 0 && p[2 * kMiB - 1] == 0);
    memset(p + kMiB, 4, kMiB);
    CHECK(os::remap_block(p, 2 * kMiB, 3 * kMiB, in_place) == nullptr && p[2 * kMiB - 1] == 4);
    CHECK(os::remap_block(p, 2 * kMiB, kMiB, in_place) == p && p[0] == 3);
  }
  // Its second half belongs to another reservation.
  p[kMiB / 2] = 5;
  CHECK(os::remap_block(p, kMiB / 2, kMiB, false) == nullptr && p[kMiB / 2] == 5);
  os::release(p, kMiB / 2);
  CHECK(!is_free(p) && p[kMiB / 2] == 5);
  os::release(p + kMiB / 2, kMiB / 2);
  char* const whole = static_cast<char*>(os::map_block(kMiB, 4096));
  CHECK(whole != nullptr && os::remap_block(whole, kMiB, kMiB / 2, true) == whole);
  os::release(whole, kMiB / 2);
  CHECK(is_free(whole) && is_free(whole + kMiB / 2) && is_free(whole + 2 * kMiB - 4096));
}

// Between the search for an address and its reservation, another thread may take it.
void a_place_that_was_taken_is_looked_for_again() {
  if (kExtended == Extended::kSystem) return;
  constexpr size_t kBytes = size_t{4} << 20, kAlignment = size_t{1} << 30;
  system_calls::taken_places = 7;
  void* const p = os::reserve(kBytes, kAlignment);
  CHECK(p != nullptr && reinterpret_cast<uintptr_t>(p) % kAlignment == 0);
  CHECK(system_calls::taken_places == 0);
  os::release(p, kBytes);
  system_calls::taken_places = 100;
  CHECK(os::reserve(kBytes, kAlignment) == nullptr && system_calls::taken_places == 92);
  system_calls::taken_places = 0;
}

// After one or two refusals there is memory. After a permanent refusal the caller gets an error.
void a_refused_commit_is_tried_again() {
  const size_t bytes = size_t{1} << 20;
  void* const p = os::reserve(bytes, 4096);
  refusals = 2;
  SetLastError(77);
  CHECK(os::commit(p, bytes) && refusals == 0 && GetLastError() == 77);
  refusals = 11;  // as many as the number of tries
  CHECK(os::map_block(bytes, 4096) == nullptr && refusals == 0 && GetLastError() == 77);
  os::release(p, bytes);
}

}  // namespace

int main() {
  places_are_aligned();
  CHECK((misplaced != 0) == (kExtended == Extended::kMisplaces));
  purged_memory_is_zero();
  a_mapping_grows_into_its_room();
  a_place_that_was_taken_is_looked_for_again();
  a_refused_commit_is_tried_again();
  return 0;
}
