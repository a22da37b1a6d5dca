#include "hardening/live_blocks.h"

#include "cache/cache_registry.h"
#include "hardening/hardening.h"
#include "small/found_block.h"
#include "small/partial_span.h"

namespace loam {

bool seems_live(const void* block) {
  const FoundBlock found = find_block(block);
  if (hardening.on() && found.kind != FoundBlock::kPrivate) {
    if (hardening.owns(block))
      return found.kind != FoundBlock::kNothing || hardening.owns_nothing(block);
    if (hardening.freed(block)) return false;
  }
  if (found.kind != FoundBlock::kSmall)
    return found.kind == FoundBlock::kLarge || found.kind == FoundBlock::kHuge;
  if (current_cache->freed_recently(static_cast<unsigned>(class_at(block)), block)) return false;
  if (!is_cut_into_slots(found.span->run_kind())) return true;
  const size_t slot = (reinterpret_cast<uintptr_t>(block) - span_base(found.span)) / found.bytes;
  // A live block's bit is clear and no thread writes it, so it is read without a lock. If the span
  // has become mixed meanwhile, the word read is no word of bits. acquire: pairs with the release
  // in MixedPart::open()
  const uint64_t word = __atomic_load_n(&found.span->free_bits[slot / 64], __ATOMIC_ACQUIRE);
  if (!is_cut_into_slots(found.span->run_kind())) return true;
  return ((word >> (slot % 64)) & 1) == 0 &&
         !is_absent(found.span, static_cast<unsigned>(slot),
                    class_info(index_of(found.span->size_class)));
}

bool is_live(const void* block) {
  if (!seems_live(block)) return false;
  if (hardening.owns(block)) return true;
  const unsigned size_class = static_cast<unsigned>(class_at(block));
  return size_class == 0 || !cache_registry.any_holds(size_class, block);
}

}  // namespace loam
