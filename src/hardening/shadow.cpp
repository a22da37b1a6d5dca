#include "hardening/shadow.h"

#include "map/own_table.h"
#include "os/os.h"

namespace loam {

constinit Shadow shadow;

bool Shadow::start() {
  const size_t bytes = kTables * sizeof(*tables_);
  void* memory = os::reserve_metadata(bytes, os::granularity());
  if (memory == nullptr) return false;
  if (!os::commit_sparse(memory, bytes)) {
    os::release(memory, bytes);
    return false;
  }
  tables_ = static_cast<std::atomic<std::atomic<State>*>*>(memory);
  return true;
}

std::atomic<Shadow::State>* Shadow::make_table(uintptr_t address) {
  if (tables_ == nullptr || address >> kRegionShift >= kTables) return nullptr;
  Lock lock(mutex_);
  std::atomic<std::atomic<State>*>& table = tables_[address >> kRegionShift];
  if (table.load(std::memory_order_relaxed) == nullptr) {
    void* memory = map_own_table(kEntries * sizeof(State), &os::commit_sparse);
    if (memory == nullptr) return nullptr;
    // release publishes the zeros of a fresh mapping; pairs with the acquire in find()
    table.store(static_cast<std::atomic<State>*>(memory), std::memory_order_release);
  }
  return find(address);
}

}  // namespace loam
