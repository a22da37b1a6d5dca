// replay: runs a trace that `loam replay` prepared, on the malloc of this process.
//
// Threads start and end where the program's did. Each makes its own calls in its own order. A free
// waits for its block; an allocation into a used slot waits for that slot. At the sample points
// every live thread comes to a barrier, and the last one measures, with raw system calls and the
// clock stopped.
//
// Parameters: --program (the prepared file), --speed-percent (of the recording's time; 0: no
// pauses), --baseline (print the replayer's own memory and end), or --rooms (classes.h). apart.h
// describes REPLAY_APART of the environment. Measured: the lab's lines
// (native/workloads/README.md). A checkpoint also has:
//   anonymous_bytes (RssAnon less the baseline), heap_bytes (mappings that hold blocks; null
//   without a comparison), recorded_heap_bytes, live_blocks, threads.
// The end line has heap_peak_bytes (the peak less the baseline), allocations and frees.
//
// The replayer's tables, stacks and buffers are mapped and touched before the baseline is taken.
// What an allocator has of its own before its first block counts as that allocator's: the baseline
// is that of the same program on the C library's malloc (reference.h).
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdlib>

#include "apart.h"
#include "calls.h"
#include "classes.h"
#include "harness/recorder.h"
#include "program.h"
#include "reference.h"
#include "residence.h"
#include "slots.h"

namespace {

using namespace lab;
using namespace replay;

constexpr uint64_t kStackBytes = 256 * 1024;  // allocators' slow paths included
constexpr uint64_t kStackBacked = 64 * 1024;  // touched before the baseline
constexpr uint64_t kWorthAPause = 50'000;     // ns; shorter ones are the program's own work

// The state of a running thread. After that thread is joined, a later one uses it again.
struct alignas(64) Seat {
  pthread_t thread;
  Seat* next = nullptr;  // in the list of free seats, or of ended ones
  uint64_t number = 0;
  uint64_t live = 0;  // wraps: a thread may free more than it allocates
  uint64_t blocks = 0, allocations = 0, frees = 0, failed = 0;
  void* stack = nullptr;
  LatencySampler sampler;
  Stream stream;
};

class Replayer {
 public:
  Replayer(int file, const Head& head, uint64_t speed, Recorder& recorder)
      : file_(file),
        head_(head),
        speed_(speed),
        recorder_(recorder),
        slots_(head.slots),
        seats_count_(head.most_threads + 1),
        seats_(static_cast<Seat*>(own_memory(seats_count_ * sizeof(Seat), true))),
        samples_(static_cast<SamplePoint*>(own_memory(head.samples * sizeof(SamplePoint), true))) {
    read_at(file, samples_, head.samples * sizeof(SamplePoint), head.samples_at);
    auto* stacks = static_cast<char*>(own_memory(seats_count_ * kStackBytes, false));
    for (uint64_t i = 0; i < seats_count_; ++i) {
      Seat& seat = *new (&seats_[i]) Seat;
      seat.sampler = recorder.sampler();
      seat.stack = stacks + i * kStackBytes;
      for (uint64_t at = kStackBytes - kStackBacked; at < kStackBytes; at += kPageBytes) {
        static_cast<volatile char*>(seat.stack)[at] = 0;
      }
      if (i > 0) push(free_, seat);
    }
  }

  void run() {
    owner_ = this;
    begun_ = now_ns();
    recorder_.resume();
    Seat& main = seats_[0];
    open(main, 0);
    follow(main);
    // The other threads may still run; they end by themselves.
    for (Patience p; ended_threads_.load(std::memory_order_acquire) + 1 < head_.threads;) p.wait();
    while (Seat* seat = pop(ended_)) pthread_join(seat->thread, nullptr);
  }

  void finish() {
    Sums sums = add();
    recorder_.pause();
    const uint64_t peak = recorder_.peak(memory_figures().resident);
    recorder_.finish()
        .hex("checksum", head_.operations * 0x9e3779b97f4a7c15u + head_.allocations)
        .add("heap_peak_bytes",
             peak + fixed_ > recorder_.baseline() ? peak + fixed_ - recorder_.baseline() : 0)
        .add("allocations", sums.allocations)
        .add("frees", sums.frees)
        .add("failed_allocations", sums.failed)
        .add("threads", head_.threads)
        .add("live_bytes", sums.live)
        .add("speed_percent", speed_);
  }

  void open_apart() { apart_.open(); }
  static uint64_t own_bytes() { return anonymous(); }
  // `reference`: the replayer's own memory where no allocator adds to it; kUnknown: it is not
  // known.
  void set_baseline(uint64_t reference) {
    const uint64_t now = anonymous();
    fixed_ = reference < now ? now - reference : 0;
    anonymous_baseline_ = now - fixed_;
  }
  uint64_t fixed_bytes() const { return fixed_; }

 private:
  struct Sums {
    uint64_t live = 0, blocks = 0, allocations = 0, frees = 0, failed = 0;
  };

  static uint64_t anonymous() {
    static char buffer[4096];
    return proc_field_bytes(read_proc("/proc/self/status", buffer, sizeof buffer), "RssAnon:");
  }

  // Lists of seats: a thread starts or ends now and then, so one lock serves.
  void push(Seat*& list, Seat& seat) {
    pthread_mutex_lock(&mutex_);
    seat.next = list;
    list = &seat;
    pthread_mutex_unlock(&mutex_);
  }
  Seat* pop(Seat*& list) {
    pthread_mutex_lock(&mutex_);
    Seat* seat = list;
    if (seat) list = seat->next;
    pthread_mutex_unlock(&mutex_);
    return seat;
  }

  void open(Seat& seat, uint64_t number) {
    uint64_t first = 0;
    read_at(file_, &first, sizeof first, head_.threads_at + number * sizeof first);
    seat.number = number;
    seat.stream.open(file_, first);
  }

  // The seat of a thread that ended, or a new one. The tool counted how many are needed at once; a
  // thread that is about to end may still hold its seat.
  Seat& take_seat() {
    for (Patience p;;) {
      if (Seat* seat = pop(free_)) return *seat;
      if (Seat* seat = pop(ended_)) {
        pthread_join(seat->thread, nullptr);
        return *seat;
      }
      p.wait();
    }
  }

  void start(uint64_t number) {
    if (number >= head_.threads) fail(kExitFailed, "replay: the prepared replay is damaged");
    Seat& seat = take_seat();
    open(seat, number);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, seat.stack, kStackBytes);
    const int error = pthread_create(&seat.thread, &attributes, &Replayer::thread, &seat);
    if (error != 0) {
      fail(kExitFailed, "replay: cannot start a thread (pthread_create): ", strerror(error),
           "; the trace has more threads at once than this machine allows");
    }
    pthread_attr_destroy(&attributes);
  }

  static void* thread(void* context) {
    auto& seat = *static_cast<Seat*>(context);
    owner_->follow(seat);
    owner_->push(owner_->ended_, seat);
    // Pairs with the acquires in run() and measure().
    owner_->ended_threads_.fetch_add(1, std::memory_order_release);
    return nullptr;
  }

  void follow(Seat& seat) {
    while (const Operation* op = seat.stream.next()) {
      switch (op->kind()) {
        case Kind::kAllocate:
          allocate(seat, *op);
          break;
        case Kind::kFree:
          release(seat, *op);
          break;
        case Kind::kResize: {
          const Operation resize = *op;
          const Operation* old = seat.stream.next();
          if (!old || old->kind() != Kind::kOld) damaged();
          this->resize(seat, resize, old->bytes());
          break;
        }
        case Kind::kStart:
          start(op->slot());
          break;
        case Kind::kSample:
          meet(op->slot());
          break;
        case Kind::kTime:
          pause_until(op->word1);
          break;
        case Kind::kTouch:
          touch(*op);
          break;
        case Kind::kTrim:
          seat.sampler.run([&] { ::malloc_trim(op->word1); });
          break;
        case Kind::kEnd:
          return;
        default:
          damaged();
      }
    }
  }

  [[noreturn]] static void damaged() {
    fail(kExitFailed, "replay: the prepared replay is damaged; run `loam replay` again");
  }

  // Stands for a block for which this allocator had no memory.
  void* nowhere() { return &nowhere_; }

  void allocate(Seat& seat, const Operation& op) {
    if (!slots_.has(op.slot())) damaged();
    slots_.wait_empty(op.slot(), op.generation());
    void* block = nullptr;
    seat.sampler.run([&] { block = apart_.has(op) ? apart_.allocate(op) : replay::allocate(op); });
    ++seat.allocations;
    ++seat.blocks;
    seat.live += op.bytes();
    if (block == nullptr) {
      seat.failed += op.bytes() != 0;
      block = nowhere();
    } else {
      residence_.saw(block);
      replay::touch(op, block);
    }
    slots_.put(op.slot(), op.generation(), block);
  }

  void release(Seat& seat, const Operation& op) {
    if (!slots_.has(op.slot())) damaged();
    void* block = slots_.wait_block(op.slot(), op.generation());
    slots_.clear(op.slot(), op.generation());
    ++seat.frees;
    --seat.blocks;
    seat.live -= op.bytes();
    if (block == nowhere()) return;
    seat.sampler.run([&] { apart_.has(op) ? apart_.release(block) : replay::release(op, block); });
  }

  // The pages that the program touched since the block was allocated.
  void touch(const Operation& op) {
    if (!slots_.has(op.slot())) damaged();
    void* block = slots_.wait_block(op.slot(), op.generation());
    if (block == nowhere()) return;
    auto* p = static_cast<volatile char*>(block);
    for (uint64_t page = op.word1 & 0xffffffff; page < op.word1 >> 32; ++page) {
      p[page * kPageBytes] = 1;
    }
  }

  void resize(Seat& seat, const Operation& op, uint64_t old_bytes) {
    if (!slots_.has(op.slot())) damaged();
    void* old = slots_.wait_block(op.slot(), op.generation());
    void* block = nullptr;
    void* from = old == nowhere() ? nullptr : old;
    const bool is_apart = apart_.has(op);
    seat.sampler.run([&] {
      block = is_apart ? apart_.resize(from, op.bytes()) : std::realloc(from, op.bytes());
    });
    ++seat.allocations;
    seat.live += op.bytes() - old_bytes;
    if (block == nullptr) {
      // realloc(p, 0) freed it.
      seat.failed += op.bytes() != 0;
      if ((op.bytes() == 0 && !is_apart) || from == nullptr) {
        block = nowhere();
      } else if (op.bytes() > old_bytes) {
        // A `touch` that follows would write behind the block, which is too small.
        is_apart ? apart_.release(from) : std::free(from);
        block = nowhere();
      } else {
        block = old;
      }
    } else {
      residence_.saw(block);
      replay::touch(op, block);
    }
    // Publishes the next generation, so that another thread's free cannot take the block before it
    // is resized.
    slots_.put(op.slot(), (op.generation() + 1) & 0xffff, block);
  }

  void pause_until(uint64_t recorded_ns) {
    if (speed_ == 0) return;
    // Relaxed: a sample that begins meanwhile moves the goal a little too late.
    const uint64_t measuring = measuring_ns_.load(std::memory_order_relaxed);
    const auto wanted = static_cast<uint64_t>(static_cast<double>(recorded_ns) * 100.0 /
                                              static_cast<double>(speed_));
    const uint64_t goal = begun_ + measuring + wanted;
    const uint64_t now = now_ns();
    if (goal < now + kWorthAPause) return;
    timespec t{static_cast<time_t>((goal - now) / 1'000'000'000u),
               static_cast<long>((goal - now) % 1'000'000'000u)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
  }

  // Every live thread comes here; the last one measures.
  void meet(uint32_t index) {
    if (index >= head_.samples) damaged();
    const SamplePoint& point = samples_[index];
    // Acquire and release: the last thread sees the counts of the other threads.
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == point.participants) {
      measure(index, point);
      arrived_.store(0, std::memory_order_relaxed);
      // Pairs with the acquire below: the next sample begins without a thread at the barrier.
      done_.store(index + 1, std::memory_order_release);
      syscall(SYS_futex, &done_, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
      return;
    }
    for (;;) {
      const uint32_t done = done_.load(std::memory_order_acquire);
      if (done > index) return;
      syscall(SYS_futex, &done_, FUTEX_WAIT_PRIVATE, done, nullptr, nullptr, 0);
    }
  }

  Sums add() const {
    Sums sums;
    for (uint64_t i = 0; i < seats_count_; ++i) {
      sums.live += seats_[i].live;
      sums.blocks += seats_[i].blocks;
      sums.allocations += seats_[i].allocations;
      sums.frees += seats_[i].frees;
      sums.failed += seats_[i].failed;
    }
    return sums;
  }

  void measure(uint32_t index, const SamplePoint& point) {
    // Threads that ended before this point do not come here, and may still have work. Pairs with
    // the release in thread().
    for (Patience p; ended_threads_.load(std::memory_order_acquire) < point.ended;) p.wait();
    recorder_.pause();
    const uint64_t begin = now_ns();
    const Sums sums = add();
    if (sums.live != point.live_bytes || sums.blocks != point.live_blocks) {
      fail(kExitFailed,
           "replay: the blocks that live are not those of the trace; this is an error of "
           "`loam replay`, please report it");
    }
    for (uint64_t i = 0; i < seats_count_; ++i) recorder_.take(seats_[i].sampler);
    const uint64_t operations = sums.allocations + sums.frees;
    const uint64_t now_anonymous = anonymous();
    auto& line = recorder_.checkpoint({.series = "replay",
                                       .index = index,
                                       .x = point.time_ns / 1'000,
                                       .x_unit = "us of the recording",
                                       .operations = operations - operations_before_,
                                       .live_bytes = sums.live});
    line.add("anonymous_bytes", now_anonymous > anonymous_baseline_
                                    ? now_anonymous - anonymous_baseline_
                                    : uint64_t{0});
    if (point.classify) {
      line.add("heap_bytes", residence_.heap_bytes());
    } else {
      line.null("heap_bytes");
    }
    if (point.recorded_heap == kUnknown) {
      line.null("recorded_heap_bytes");
    } else {
      line.add("recorded_heap_bytes", point.recorded_heap);
    }
    line.add("live_blocks", sums.blocks).add("threads", point.participants);
    line.add("events", point.events);
    operations_before_ = operations;
    recorder_.resume();
    measuring_ns_.fetch_add(now_ns() - begin, std::memory_order_relaxed);
  }

  int file_;
  const Head& head_;
  uint64_t speed_;
  Recorder& recorder_;
  Slots slots_;
  Apart apart_;
  Residence residence_;
  uint64_t seats_count_;
  Seat* seats_;
  SamplePoint* samples_;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Seat* free_ = nullptr;
  Seat* ended_ = nullptr;
  std::atomic<uint64_t> ended_threads_{0};
  std::atomic<uint64_t> arrived_{0};
  std::atomic<uint32_t> done_{0};
  std::atomic<uint64_t> measuring_ns_{0};
  uint64_t begun_ = 0, operations_before_ = 0, anonymous_baseline_ = 0;
  uint64_t fixed_ = 0;  // what the allocator has before its first block
  char nowhere_ = 0;
  static inline Replayer* owner_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments args("replay", "runs what `loam replay` prepared from a trace", argc, argv);
  const std::string_view path = args.text("program", "", "the prepared file");
  const uint64_t speed = args.number("speed-percent", 0, 0, 0, 1'000'000,
                                     "of the recording's time; 0: without its pauses");
  const std::string_view sizes =
      args.text("rooms", "", "only print what malloc makes of these sizes (with commas)");
  const bool only_baseline =
      args.number("baseline", 0, 0, 0, 1, "1: only print the replayer's own memory, in bytes") != 0;
  args.done();
  if (!sizes.empty()) {
    print_rooms(sizes);
    return 0;
  }
  if (path.empty()) fail(kExitUsage, "replay: --program FILE is needed; `loam replay` makes it");

  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(kExitFailed, "replay: cannot open ", path, ": ", strerror(errno));
  static Head head;
  read_at(file, &head, sizeof head, 0);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0 || head.version != kVersion) {
    fail(kExitFailed, "replay: ", path, " was not prepared by this version of `loam replay`");
  }
  if (head.threads == 0 || head.most_threads == 0 || head.most_threads > head.threads) {
    fail(kExitFailed, "replay: the prepared replay is damaged; run `loam replay` again");
  }
  if (speed != 0 && !head.has_times) {
    fail(kExitUsage, "replay: it was prepared without times; use --speed-percent 0");
  }

  Recorder recorder(args);
  static Replayer replayer(file, head, speed, recorder);
  replayer.open_apart();
  if (only_baseline) {
    print_own_bytes(replayer.own_bytes());
    return 0;
  }
  const uint64_t reference = reference_bytes(argv[0], path);
  JsonLine& start = recorder.start();
  replayer.set_baseline(reference);
  start.add("fixed_bytes", replayer.fixed_bytes());
  replayer.run();
  replayer.finish();
}
