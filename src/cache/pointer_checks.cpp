#include "cache/pointer_checks.h"

#include "cache/cache_registry.h"

namespace loam {

bool is_block_in_use(unsigned size_class, const void* block, bool freed) {
  if (size_class != kMixedClass) {
    const SizeClassInfo& info = class_info(size_class);
    const Span* span = span_at(reinterpret_cast<uintptr_t>(block));
    const size_t offset =
        span == nullptr ? 0 : reinterpret_cast<uintptr_t>(block) - span_base(span);
    const size_t slot = offset / info.bytes;
    if (span == nullptr || !begins_slot(info, offset)) {
      report_misuse("free of a pointer into the middle of a block", block);
      return false;
    }
    // A live block's bit is clear and no thread writes it, so reading it needs no lock.
    const uint64_t word = __atomic_load_n(&span->free_bits[slot / 64], __ATOMIC_RELAXED);
    freed =
        freed || ((word >> (slot & 63)) & 1) != 0 || cache_registry.any_holds(size_class, block);
  }
  if (LOAM_LIKELY(!freed)) return true;
  report_misuse("double free", block);
  return false;
}

}  // namespace loam
