// The C interface of <loam/loam.h>. It checks handles and arguments and calls the failure callback;
// the private heap (private/private_heap.h) or the default heap (heap/default_heap.h) does the
// rest.
#include <loam/loam.h>

#include "cache/cache_registry.h"
#include "heap/default_heap.h"
#include "heap/heap.h"
#include "os/fatal.h"
#include "os/os.h"
#include "private/heap_registry.h"

namespace {

using namespace loam;

// Stores the status in the thread's cache, which is made if need be. A thread without a cache (for
// lack of memory, or at its end) stores nothing.
void remember(loam_status why) {
  if (current_cache->state() == ThreadCache::State::kUnused)
    static_cast<void>(cache_registry.start_thread());
  if (current_cache->state() == ThreadCache::State::kLive) current_cache->last_refusal = why;
}

// Its address is the default heap's handle. It is not the address of a record, and never read.
alignas(64) constinit const char default_handle[64] = {};

loam_heap* default_heap_handle() {
  return reinterpret_cast<loam_heap*>(const_cast<char*>(default_handle));
}
bool is_default(const loam_heap* heap) { return heap == default_heap_handle(); }
PrivateHeap* private_heap(loam_heap* heap) { return reinterpret_cast<PrivateHeap*>(heap); }
loam_heap* handle_of(PrivateHeap* heap) { return reinterpret_cast<loam_heap*>(heap); }
bool is_private(const loam_heap* heap) { return heap_registry.is_heap(heap); }

LOAM_COLD loam_status refuse(loam_status why) {
  remember(why);
  return why;
}

template <class T>
LOAM_COLD T refuse(loam_status why, T result) {
  remember(why);
  return result;
}

LOAM_INLINE loam_status answer(loam_status status) {
  return LOAM_LIKELY(status == LOAM_OK) ? status : refuse(status);
}

// A misused block: ends the process under the policy kTerminate.
LOAM_COLD loam_status refuse_misuse(loam_status why, const void* block) {
  if (corruption_policy() == CorruptionPolicy::kTerminate) {
    if (why == LOAM_INVALID_BLOCK)
      fatal("a call for a heap's block got a pointer that is no live block", block);
    if (why == LOAM_WRONG_HEAP) fatal("a call for a heap's block got another heap's block", block);
    if (why == LOAM_CORRUPT) PrivateHeap::report_overflow(block);
  }
  return refuse(why);
}

bool may_try_again(loam_status why, loam_heap* heap, size_t bytes) {
  if (why != LOAM_OUT_OF_MEMORY && why != LOAM_LIMIT_REACHED) return false;
  if (is_default(heap)) return false;
  const loam_failure_callback ask = private_heap(heap)->on_failure();
  return ask != nullptr && ask(private_heap(heap)->failure_context(), heap, bytes) != 0 &&
         is_private(heap);
}

LOAM_NOINLINE void* allocate(loam_heap* heap, size_t bytes, size_t alignment, bool zero) {
  if (!is_power_of_two(alignment)) return refuse(LOAM_INVALID_ARGUMENT, nullptr);
  if (alignment == LOAM_ALIGNMENT) {
    void* block = PrivateHeap::pop_special(private_heap(heap), bytes);
    if (block != nullptr)
      return zero ? __builtin_memset(block, 0, kSizeClasses[class_for(bytes)].bytes) : block;
  }
  loam_status why = LOAM_INVALID_HEAP;
  do {
    void* block = nullptr;
    if (is_default(heap)) {
      block = default_heap::allocate(bytes, alignment, zero, &why);
    } else if (is_private(heap)) {
      block = private_heap(heap)->allocate(bytes, alignment, zero, &why);
    }
    if (block != nullptr) return block;
  } while (may_try_again(why, heap, bytes));
  return refuse(why, nullptr);
}

void* reallocate(loam_heap* heap, void* block, size_t alignment, size_t bytes, bool zero) {
  if (!is_power_of_two(alignment)) return refuse(LOAM_INVALID_ARGUMENT, nullptr);
  loam_status why = LOAM_INVALID_HEAP;
  do {
    void* moved = nullptr;
    if (is_default(heap)) {
      moved = default_heap::reallocate(block, bytes, alignment, zero, &why);
    } else if (is_private(heap)) {
      moved = private_heap(heap)->reallocate(block, bytes, alignment, zero, &why);
    }
    if (moved != nullptr) return moved;
  } while (may_try_again(why, heap, bytes));
  refuse_misuse(why, block);
  return nullptr;
}

LOAM_NOINLINE loam_status free_slow(loam_heap* heap, void* block) {
  const Span* span = private_span_at(block);
  if (span != nullptr && PrivateHeap::push_special(private_heap(heap), span, block)) return LOAM_OK;
  if (is_default(heap)) {
    const loam_status status = block == nullptr ? LOAM_OK : default_heap::free(block);
    return status == LOAM_OK ? status : refuse_misuse(status, block);
  }
  if (!is_private(heap)) return refuse(LOAM_INVALID_HEAP);
  if (block == nullptr) return LOAM_OK;
  const loam_status status = private_heap(heap)->free(block);
  return status == LOAM_OK ? status : refuse_misuse(status, block);
}

// Finds the block and its heap, for calls that only look. *usable and *bytes are set on LOAM_OK.
loam_status look(loam_heap* heap, const void* block, size_t* bytes, size_t* usable) {
  if (is_default(heap)) {
    const loam_status status = default_heap::check(block, false);
    if (status != LOAM_OK) return status;
    *bytes = heap::requested_size(block);
    *usable = heap::usable_size(block);
    return LOAM_OK;
  }
  if (!is_private(heap)) return LOAM_INVALID_HEAP;
  const PrivateHeap::Found found = private_heap(heap)->find(block);
  *bytes = found.bytes;
  *usable = private_heap(heap)->canary() ? found.bytes : found.usable;
  return found.status;
}

constexpr unsigned version_number() {
  unsigned number = 0, part = 0;
  for (const char* c = LOAM_VERSION; *c != '\0'; ++c) {
    if (*c == '.') {
      number = (number + part) * 100;
      part = 0;
    } else {
      part = part * 10 + static_cast<unsigned>(*c - '0');
    }
  }
  return number + part;
}
static_assert(version_number() == LOAM_HEADER_VERSION, "the build takes LOAM_VERSION from loam.h");

constexpr unsigned kKnownFlags = LOAM_HEAP_UNSYNCHRONIZED | LOAM_HEAP_EXACT_SIZES |
                                 LOAM_HEAP_EAGER | LOAM_HEAP_ZERO_ON_FREE | LOAM_HEAP_CANARY |
                                 LOAM_HEAP_POISON | LOAM_HEAP_USER_FLAGS;

}  // namespace

extern "C" {

LOAM_EXPORT const char* loam_status_text(int status) LOAM_NOEXCEPT {
  // In one array, because an array of pointers would be relocated at the start.
  static constexpr char kTexts[][65] = {
      "no error",
      "out of memory",
      "the heap's maximum is reached",
      "invalid argument",
      "not a heap, or a heap that was destroyed",
      "not a live block",
      "a block of another heap",
      "the block would have to move",
      "this heap does not support the call",
      "the setting cannot be taken back",
      "another thread holds the heap's lock",
      "this thread does not hold the heap's lock",
      "the walk is at its end",
      "the heap changed under the walk",
      "the heap's records contradict each other, or a block was overrun"};
  static_assert(sizeof kTexts / sizeof *kTexts == LOAM_CORRUPT + 1);
  return status >= LOAM_OK && status <= LOAM_CORRUPT ? kTexts[status] : "unknown status";
}

LOAM_EXPORT loam_status loam_last_status() LOAM_NOEXCEPT {
  return static_cast<loam_status>(current_cache->last_refusal);
}
LOAM_EXPORT unsigned loam_version() LOAM_NOEXCEPT { return version_number(); }
LOAM_EXPORT const char* loam_version_text() LOAM_NOEXCEPT { return LOAM_VERSION; }

LOAM_EXPORT loam_heap* loam_heap_create(const loam_heap_options* options) LOAM_NOEXCEPT {
  loam_heap_options wanted = LOAM_HEAP_OPTIONS_INIT;
  if (options != nullptr) {
    // A caller with a later header may pass a longer struct, if the rest is zero.
    constexpr size_t kLargestOptions = 4096;
    if (options->size < sizeof wanted || options->size > kLargestOptions)
      return refuse(LOAM_INVALID_ARGUMENT, nullptr);
    const char* raw = reinterpret_cast<const char*>(options);
    for (size_t i = sizeof wanted; i < options->size; ++i) {
      if (raw[i] == 0) continue;
      return refuse(LOAM_INVALID_ARGUMENT, nullptr);
    }
    wanted = *options;
  }
  if ((wanted.flags & ~kKnownFlags) != 0 || wanted.reserved != 0)
    return refuse(LOAM_INVALID_ARGUMENT, nullptr);
  loam_status why = LOAM_OK;
  PrivateHeap* heap = heap_registry.create(wanted, &why);
  if (heap == nullptr) refuse(why);
  return handle_of(heap);
}

LOAM_EXPORT loam_status loam_heap_destroy(loam_heap* heap) LOAM_NOEXCEPT {
  if (is_default(heap)) return refuse(LOAM_NOT_SUPPORTED);
  return answer(is_private(heap) ? heap_registry.destroy(private_heap(heap)) : LOAM_INVALID_HEAP);
}

LOAM_EXPORT loam_heap* loam_default() LOAM_NOEXCEPT { return default_heap_handle(); }

LOAM_EXPORT size_t loam_heaps(loam_heap** heaps, size_t capacity) LOAM_NOEXCEPT {
  size_t count = 0;
  if (capacity != 0) heaps[0] = default_heap_handle();
  ++count;
  heap_registry.for_each([&](PrivateHeap* heap) {
    if (count < capacity) heaps[count] = handle_of(heap);
    ++count;
  });
  return count;
}

LOAM_EXPORT const char* loam_heap_name(loam_heap* heap) LOAM_NOEXCEPT {
  if (is_default(heap)) return "default";
  if (is_private(heap)) return private_heap(heap)->name();
  return refuse(LOAM_INVALID_HEAP, nullptr);
}

LOAM_EXPORT unsigned loam_heap_flags(loam_heap* heap) LOAM_NOEXCEPT {
  if (is_default(heap)) return 0;
  if (is_private(heap)) return private_heap(heap)->flags();
  return refuse(LOAM_INVALID_HEAP, 0u);
}

LOAM_EXPORT loam_heap* loam_heap_of(const void* block) LOAM_NOEXCEPT {
  if (PrivateHeap* heap = PrivateHeap::heap_of(block)) return handle_of(heap);
  if (seems_live(block)) return default_heap_handle();
  return refuse(LOAM_INVALID_BLOCK, nullptr);
}

// ---- blocks -----------------------------------------------------------------------------------

LOAM_EXPORT void* loam_alloc(loam_heap* heap, size_t bytes) {
  void* block = PrivateHeap::pop(private_heap(heap), bytes);
  return LOAM_LIKELY(block != nullptr) ? block : allocate(heap, bytes, LOAM_ALIGNMENT, false);
}

LOAM_EXPORT void* loam_zalloc(loam_heap* heap, size_t bytes) {
  void* block = PrivateHeap::pop(private_heap(heap), bytes);
  if (LOAM_UNLIKELY(block == nullptr)) return allocate(heap, bytes, LOAM_ALIGNMENT, true);
  return __builtin_memset(block, 0, kSizeClasses[class_for(bytes)].bytes);
}

LOAM_EXPORT void* loam_aligned_alloc(loam_heap* heap, size_t alignment, size_t bytes) {
  return allocate(heap, bytes, alignment, false);
}

LOAM_EXPORT void* loam_realloc(loam_heap* heap, void* block, size_t bytes) {
  return reallocate(heap, block, LOAM_ALIGNMENT, bytes, false);
}

LOAM_EXPORT void* loam_zrealloc(loam_heap* heap, void* block, size_t bytes) {
  return reallocate(heap, block, LOAM_ALIGNMENT, bytes, true);
}

LOAM_EXPORT void* loam_aligned_realloc(loam_heap* heap, void* block, size_t alignment, size_t bytes,
                                       int zero) {
  return reallocate(heap, block, alignment, bytes, zero != 0);
}

LOAM_EXPORT loam_status loam_try_resize(loam_heap* heap, void* block, size_t bytes) LOAM_NOEXCEPT {
  if (is_default(heap)) {
    const loam_status status = default_heap::try_resize(block, bytes);
    return status == LOAM_OK ? status : refuse_misuse(status, block);
  }
  if (!is_private(heap)) return refuse(LOAM_INVALID_HEAP);
  const loam_status status = private_heap(heap)->try_resize(block, bytes);
  return status == LOAM_OK ? status : refuse_misuse(status, block);
}

LOAM_EXPORT loam_status loam_free(loam_heap* heap, void* block) LOAM_NOEXCEPT {
  const Span* span = span_named_at(block);
  if (LOAM_LIKELY(span != nullptr && PrivateHeap::push(private_heap(heap), span, block)))
    return LOAM_OK;
  return free_slow(heap, block);
}

LOAM_EXPORT loam_status loam_free_sized(loam_heap* heap, void* block, size_t bytes) LOAM_NOEXCEPT {
  if (block == nullptr) return free_slow(heap, block);
  size_t real = 0, usable = 0;
  const loam_status status = look(heap, block, &real, &usable);
  if (status != LOAM_OK) return refuse_misuse(status, block);
  const bool exact = !is_default(heap) && private_heap(heap)->exact();
  if (exact ? bytes != real : bytes > usable) return refuse(LOAM_INVALID_ARGUMENT);
  return loam_free(heap, block);
}

LOAM_EXPORT size_t loam_size(loam_heap* heap, const void* block) LOAM_NOEXCEPT {
  size_t bytes = 0, usable = 0;
  const loam_status status = look(heap, block, &bytes, &usable);
  return status == LOAM_OK ? bytes : refuse(status, SIZE_MAX);
}

LOAM_EXPORT size_t loam_usable_size(loam_heap* heap, const void* block) LOAM_NOEXCEPT {
  size_t bytes = 0, usable = 0;
  const loam_status status = look(heap, block, &bytes, &usable);
  return status == LOAM_OK ? usable : refuse(status, SIZE_MAX);
}

LOAM_EXPORT loam_status loam_validate(loam_heap* heap, const void* block) LOAM_NOEXCEPT {
  if (is_default(heap)) {
    if (block != nullptr) return answer(default_heap::check(block, true));
    return answer(heap::is_valid() ? LOAM_OK : LOAM_CORRUPT);
  }
  if (!is_private(heap)) return refuse(LOAM_INVALID_HEAP);
  if (block != nullptr) return answer(private_heap(heap)->find(block).status);
  return answer(private_heap(heap)->is_valid() ? LOAM_OK : LOAM_CORRUPT);
}

// ---- looking ----------------------------------------------------------------------------------

LOAM_EXPORT loam_status loam_walk_next(loam_heap* heap, loam_walk_entry* entry) LOAM_NOEXCEPT {
  if (entry == nullptr || entry->size != sizeof *entry) return refuse(LOAM_INVALID_ARGUMENT);
  if (is_default(heap)) return answer(default_heap::walk_next(entry));
  return answer(is_private(heap) ? private_heap(heap)->walk_next(entry) : LOAM_INVALID_HEAP);
}

LOAM_EXPORT loam_status loam_walk(loam_heap* heap, loam_walk_callback visit, void* context) {
  if (visit == nullptr) return refuse(LOAM_INVALID_ARGUMENT);
  loam_status status = loam_lock(heap);
  if (status != LOAM_OK) return status;
  loam_walk_entry entry{};
  entry.size = sizeof entry;
  bool more = true;
  while (more && (status = loam_walk_next(heap, &entry)) == LOAM_OK)
    more = visit(context, &entry) == 0;
  static_cast<void>(loam_unlock(heap));
  return status == LOAM_NO_MORE ? LOAM_OK : status;
}

LOAM_EXPORT loam_status loam_summary(loam_heap* heap, loam_heap_summary* summary) LOAM_NOEXCEPT {
  if (summary == nullptr || summary->size != sizeof *summary) return refuse(LOAM_INVALID_ARGUMENT);
  if (!is_default(heap) && !is_private(heap)) return refuse(LOAM_INVALID_HEAP);
  *summary = loam_heap_summary{};
  summary->size = sizeof *summary;
  is_default(heap) ? default_heap::summary(summary) : private_heap(heap)->summary(summary);
  return LOAM_OK;
}

// ---- lock -------------------------------------------------------------------------------------

LOAM_EXPORT loam_status loam_lock(loam_heap* heap) LOAM_NOEXCEPT {
  if (is_default(heap)) return default_heap::lock();
  return answer(is_private(heap) ? private_heap(heap)->lock() : LOAM_INVALID_HEAP);
}

LOAM_EXPORT loam_status loam_try_lock(loam_heap* heap) LOAM_NOEXCEPT {
  if (is_default(heap)) return answer(default_heap::try_lock());
  return answer(is_private(heap) ? private_heap(heap)->try_lock() : LOAM_INVALID_HEAP);
}

LOAM_EXPORT loam_status loam_unlock(loam_heap* heap) LOAM_NOEXCEPT {
  if (is_default(heap)) return answer(default_heap::unlock());
  return answer(is_private(heap) ? private_heap(heap)->unlock() : LOAM_INVALID_HEAP);
}

// ---- memory and behaviour ---------------------------------------------------------------------

LOAM_EXPORT size_t loam_compact(loam_heap* heap, size_t* released) LOAM_NOEXCEPT {
  os::ErrnoGuard guard;
  if (released != nullptr) *released = 0;
  size_t largest = 0;
  Pages inside;
  if (!is_default(heap)) {
    if (!is_private(heap)) return refuse(LOAM_INVALID_HEAP, size_t{0});
    inside = private_heap(heap)->compact(&largest);
  }
  const heap::CompactResult result = is_default(heap) ? heap::compact() : heap::purge_free_pages();
  size_t run = result.largest_free_bytes;
  if (!is_default(heap) && private_heap(heap)->room() < run) run = private_heap(heap)->room();
  if (released != nullptr) *released = result.released_bytes + inside.bytes();
  return run > largest ? run : largest;
}

LOAM_EXPORT loam_status loam_trim(loam_heap* heap) LOAM_NOEXCEPT {
  os::ErrnoGuard guard;
  if (heap == nullptr) {
    heap::trim_all();
    return LOAM_OK;
  }
  if (!is_default(heap) && !is_private(heap)) return refuse(LOAM_INVALID_HEAP);
  static_cast<void>(loam_compact(heap, nullptr));
  return LOAM_OK;
}

LOAM_EXPORT loam_status loam_set_mode(loam_heap* heap, int mode) LOAM_NOEXCEPT {
  if (is_private(heap)) return answer(private_heap(heap)->set_mode(mode));
  if (!is_default(heap)) return refuse(LOAM_INVALID_HEAP);
  if (mode == LOAM_MODE_LOW_FRAGMENTATION) return LOAM_OK;
  return refuse(mode == LOAM_MODE_STANDARD || mode == LOAM_MODE_LOOKASIDE ? LOAM_ONE_WAY
                                                                          : LOAM_INVALID_ARGUMENT);
}

LOAM_EXPORT int loam_get_mode(loam_heap* heap) LOAM_NOEXCEPT {
  if (is_default(heap)) return LOAM_MODE_LOW_FRAGMENTATION;
  if (is_private(heap)) return private_heap(heap)->mode();
  return refuse(LOAM_INVALID_HEAP, -1);
}

LOAM_EXPORT loam_status loam_set_small_threshold(loam_heap* heap, size_t bytes) LOAM_NOEXCEPT {
  if (is_default(heap)) return refuse(LOAM_NOT_SUPPORTED);
  if (!is_private(heap)) return refuse(LOAM_INVALID_HEAP);
  if (bytes > LOAM_MAX_SMALL_THRESHOLD) return refuse(LOAM_INVALID_ARGUMENT);
  private_heap(heap)->set_small_threshold(bytes);
  return LOAM_OK;
}

LOAM_EXPORT size_t loam_get_small_threshold(loam_heap* heap) LOAM_NOEXCEPT {
  if (is_default(heap)) return kLargestSmall;
  if (is_private(heap)) return private_heap(heap)->small_threshold();
  return refuse(LOAM_INVALID_HEAP, SIZE_MAX);
}

LOAM_EXPORT int loam_get_corruption_policy() LOAM_NOEXCEPT {
  switch (corruption_policy()) {
    case CorruptionPolicy::kReport:
      return LOAM_CORRUPTION_REPORT;
    case CorruptionPolicy::kAbort:
      return LOAM_CORRUPTION_ABORT;
    case CorruptionPolicy::kTerminate:
      break;
  }
  return LOAM_CORRUPTION_TERMINATE;
}

LOAM_EXPORT loam_status loam_set_corruption_policy(int policy) LOAM_NOEXCEPT {
  if (policy < LOAM_CORRUPTION_REPORT || policy > LOAM_CORRUPTION_TERMINATE)
    return refuse(LOAM_INVALID_ARGUMENT);
  if (policy < loam_get_corruption_policy()) return refuse(LOAM_ONE_WAY);
  if (policy == LOAM_CORRUPTION_ABORT) set_corruption_policy(CorruptionPolicy::kAbort);
  if (policy == LOAM_CORRUPTION_TERMINATE) set_corruption_policy(CorruptionPolicy::kTerminate);
  return LOAM_OK;
}

}  // extern "C"
