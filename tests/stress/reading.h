// What a heap reports about itself, for tests that compare it with a model of their own.
#ifndef LOAM_TESTS_STRESS_READING_H
#define LOAM_TESTS_STRESS_READING_H

#include <loam/loam.h>
#include <loam/stats.h>

#include <cstdlib>

namespace stress {

inline struct loam_stats figures_of(loam_heap* heap) {
  struct loam_stats stats = {};
  stats.size = sizeof stats;
  if (loam_stats(heap, &stats) != LOAM_OK) abort();
  return stats;
}

// Calls visit(address) for each live block of the heap. The steps and the callback must meet the
// same blocks. Returns LOAM_OK, or the reason why the walk did not reach its end.
template <typename Visit>
loam_status walk_blocks(loam_heap* heap, bool step_by_step, Visit visit) {
  const auto one = [](void* context, const loam_walk_entry* entry) {
    if (entry->kind >= LOAM_ENTRY_SMALL) (*static_cast<Visit*>(context))(entry->address);
    return 0;
  };
  if (!step_by_step) return loam_walk(heap, one, &visit);
  loam_walk_entry entry = {};
  entry.size = sizeof entry;
  loam_status status;
  while ((status = loam_walk_next(heap, &entry)) == LOAM_OK) one(&visit, &entry);
  return status == LOAM_NO_MORE ? LOAM_OK : status;
}

}  // namespace stress

#endif
