// What the page heap counts, at one moment.
#pragma once

#include "base/units.h"

namespace loam {

struct PageStats {
  size_t reserved_bytes;
  size_t committed_bytes;  ///< slabs that may be used
  Pages used;              ///< in runs
  Pages dirty;             ///< free and backed, parked runs included
  Pages parked;
  Pages peak_used;
  uint64_t purge_calls;
  uint64_t purged_pages;
  uint64_t purge_ns;       ///< time spent in purge calls
  uint64_t refused_calls;  ///< purge or commit calls that the system refused
  uint64_t fresh_pages;    ///< pages handed out that were not backed
  size_t large_blocks;     ///< live runs that are one block, of all heaps
  Pages large_pages;
  size_t large_requested;  ///< bytes requested in them
  uint64_t large_allocations;
  size_t longest_backed_run_bytes;  ///< exact
  size_t metadata_bytes;
};

}  // namespace loam
