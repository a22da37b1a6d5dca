// Windows: the slots in which a thread's pointers lie (os/thread_pointer.h).
#if defined(_WIN32)

#include "os/windows.h"

#include "os/thread_pointer.h"

namespace loam::os {

uint32_t thread_slots[kThreadSlots] = {kSlotUnknown, kSlotUnknown, kSlotUnknown, kSlotUnknown};

namespace {

constexpr uint32_t kNearSlots = 64;  // in the thread's block; a pointer there leads to the others
constexpr uint32_t kFarSlots = 1024;
constexpr uintptr_t kFar = 0x1780;

}  // namespace

uint32_t find_thread_slot(unsigned slot) {
  uint32_t index = __atomic_load_n(&thread_slots[slot], __ATOMIC_RELAXED);
  if (index != kSlotUnknown) return index;
  LastErrorGuard guard;
  const DWORD got = TlsAlloc();
  const uint32_t mine =
      got == TLS_OUT_OF_INDEXES || got >= kNearSlots + kFarSlots ? kSlotRefused : got;
  // relaxed: threads share only the number
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
  // The array exists only after the thread has stored something.
  void** const far = static_cast<void**>(read_thread_block(kFar));
  return far != nullptr ? far[index - kNearSlots] : nullptr;
}

void free_thread_slots() {
  for (uint32_t& slot : thread_slots) {
    // relaxed: no other thread is in a module that is being unloaded
    const uint32_t index = __atomic_exchange_n(&slot, kSlotRefused, __ATOMIC_RELAXED);
    if (index < kSlotRefused) TlsFree(index);
  }
}

void store_thread_slot(unsigned slot, void* pointer) {
  const uint32_t index = find_thread_slot(slot);
  if (index == kSlotRefused) return;
  LastErrorGuard guard;
  TlsSetValue(index, pointer);
}

}  // namespace loam::os

#endif  // _WIN32
