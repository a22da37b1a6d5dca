// A pointer for each thread, which the fast paths read: a thread-local variable where the compiler
// has native ones.
//
// gcc has none for Windows before version 16: its emulation allocates from the heap that would read
// it. There the pointer lies in a slot of the system (TlsAlloc), which is read from the thread's
// own block. Slots 0 to 63 are in the block, the other slots behind a pointer (winternl.h; Wine has
// the same layout).
//
//   declared once      LOAM_DECLARE_THREAD_POINTER(Type, name, none, refused, slot);
//   defined once       LOAM_DEFINE_THREAD_POINTER(Type, name, none);
//
// A thread that stored nothing reads `none`. If the system has no slot left, each thread always
// reads `refused`.
#pragma once

#include "base/config.h"

#if !defined(_WIN32)

#define LOAM_DECLARE_THREAD_POINTER(type, name, none, refused, slot) \
  extern constinit thread_local type* name __attribute__((tls_model("initial-exec")))
#define LOAM_DEFINE_THREAD_POINTER(type, name, none) constinit thread_local type* name = none

namespace loam::os {

/// A number that no other living thread has. `pointer` is any thread-local pointer.
template <class Pointer>
[[nodiscard]] LOAM_INLINE uintptr_t thread_identity(const Pointer& pointer) {
  return reinterpret_cast<uintptr_t>(&pointer);
}

/// The address of the calling thread's pointer, for other threads; null where they cannot reach it.
template <class T>
[[nodiscard]] LOAM_INLINE T** pointer_address(T*& pointer) {
  T** address = &pointer;
  // Without this the compiler subtracts one variable's offset from another's by an instruction that
  // the linker cannot change for a program that is linked statically.
  asm("" : "+r"(address));
  return address;
}
/// Loads and stores of a pointer that other threads may write. The store is seq_cst: it pairs with
/// the other threads' loads.
template <class T>
[[nodiscard]] LOAM_INLINE T* load_pointer(T* const& pointer) {
#if defined(__SANITIZE_THREAD__)
  return __atomic_load_n(&pointer, __ATOMIC_RELAXED);
#else
  // This is the one instruction of a relaxed load, not repeated and not divided. With
  // __atomic_load_n() gcc 12 makes operator new save a register.
  T* value = pointer;
  asm("" : "+r"(value));
  return value;
#endif
}
template <class T>
LOAM_INLINE void store_pointer(T*& pointer, T* value) {
  __atomic_store_n(&pointer, value, __ATOMIC_SEQ_CST);
}

}  // namespace loam::os

#else

#define LOAM_DECLARE_THREAD_POINTER(type, name, none, refused, slot) \
  inline constexpr os::ThreadPointer<type, none, refused, slot> name {}
#define LOAM_DEFINE_THREAD_POINTER(type, name, none) \
  static_assert(sizeof(name) != 0, "there is nothing to define")

namespace loam::os {

/// The heap's slots among the system's. Before the slot is requested, or after a refusal, no valid
/// number.
inline constexpr unsigned kThreadSlots = 4;
inline constexpr uint32_t kSlotUnknown = 0xffff'ffff, kSlotRefused = 0xffff'fffe;
extern uint32_t thread_slots[kThreadSlots];

/// Requests the slot unless that is done. Keeps the last error.
uint32_t find_thread_slot(unsigned slot);
/// Null: nothing was stored.
[[nodiscard]] void* load_far_thread_slot(unsigned slot, bool* refused);
void store_thread_slot(unsigned slot, void* pointer);

[[nodiscard]] LOAM_INLINE void* read_thread_block(uintptr_t offset) {
  void* value;
  asm volatile("movq %%gs:(%1), %0" : "=r"(value) : "r"(offset));
  return value;
}

[[nodiscard]] LOAM_INLINE void* load_thread_slot(unsigned slot, bool* refused) {
  constexpr uint32_t kNearSlots = 64;
  constexpr uintptr_t kNear = 0x1480;
  const uint32_t index = __atomic_load_n(&thread_slots[slot], __ATOMIC_RELAXED);
  if (LOAM_LIKELY(index < kNearSlots)) return read_thread_block(kNear + index * sizeof(void*));
  return load_far_thread_slot(slot, refused);
}

template <class T, T* kNone, T* kRefused, unsigned kSlot>
class ThreadPointer {
 public:
  LOAM_INLINE T* get() const {
    bool refused = false;
    void* const stored = load_thread_slot(kSlot, &refused);
    if (LOAM_LIKELY(stored != nullptr)) return static_cast<T*>(stored);
    return refused ? kRefused : kNone;
  }
  LOAM_INLINE operator T*() const { return get(); }
  LOAM_INLINE T* operator->() const { return get(); }
  const ThreadPointer& operator=(T* pointer) const {
    store_thread_slot(kSlot, pointer);
    return *this;
  }
};

/// A number that no other living thread has.
template <class Pointer>
[[nodiscard]] LOAM_INLINE uintptr_t thread_identity(const Pointer&) {
  constexpr uintptr_t kSelf = 0x30;
  return reinterpret_cast<uintptr_t>(read_thread_block(kSelf));
}

template <class T, T* kNone, T* kRefused, unsigned kSlot>
[[nodiscard]] T** pointer_address(const ThreadPointer<T, kNone, kRefused, kSlot>&) {
  return nullptr;
}
template <class T, T* kNone, T* kRefused, unsigned kSlot>
[[nodiscard]] LOAM_INLINE T* load_pointer(const ThreadPointer<T, kNone, kRefused, kSlot>& pointer) {
  return pointer.get();
}
template <class T>
[[nodiscard]] LOAM_INLINE T* load_pointer(T* const& pointer) {
  return pointer;
}
template <class T, T* kNone, T* kRefused, unsigned kSlot>
void store_pointer(const ThreadPointer<T, kNone, kRefused, kSlot>& pointer, T* value) {
  pointer = value;
}

}  // namespace loam::os

#endif
