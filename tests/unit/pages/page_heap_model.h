// A page heap beside a reference model that knows every run, and the bytes that the program wrote
// to it.
//
// The model checks after each operation that runs do not overlap and have their alignment, that the
// map names exactly them, and that their memory is committed. "Zero" memory must never have been
// written, no purge may have taken a live byte, and only pages that the heap counts may be
// resident. Last comes is_valid().
#pragma once

#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "os/os.h"
#include "pages/page_heap.h"
#include "random.h"

namespace loam::test {

namespace fake = os::fake;

struct Run {
  Span* span;
  size_t pages;
  bool large;
  size_t written;  ///< bytes, from the start
};

class PageHeapModel {
 public:
  PageHeapModel() : heap_(std::make_unique<PageHeap>()) {}

  PageHeap& heap() { return *heap_; }
  [[nodiscard]] const std::map<uintptr_t, Run>& runs() const { return runs_; }
  [[nodiscard]] size_t used() const { return used_; }

  /// Returns the address of a new large run, 0 when refused. Writes `written` bytes of it.
  uintptr_t large(size_t pages, size_t alignment = 1, size_t written = 0,
                  bool* was_zero = nullptr) {
    const auto [span, fresh, zero] =
        heap_->allocate_large(Pages(pages), Pages(alignment), pages * kPageBytes, 3);
    if (span == nullptr) return 0;
    EXPECT_EQ(span->kind, SpanKind::kLarge);
    EXPECT_EQ(span->large.pages, pages);
    EXPECT_EQ(span->heap, 3);
    const uintptr_t address = enter(span, pages, true);
    EXPECT_EQ(address % (alignment * kPageBytes), 0u) << alignment << " pages of alignment";
    if (zero) {
      EXPECT_EQ(fake::written_bytes(address, pages * kPageBytes), 0u) << "it is called zero";
    }
    if (was_zero != nullptr) *was_zero = zero;
    write(address, written);
    return address;
  }

  uintptr_t span(size_t pages, unsigned size_class = 1, size_t written = 0) {
    Span* span =
        heap_->allocate_span({Pages(pages), SizeClass(size_class), SizeClass(size_class), 4});
    if (span == nullptr) return 0;
    EXPECT_EQ(span->kind, SpanKind::kSmall);
    EXPECT_EQ(span->page_count, pages);
    EXPECT_EQ(index_of(span->size_class), size_class);
    EXPECT_EQ(span->unbacked_pages, 0u);
    const uintptr_t address = enter(span, pages, false);
    for (size_t i = 0; i < pages; ++i) {
      EXPECT_EQ(class_at(reinterpret_cast<void*>(address + i * kPageBytes)), size_class);
    }
    write(address, written);
    return address;
  }

  void free(uintptr_t address) {
    const Run run = runs_.at(address);
    expect_content(address, run);
    used_ -= run.pages;
    runs_.erase(address);
    heap_->free(run.span);
    if (waits_whole(address)) return;
    EXPECT_EQ(span_at(address), nullptr) << "nobody owns it, whether it waits or not";
    EXPECT_EQ(span_at(address + Pages(run.pages - 1).bytes()), nullptr);
    EXPECT_EQ(class_at(reinterpret_cast<void*>(address)), 0u);
  }

  /// Whether an empty span waits there whole, for the next request of its length.
  [[nodiscard]] static bool waits_whole(uintptr_t address) {
    const Span* span = span_at(address);
    return span != nullptr && span->kind == SpanKind::kStanding;
  }

  bool resize(uintptr_t address, size_t pages) {
    Run& run = runs_.at(address);
    if (!heap_->resize_large(run.span, Pages(pages), pages * kPageBytes)) return false;
    used_ += pages - run.pages;
    run.pages = pages;
    if (run.written > pages * kPageBytes) run.written = pages * kPageBytes;
    expect_no_overlap(address, pages);
    EXPECT_EQ(span_at(address), run.span);
    EXPECT_EQ(run.span->large.pages, pages);
    return true;
  }

  void free_all() {
    while (!runs_.empty()) free(runs_.begin()->first);
  }

  uintptr_t random_run(Random& random) {
    auto it = runs_.begin();
    std::advance(it, static_cast<long>(random.below(runs_.size())));
    return it->first;
  }

  void check() {
    ASSERT_TRUE(heap_->is_valid());
    const PageStats stats = heap_->stats();
    ASSERT_EQ(stats.used.count, used_);
    ASSERT_GE(stats.peak_used.count, used_);
    ASSERT_LE(stats.committed_bytes, stats.reserved_bytes);
    ASSERT_LE((stats.used + stats.dirty).bytes(), stats.committed_bytes);
    if (os::granularity() == kPageBytes) {
      ASSERT_LE(fake::resident_bytes(), (stats.used + stats.dirty).bytes());
    }
  }

  /// Checks that every live run still holds the bytes that were written to it.
  void check_contents() {
    for (const auto& [address, run] : runs_) expect_content(address, run);
  }

 private:
  uintptr_t enter(Span* span, size_t pages, bool large) {
    const uintptr_t address = span_base(span);
    expect_no_overlap(address, pages);
    EXPECT_TRUE(fake::is_committed(address, pages * kPageBytes));
    EXPECT_EQ(span_at(address), span);
    runs_[address] = {span, pages, large, 0};
    used_ += pages;
    return address;
  }

  void write(uintptr_t address, size_t bytes) {
    if (bytes == 0) return;
    fake::touch(address, bytes);
    runs_.at(address).written = bytes;
  }

  static void expect_content(uintptr_t address, const Run& run) {
    EXPECT_EQ(fake::written_bytes(address, run.written), run.written) << "a purge took live memory";
  }

  void expect_no_overlap(uintptr_t address, size_t pages) {
    const auto after = runs_.upper_bound(address);
    if (after != runs_.end()) {
      EXPECT_LE(address + pages * kPageBytes, after->first);
    }
    auto before = runs_.lower_bound(address);
    if (before != runs_.begin()) {
      --before;
      EXPECT_LE(before->first + before->second.pages * kPageBytes, address);
    }
  }

  std::unique_ptr<PageHeap> heap_;
  std::map<uintptr_t, Run> runs_;
  size_t used_ = 0;
};

}  // namespace loam::test
