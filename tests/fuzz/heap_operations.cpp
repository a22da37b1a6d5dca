// Operations on heaps, and on the process.
#include <loam/stats.h>
#include <loam/win32.h>

#include <cerrno>
#include <cstring>

#include "../stress/reading.h"
#include "runner.h"

namespace fuzz {

void Runner::perform_on_heap(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const unsigned h = static_cast<unsigned>(a[0]);
  switch (operation.op) {
    case Op::kHeap:
      return make_heap(operation);
    case Op::kDestroy:
      return h == 0 ? void() : destroy_heap(h);
    case Op::kFork:
      return fork_child();
    case Op::kMallocTrim:
      calls_.trim(a[0]);
      heavy_ = true;
      return;
    case Op::kMallinfo: {
      const struct mallinfo2 info = calls_.info2();
      if (info.uordblks + info.hblkhd < model_.bytes_of(0))
        fail("mallinfo2 counts %zu bytes in use", info.uordblks);
      static_cast<void>(calls_.info());
      static_cast<void>(calls_.option(-1, 0));
      return;
    }
    case Op::kStatistics:
      return statistics();
    default:
      break;
  }
  ModelHeap& heap = model_.heaps[h];
  if (operation.op == Op::kTrim && heap.handle == nullptr) {
    heavy_ = true;
    if (loam_trim(nullptr) != LOAM_OK) fail("not every heap could be trimmed");
    return;
  }
  if (heap.handle == nullptr) return;
  if (operation.op == Op::kLock || operation.op == Op::kTryLock || operation.op == Op::kUnlock) {
    return lock_heap(h, operation.op);
  }
  if (blocked(h)) return;
  switch (operation.op) {
    case Op::kCompact: {
      size_t released = 1;
      static_cast<void>(loam_compact(heap.handle, &released));
      heavy_ = true;
      return;
    }
    case Op::kTrim:
      if (loam_trim(heap.handle) != LOAM_OK) fail("h%u could not be trimmed", h);
      heavy_ = true;
      return;
    case Op::kWalk:
      // The default heap's lock excludes only other lockers.
      if (h == 0 && heap.locked_by >= 0 && heap.locked_by != static_cast<int>(current_)) return;
      return walk(h, a[1] % 2 != 0);
    case Op::kValidate:
      if (loam_validate(heap.handle, nullptr) != LOAM_OK)
        fail("the records of h%u contradict each other", h);
      return;
    case Op::kThreshold: {
      const loam_status should = h == 0                            ? LOAM_NOT_SUPPORTED
                                 : a[1] > LOAM_MAX_SMALL_THRESHOLD ? LOAM_INVALID_ARGUMENT
                                                                   : LOAM_OK;
      const loam_status status = loam_set_small_threshold(heap.handle, a[1]);
      if (status != should) fail("the threshold: \"%s\"", loam_status_text(status));
      if (status == LOAM_OK && loam_get_small_threshold(heap.handle) != a[1])
        fail("the threshold is another");
      return;
    }
    case Op::kMode: {
      const int before = loam_get_mode(heap.handle), mode = static_cast<int>(a[1] % 4);
      const loam_status status = loam_set_mode(heap.handle, mode);
      const int after = loam_get_mode(heap.handle);
      if (after < before || (status == LOAM_OK && after != mode))
        fail("mode %d was set to %d and is %d", before, mode, after);
      return;
    }
    default:
      return;
  }
}

int Runner::on_failure(void* context, loam_heap* handle, size_t) {
  Runner& runner = *static_cast<Runner*>(context);
  for (Block& block : runner.model_.blocks) {
    if (block.start == nullptr || &block == runner.busy_ ||
        runner.model_.heaps[block.heap].handle != handle)
      continue;
    runner.free_block(block, Op::kLoamFree, 0);
    return 1;
  }
  return 0;
}

void Runner::make_heap(const Operation& operation) {
  const uint64_t* a = operation.arguments;
  const unsigned h = operation.result;
  ModelHeap& heap = model_.heaps[h];
  if (heap.handle != nullptr) destroy_heap(h);
  if (heap.handle != nullptr) return;  // locked by another thread
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.flags = static_cast<unsigned>(a[0] % 16);
  if (a[0] / 32 % 2 != 0) options.flags |= LOAM_HEAP_POISON;
  options.initial = a[1];
  options.maximum = a[2];
  if (a[0] / 16 % 2 != 0) {
    options.on_failure = &Runner::on_failure;
    options.context = this;
  }
  options.name = "fuzzed";
  heap = ModelHeap{};
  heap.handle = loam_heap_create(&options);
  if (heap.handle == nullptr) {
    const bool refused = system_ != nullptr && system_->refusals() != refusals_before_;
    if (!refused && a[1] <= (size_t{64} << 20) && a[2] == 0)
      fail("a heap was refused: %s", loam_status_text(loam_last_status()));
    return;
  }
  heap.flags = options.flags;
  heap.maximum = a[2];
  heap.serial = ++model_.heap_serials;
  if (loam_heap_flags(heap.handle) != options.flags ||
      strcmp(loam_heap_name(heap.handle), "fuzzed") != 0) {
    fail("a heap forgot its flags or its name");
  }
  for (unsigned other = 0; other < kHeaps; ++other) {
    if (other != h && model_.heaps[other].handle == heap.handle) fail("two heaps have one handle");
  }
}

void Runner::destroy_heap(unsigned h, bool windows) {
  ModelHeap& heap = model_.heaps[h];
  if (heap.handle == nullptr) return;
  const bool busy = blocked(h);
  const loam_status status = !windows                   ? loam_heap_destroy(heap.handle)
                             : HeapDestroy(heap.handle) ? LOAM_OK
                                                        : LOAM_BUSY;
  if (busy != (status == LOAM_BUSY) || (status != LOAM_OK && status != LOAM_BUSY)) {
    fail("h%u is to end: \"%s\"", h, loam_status_text(status));
  }
  if (busy) return;
  for (Block& block : model_.blocks) {
    if (block.start != nullptr && block.heap == h) model_.remove(block);
  }
  for (std::vector<Block>& group : model_.groups) {
    size_t kept = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      if (group[i].heap == h) {
        model_.remove(group[i]);
      } else {
        group[kept++] = group[i];
      }
    }
    group.resize(kept);
  }
  loam_heap* gone = heap.handle;
  heap = ModelHeap{};
  heavy_ = true;
  if (loam_alloc(gone, 16) != nullptr || loam_heap_destroy(gone) != LOAM_INVALID_HEAP)
    fail("a heap that ended still serves");
}

void Runner::lock_heap(unsigned h, Op how) {
  ModelHeap& heap = model_.heaps[h];
  const bool others =
      !heap.unsynchronized() && heap.locked_by >= 0 && heap.locked_by != static_cast<int>(current_);
  if (how == Op::kLock && others) return;  // the call would wait for ever
  const loam_status status = how == Op::kLock      ? loam_lock(heap.handle)
                             : how == Op::kTryLock ? loam_try_lock(heap.handle)
                                                   : loam_unlock(heap.handle);
  loam_status should = LOAM_OK;
  if (others) should = how == Op::kUnlock ? LOAM_NOT_OWNER : LOAM_BUSY;
  if (how == Op::kUnlock && heap.depth == 0) should = LOAM_NOT_OWNER;
  if (status != should) fail("the lock of h%u: \"%s\"", h, loam_status_text(status));
  if (status != LOAM_OK) return;
  if (how == Op::kUnlock) {
    if (--heap.depth == 0) heap.locked_by = -1;
  } else {
    ++heap.depth;
    heap.locked_by = static_cast<int>(current_);
  }
}

void Runner::walk(unsigned h, bool step_by_step) {
  const ModelHeap& heap = model_.heaps[h];
  uint64_t live = 0, ours = 0;
  const loam_status status = stress::walk_blocks(heap.handle, step_by_step, [&](const void* block) {
    ++live;
    ours += model_.starts_at(block);
  });
  if (status != LOAM_OK) fail("a walk of h%u ends with \"%s\"", h, loam_status_text(status));
  if (ours != model_.blocks_of(h)) {
    fail("a walk of h%u met %llu of %llu blocks", h, static_cast<unsigned long long>(ours),
         static_cast<unsigned long long>(model_.blocks_of(h)));
  }
  if (h != 0 && live != ours) fail("a walk of h%u met blocks that are not live", h);
}

void Runner::statistics() {
  size_t length = 0;
  const auto count = [](void* context, const char*, size_t bytes) {
    *static_cast<size_t*>(context) += bytes;
  };
  if (loam_stats_json(nullptr, count, &length) != LOAM_OK || length == 0)
    fail("no statistics as JSON");
  if (loam_stats_print(nullptr, count, &length) != LOAM_OK) fail("no statistics as text");
  uint64_t bins[64];
  static_cast<void>(loam_stats_histogram(LOAM_FREE_RUNS, bins, 64));
  uint64_t live = 0;
  for (unsigned i = 0; i < loam_class_count(); ++i) {
    struct loam_class_stats stats = {};
    stats.size = sizeof stats;
    if (loam_class_stats(loam_default(), i, &stats) != LOAM_OK)
      fail("class %u has no statistics", i);
    live += stats.live_blocks;
  }
  struct loam_stats whole = {};
  whole.size = sizeof whole;
  if (loam_stats(loam_default(), &whole) != LOAM_OK) fail("the default heap has no statistics");
  if (whole.live_small_blocks != live) fail("the classes' live blocks are not the heap's");
  struct loam_lock_stats lock = {};
  lock.size = sizeof lock;
  for (unsigned i = 0; loam_lock_stats(i, &lock) == LOAM_OK; ++i) lock.size = sizeof lock;
}

}  // namespace fuzz
