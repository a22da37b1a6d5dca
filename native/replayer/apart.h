// A second heap for blocks that live long, beside whatever malloc this process has. It shows what
// separating them would have saved. The environment requests it, so it is one more setting of the
// lab:
//
//   REPLAY_APART=CLASS:LIBRARY   blocks of this class of lifetime and longer ones (program.h) come
//                                from a private heap of LIBRARY, which is Loam
//
// A block stays in its heap when it is resized, as it would in the program.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

#include "harness/system.h"
#include "program.h"

namespace replay {

class Apart {
 public:
  // Call before the baseline is taken, so that the library's own data are not measured.
  void open() {
    const char* wish = ::getenv("REPLAY_APART");
    if (wish == nullptr) return;
    if (wish[0] < '1' || wish[0] > '3' || wish[1] != ':') {
      lab::fail(lab::kExitUsage,
                "replay: REPLAY_APART is CLASS:LIBRARY with a class of 1 to 3, not ", wish);
    }
    void* library = ::dlopen(wish + 2, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      lab::fail(lab::kExitFailed, "replay: REPLAY_APART can not be loaded: ", ::dlerror());
    }
    using Create = void* (*)(const void*);
    const auto create = find<Create>(library, "loam_heap_create");
    allocate_ = find<Allocate>(library, "loam_alloc");
    aligned_ = find<Aligned>(library, "loam_aligned_alloc");
    resize_ = find<Resize>(library, "loam_realloc");
    release_ = find<Release>(library, "loam_free");
    heap_ = create(nullptr);
    if (heap_ == nullptr) lab::fail(lab::kExitFailed, "replay: no private heap could be created");
    least_ = static_cast<unsigned>(wish[0] - '0');
  }

  bool has(const Operation& op) const { return op.lifetime() >= least_; }

  void* allocate(const Operation& op) {
    if (op.family() == 3) return aligned_(heap_, lab::kPageBytes, op.bytes());
    if (op.alignment_log() > 4) {
      return aligned_(heap_, uint64_t{1} << op.alignment_log(), op.bytes());
    }
    return allocate_(heap_, op.bytes());
  }
  void* resize(void* block, uint64_t bytes) {
    return block == nullptr ? allocate_(heap_, bytes) : resize_(heap_, block, bytes);
  }
  void release(void* block) {
    if (release_(heap_, block) != 0) {
      lab::fail(lab::kExitFailed, "replay: a block went to another heap than it came from");
    }
  }

 private:
  using Allocate = void* (*)(void*, size_t);
  using Aligned = void* (*)(void*, size_t, size_t);
  using Resize = void* (*)(void*, void*, size_t);
  using Release = int (*)(void*, void*);

  template <typename Function>
  static Function find(void* library, const char* name) {
    void* found = ::dlsym(library, name);
    if (found == nullptr) lab::fail(lab::kExitFailed, "replay: REPLAY_APART has no ", name);
    return reinterpret_cast<Function>(found);
  }

  unsigned least_ = 4;  // above every class: nothing is apart
  void* heap_ = nullptr;
  Allocate allocate_ = nullptr;
  Aligned aligned_ = nullptr;
  Resize resize_ = nullptr;
  Release release_ = nullptr;
};

}  // namespace replay
