// The last error is the value of a pthread key, as a number and not a pointer, so it needs no
// allocation and no destructor. A thread-local variable would add to the library's static TLS.
// dlopen() can be sure of only 8 bytes of that, and those are used already.
#include "api/win32_state.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/config.h"

namespace loam::win32 {
namespace {

constinit std::atomic<uint64_t> last_error_key{0};  // key + 1; 0: none yet
constinit std::atomic<loam_win32_exception_handler> exception_handler{nullptr};
constinit std::atomic<loam_heap*> process_heap{nullptr};

// A program that never sets a last error uses no key. False when the system has no more keys: then
// there are no last errors, and all else works.
bool find_last_error_key(pthread_key_t* out) {
  // Pairs with the release below: a thread that sees the number sees a key that exists.
  uint64_t known = last_error_key.load(std::memory_order_acquire);
  if (LOAM_UNLIKELY(known == 0)) {
    pthread_key_t key;
    if (pthread_key_create(&key, nullptr) != 0) return false;
    if (last_error_key.compare_exchange_strong(known, uint64_t{key} + 1, std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {
      known = uint64_t{key} + 1;
    } else {
      pthread_key_delete(key);  // another thread was faster
    }
  }
  *out = static_cast<pthread_key_t>(known - 1);
  return true;
}

}  // namespace

void set_last_error(DWORD error) {
  pthread_key_t key;
  if (!find_last_error_key(&key)) return;
  pthread_setspecific(key, reinterpret_cast<void*>(static_cast<uintptr_t>(error)));
}

DWORD error_of(loam_status status, const void* heap) {
  switch (status) {
    case LOAM_OK:
      return NO_ERROR;
    case LOAM_OUT_OF_MEMORY:
    case LOAM_LIMIT_REACHED:
    case LOAM_NOT_IN_PLACE:
      return ERROR_NOT_ENOUGH_MEMORY;
    case LOAM_INVALID_HEAP:
      return heap == nullptr ? ERROR_NOACCESS : ERROR_INVALID_HANDLE;
    case LOAM_NOT_SUPPORTED:
      return ERROR_NOT_SUPPORTED;
    case LOAM_ONE_WAY:
      return ERROR_GEN_FAILURE;
    case LOAM_NOT_OWNER:
      return ERROR_NOT_OWNER;
    case LOAM_BUSY:
      return ERROR_BUSY;
    case LOAM_NO_MORE:
      return ERROR_NO_MORE_ITEMS;
    default:
      return ERROR_INVALID_PARAMETER;
  }
}

void* fail_allocation(loam_status status, HANDLE heap, DWORD flags, SIZE_T bytes) {
  const DWORD error = error_of(status, heap);
  const unsigned heap_flags = loam_heap_flags(static_cast<loam_heap*>(heap));
  set_last_error(error);
  if ((flags & HEAP_GENERATE_EXCEPTIONS) == 0 && (heap_flags & kRaises) == 0) return nullptr;
  const bool no_memory = error == ERROR_NOT_ENOUGH_MEMORY;
  // Pairs with the exchange in loam_win32_set_exception_handler().
  const auto handler = exception_handler.load(std::memory_order_acquire);
  LOAM_CHECK(handler != nullptr || !no_memory,
             "HEAP_GENERATE_EXCEPTIONS: out of memory, and no exception handler is set");
  LOAM_CHECK(handler != nullptr,
             "HEAP_GENERATE_EXCEPTIONS: bad heap or block, and no exception handler is set");
  handler(no_memory ? STATUS_NO_MEMORY : STATUS_ACCESS_VIOLATION, bytes);
  return nullptr;
}

loam_heap* make_heap(unsigned flags, SIZE_T initial, SIZE_T maximum, const char* name) {
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.initial = initial;
  options.maximum = maximum;
  options.flags = flags | LOAM_HEAP_EXACT_SIZES;
  options.name = name;
  return loam_heap_create(&options);
}

loam_heap* get_process_heap() {
  // Pairs with the release below: a heap that is seen is complete.
  loam_heap* heap = process_heap.load(std::memory_order_acquire);
  if (LOAM_LIKELY(heap != nullptr)) return heap;
  loam_heap* const made = make_heap(0, 0, 0, "process");
  if (made == nullptr) return nullptr;
  if (process_heap.compare_exchange_strong(heap, made, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
    return made;
  }
  // Another thread was faster. No other thread can hold this heap, so destroying it cannot fail.
  static_cast<void>(loam_heap_destroy(made));
  return heap;
}

bool is_permanent(const void* heap) {
  return heap != nullptr &&
         (heap == process_heap.load(std::memory_order_acquire) || heap == loam_default());
}

}  // namespace loam::win32

extern "C" {

LOAM_EXPORT DWORD GetLastError(void) {
  pthread_key_t key;
  if (!loam::win32::find_last_error_key(&key)) return NO_ERROR;
  return static_cast<DWORD>(reinterpret_cast<uintptr_t>(pthread_getspecific(key)));
}

LOAM_EXPORT void SetLastError(DWORD error) { loam::win32::set_last_error(error); }

LOAM_EXPORT loam_win32_exception_handler
loam_win32_set_exception_handler(loam_win32_exception_handler handler) {
  // Release: the program set up the handler's data before. Acquire: for the caller of the old
  // handler.
  return loam::win32::exception_handler.exchange(handler, std::memory_order_acq_rel);
}

}  // extern "C"
