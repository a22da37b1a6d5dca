#define _GNU_SOURCE
#include "slots.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "kernel.h"
#include "session.h"

// The address of each slot's ring in this process; null while it is not mapped.
static _Atomic(char*) bases[kSlots];
static _Atomic uint32_t bases_used;
static _Atomic uint32_t next_look;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void show(uint32_t index, uint64_t bytes, uint64_t offset, char* base);

bool slots_may_have_large(void) {
  return atomic_load_explicit(&control->large_made, memory_order_relaxed) < kLargeRings;
}

void slots_forget(void) {
  const uint32_t used = atomic_exchange(&bases_used, 0);
  for (uint32_t i = 0; i < used; ++i) atomic_store_explicit(&bases[i], NULL, memory_order_relaxed);
}

void slots_unmap(void) {
  const uint32_t used = atomic_load(&bases_used);
  for (uint32_t i = 0; i < used; ++i) {
    char* const base = atomic_load_explicit(&bases[i], memory_order_relaxed);
    const uint64_t offset = atomic_load_explicit(&slots[i].ring_offset, memory_order_relaxed);
    const uint64_t bytes = atomic_load_explicit(&slots[i].ring_bytes, memory_order_relaxed);
    if (base != NULL && session_window(offset, bytes) == NULL) kernel_unmap(base, bytes);
  }
  slots_forget();
}

static void raise_used(uint32_t count) {
  uint32_t used = atomic_load(&bases_used);
  while (used < count && !atomic_compare_exchange_weak(&bases_used, &used, count)) {
  }
}

static void take(uint32_t index, Ring* ring) {
  Slot* slot = &slots[index];
  ring->slot = slot;
  ring->units = atomic_load_explicit(&bases[index], memory_order_acquire);
  ring->mask = atomic_load_explicit(&slot->ring_bytes, memory_order_relaxed) - 1;
  ring->position = atomic_load_explicit(&slot->head, memory_order_relaxed);
  ring->limit = 0;
  ring->shared = 0;
  ring->high = 0;
}

static bool take_released(bool is_large, Ring* ring) {
  const uint32_t made = atomic_load_explicit(&control->slots_made, memory_order_acquire);
  const uint32_t count = made < kSlots ? made : kSlots;
  if (count == 0) return false;
  uint32_t index = atomic_load_explicit(&next_look, memory_order_relaxed) % count;
  for (uint32_t i = 0; i < count; ++i, index = index + 1 == count ? 0 : index + 1) {
    // A slot without a base may have no page yet.
    if (atomic_load_explicit(&bases[index], memory_order_acquire) == NULL) continue;
    Slot* slot = &slots[index];
    if (is_large && !slot->is_large) continue;
    uint32_t expected = kSlotReleased;
    // Acquire: pairs with the release in slots_release(), so `head` is the former owner's last.
    if (!atomic_compare_exchange_strong_explicit(&slot->state, &expected, kSlotLive,
                                                 memory_order_acquire, memory_order_relaxed))
      continue;
    atomic_fetch_sub(&control->released, 1);
    atomic_store_explicit(&next_look, index, memory_order_relaxed);
    take(index, ring);
    return true;
  }
  return false;
}

// Memory for a part of the file that is mapped, without a call that a filter may not know. A full
// file system is an error, and not a signal.
static int populate(void* address, uint64_t bytes) {
  const int error = kernel_advise(address, bytes, MADV_POPULATE_WRITE);
  return error == EFAULT ? ENOSPC : error;
}

static int make(uint32_t index, uint64_t bytes) {
  const uint64_t offset = atomic_fetch_add(&control->file_end, bytes);
  const uint64_t slot_page =
      (kControlBytes + (uint64_t)index * kSlotBytes) & ~(uint64_t)(kControlBytes - 1);
  char* const window = session_window(offset, bytes);
  if (window != NULL) {
    int error = populate((char*)control + slot_page, kControlBytes);
    if (error == 0) error = populate(window, bytes);
    if (error == 0) return show(index, bytes, offset, window), 0;
    // Before Linux 5.14 memory comes by fallocate().
    if (error != EINVAL) return error;
  }
  const int file = session_open_file();
  if (file < 0) return -file;
  int error = kernel_reserve(file, slot_page, kControlBytes);
  if (error == 0) error = kernel_reserve(file, offset, bytes);
  char* base = MAP_FAILED;
  if (error == 0) {
    base = window;
    if (window == NULL) base = kernel_map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
    if (base == MAP_FAILED) error = errno;
  }
  kernel_close(file);
  if (error != 0) return error;
  kernel_advise(base, bytes, MADV_DONTFORK);
  show(index, bytes, offset, base);
  return 0;
}

static void show(uint32_t index, uint64_t bytes, uint64_t offset, char* base) {
  Slot* slot = &slots[index];
  slot->is_large = bytes == kLargeRing;
  atomic_store_explicit(&slot->ring_bytes, bytes, memory_order_relaxed);
  // The drainer reads the offset first.
  atomic_store_explicit(&slot->ring_offset, offset, memory_order_release);
  atomic_store_explicit(&slot->state, kSlotLive, memory_order_release);
  atomic_store_explicit(&bases[index], base, memory_order_release);
}

bool slots_claim(bool is_large, Ring* ring, int* error) {
  if (atomic_load_explicit(&control->released, memory_order_relaxed) > 0 &&
      take_released(is_large, ring))
    return true;
  if (is_large && atomic_fetch_add(&control->large_made, 1) >= kLargeRings) {
    *error = ENOSPC;
    return false;
  }
  const uint32_t index = atomic_fetch_add(&control->slots_made, 1);
  if (index >= kSlots) {
    atomic_fetch_sub(&control->slots_made, 1);
    *error = EAGAIN;
    return false;
  }
  raise_used(index + 1);
  *error = make(index, is_large ? kLargeRing : kSmallRing);
  if (*error != 0) return false;
  take(index, ring);
  return true;
}

void slots_release(Ring* ring) {
  Slot* slot = ring->slot;
  ring->slot = NULL;
  ring->limit = 0;
  ring->shared = 0;
  atomic_fetch_add(&control->released, 1);
  atomic_store_explicit(&slot->state, kSlotReleased, memory_order_release);
}
