#include "heap_worker.h"

#include <loam/stats.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "reading.h"

namespace stress {
namespace {

// The failure callback knows only the place.
thread_local HeapWorker* t_worker = nullptr;

}  // namespace

void HeapWorker::fail(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  dprintf(STDERR_FILENO,
          "stress_heaps: FAILED: %s\nstress_heaps: seed %llu, worker %llu, operation %llu, phase "
          "%s%s\n",
          text, static_cast<unsigned long long>(shared_.seed),
          static_cast<unsigned long long>(number_), static_cast<unsigned long long>(done_),
          shared_.phase.name, shared_.in_child ? ", in the child of a fork" : "");
  abort();
}

void HeapWorker::run() {
  t_worker = this;
  for (uint64_t i = 0; i < shared_.phase.operations; i++) {
    step();
    done_++;
  }
  shared_.operations += shared_.phase.operations;
}

void HeapWorker::step() {
  if (shared_.forks && !shared_.in_child && random_.one_in(6'000)) fork_child();
  if (random_.one_in(5'000)) {
    if (loam_trim(nullptr) != LOAM_OK) fail("loam_trim(NULL) was refused");
  }
  if (shared_.glances && random_.one_in(5'000)) {
    struct loam_stats stats = {};
    stats.size = sizeof stats;
    if (loam_stats(nullptr, &stats) != LOAM_OK) fail("no statistics");
  }
  Place& place = shared_.places[random_.below(kPlaces)];
  if (&place != &shared_.places[0] && random_.one_in(shared_.phase.ending)) {
    if (!place.try_exclusive()) return;
    if (place.heap != nullptr) destroy(place);
    place.end_exclusive();
    return;
  }
  if (!place.try_share()) return;
  const bool ready = place.heap != nullptr && !place.unsynchronized();
  if (ready) use_place(place);
  place.end_share();
  if (ready || !place.try_exclusive()) return;
  if (place.heap == nullptr) {
    create(place);
  } else {
    use_place(place);  // unsynchronised, or another thread has just made it
  }
  place.end_exclusive();
}

// Several operations a visit, so that an unsynchronised heap sees more operations than claims.
void HeapWorker::use_place(Place& place) {
  if (random_.one_in(300)) use_heap(place);
  for (int i = 0; i < 4; i++) use_slot(place);
}

void HeapWorker::use_slot(Place& place) {
  Slot& slot = place.slots[random_.below(kPlaceSlots)];
  if (!slot.try_acquire()) return;
  if (slot.block.start == nullptr) {
    if (random_.below(100) < shared_.phase.making && shared_.live_bytes.load() < shared_.live_limit)
      make(place, slot);
  } else {
    verify(place, slot.block);
    const uint64_t choice = random_.below(100);
    if (choice < shared_.phase.freeing) {
      free_block(place, slot);
    } else if (choice < shared_.phase.freeing + 20) {
      resize(place, slot);
    } else if (choice < shared_.phase.freeing + 22) {
      ask_wrongly(place, slot);
    }
  }
  slot.release();
}

// ---- blocks -----------------------------------------------------------------------------------

size_t HeapWorker::pick_size() {
  const Phase& phase = shared_.phase;
  const uint64_t kind = random_.below(1'000);
  if (kind < 900) return phase.smallest + random_.below(phase.largest - phase.smallest + 1);
  if (kind < 950) return random_.below(2'000);
  if (kind < 990) return (size_t{1} << random_.below(18)) - 1 + random_.below(3);
  if (kind < 999) return random_.below(size_t{1} << 20);
  return random_.below(size_t{40} << 20);  // a mapping of its own
}

// Memory may run out only if a heap has a maximum.
void HeapWorker::may_fail(const Place& place, size_t bytes) {
  if (place.maximum == 0)
    fail("a request of %zu bytes was refused: %s", bytes, loam_status_text(loam_last_status()));
  if (loam_last_status() != LOAM_LIMIT_REACHED && loam_last_status() != LOAM_OUT_OF_MEMORY)
    fail("a heap at its maximum says \"%s\"", loam_status_text(loam_last_status()));
  shared_.refusals++;
}

int HeapWorker::on_failure(void* context, loam_heap*, size_t) {
  Place& place = *static_cast<Place*>(context);
  const uint64_t from = t_worker->random_.below(kPlaceSlots);
  for (size_t i = 0; i < kPlaceSlots; i++) {
    Slot& slot = place.slots[(from + i) % kPlaceSlots];
    if (!slot.try_acquire()) continue;
    const bool found = slot.block.start != nullptr;
    if (found) t_worker->free_block(place, slot);
    slot.release();
    if (found) return 1;
  }
  return 0;
}

void HeapWorker::make(Place& place, Slot& slot) {
  Block block;
  block.size = pick_size();
  block.alignment = LOAM_ALIGNMENT;
  bool zero = false;
  void* start = nullptr;
  switch (random_.below(5)) {
    case 0:
      start = loam_zalloc(place.heap, block.size);
      zero = true;
      break;
    case 1:
      block.alignment = size_t{16} << random_.below(random_.one_in(20) ? 14 : 6);
      start = loam_aligned_alloc(place.heap, block.alignment, block.size);
      break;
    default:
      start = loam_alloc(place.heap, block.size);
      break;
  }
  if (start == nullptr) return may_fail(place, block.size);
  block.start = static_cast<unsigned char*>(start);
  adopt(place, slot, block, zero);
}

void HeapWorker::adopt(Place& place, Slot& slot, Block block, bool zero) {
  const auto* at = static_cast<const void*>(block.start);
  if (reinterpret_cast<uintptr_t>(at) % block.alignment != 0)
    fail("block %p is not aligned to %zu", at, block.alignment);
  const size_t usable = loam_usable_size(place.heap, at), size = loam_size(place.heap, at);
  if (usable == SIZE_MAX || usable < block.size)
    fail("block %p of %zu bytes has %zu usable", at, block.size, usable);
  if (place.exact() ? size != block.size : size < block.size)
    fail("block %p of %zu bytes says %zu", at, block.size, size);
  if (loam_heap_of(at) != place.heap) fail("block %p belongs to another heap", at);
  if (zero) {
    for (size_t i = 0; i < block.size; i += i < 4096 ? 1 : 509) {
      if (block.start[i] != 0) fail("byte %zu of %zu is not zero", i, block.size);
    }
  }
  block.filled = place.fills_usable() && random_.one_in(16) ? usable : block.size;
  block.id = next_id_++;
  write_pattern(block.start, block.filled, block.id);
  slot.block = block;
  shared_.live_bytes += block.size;
}

void HeapWorker::verify(const Place& place, const Block& block) {
  const size_t at = first_difference(block.start, block.filled, block.filled, block.id);
  if (at == kIntact) return;
  fail(
      "block %p of %zu bytes (%zu filled), heap %td (flags %#x), made by worker %llu, holds %#x at "
      "%zu",
      static_cast<void*>(block.start), block.size, block.filled, &place - shared_.places,
      place.flags, static_cast<unsigned long long>(block.id >> 40), block.start[at], at);
}

void HeapWorker::resize(Place& place, Slot& slot) {
  Block& block = slot.block;
  size_t size = pick_size();
  if (random_.one_in(3)) size = block.size + random_.below(48);
  if (random_.one_in(3)) size = random_.below(block.size + 1);
  size_t alignment = LOAM_ALIGNMENT;
  bool zero = false;
  void* moved = nullptr;
  switch (random_.below(5)) {
    case 0: {
      const loam_status status = loam_try_resize(place.heap, block.start, size);
      if (status == LOAM_NOT_IN_PLACE || (status == LOAM_LIMIT_REACHED && place.maximum != 0)) {
        verify(place, block);
        return;
      }
      if (status != LOAM_OK) fail("to resize in place: %s", loam_status_text(status));
      alignment = block.alignment;
      moved = block.start;
      break;
    }
    case 1:
      zero = place.exact();
      moved = loam_zrealloc(place.heap, block.start, size);
      break;
    case 2:
      alignment = size_t{16} << random_.below(6);
      moved = loam_aligned_realloc(place.heap, block.start, alignment, size, 0);
      if (moved == block.start) alignment = LOAM_ALIGNMENT;
      break;
    default:
      moved = loam_realloc(place.heap, block.start, size);
      break;
  }
  if (moved == nullptr) {
    may_fail(place, size);
    verify(place, block);
    return;
  }
  const size_t kept = size < block.size ? size : block.size;
  const auto* bytes = static_cast<const unsigned char*>(moved);
  const size_t at = first_difference(bytes, block.filled, kept, block.id);
  if (at != kIntact) fail("from %zu to %zu bytes: byte %zu changed", block.size, size, at);
  // The bytes behind the old size are the owner's if it filled all usable bytes.
  if (zero && block.filled == block.size) {
    for (size_t i = block.size; i < size; i += i < block.size + 4096 ? 1 : 509) {
      if (bytes[i] != 0) fail("from %zu to %zu bytes: byte %zu is not zero", block.size, size, i);
    }
  }
  shared_.live_bytes -= block.size;
  Block fresh;
  fresh.start = static_cast<unsigned char*>(moved);
  fresh.size = size;
  fresh.alignment = alignment;
  adopt(place, slot, fresh, false);
}

void HeapWorker::free_block(Place& place, Slot& slot) {
  const Block block = slot.block;
  slot.block = Block{};
  shared_.live_bytes -= block.size;
  loam_status status = LOAM_OK;
  switch (random_.below(4)) {
    case 0:
      status = loam_free_sized(place.heap, block.start, block.size);
      break;
#if STRESS_MALLOC_IS_LOAM
    case 1:
      free(block.start);  // any heap's block is accepted there
      break;
#endif
    default:
      status = loam_free(place.heap, block.start);
      break;
  }
  if (status != LOAM_OK)
    fail("block %p of %zu bytes is not freed: %s", static_cast<void*>(block.start), block.size,
         loam_status_text(status));
}

// Mistakes that have a status: the block must not change.
void HeapWorker::ask_wrongly(Place& place, Slot& slot) {
  const Block& block = slot.block;
  if (loam_validate(place.heap, block.start) != LOAM_OK) fail("a live block is called no block");
  if (place.heap != shared_.places[0].heap && block.size > 16) {
    const loam_status status = loam_free(place.heap, block.start + 16);
    if (status != LOAM_INVALID_BLOCK)
      fail("an address inside a block is freed: %s", loam_status_text(status));
  }
  Place& other = shared_.places[random_.below(kPlaces)];
  if (&other != &place && other.try_share()) {
    if (other.heap != nullptr && !other.unsynchronized()) {
      const loam_status status = loam_free(other.heap, block.start);
      if (status != LOAM_WRONG_HEAP)
        fail("another heap's block is freed: %s", loam_status_text(status));
    }
    other.end_share();
  }
  verify(place, block);
}

// ---- heaps ------------------------------------------------------------------------------------

void HeapWorker::create(Place& place) {
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  // Mostly plain heaps, because the flags of hardening disable threads' caches.
  options.flags = static_cast<unsigned>(random_.below(16));
  if (!random_.one_in(4)) options.flags &= ~unsigned{LOAM_HEAP_UNSYNCHRONIZED};
  if (random_.one_in(6)) options.flags |= LOAM_HEAP_CANARY;
  if (random_.one_in(6)) options.flags |= LOAM_HEAP_POISON;
  if (random_.one_in(4)) options.initial = random_.below(size_t{1} << 20);
  // Some are full most of the time.
  if (random_.one_in(4))
    options.maximum = random_.one_in(2)
                          ? options.initial + (size_t{64} << 10) + random_.below(size_t{256} << 10)
                          : options.initial + (size_t{1} << 20) + random_.below(size_t{8} << 20);
  if (random_.one_in(2)) {
    options.on_failure = &HeapWorker::on_failure;
    options.context = &place;
  }
  options.name = "stressed";
  place.flags = options.flags;
  place.maximum = options.maximum;
  place.heap = loam_heap_create(&options);
  if (place.heap == nullptr) fail("no heap: %s", loam_status_text(loam_last_status()));
  shared_.created++;
}

void HeapWorker::destroy(Place& place) {
  for (Slot& slot : place.slots) {
    const bool idle = slot.try_acquire();  // all are, but in a child
    if (idle) slot.release();
    if (slot.block.start == nullptr) continue;
    // Verifies few, because no other thread may use the place meanwhile.
    if (idle && random_.one_in(8)) verify(place, slot.block);
    shared_.live_bytes -= slot.block.size;
    slot.block = Block{};
  }
  loam_heap* const heap = place.heap;
  place.heap = nullptr;
  const loam_status status = loam_heap_destroy(heap);
  if (status != LOAM_OK) fail("a heap is not ended: %s", loam_status_text(status));
  shared_.destroyed++;
}

void HeapWorker::use_heap(Place& place) {
  const bool own = &place != &shared_.places[0];
  switch (random_.below(8)) {
    case 0: {
      size_t released = 0;
      static_cast<void>(loam_compact(place.heap, &released));
      return;
    }
    case 1:
      if (loam_trim(place.heap) != LOAM_OK) fail("a heap is not trimmed");
      return;
    case 2:
      if (loam_set_mode(place.heap, LOAM_MODE_LOW_FRAGMENTATION) != LOAM_OK) fail("no mode 2");
      return;
    case 3:
      if (own && loam_set_small_threshold(place.heap,
                                          random_.below(LOAM_MAX_SMALL_THRESHOLD + 1)) != LOAM_OK)
        fail("the threshold is not set");
      return;
    case 4: {
      if (!own && !shared_.glances) return;
      // Without the lock a walk is safe, but it may learn that its position no longer exists.
      loam_walk_entry entry = {};
      entry.size = sizeof entry;
      loam_status status;
      for (int i = 0; i < 500; i++) {
        if ((status = loam_walk_next(place.heap, &entry)) != LOAM_OK) {
          if (status != LOAM_NO_MORE && status != LOAM_CHANGED)
            fail("a walk ends: %s", loam_status_text(status));
          return;
        }
      }
      return;
    }
    case 5: {
      loam_heap* heaps[4 * kPlaces];
      const size_t count = loam_heaps(heaps, 4 * kPlaces);
      for (size_t i = 0; i < count && i < 4 * kPlaces; i++) {
        if (heaps[i] == place.heap) return;
      }
      fail("a live heap is not among the %zu heaps", count);
    }
    default:
      if (own) lock_and_look(place);
      return;
  }
}

// While its lock is held, the heap must not change, whatever the other threads do.
void HeapWorker::lock_and_look(Place& place) {
  if (random_.one_in(2)) {
    const loam_status status = loam_try_lock(place.heap);
    if (status == LOAM_BUSY) return;
    if (status != LOAM_OK) fail("to try the lock: %s", loam_status_text(status));
  } else if (loam_lock(place.heap) != LOAM_OK) {
    fail("the lock is refused");
  }
  walk(place, random_.one_in(2));
  for (int i = 0; i < 8; i++) use_slot(place);
  walk(place, random_.one_in(2));
  const loam_status status = loam_validate(place.heap, nullptr);
  if (status != LOAM_OK) fail("a locked heap's records: %s", loam_status_text(status));
  if (loam_unlock(place.heap) != LOAM_OK) fail("the lock is not given up");
}

// The caller holds the lock, or is alone. Other threads may hold slots and wait for the lock.
// Whether the blocks of these slots are live is unknown.
void HeapWorker::walk(Place& place, bool step_by_step) {
  live_.clear();
  uint64_t known = 0, unknown = 0;
  for (Slot& slot : place.slots) {
    if (!slot.try_acquire()) {
      unknown++;
      continue;
    }
    if (slot.block.start != nullptr) {
      live_.add(slot.block.start);
      known++;
    }
    slot.release();
  }
  // If a slot is released meanwhile, its call came before the lock was taken, or did not use the
  // heap.
  uint64_t ours = 0, all = 0;
  const loam_status status = walk_blocks(place.heap, step_by_step, [&](const void* block) {
    all++;
    ours += live_.has(block);
  });
  if (status != LOAM_OK) fail("a walk under the lock ends: %s", loam_status_text(status));
  if (ours != known || (&place != &shared_.places[0] && all > known + 2 * unknown)) {
    fail(
        "a walk of a heap (flags %#x) met %llu live blocks, %llu of the %llu that are known; %llu "
        "slots are in use",
        place.flags, static_cast<unsigned long long>(all), static_cast<unsigned long long>(ours),
        static_cast<unsigned long long>(known), static_cast<unsigned long long>(unknown));
  }
  shared_.walks++;
}

// ---- all is quiet -----------------------------------------------------------------------------

void HeapWorker::check_everything() {
  t_worker = this;
  for (Place& place : shared_.places) {
    if (place.heap == nullptr) continue;
    uint64_t blocks = 0;
    for (const Slot& slot : place.slots) {
      if (slot.block.start == nullptr) continue;
      verify(place, slot.block);
      blocks++;
    }
    const loam_status status = loam_validate(place.heap, nullptr);
    if (status != LOAM_OK)
      fail("the records of heap %td: %s", &place - shared_.places, loam_status_text(status));
    walk(place, random_.one_in(2));
    const struct loam_stats heap = figures_of(place.heap);
    if (&place == &shared_.places[0] ? heap.live_blocks < blocks : heap.live_blocks != blocks)
      fail("heap %td (flags %#x, maximum %zu) counts %llu live blocks of %llu",
           &place - shared_.places, place.flags, place.maximum,
           static_cast<unsigned long long>(heap.live_blocks),
           static_cast<unsigned long long>(blocks));
    loam_heap_summary summary = {};
    summary.size = sizeof summary;
    if (loam_summary(place.heap, &summary) != LOAM_OK) fail("no summary");
    if (place.maximum != 0 && summary.peak_committed > summary.maximum)
      fail("a heap took %zu bytes, its maximum is %zu", summary.peak_committed, summary.maximum);
  }
  // The accounting identity of docs/counters.md.
  const struct loam_stats s = figures_of(nullptr);
  const auto same = [&](const char* what, uint64_t is, uint64_t should) {
    if (is != should)
      fail("%s: %llu, it should be %llu", what, static_cast<unsigned long long>(is),
           static_cast<unsigned long long>(should));
  };
  same("used bytes",
       s.live_bytes + s.cached_bytes + s.span_free_bytes + s.span_tail_bytes + s.set_aside_bytes,
       s.used_bytes);
  same("committed bytes", s.used_bytes + s.free_run_bytes + s.metadata_bytes, s.committed_bytes);
  same("backed bytes", s.committed_bytes - s.purged_bytes, s.backed_bytes);
  if (s.dirty_bytes > s.free_run_bytes || s.parked_bytes > s.dirty_bytes ||
      s.committed_bytes > s.reserved_bytes)
    fail("more is dirty, parked or committed than there is");
}

void HeapWorker::end_heaps() {
  for (Place& place : shared_.places) {
    if (&place != &shared_.places[0] && place.heap != nullptr) destroy(place);
  }
  if (figures_of(nullptr).private_records_bytes != 0) fail("records of private heaps are left");
}

void HeapWorker::free_blocks() {
  t_worker = this;
  for (Place& place : shared_.places) {
    for (Slot& slot : place.slots) {
      if (slot.block.start != nullptr) free_block(place, slot);
    }
  }
}

// ---- fork -------------------------------------------------------------------------------------

// The child has all heaps unchanged, whatever the parent's other threads were doing.
void HeapWorker::fork_child() {
  const uint64_t seed = random_.next();
  const pid_t child = fork();
  if (child < 0) {
    if (errno == EAGAIN || errno == ENOMEM) return;  // the machine's limits, not the heap's
    fail("fork: error %d", errno);
  }
  if (child == 0) live_as_child(seed);
  shared_.forked++;
  int status = 0;
  for (int waited = 0;; waited++) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) fail("waitpid: error %d", errno);
    if (waited == 300'000) {
      kill(child, SIGABRT);
      fail("the forked child %d did not end in a minute", static_cast<int>(child));
    }
    const timespec pause = {0, 200'000};
    nanosleep(&pause, nullptr);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail("the forked child ended with wait status %#x", static_cast<unsigned>(status));
}

void HeapWorker::live_as_child(uint64_t seed) {
  random_ = Random(seed);
  shared_.in_child = true;
  // The users of a place do not exist in the child. An exclusive user was changing its place, so
  // such places are left alone. Slots that were in use are left alone too.
  for (Place& place : shared_.places) {
    if (place.users.load() > 0) place.users.store(0);
  }
  for (int i = 0; i < 200; i++) step();
  for (Place& place : shared_.places) {
    if (!place.try_exclusive()) continue;
    if (place.heap != nullptr && &place != &shared_.places[0]) {
      if (loam_validate(place.heap, nullptr) != LOAM_OK)
        fail("a heap's records contradict each other");
      destroy(place);
    }
    place.end_exclusive();
  }
  _exit(0);
}

}  // namespace stress
