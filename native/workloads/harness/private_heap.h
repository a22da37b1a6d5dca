// A private heap beside malloc's, from the allocator in the process, for experiments on private
// heaps. Functions are found by name at run time.
//
//   Loam       a private heap; any thread may allocate (the C interface, loam/loam.h)
//   jemalloc   an arena, no thread cache (a cache would be shared with other heaps)
//   mimalloc   a heap of the thread that made it; no other thread may allocate from it
//   none       for other allocators PrivateHeap::provider() is empty, and experiments say so
//
// Any thread may free. destroy() drops all blocks at once.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allocator.h"
#include "block.h"
#include "system.h"

namespace lab {

class PrivateHeap {
 public:
  // The allocator that serves private heaps here; empty if none does. Call it once before the other
  // functions, because looking up names may allocate.
  static std::string_view provider() {
    Api& a = api();
    if (!a.looked_up) {
      a.looked_up = true;
      a.loam_create = find_function<void* (*)(const void*)>("loam_heap_create");
      a.loam_alloc = find_function<void* (*)(void*, size_t)>("loam_alloc");
      a.loam_free = find_function<int (*)(void*, void*)>("loam_free");
      a.loam_destroy = find_function<int (*)(void*)>("loam_heap_destroy");
      a.loam = a.loam_create && a.loam_alloc && a.loam_free && a.loam_destroy;
      a.mallctl = find_function<Mallctl>("mallctl");
      a.mallocx = find_function<void* (*)(size_t, int)>("mallocx");
      a.dallocx = find_function<void (*)(void*, int)>("dallocx");
      a.mi_new = find_function<void* (*)()>("mi_heap_new");
      a.mi_malloc = find_function<void* (*)(void*, size_t)>("mi_heap_malloc");
      a.mi_free = find_function<void (*)(void*)>("mi_free");
      a.mi_destroy = find_function<void (*)(void*)>("mi_heap_destroy");
      a.jemalloc = a.mallctl && a.mallocx && a.dallocx;
      a.mimalloc = a.mi_new && a.mi_malloc && a.mi_free && a.mi_destroy;
    }
    return a.loam ? "loam heap" : a.jemalloc ? "jemalloc arena" : a.mimalloc ? "mi_heap" : "";
  }

  // May other threads than the maker allocate?
  static bool any_thread() { return api().loam || api().jemalloc; }

  void create() {
    Api& a = api();
    if (a.loam) {
      heap_ = a.loam_create(nullptr);
      if (heap_ == nullptr) refuse("loam_heap_create");
    } else if (a.jemalloc) {
      unsigned index = 0;
      size_t length = sizeof index;
      if (a.mallctl("arenas.create", &index, &length, nullptr, 0) != 0) refuse("arenas.create");
      arena_ = index;
    } else if (a.mimalloc) {
      heap_ = a.mi_new();
      if (heap_ == nullptr) refuse("mi_heap_new");
    } else {
      refuse("no private heaps here");
    }
  }

  void* allocate(size_t bytes) {
    Api& a = api();
    if (a.loam) return must(a.loam_alloc(heap_, bytes), bytes);
    // MALLOCX_ARENA(i) is (i + 1) << 20; MALLOCX_TCACHE_NONE is (-1 + 2) << 8.
    void* p = a.jemalloc ? a.mallocx(bytes, static_cast<int>((arena_ + 1) << 20 | 1u << 8))
                         : a.mi_malloc(heap_, bytes);
    return must(p, bytes);
  }

  void free(void* block) {
    Api& a = api();
    if (a.loam) {
      a.loam_free(heap_, block);
      return;
    }
    a.jemalloc ? a.dallocx(block, 1 << 8) : a.mi_free(block);
  }

  void destroy() {
    Api& a = api();
    if (a.loam) {
      if (a.loam_destroy(heap_) != 0) refuse("loam_heap_destroy");
    } else if (a.jemalloc) {
      char name[40] = "arena.";
      char* at = std::to_chars(name + 6, name + 20, arena_).ptr;
      for (const char c : std::string_view(".destroy")) *at++ = c;
      *at = '\0';
      if (a.mallctl(name, nullptr, nullptr, nullptr, 0) != 0) refuse("arena.destroy");
    } else {
      a.mi_destroy(heap_);
    }
  }

 private:
  using Mallctl = int (*)(const char*, void*, size_t*, void*, size_t);
  struct Api {
    bool looked_up = false, loam = false, jemalloc = false, mimalloc = false;
    void* (*loam_create)(const void*) = nullptr;
    void* (*loam_alloc)(void*, size_t) = nullptr;
    int (*loam_free)(void*, void*) = nullptr;
    int (*loam_destroy)(void*) = nullptr;
    Mallctl mallctl = nullptr;
    void* (*mallocx)(size_t, int) = nullptr;
    void (*dallocx)(void*, int) = nullptr;
    void* (*mi_new)() = nullptr;
    void* (*mi_malloc)(void*, size_t) = nullptr;
    void (*mi_free)(void*) = nullptr;
    void (*mi_destroy)(void*) = nullptr;
  };
  static Api& api() {
    static constinit Api a;
    return a;
  }
  [[noreturn]] static void refuse(const char* what) {
    fail(kExitFailed, "workload: the allocator refused a private heap: ", what);
  }

  void* heap_ = nullptr;
  unsigned arena_ = 0;
};

}  // namespace lab
