#include "small/transfer_stash.h"

#include <cstring>

#include "map/metadata.h"
#include "map/page_map.h"

namespace loam {

namespace {

size_t record_bytes(unsigned size_class) {
  return sizeof(TransferStash::Batch) + TransferStash::batch_slots(size_class) * sizeof(void*);
}

}  // namespace

// Counts change together with the lists, under the lock, so they agree in a fork()ed child. A batch
// that was in neither list is lost in the child.
void TransferStash::push(Batch* batch) {
  batch->next = full_;
  full_ = batch;
  ++batches_;
  blocks_.store(blocks() + static_cast<uint32_t>(batch->count), std::memory_order_relaxed);
}

TransferStash::Batch* TransferStash::pop() {
  Batch* batch = full_;
  if (batch == nullptr) return nullptr;
  full_ = batch->next;
  if (--batches_ < idle_) idle_ = batches_;
  blocks_.store(blocks() - static_cast<uint32_t>(batch->count), std::memory_order_relaxed);
  return batch;
}

bool TransferStash::put(unsigned size_class, void* const* pointers, unsigned count) {
  LOAM_ASSERT(1 <= count && count <= batch_slots(size_class));
  Batch* batch;
  {
    Lock lock(mutex_);
    if (batches_ >= kMostBatches ||
        (blocks() + count) * size_t{class_info(size_class).bytes} > kMostBytes) {
      return false;
    }
    batch = spare_;
    if (batch != nullptr) spare_ = batch->next;
  }
  if (LOAM_UNLIKELY(batch == nullptr)) {
    batch = static_cast<Batch*>(metadata.allocate(record_bytes(size_class)));
    if (batch == nullptr) return false;
  }
  batch->count = count;
  memcpy(batch->pointers(), pointers, count * sizeof(void*));
  Lock lock(mutex_);
  push(batch);
  return true;
}

unsigned TransferStash::take(void** out, unsigned wanted, unsigned room) {
  if (blocks() == 0) return 0;
  Batch* batch;
  {
    Lock lock(mutex_);
    batch = pop();
  }
  if (batch == nullptr) return 0;
  const unsigned got = batch->count <= room ? static_cast<unsigned>(batch->count) : wanted;
  batch->count -= got;
  memcpy(out, batch->pointers() + batch->count, got * sizeof(void*));
  Lock lock(mutex_);
  if (batch->count != 0) {
    push(batch);
  } else {
    batch->next = spare_;
    spare_ = batch;
  }
  return got;
}

TransferStash::Batch* TransferStash::take_idle(bool all) {
  Lock lock(mutex_);
  Batch** from = &full_;
  if (!all) {
    // The warm batches on top stay.
    for (unsigned stay = batches_ - unsigned{idle_}; stay != 0 && *from != nullptr; --stay)
      from = &(*from)->next;
  }
  Batch* const taken = *from;
  *from = nullptr;
  uint32_t blocks_taken = 0;
  for (Batch* batch = taken; batch != nullptr; batch = batch->next) {
    blocks_taken += static_cast<uint32_t>(batch->count);
    --batches_;
  }
  blocks_.store(blocks() - blocks_taken, std::memory_order_relaxed);
  idle_ = batches_;
  return taken;
}

void TransferStash::release(unsigned size_class, Batch* emptied) {
  Batch* spare;
  {
    Lock lock(mutex_);
    spare = spare_;
    spare_ = nullptr;
  }
  for (Batch* list : {emptied, spare}) {
    while (list != nullptr) {
      Batch* const batch = list;
      list = batch->next;
      metadata.free(batch, record_bytes(size_class));
    }
  }
}

bool TransferStash::is_valid(unsigned size_class) {
  Lock lock(mutex_);
  unsigned batches = 0;
  size_t blocks = 0;
  for (Batch* batch = full_; batch != nullptr; batch = batch->next) {
    ++batches;
    blocks += batch->count;
    if (batch->count == 0 || batch->count > batch_slots(size_class)) return false;
    for (size_t i = 0; i < batch->count; ++i) {
      // A block's span may have become mixed while it waited here.
      const size_t found = class_at(batch->pointers()[i]);
      if (found != size_class && found != kMixedClass) return false;
    }
  }
  return batches == batches_ && idle_ <= batches_ &&
         blocks == blocks_.load(std::memory_order_relaxed);
}

}  // namespace loam
