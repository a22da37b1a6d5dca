#include "worker.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "calls.h"

namespace stress {
namespace {

constexpr int kErrnoMark = 1789;  // free must keep this errno
constexpr int64_t kSecond = 1'000'000'000;

thread_local Worker* t_worker = nullptr;

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

size_t round_up(size_t size, size_t alignment) { return (size + alignment - 1) & ~(alignment - 1); }

}  // namespace

Worker* current_worker() { return t_worker; }

// A thread's calls while it ends. A thread-local destructor frees and makes blocks. A pthread key's
// destructor does so again, after it, and a second time because it sets the key.
struct ExitHooks {
  ExitHooks() {
    pthread_once(&once_, [] { pthread_key_create(&key_, &run_key); });
    pthread_setspecific(key_, reinterpret_cast<void*>(uintptr_t{2}));
    kept_ = static_cast<unsigned char*>(malloc(kBytes));
    if (kept_ != nullptr) write_pattern(kept_, kBytes, kMark);
  }

  ~ExitHooks() {
    if (kept_ != nullptr && first_difference(kept_, kBytes, kBytes, kMark) != kIntact) {
      give_up("a block changed before its thread's end");
    }
    free(kept_);
    exercise();
  }

 private:
  static constexpr size_t kBytes = 1000;
  static constexpr uint64_t kMark = 0xfeed;

  static void run_key(void* rounds_left) {
    const auto rounds = reinterpret_cast<uintptr_t>(rounds_left) - 1;
    exercise();
    if (rounds > 0) pthread_setspecific(key_, reinterpret_cast<void*>(rounds));
  }

  static void exercise() {
    for (size_t size = 1; size < 100'000; size = size * 3 + 1) {
      auto* block = static_cast<unsigned char*>(malloc(size));
      if (block == nullptr) continue;
      write_pattern(block, size, size);
      if (first_difference(block, size, size, size) != kIntact) {
        give_up("a block of an ending thread does not hold its bytes");
      }
      free(block);
    }
  }

  // The worker has ended by now; the seed was printed at the start.
  [[noreturn]] static void give_up(const char* what) {
    dprintf(STDERR_FILENO, "stress: FAILED: %s\n", what);
    abort();
  }

  static inline pthread_key_t key_;
  static inline pthread_once_t once_ = PTHREAD_ONCE_INIT;
  unsigned char* kept_ = nullptr;
};

Worker::Worker(Shared& shared, uint64_t number)
    : shared_(shared),
      number_(number),
      random_(mix(shared.options.seed) + number * kGolden),
      next_id_(number << 40) {}

void Worker::run(uint64_t operations) {
  t_worker = this;
  if (shared_.options.limit_mib == 0) {
#if !defined( \
    _WIN32)  // gcc's emulation there frees thread-local variables before they are destroyed
    // The C library ends a process that has no memory for registering a thread-local destructor.
    thread_local ExitHooks hooks;
    (void)hooks;
#endif
  }
  while (done_ < operations) {
    if (done_ % 64 == 0 && shared_.deadline != 0 && now() > shared_.deadline) break;
    step();
    done_++;
  }
  shared_.operations += done_;
  shared_.digest += digest_;
  t_worker = nullptr;
}

// Three quarters of the time goes to slots in random order. The phases in between let the heap fill
// and drain, so that spans empty and memory is given back.
void Worker::step() {
  slot_ = random_.below(shared_.options.slots);
  if (random_.one_in(20'000)) {
    note("malloc_trim", 0, 0);
    malloc_trim(random_.one_in(2) ? 0 : size_t{1} << 20);
  }
  if (random_.one_in(20'000)) (void)mallinfo2();
  if (shared_.options.forks && random_.one_in(8'000)) fork_child();

  Slot& slot = shared_.slots[slot_];
  if (!slot.try_acquire()) return;
  if (random_.one_in(4'000)) {
    refuse_absurd(slot);
  } else if (slot.block.start == nullptr) {
    const auto limit = static_cast<int64_t>(shared_.options.live_mib << 20);
    const bool draining = (done_ / 8'192) % 4 == 3;
    if (shared_.live_bytes.load() < limit && !(draining && random_.below(8) != 0)) allocate(slot);
  } else {
    use(slot);
  }
  slot.release();
}

void Worker::allocate(Slot& slot) {
  Block block;
  if (!request(block)) return;
  adopt(slot, block);
}

// Checks a fresh block, gives it its pattern and puts it into the slot.
void Worker::adopt(Slot& slot, Block block) {
  const auto address = reinterpret_cast<uintptr_t>(block.start);
  if (address % block.alignment != 0) {
    fail("block %p of %zu bytes is not aligned to %zu", static_cast<void*>(block.start), block.size,
         block.alignment);
  }
  const size_t usable = malloc_usable_size(block.start);
  if (usable < block.size) {
    fail("block %p of %zu bytes has only %zu usable", static_cast<void*>(block.start), block.size,
         usable);
  }
  // A program may use all usable bytes, but most programs use only the requested ones.
  block.filled = random_.one_in(16) && freed_by_free(block.family) ? usable : block.size;
  block.id = next_id_++;
  write_pattern(block.start, block.filled, block.id);
  slot.block = block;
  shared_.add_live(block.size);
}

void Worker::use(Slot& slot) {
  verify(slot.block);
  const uint64_t choice = random_.below(100);
  if (choice < 55) {
    release_block(slot);
  } else if (choice < 85 && freed_by_free(slot.block.family)) {
    resize(slot);
  }
}

void Worker::resize(Slot& slot) {
  Block& block = slot.block;
  size_t size;
  switch (random_.below(8)) {
    case 0:
      size = pick_size();
      break;
    case 1:
      size = block.size;
      break;
    case 2:
      size = block.size + 1 + random_.below(64);
      break;
    case 3:
    case 4:
      size = block.size + random_.below(3 * block.size + 16);
      break;
    default:
      size = random_.below(block.size + 1);
      break;
  }
  const auto limit = shared_.options.live_mib << 18;  // a quarter
  if (size > limit) size = limit;

  const size_t kept = size < block.size ? size : block.size;
  const bool array = random_.one_in(4);
  note(array ? "reallocarray" : "realloc", size, 0);
  errno = 0;
  auto* moved = static_cast<unsigned char*>(array ? reallocarray(block.start, size, 1)
                                                  : realloc(block.start, size));
  if (moved == nullptr && size != 0) {
    refused("realloc", errno, size);
    verify(block);  // a failed realloc leaves the block as it was
    return;
  }
  shared_.remove_live(block.size);
  if (moved == nullptr) {  // realloc(p, 0) has freed it, as the C library's does
    block = Block{};
    return;
  }
  const size_t difference = first_difference(moved, block.filled, kept, block.id);
  if (difference != kIntact) {
    fail("realloc from %zu to %zu bytes changed byte %zu", block.size, size, difference);
  }
  Block fresh;
  fresh.start = moved;
  fresh.size = size;
  fresh.alignment = natural_alignment(size);
  fresh.family = Family::kPlain;
  block = Block{};
  adopt(slot, fresh);
}

void Worker::verify(const Block& block) {
  const size_t difference = first_difference(block.start, block.filled, block.filled, block.id);
  if (difference == kIntact) return;
  const uint64_t expected = pattern_word(block.id, difference / 8);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&expected);
  fail(
      "block %p of %zu bytes (%zu filled, made by worker %llu) holds %#x at offset %zu, not %#x: "
      "it overlaps another block, or was written to by the heap",
      static_cast<void*>(block.start), block.size, block.filled,
      static_cast<unsigned long long>(block.id >> 40), block.start[difference], difference,
      bytes[difference % 8]);
}

void Worker::check_zero(const Block& block) {
  static constexpr unsigned char kZeros[kPage] = {};
  for (size_t offset = 0; offset < block.size; offset += kPage) {
    const size_t length = block.size - offset < kPage ? block.size - offset : kPage;
    if (memcmp(block.start + offset, kZeros, length) == 0) continue;
    while (block.start[offset] == 0) offset++;
    fail("calloc of %zu bytes: byte %zu is %#x", block.size, offset, block.start[offset]);
  }
}

void Worker::release_block(Slot& slot) {
  const Block block = slot.block;
  slot.block = Block{};
  shared_.remove_live(block.size);
  note("free", block.size, 0);
  errno = kErrnoMark;
  free_block(block, random_.next());
  if (errno != kErrnoMark) fail("free of %zu bytes set errno to %d", block.size, errno);
}

// Memory may run out under --limit-mib, and then only with ENOMEM.
bool Worker::refused(const char* what, int error, size_t size) {
  if (error != ENOMEM) fail("%s of %zu bytes failed with error %d, not ENOMEM", what, size, error);
  if (shared_.options.limit_mib == 0) fail("%s of %zu bytes failed", what, size);
  shared_.refusals++;
  return false;
}

bool Worker::request(Block& block) {
  block.size = pick_size();
  const Call call = pick_call(random_.below(100));
  block.alignment = natural_alignment(block.size);
  if (call.aligned) block.alignment = pick_alignment();
  if (call.kind == Kind::kPosixMemalign || call.kind == Kind::kAlignedAlloc) {
    if (block.alignment < sizeof(void*)) block.alignment = sizeof(void*);
  }
  if (call.kind == Kind::kAlignedAlloc) block.size = round_up(block.size, block.alignment);
  if (call.kind == Kind::kValloc || call.kind == Kind::kPvalloc) {
    block.alignment = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }
  if (call.kind == Kind::kStrdup) block.size = block.size % kLongestString + 1;
  block.family = call.family;
  note(call.name, block.size, block.alignment);

  errno = 0;
  const int error = make_block(call.kind, block);
  if (error != 0) return refused(call.name, error, block.size);
  if (block.start == nullptr) fail("%s of %zu bytes gave null", call.name, block.size);
  if (call.kind == Kind::kCalloc) check_zero(block);
  return true;
}

// Requests that no heap can meet must fail cleanly and harm nothing.
void Worker::refuse_absurd(Slot& slot) {
  const size_t size = (~size_t{0} >> 1) + 1 + random_.below(size_t{1} << 40);
  note("too large", size, 0);
  // Volatile, so that no compiler argues about the size.
  volatile size_t huge = size;
  void* blocks[] = {malloc(huge), calloc(huge / 8 + 1, 16), memalign(64, huge),
                    aligned_alloc(kPage, huge & ~(kPage - 1))};
  for (void* block : blocks) {
    if (block != nullptr) fail("a request of %zu bytes was met", size);
  }
  errno = 0;
  if (malloc(huge) != nullptr || errno != ENOMEM) fail("malloc(%zu) did not set ENOMEM", size);
  Block& block = slot.block;
  if (block.start == nullptr || !freed_by_free(block.family)) return;
  errno = 0;
  if (realloc(block.start, huge) != nullptr || errno != ENOMEM) {
    fail("realloc to %zu bytes did not fail with ENOMEM", size);
  }
  verify(block);
}

// Mostly small sizes, as in programs, and sizes around powers of two and pages, where an allocator
// changes its method.
size_t Worker::pick_size() {
  const uint64_t kind = random_.below(1'000);
  size_t size;
  if (kind < 20) {
    size = random_.below(9);
  } else if (kind < 520) {
    size = 1 + random_.below(128);
  } else if (kind < 760) {
    size = 1 + random_.below(1'024);
  } else if (kind < 900) {
    size = 1 + random_.below(40'000);
  } else if (kind < 930) {
    size = (size_t{1} << (3 + random_.below(19))) - 1 + random_.below(3);
  } else if (kind < 950) {
    size = kPage * (1 + random_.below(64)) - 16 + random_.below(33);
  } else if (kind < 990) {
    size = 1 + random_.below(size_t{256} << 10);
  } else if (kind < 999) {
    size = 1 + random_.below(size_t{4} << 20);
  } else {
    size = 1 + random_.below(size_t{64} << 20);
  }
  const size_t most = shared_.options.live_mib << 18;  // a quarter of what may be live
  return size < most ? size : most;
}

size_t Worker::pick_alignment() {
  if (random_.one_in(200)) return size_t{1} << (12 + random_.below(11));  // to 4 MiB
  return size_t{1} << random_.below(13);
}

void Worker::note(const char* what, size_t size, size_t alignment) {
  digest_ = mix(digest_ + slot_) + mix(size * kGolden + alignment) + static_cast<uint64_t>(*what);
  if (shared_.options.trace) {
    printf("worker %llu, operation %llu, slot %zu: %s %zu",
           static_cast<unsigned long long>(number_), static_cast<unsigned long long>(done_), slot_,
           what, size);
    if (alignment != 0) printf(" aligned to %zu", alignment);
    putchar('\n');
  }
}

void Worker::free_everything() {
  t_worker = this;
  for (slot_ = 0; slot_ < shared_.options.slots; slot_++) {
    Slot& slot = shared_.slots[slot_];
    if (!slot.try_acquire()) fail("slot %zu is busy although every worker has ended", slot_);
    if (slot.block.start != nullptr) {
      verify(slot.block);
      release_block(slot);
    }
    slot.release();
  }
}

// The child's heap must be whole, whatever the parent's other threads were doing.
void Worker::fork_child() {
  note("fork", 0, 0);
  const uint64_t seed = random_.next();
  if (shared_.options.trace) fflush(stdout);
  const pid_t child = fork();
  if (child < 0) {
    if (errno == EAGAIN || errno == ENOMEM) return;  // the machine's limits, not the heap's
    fail("fork: %s", strerror(errno));
  }
  if (child == 0) live_as_child(seed);
  shared_.forks++;
  const int64_t limit = now() + 60 * kSecond;
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) fail("waitpid: %s", strerror(errno));
    if (now() > limit) {
      kill(child, SIGABRT);
      fail("the forked child %d did not end in 60 s", static_cast<int>(child));
    }
    const timespec pause = {0, 200'000};
    nanosleep(&pause, nullptr);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fail("the forked child ended with wait status %#x", static_cast<unsigned>(status));
  }
}

void Worker::live_as_child(uint64_t seed) {
  random_ = Random(seed);
  for (int i = 0; i < 300; i++) {
    slot_ = random_.below(shared_.options.slots);
    Slot& slot = shared_.slots[slot_];
    if (!slot.try_acquire()) continue;  // another thread was using it during the fork
    if (slot.block.start == nullptr) {
      allocate(slot);
    } else {
      use(slot);
    }
    slot.release();
  }
  malloc_trim(0);
  _exit(0);
}

void Worker::fail(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  dprintf(STDERR_FILENO,
          "stress: FAILED: %s\nstress: seed %llu, worker %llu, operation %llu, slot %zu%s\n", text,
          static_cast<unsigned long long>(shared_.options.seed),
          static_cast<unsigned long long>(number_), static_cast<unsigned long long>(done_), slot_,
          shared_.options.threads == 1 ? "; run again with --seed, --threads 1, --operations and "
                                         "--trace to see it happen"
                                       : "");
  abort();
}

}  // namespace stress
