#include "runner.h"

#include <loam/stats.h>

#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "../stress/reading.h"

namespace fuzz {

using stress::figures_of;

namespace {

// A fork costs milliseconds, and runs the rest of the program once more.
constexpr unsigned kForks = 2;
// Blocks above this size are all read only after an operation that moved much; otherwise a few are
// read after each operation.
constexpr size_t kQuick = 4096;

}  // namespace

Runner::Runner(const HeapCalls& calls, const Program& program, bool trace)
    : calls_(calls), system_(calls.system), program_(program), trace_(trace), model_(calls) {}

void Runner::fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::string at = position_ < program_.size() ? print(program_[position_]) : "the end";
  fprintf(stderr, "fuzz: FAILED: %s\nfuzz: operation %zu%s, thread %u: %s\n", text, position_ + 1,
          in_child_ ? " in the child of a fork" : "", current_, at.c_str());
  abort();
}

void Runner::settings() {
  for (const Operation& operation : program_) {
    const uint64_t bytes = operation.arguments[0];
    if (operation.op == Op::kPageSize && system_ != nullptr)
      page_ = bytes >= 65536 ? 65536 : bytes >= 16384 ? 16384 : 4096;
    if (operation.op == Op::kOption)
      option_texts_.push_back(std::string("LOAM_") +
                              kOptionTexts[operation.arguments[0] % kOptionTextCount]);
  }
  for (const std::string& text : option_texts_) {
    options_.push_back(text.c_str());
    hardened_ = hardened_ ||
                (text.find("HARDEN") != text.npos || text.find("CHECK_FREE=full") != text.npos);
  }
  if (system_ != nullptr) system_->reset(options_.data(), options_.size(), page_);
}

// Blocks that `action` allocates or frees through the C library do not count as the program's.
template <class Action>
void Runner::outside(Action action) {
  if (system_ != nullptr) return action();
  const struct loam_stats before = figures_of(nullptr);
  action();
  const struct loam_stats after = figures_of(nullptr);
  base_blocks_ += after.live_blocks - before.live_blocks;
  base_bytes_ += after.live_bytes - before.live_bytes;
}

void Runner::run() {
  settings();
  if (system_ == nullptr) {
    const struct loam_stats stats = figures_of(nullptr);
    base_blocks_ = stats.live_blocks;
    base_bytes_ = stats.live_bytes;
  }
  run_from(0);
  finish();
}

void Runner::run_from(size_t first) {
  for (position_ = first; position_ < program_.size(); ++position_) {
    const Operation& operation = program_[position_];
    if (trace_) {
      fprintf(stderr, "%sthread %u: %s\n", in_child_ ? "child, " : "", current_,
              print(operation).c_str());
    }
    step(operation);
  }
}

void Runner::step(const Operation& operation) {
  heavy_ = false;
  refusals_before_ = system_ != nullptr ? system_->refusals() : 0;
  const bool contended = contended_;
  switch (operation.op) {
    case Op::kOption:
    case Op::kPageSize:
      return;
    case Op::kThread:
      current_ = static_cast<unsigned>(operation.arguments[0]);
      return;
    case Op::kEndThread:
    case Op::kEndThreadFreeing:
      end_thread(static_cast<unsigned>(operation.arguments[0]), operation);
      heavy_ = true;
      break;
    case Op::kTick:
      if (system_ != nullptr) system_->advance_ms(operation.arguments[0] % 100'000);
      return;
    case Op::kRefuse:
      if (system_ == nullptr) return;
      refusing_ = operation.arguments[1] != 0;
      system_->refuse(operation.arguments[0], operation.arguments[1]);
      return;
    case Op::kContend:
      contended_ = system_ != nullptr;
      if (contended_) system_->contend();
      return;
    default:
      on_thread(current_, &Runner::perform, operation);
  }
  if (contended) {
    contended_ = false;
    system_->release();
  }
  on_thread(
      current_, [](Runner& r, const Operation&) { r.check(r.heavy_); }, operation);
}

void* Runner::live(void* argument) {
  Worker* worker = static_cast<Worker*>(argument);
  Runner& runner = *worker->runner;
  for (;;) {
    while (sem_wait(&worker->wanted) != 0) {
    }
    if (worker->ends) break;
    worker->body(runner, *worker->operation);
    sem_post(&worker->done);
  }
  const Operation& operation = *worker->operation;
  if (runner.system_ != nullptr) runner.system_->end_thread();
  // Destructors of the C library free after the heap's destructor ran.
  if (operation.op == Op::kEndThreadFreeing) {
    Block& block = runner.model_.blocks[operation.arguments[1]];
    if (block.start != nullptr && !runner.blocked(block.heap))
      runner.free_block(block, Op::kFree, 0);
  }
  // The thread may have called the heap first in a destructor. The C library then runs the
  // destructors once more.
  if (runner.system_ != nullptr) runner.system_->end_thread();
  return nullptr;
}

void Runner::on_thread(unsigned thread, Body body, const Operation& operation) {
  if (thread == home_) return body(*this, operation);
  Worker& worker = workers_[thread];
  if (!worker.exists) {
    outside([&] {
      worker = Worker{};
      worker.runner = this;
      sem_init(&worker.wanted, 0, 0);
      sem_init(&worker.done, 0, 0);
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      pthread_attr_setstacksize(&attributes, size_t{1} << 20);
      if (pthread_create(&worker.thread, &attributes, &Runner::live, &worker) != 0)
        fail("no thread could be made");
      pthread_attr_destroy(&attributes);
    });
    worker.exists = true;
  }
  worker.body = body;
  worker.operation = &operation;
  sem_post(&worker.wanted);
  while (sem_wait(&worker.done) != 0) {
  }
}

// The locks of an ended thread would have no owner.
void Runner::give_up_locks() {
  for (ModelHeap& heap : model_.heaps) {
    if (heap.handle == nullptr || heap.locked_by != static_cast<int>(current_)) continue;
    for (; heap.depth != 0; --heap.depth) {
      if (loam_unlock(heap.handle) != LOAM_OK) fail("a lock could not be given up");
    }
    heap.locked_by = -1;
  }
}

void Runner::end_thread(unsigned thread, const Operation& operation) {
  if (thread == home_ || !workers_[thread].exists) return;
  const unsigned before = current_;
  current_ = thread;
  on_thread(
      thread, [](Runner& r, const Operation&) { r.give_up_locks(); }, operation);
  current_ = before;
  if (current_ == thread) current_ = home_;
  Worker& worker = workers_[thread];
  worker.ends = true;
  worker.operation = &operation;
  outside([&] {
    const uint64_t blocks = model_.live_blocks(), bytes = model_.live_bytes();
    sem_post(&worker.wanted);
    pthread_join(worker.thread, nullptr);
    if (system_ != nullptr) return;
    // Blocks of the program that the thread freed are not the C library's.
    base_blocks_ += blocks - model_.live_blocks();
    base_bytes_ += bytes - model_.live_bytes();
  });
  worker.exists = false;
}

void Runner::fork_child() {
  if (in_child_ || ++forks_ > kForks) return;
  fflush(nullptr);
  if (system_ != nullptr) system_->release();
  const pid_t child = system_ != nullptr ? system_->fork() : ::fork();
  if (child < 0) {
    if (errno == EAGAIN || errno == ENOMEM) return;
    fail("fork: %s", strerror(errno));
  }
  if (child == 0) {
    // This thread is the only one here.
    in_child_ = true;
    contended_ = false;
    home_ = current_;
    for (Worker& worker : workers_) worker.exists = false;
    for (ModelHeap& heap : model_.heaps) {
      if (heap.locked_by == static_cast<int>(current_) || heap.unsynchronized()) continue;
      heap.locked_by = -1;
      heap.depth = 0;
    }
    check(true);
    run_from(position_ + 1);
    finish();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail("the child of fork ended with wait status %#x", unsigned(status));
}

void Runner::finish() {
  position_ = program_.size();
  if (system_ != nullptr) {
    system_->release();
    system_->refuse(0, 0);
  }
  const Operation none{};
  for (unsigned thread = 0; thread < kThreads; ++thread) end_thread(thread, none);
  current_ = home_;
  refusing_ = false;
  check(true);
  for (unsigned h = 0; h < kHeaps; ++h) {
    ModelHeap& heap = model_.heaps[h];
    while (heap.handle != nullptr && heap.depth != 0) {
      if (loam_unlock(heap.handle) != LOAM_OK) fail("the lock of h%u could not be given up", h);
      --heap.depth;
    }
    heap.locked_by = -1;
  }
  for (unsigned slot = 0; slot < kBlocks; ++slot) end_slot(slot);
  for (unsigned group = 0; group < kGroups; ++group) drop_group(group);
  for (unsigned h = 1; h < kHeaps; ++h) destroy_heap(h);
  calls_.trim(0);
  check(true);
  if (model_.live_blocks() != 0)
    fail("the model has %zu blocks left", static_cast<size_t>(model_.live_blocks()));
  if (system_ == nullptr) return;
  const struct loam_stats stats = figures_of(nullptr);
  if (has_process_heap_ || system_->unhooked()) return;
  if (stats.used_bytes != 0 && !hardened_)
    fail("%zu bytes are in use although every block is freed",
         static_cast<size_t>(stats.used_bytes));
  if (stats.private_records_bytes != 0) fail("records of private heaps are left");
}

// ---- what is checked ---------------------------------------------------------------------------

void Runner::check(bool all) {
  check_figures();
  check_contents(all);
  for (unsigned h = 1; h < kHeaps; ++h) {
    if (model_.heaps[h].handle != nullptr) check_heap(h);
  }
  if (system_ != nullptr && system_->lines() != 0)
    fail("the heap reported a mistake that nobody made");
  if (!all) return;
  for (const ModelHeap& heap : model_.heaps) {
    if (heap.handle == nullptr || blocked(static_cast<unsigned>(&heap - model_.heaps))) continue;
    if (loam_validate(heap.handle, nullptr) != LOAM_OK) {
      fail("the records of h%zu contradict each other", static_cast<size_t>(&heap - model_.heaps));
    }
  }
}

// live + rounding + cached + free in spans + free runs + metadata = committed; committed - purged =
// backed.
void Runner::check_figures() {
  const struct loam_stats s = figures_of(nullptr);
  const auto same = [&](const char* what, uint64_t is, uint64_t should) {
    if (is != should) {
      fail("%s: the heap says %llu, it should be %llu", what, static_cast<unsigned long long>(is),
           static_cast<unsigned long long>(should));
    }
  };
  const uint64_t blocks = model_.live_blocks() + base_blocks_,
                 bytes = model_.live_bytes() + base_bytes_;
  if (!hardened_) {
    same("live blocks", s.live_blocks, blocks);
    same("live bytes", s.live_bytes, bytes);
  } else if (s.live_blocks < blocks || s.live_bytes < bytes) {
    fail("a hardened heap has fewer blocks than the program");  // canaries and the quarantine are
                                                                // above
  }
  same("live bytes by kind", s.live_small_bytes + s.live_large_bytes + s.live_huge_bytes,
       s.live_bytes);
  same("used bytes",
       s.live_bytes + s.cached_bytes + s.span_free_bytes + s.span_tail_bytes + s.set_aside_bytes,
       s.used_bytes);
  same("committed bytes", s.used_bytes + s.free_run_bytes + s.metadata_bytes, s.committed_bytes);
  same("backed bytes", s.committed_bytes - s.purged_bytes, s.backed_bytes);
  if (s.dirty_bytes > s.free_run_bytes || s.parked_bytes > s.dirty_bytes)
    fail("more is dirty or parked than is free");
  if (s.committed_bytes > s.reserved_bytes) fail("more is committed than is reserved");
  if (s.peak_used_bytes + s.peak_huge_bytes < s.used_bytes)
    fail("the peaks are below what is in use");
  if (s.allocs != LOAM_UNKNOWN && !hardened_) {
    const uint64_t small = figures_of(loam_default()).live_small_blocks;
    same("sampled allocations less frees", s.allocs - s.frees,
         small + s.live_large_blocks + s.live_huge_blocks);
  }
}

void Runner::check_heap(unsigned h) {
  const ModelHeap& heap = model_.heaps[h];
  const struct loam_stats s = figures_of(heap.handle);
  // Hardening's canaries are not bytes of the program.
  const auto right = [&](uint64_t bytes) {
    return hardened_ ? bytes >= model_.bytes_of(h) : bytes == model_.bytes_of(h);
  };
  if (s.live_blocks != model_.blocks_of(h) || !right(s.live_bytes)) {
    fail("h%u has %llu blocks of %llu bytes, it should have %llu of %llu", h,
         static_cast<unsigned long long>(s.live_blocks),
         static_cast<unsigned long long>(s.live_bytes),
         static_cast<unsigned long long>(model_.blocks_of(h)),
         static_cast<unsigned long long>(model_.bytes_of(h)));
  }
  if (blocked(h)) return;
  loam_heap_summary summary = {};
  summary.size = sizeof summary;
  if (loam_summary(heap.handle, &summary) != LOAM_OK) fail("h%u has no summary", h);
  if (summary.blocks != model_.blocks_of(h) || !right(summary.allocated)) {
    fail("the summary of h%u says %zu blocks of %zu bytes", h, summary.blocks, summary.allocated);
  }
  if (heap.maximum != 0 &&
      (summary.reserved > summary.maximum || summary.peak_committed > summary.maximum)) {
    fail("h%u took %zu bytes, its maximum is %zu", h, summary.peak_committed, summary.maximum);
  }
  if (summary.committed > summary.reserved || summary.reserved > summary.peak_committed) {
    fail("h%u: committed %zu, reserved %zu, peak %zu", h, summary.committed, summary.reserved,
         summary.peak_committed);
  }
}

void Runner::check_contents(bool all) {
  ++rotation_;
  for (const Block& block : model_.blocks) {
    if (block.start == nullptr) continue;
    const size_t slot = static_cast<size_t>(&block - model_.blocks);
    if (!all && block.asked > kQuick && (slot + rotation_) % 16 != 0) continue;
    if (!model_.intact(block)) {
      fail("b%zu, %zu bytes at %p, was overwritten", slot, block.asked,
           static_cast<void*>(block.start));
    }
  }
  for (const std::vector<Block>& group : model_.groups) {
    // Reads a few blocks of a large group, and other ones after the next operation.
    const size_t stride = all ? 1 : group.size() / 64 + 1;
    for (size_t i = all ? 0 : rotation_ % stride; i < group.size(); i += stride) {
      if (!model_.intact(group[i]))
        fail("block %zu of a group, %zu bytes, was overwritten", i, group[i].asked);
    }
  }
}

}  // namespace fuzz
