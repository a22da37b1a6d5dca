#include "small/split_classes.h"

#include "small/bin.h"

namespace loam {

constinit SplitClasses split_classes;

namespace {

// The part of a span behind its last slot should be at most 1 in this many, or else the smallest
// possible. Otherwise the tail would cost half of what a finer class saves. The class has many
// blocks, so longer spans are no loss.
constexpr size_t kLeastTail = 2 * kLeastSavedShare;
// As in the generator of the fixed classes: enough slots to amortise a span's record.
constexpr unsigned least_slots(size_t bytes) { return bytes < 4096 ? 16 : bytes < 8192 ? 8 : 4; }

}  // namespace

SizeClassInfo shape_of(size_t bytes) {
  unsigned best = 0;
  size_t best_tail = 1, best_whole = 1;  // as a fraction
  for (unsigned pages = 1; pages <= kMaxSpanPages; ++pages) {
    const size_t whole = Pages(pages).bytes();
    if (whole / bytes < least_slots(bytes)) continue;
    const size_t tail = whole % bytes;
    if (best != 0 && tail * best_whole >= best_tail * whole) continue;
    best = pages;
    best_tail = tail;
    best_whole = whole;
    if (tail * kLeastTail <= whole) break;
  }
  SizeClassInfo info{};
  info.bytes = static_cast<uint32_t>(bytes);
  info.pages = static_cast<uint8_t>(best);
  info.slots = static_cast<uint16_t>(best_whole / bytes);
  info.reciprocal = static_cast<uint32_t>((uint64_t{1} << 32) / bytes + 1);
  info.list_scale = (Bin::kLists << 24) / info.slots + 1;
  return info;
}

bool SplitClasses::add(unsigned size_class, const SizeClassInfo& info) {
  if (!mutex_.try_lock()) return false;
  const unsigned count = count_.load(std::memory_order_relaxed);
  const bool added = count != kMost && class_for(info.bytes) == size_class &&
                     this->info(size_class).bytes > info.bytes;
  if (added) {
    rows_[count + 1] = info;
    // release: pairs with end() and class_for()
    count_.store(count + 1, std::memory_order_release);
    const unsigned number = kMixedClass + 1 + count;
    for (size_t step = step_of(info.bytes);
         bytes_of(step) > kFineLimit && class_for(bytes_of(step)) == size_class; --step) {
      set_class(step, number);
    }
  }
  mutex_.unlock();
  return added;
}

void SplitClasses::separate(unsigned size_class, unsigned lower) {
  if (!mutex_.try_lock()) return;
  const size_t below = kSizeClasses[merged_class(lower) - kMergedClasses].bytes;
  for (size_t step = step_of(kSizeClasses[lower].bytes); bytes_of(step) > below; --step) {
    if (class_for(bytes_of(step)) == size_class) set_class(step, lower);
  }
  mutex_.unlock();
}

}  // namespace loam
