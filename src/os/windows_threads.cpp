// Windows: threads, their slots, and their ends.
//
// The loader calls the callbacks in the image's section .CRT$XL* when a thread ends, and when the
// library is unloaded. The linker puts them where the loader looks if _tls_used is referred to.
#if defined(_WIN32)

#include "os/windows.h"

#include "os/os.h"
#include "os/thread_pointer.h"

namespace loam::os {

uint32_t thread_slots[kThreadSlots] = {kSlotUnknown, kSlotUnknown, kSlotUnknown, kSlotUnknown};

namespace {

constexpr unsigned kExitSlot = 2;    // the argument of the thread's exit callback
constexpr uint32_t kNearSlots = 64;  // in the thread's block; the others are behind a pointer there
constexpr uint32_t kFarSlots = 1024;
constexpr uintptr_t kFar = 0x1780;

using ThreadExit = void (*)(void*);
constinit ThreadExit thread_exit = nullptr;

void WINAPI on_loader_event(void*, DWORD reason, void*) {
  if (reason != DLL_THREAD_DETACH) return;
  bool refused = false;
  void* const argument = load_thread_slot(kExitSlot, &refused);
  // pairs with the release in arm_thread_exit()
  const ThreadExit callback = __atomic_load_n(&thread_exit, __ATOMIC_ACQUIRE);
  if (argument == nullptr || callback == nullptr) return;
  LastErrorGuard guard;
  store_thread_slot(kExitSlot, nullptr);
  callback(argument);
}

}  // namespace

uint32_t find_thread_slot(unsigned slot) {
  uint32_t index = __atomic_load_n(&thread_slots[slot], __ATOMIC_RELAXED);
  if (index != kSlotUnknown) return index;
  LastErrorGuard guard;
  const DWORD got = TlsAlloc();
  const uint32_t mine =
      got == TLS_OUT_OF_INDEXES || got >= kNearSlots + kFarSlots ? kSlotRefused : got;
  // relaxed: the number is all that is shared
  if (__atomic_compare_exchange_n(&thread_slots[slot], &index, mine, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED))
    return mine;
  if (got != TLS_OUT_OF_INDEXES) TlsFree(got);
  return index;
}

void* load_far_thread_slot(unsigned slot, bool* refused) {
  const uint32_t index = find_thread_slot(slot);
  if (index == kSlotRefused) {
    *refused = true;
    return nullptr;
  }
  if (index < kNearSlots) return load_thread_slot(slot, refused);
  // Not there before the thread stored something.
  void** const far = static_cast<void**>(read_thread_block(kFar));
  return far != nullptr ? far[index - kNearSlots] : nullptr;
}

void store_thread_slot(unsigned slot, void* pointer) {
  const uint32_t index = find_thread_slot(slot);
  if (index == kSlotRefused) return;
  LastErrorGuard guard;
  TlsSetValue(index, pointer);
}

bool arm_thread_exit(void (*callback)(void*), void* argument) {
  // pairs with the acquire in on_loader_event()
  __atomic_store_n(&thread_exit, callback, __ATOMIC_RELEASE);
  store_thread_slot(kExitSlot, argument);
  return find_thread_slot(kExitSlot) != kSlotRefused;
}

namespace {

constexpr size_t kStackBytes = size_t{128} << 10;

DWORD WINAPI call_body(void* body) {
  reinterpret_cast<void (*)()>(body)();
  return 0;
}

}  // namespace

bool start_thread(void (*body)()) {
  LastErrorGuard guard;
  const HANDLE thread =
      CreateThread(nullptr, kStackBytes, &call_body, reinterpret_cast<void*>(body),
                   STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
  if (thread == nullptr) return false;
  CloseHandle(thread);
  return true;
}

uint32_t thread_number() { return GetCurrentThreadId(); }
uint64_t process_number() { return GetCurrentProcessId(); }

// There is no fork().
void register_fork(void (*)(), void (*)(), void (*)()) {}

}  // namespace loam::os

extern "C" {
extern const IMAGE_TLS_DIRECTORY _tls_used;
__attribute__((section(".CRT$XLB"), used)) PIMAGE_TLS_CALLBACK loam_on_loader_event =
    &loam::os::on_loader_event;
// Without a reference the linker leaves the directory of callbacks out.
__attribute__((used)) const IMAGE_TLS_DIRECTORY* const loam_tls_directory = &_tls_used;
}

#endif  // _WIN32
