// Windows cannot release a part of a reservation. The part is decommitted, and its addresses stay
// reserved.
#if defined(_WIN32)

#include "os/windows.h"

#include <cstdint>

#include "base/units.h"
#include "fake_system/fake_state.h"
#include "fake_system/host.h"
#include "os/charge.h"
#include "os/shown_counters.h"

namespace loam::os {

namespace fake::host {

void* reserve(size_t bytes, size_t alignment) {
  void* const p = VirtualAlloc(nullptr, bytes + alignment, MEM_RESERVE, PAGE_NOACCESS);
  if (p == nullptr) return nullptr;
  return reinterpret_cast<void*>(round_up(reinterpret_cast<uintptr_t>(p), alignment));
}

bool commit(void* address, size_t bytes) {
  return VirtualAlloc(address, bytes, MEM_COMMIT, PAGE_READWRITE) != nullptr;
}
bool purge(void* address, size_t bytes) {
  return VirtualFree(address, bytes, MEM_DECOMMIT) != 0 && commit(address, bytes);
}
void release(void* address, size_t bytes) { VirtualFree(address, bytes, MEM_DECOMMIT); }

void barrier() {}  // Wine's barrier does nothing

}  // namespace fake::host

// --- Commit charge (os/charge.h), of data alone -------------------------------------------------

using namespace fake;

constinit uint64_t charged_bytes = 0;

// After a refused commit some parts of the range may be missing, so it is decommitted without a
// purge.
bool discard(void* address, size_t bytes) {
  if (!is_committed(reinterpret_cast<uintptr_t>(address), bytes)) return decommit(address, bytes);
  return purge(address, bytes) && decommit(address, bytes);
}

// Memory that is already committed is not requested, so a plan that refuses commits affects other
// requests. Pages may be larger than those of Windows; then the pages around the range are
// committed.
bool commit_again(void* address, size_t bytes) {
  const size_t grain = granularity();
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) & ~(grain - 1);
  const uintptr_t end = round_up(reinterpret_cast<uintptr_t>(address) + bytes, grain);
  if (is_committed(begin, end - begin)) return true;
  return commit(reinterpret_cast<void*>(begin), end - begin);
}

bool show_counters(const ShownCounter*, const uint64_t*, unsigned) { return false; }

}  // namespace loam::os

#endif  // _WIN32
