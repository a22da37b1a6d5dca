// Which class serves a request above kFineLimit, by what the program has asked for so far.
//
// Every class has partly used spans and cached blocks. Few blocks are not worth them, so above
// kMergedFrom up to four neighbours begin as one class, the largest of them. Requests are recorded,
// one for each refill. When the class has many blocks, or its first requests or kWindow later ones
// all fit a smaller one of the merged classes, the lower half of what it serves goes to that half's
// largest class.
//
// A fixed class loses up to 11 % of a block. A program of many sizes does not notice that. A
// program that fills its heap with blocks of 4,368 bytes loses it in every block. If kWindow
// requests left much of their slots unused, and the class has enough blocks, a class between the
// fixed ones is made for the largest of them. Existing blocks never change.
//
//   numbers:  1 .. kSizeClassCount - 1 fixed;  kMixedClass;
//             kMixedClass + 1 .. kMixedClass + kMost split, the oldest first
//   a request's class only ever becomes a finer one
//   size_classes, private heaps and hardened blocks know the fixed ones only, and none is merged
//
// Thread-safe. Belongs to the default heap. All zero at first, so a program's start does not touch
// it.
#pragma once

#include <atomic>

#include "os/mutex.h"
#include "small/size_classes.h"

namespace loam {

/// The part of a class's slots that a split must save. Chosen: several times the cost of a class in
/// partly used spans and in magazines.
inline constexpr size_t kLeastSavedShare = 64;

class SplitClasses {
 public:
  static constexpr unsigned kMost = kMostSplitClasses;

  /// The present class for requests of `bytes` bytes. pre: kFineLimit < bytes <= kLargestSmall
  [[nodiscard]] LOAM_INLINE unsigned class_for(size_t bytes) const {
    // acquire pairs with the release in add(): the class's row is then filled in, and counted
    return merged_at(bytes) ^ changes_[step_of(bytes)].load(std::memory_order_acquire);
  }

  /// The row of any class. The rows of kMixedClass and of unused classes are all zero.
  [[nodiscard]] LOAM_INLINE const SizeClassInfo& info(unsigned size_class) const {
    return LOAM_LIKELY(size_class < kSizeClassCount) ? kSizeClasses[size_class]
                                                     : rows_[size_class - kMixedClass];
  }

  /// One more than the largest number in use.
  [[nodiscard]] unsigned end() const {
    return kMixedClass + 1 + count_.load(std::memory_order_acquire);
  }

  /// Records a request of the class. True once in kLook requests: look() then. Some requests that
  /// come at the same time may be missed. pre: kFineLimit < bytes <= kLargestSmall
  [[nodiscard]] LOAM_INLINE bool note(unsigned size_class, size_t bytes) {
    std::atomic<uint32_t>& watch = watches_[size_class];
    const uint32_t seen = watch.load(std::memory_order_relaxed);
    const uint32_t step = static_cast<uint32_t>(step_of(bytes)) << 16;
    const uint32_t now = (seen < step ? step | (seen & 0xffff) : seen) + 1;
    watch.store(now, std::memory_order_relaxed);
    return (now & (kLook - 1)) == 0;
  }
  struct Requests {
    size_t largest;  ///< bytes of a slot for the largest of them; 0: none is known
    bool is_first;   ///< they are the first of the class
    bool is_window;  ///< they are kWindow
  };
  /// The requests of the class since the last kWindow. None where another thread has just looked.
  [[nodiscard]] Requests look(unsigned size_class) {
    std::atomic<uint32_t>& watch = watches_[size_class];
    const uint32_t seen = watch.load(std::memory_order_relaxed), count = seen & 0xffff;
    if (seen >> 16 == 0) return {};
    const bool is_window = count == kWindow || count >= 2 * kWindow;
    if (is_window) watch.store(kWindow, std::memory_order_relaxed);
    return {bytes_of(seen >> 16), count <= kWindow, is_window};
  }

  /// Whether the class serves requests that are exactly `apart` fixed classes smaller.
  [[nodiscard]] bool has_merged(unsigned size_class, unsigned apart) const {
    return size_class < kSizeClassCount && kSizeClasses[size_class - apart].bytes > kMergedFrom &&
           class_for(kSizeClasses[size_class - apart].bytes) == size_class;
  }
  /// Requests up to a slot of the fixed class `lower` that the class serves go to `lower` from now
  /// on. Does nothing if another thread is just changing a class. pre: has_merged(size_class,
  /// size_class - lower)
  void separate(unsigned size_class, unsigned lower);

  /// Adds a class for requests of the class up to info.bytes. False if there is no number left, or
  /// another thread is just adding a class.
  [[nodiscard]] bool add(unsigned size_class, const SizeClassInfo& info);

  /// For fork().
  [[nodiscard]] Mutex& mutex() { return mutex_; }

  /// Chosen: with random sizes within a class, all requests of a window leave at least 1/64 of the
  /// slot only once in 25,000 windows.
  static constexpr uint32_t kWindow = 32;
  /// Chosen: the first of a random mix all fit the lower half of a class once in 16 classes.
  static constexpr uint32_t kLook = 4;

 private:
  friend struct CounterFields;
  static constexpr unsigned kStepShift = 4;
  [[nodiscard]] static constexpr size_t step_of(size_t bytes) { return (bytes + 15) >> kStepShift; }
  [[nodiscard]] static constexpr size_t bytes_of(size_t step) { return step << kStepShift; }
  [[nodiscard]] LOAM_INLINE static unsigned merged_at(size_t bytes) {
    return detail::kClassTables.merged[(bytes + 63) >> 6];
  }
  /// For requests of the step from now on.
  void set_class(size_t step, unsigned size_class) {
    // release: pairs with class_for()
    changes_[step].store(static_cast<uint8_t>(merged_at(bytes_of(step)) ^ size_class),
                         std::memory_order_release);
  }

  // The merged class and the present one, as exclusive or. A program of many sizes has both kinds,
  // and no branch that is often mispredicted.
  std::atomic<uint8_t> changes_[(kLargestSmall >> kStepShift) + 1] = {};
  SizeClassInfo rows_[kMost + 1] = {};
  // The largest request's step, and the number of requests. After the first window the number
  // begins with kWindow.
  std::atomic<uint32_t> watches_[kMagazineCount] = {};
  std::atomic<unsigned> count_{0};
  Mutex mutex_;
};

extern SplitClasses split_classes;

/// The row of any class.
[[nodiscard]] LOAM_INLINE const SizeClassInfo& class_info(unsigned size_class) {
  return split_classes.info(size_class);
}

/// True for a class whose blocks are slots of spans of its own: not 0, and not kMixedClass.
[[nodiscard]] LOAM_INLINE bool has_own_spans(unsigned size_class) {
  return size_class != 0 && size_class != kMixedClass;
}

/// The number of classes with spans of their own, for loops over them: first the fixed ones by
/// size, then the split ones by age.
[[nodiscard]] inline unsigned class_count() { return split_classes.end() - 2; }
/// pre: index < class_count()
[[nodiscard]] inline unsigned class_number(unsigned index) {
  return index + 1 < kMixedClass ? index + 1 : index + 2;
}

/// The form of spans of slots of `bytes` bytes. pre: a multiple of 16, kFineLimit < bytes <=
/// kLargestSmall
[[nodiscard]] SizeClassInfo shape_of(size_t bytes);

}  // namespace loam
