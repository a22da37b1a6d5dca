#include "map/own_table.h"

#include "base/units.h"
#include "os/os.h"

namespace loam {

void* map_own_table(size_t bytes, bool (*commit)(void*, size_t)) {
  const size_t guard = os::granularity();
  const size_t inside = round_up(bytes, guard);
  char* reserved = static_cast<char*>(os::reserve_metadata(inside + 2 * guard, guard));
  if (reserved == nullptr) return nullptr;
  if (commit(reserved + guard, inside)) return reserved + guard;
  os::release(reserved, inside + 2 * guard);
  return nullptr;
}

void unmap_own_table(void* table, size_t bytes) {
  const size_t guard = os::granularity();
  os::release(static_cast<char*>(table) - guard, round_up(bytes, guard) + 2 * guard);
}

}  // namespace loam
