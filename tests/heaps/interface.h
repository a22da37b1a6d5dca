// The two interfaces to heaps, <loam/loam.h> and <loam/win32.h>, in one shape, so that one test can
// state a behaviour of both. It has only their common part. Differences (statuses and last errors)
// have tests of their own.
#pragma once

#include <gtest/gtest.h>
#include <loam/loam.h>
#include <loam/win32.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace heaps {

enum class Kind { kRegion, kUncommitted, kFree, kBusy };

/// One entry of a walk. Equality is what idea 14 calls "byte for byte".
struct Entry {
  Kind kind = Kind::kFree;
  void* address = nullptr;
  size_t bytes = 0;
  size_t overhead = 0;
  size_t region = 0;
  void* first = nullptr;
  void* last = nullptr;

  [[nodiscard]] char* begin() const { return static_cast<char*>(address); }
  bool operator==(const Entry&) const = default;
};

struct Options {
  size_t initial = 0;
  size_t maximum = 0;
  bool unsynchronized = false;
};

struct Summary {
  size_t allocated = 0;
  size_t committed = 0;
  size_t reserved = 0;
};

struct LoamInterface {
  using Heap = loam_heap*;

  static Heap create(const Options& wanted = {}) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.initial = wanted.initial;
    options.maximum = wanted.maximum;
    options.flags = LOAM_HEAP_EXACT_SIZES;
    if (wanted.unsynchronized) options.flags |= LOAM_HEAP_UNSYNCHRONIZED;
    return loam_heap_create(&options);
  }
  static bool destroy(Heap heap) { return loam_heap_destroy(heap) == LOAM_OK; }
  static Heap process_heap() { return loam_default(); }
  static std::vector<Heap> heaps() {
    std::vector<Heap> found(loam_heaps(nullptr, 0));
    EXPECT_EQ(found.size(), loam_heaps(found.data(), found.size()));
    return found;
  }
  static void* alloc(Heap heap, size_t bytes) { return loam_alloc(heap, bytes); }
  static void* zalloc(Heap heap, size_t bytes) { return loam_zalloc(heap, bytes); }
  static void* realloc(Heap heap, void* block, size_t bytes) {
    return loam_realloc(heap, block, bytes);
  }
  static void* zrealloc(Heap heap, void* block, size_t bytes) {
    return loam_zrealloc(heap, block, bytes);
  }
  static bool resize(Heap heap, void* block, size_t bytes) {
    return loam_try_resize(heap, block, bytes) == LOAM_OK;
  }
  static bool free(Heap heap, void* block) { return loam_free(heap, block) == LOAM_OK; }
  static size_t size(Heap heap, const void* block) { return loam_size(heap, block); }
  static bool validate(Heap heap, const void* block) {
    return loam_validate(heap, block) == LOAM_OK;
  }
  static bool lock(Heap heap) { return loam_lock(heap) == LOAM_OK; }
  static bool unlock(Heap heap) { return loam_unlock(heap) == LOAM_OK; }
  static bool trim(Heap heap) { return loam_trim(heap) == LOAM_OK; }
  static int mode(Heap heap) { return loam_get_mode(heap); }
  static bool set_mode(Heap heap, int mode) { return loam_set_mode(heap, mode) == LOAM_OK; }
  static Summary summary(Heap heap) {
    loam_heap_summary from{};
    from.size = sizeof from;
    EXPECT_EQ(loam_summary(heap, &from), LOAM_OK);
    return {from.allocated, from.committed, from.reserved};
  }
  static Kind kind_of(unsigned kind) {
    if (kind == LOAM_ENTRY_REGION) return Kind::kRegion;
    if (kind == LOAM_ENTRY_UNCOMMITTED) return Kind::kUncommitted;
    return kind == LOAM_ENTRY_FREE ? Kind::kFree : Kind::kBusy;
  }
  /// All entries; the walk must end with "no more".
  static std::vector<Entry> walk(Heap heap) {
    std::vector<Entry> entries;
    loam_walk_entry at{};
    at.size = sizeof at;
    loam_status status = LOAM_OK;
    EXPECT_TRUE(lock(heap));
    while ((status = loam_walk_next(heap, &at)) == LOAM_OK) {
      const bool region = at.kind == LOAM_ENTRY_REGION;
      entries.push_back({kind_of(at.kind), at.address, at.bytes, at.overhead, at.region,
                         region ? at.first : nullptr, region ? at.last : nullptr});
    }
    EXPECT_TRUE(unlock(heap));
    EXPECT_EQ(status, LOAM_NO_MORE);
    return entries;
  }
};

struct Win32Interface {
  using Heap = HANDLE;

  static Heap create(const Options& wanted = {}) {
    return HeapCreate(wanted.unsynchronized ? HEAP_NO_SERIALIZE : 0, wanted.initial,
                      wanted.maximum);
  }
  static bool destroy(Heap heap) { return HeapDestroy(heap) != FALSE; }
  static Heap process_heap() { return GetProcessHeap(); }
  static std::vector<Heap> heaps() {
    std::vector<Heap> found(GetProcessHeaps(0, nullptr));
    EXPECT_EQ(found.size(), GetProcessHeaps(static_cast<DWORD>(found.size()), found.data()));
    return found;
  }
  static void* alloc(Heap heap, size_t bytes) { return HeapAlloc(heap, 0, bytes); }
  static void* zalloc(Heap heap, size_t bytes) { return HeapAlloc(heap, HEAP_ZERO_MEMORY, bytes); }
  static void* realloc(Heap heap, void* block, size_t bytes) {
    return HeapReAlloc(heap, 0, block, bytes);
  }
  static void* zrealloc(Heap heap, void* block, size_t bytes) {
    return HeapReAlloc(heap, HEAP_ZERO_MEMORY, block, bytes);
  }
  static bool resize(Heap heap, void* block, size_t bytes) {
    void* const same = HeapReAlloc(heap, HEAP_REALLOC_IN_PLACE_ONLY, block, bytes);
    EXPECT_TRUE(same == nullptr || same == block);
    return same != nullptr;
  }
  static bool free(Heap heap, void* block) { return HeapFree(heap, 0, block) != FALSE; }
  static size_t size(Heap heap, const void* block) { return HeapSize(heap, 0, block); }
  static bool validate(Heap heap, const void* block) {
    return HeapValidate(heap, 0, block) != FALSE;
  }
  static bool lock(Heap heap) { return HeapLock(heap) != FALSE; }
  static bool unlock(Heap heap) { return HeapUnlock(heap) != FALSE; }
  static bool trim(Heap heap) {
    HEAP_OPTIMIZE_RESOURCES_INFORMATION how = {HEAP_OPTIMIZE_RESOURCES_CURRENT_VERSION, 0};
    return HeapSetInformation(heap, HeapOptimizeResources, &how, sizeof how) != FALSE;
  }
  static int mode(Heap heap) {
    ULONG mode = 99;
    SIZE_T returned = 0;
    if (!HeapQueryInformation(heap, HeapCompatibilityInformation, &mode, sizeof mode, &returned)) {
      return -1;
    }
    EXPECT_EQ(returned, sizeof mode);
    return static_cast<int>(mode);
  }
  static bool set_mode(Heap heap, int mode) {
    ULONG value = static_cast<ULONG>(mode);
    return HeapSetInformation(heap, HeapCompatibilityInformation, &value, sizeof value) != FALSE;
  }
  static Summary summary(Heap heap) {
    HEAP_SUMMARY from{};
    from.cb = sizeof from;
    EXPECT_TRUE(HeapSummary(heap, 0, &from));
    return {from.cbAllocated, from.cbCommitted, from.cbReserved};
  }
  static Kind kind_of(WORD flags) {
    if (flags & PROCESS_HEAP_REGION) return Kind::kRegion;
    if (flags & PROCESS_HEAP_UNCOMMITTED_RANGE) return Kind::kUncommitted;
    return flags & PROCESS_HEAP_ENTRY_BUSY ? Kind::kBusy : Kind::kFree;
  }
  static std::vector<Entry> walk(Heap heap) {
    std::vector<Entry> entries;
    PROCESS_HEAP_ENTRY at;
    std::memset(&at, 0xa5, sizeof at);  // only lpData counts at the start
    at.lpData = nullptr;
    EXPECT_TRUE(lock(heap));
    SetLastError(NO_ERROR);
    while (HeapWalk(heap, &at)) {
      const bool region = (at.wFlags & PROCESS_HEAP_REGION) != 0;
      entries.push_back({kind_of(at.wFlags), at.lpData, at.cbData, at.cbOverhead, at.iRegionIndex,
                         region ? at.Region.lpFirstBlock : nullptr,
                         region ? at.Region.lpLastBlock : nullptr});
      // A caller can take one entry out of its context and continue from it, because all state is
      // in it.
      if (region) continue;
      std::memset(&at.Block, 0, sizeof at.Block);
    }
    EXPECT_EQ(GetLastError(), DWORD{ERROR_NO_MORE_ITEMS});
    EXPECT_TRUE(unlock(heap));
    return entries;
  }
};

using Interfaces = ::testing::Types<LoamInterface, Win32Interface>;

struct InterfaceNames {
  template <typename Interface>
  static std::string GetName(int) {
    return std::is_same_v<Interface, LoamInterface> ? "loam" : "win32";
  }
};

/// A heap for one test; destroyed with it.
template <typename Interface>
class Scoped {
 public:
  explicit Scoped(const Options& options = {}) : heap_(Interface::create(options)) {
    EXPECT_NE(heap_, nullptr);
  }
  ~Scoped() { EXPECT_TRUE(Interface::destroy(heap_)); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;
  operator typename Interface::Heap() const { return heap_; }  // NOLINT: it stands for its handle

 private:
  typename Interface::Heap heap_;
};

inline bool is_filled(const void* block, size_t bytes, unsigned char with) {
  const auto* at = static_cast<const unsigned char*>(block);
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] != with) return false;
  }
  return true;
}

inline const Entry* find(const std::vector<Entry>& entries, const void* block) {
  for (const Entry& entry : entries) {
    if (entry.kind == Kind::kBusy && entry.address == block) return &entry;
  }
  return nullptr;
}

inline size_t count(const std::vector<Entry>& entries, Kind kind) {
  size_t found = 0;
  for (const Entry& entry : entries) found += entry.kind == kind;
  return found;
}

}  // namespace heaps
