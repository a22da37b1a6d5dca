// The calls that the compiler and the linker put into an allocator (model.h).
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <unordered_map>

#include "directory.h"
#include "lock_finder.h"
#include "model.h"

namespace cores {
namespace {

struct State {
  Scheduler* scheduler = nullptr;
  Directory directory;
  LockFinder locks;
  Counts counts{};
  std::unordered_map<uintptr_t, Place> places;
  bool counting = false;
};
State state;
constexpr int kNobody = -1;
thread_local int me = kNobody;

unsigned core() { return static_cast<unsigned>(me); }
uintptr_t number(const volatile void* address) { return reinterpret_cast<uintptr_t>(address); }

Place& place(const void* code) {
  Place& found = state.places[number(code)];
  found.code = number(code);
  return found;
}

void look(uintptr_t address, size_t bytes, bool write, const void* code) {
  if (bytes == 0) return;
  for (uintptr_t line = address / kLine; line <= (address + bytes - 1) / kLine; ++line) {
    const Outcome outcome = write ? state.directory.write(core(), line * kLine)
                                  : state.directory.read(core(), line * kLine);
    if (outcome <= Outcome::kCold || !state.counting) continue;
    const auto add = [&](Traffic& traffic) {
      ++(outcome == Outcome::kReadMoved    ? traffic.read_moved
         : outcome == Outcome::kWriteMoved ? traffic.write_moved
                                           : traffic.invalidated);
    };
    add(code != nullptr ? state.counts.allocator : state.counts.program);
    if (code != nullptr) add(place(code).traffic);
  }
}

// Another thread may run first. After that, nothing comes between the count and the access.
void access(const volatile void* address, size_t bytes, bool write, const void* code) {
  if (me == kNobody) return;
  state.scheduler->step(core());
  if (state.counting) ++state.counts.accesses;
  look(number(address), bytes, write, code);
}

bool acquires(int order) { return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE; }
bool releases(int order) { return order >= __ATOMIC_RELEASE; }

void ended(const LockFinder::Ended& ended, const void* code) {
  if (!ended.section || !state.counting) return;
  ++state.counts.sections;
  state.counts.collisions += ended.collisions;
  ++place(code).sections;
  place(code).collisions += ended.collisions;
}

template <class T>
void changed(const volatile void* word, T before, T after, bool failed, int order,
             const void* code) {
  if (me == kNobody) return;
  if (state.counting) {
    ++state.counts.changes;
    state.counts.failed_changes += failed;
  }
  ended(state.locks.change(core(), number(word), static_cast<uint64_t>(before),
                           static_cast<uint64_t>(after), acquires(order), releases(order)),
        code);
}

template <class T, class Next>
T change(volatile T* word, int order, const void* code, Next next) {
  access(word, sizeof(T), true, code);
  T before = __atomic_load_n(word, __ATOMIC_SEQ_CST), after;
  do {
    after = next(before);
  } while (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST));
  changed(word, before, after, false, order, code);
  return before;
}

template <class T>
bool compare_exchange(volatile T* word, T* expected, T wanted, int order, const void* code) {
  access(word, sizeof(T), true, code);
  const T before = *expected;
  const bool done = __atomic_compare_exchange_n(word, expected, wanted, false, __ATOMIC_SEQ_CST,
                                                __ATOMIC_SEQ_CST);
  changed(word, done ? before : *expected, done ? wanted : *expected, !done, order, code);
  return done;
}

void wait() {
  if (state.counting) ++state.counts.waits;
}
void yield() {
  wait();
  state.scheduler->yield(core());
}

// Memory that the system took back is in no cache.
void drop(const void* address, size_t bytes) {
  if (state.scheduler != nullptr && me != kNobody) state.directory.drop(number(address), bytes);
}

}  // namespace

void Model::begin(Scheduler& scheduler) { state.scheduler = &scheduler; }
void Model::join(unsigned core) { me = static_cast<int>(core); }
void Model::leave() { me = kNobody; }
void Model::count(bool on) { state.counting = on; }
Counts Model::counts() { return state.counts; }
std::vector<Place> Model::places() {
  std::vector<Place> all;
  for (const auto& [code, found] : state.places) all.push_back(found);
  std::sort(all.begin(), all.end(), [](const Place& a, const Place& b) {
    const uint64_t of_a = a.traffic.lines() + a.sections, of_b = b.traffic.lines() + b.sections;
    return of_a != of_b ? of_a > of_b : a.code < b.code;
  });
  return all;
}
void Model::touch(void* word, bool write) { access(word, sizeof(uint64_t), write, nullptr); }

}  // namespace cores

using namespace cores;
#define CODE __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read_range(void* p, unsigned long n) { access(p, n, false, CODE); }
void __tsan_write_range(void* p, unsigned long n) { access(p, n, true, CODE); }
void __tsan_vptr_update(void** p, void*) { access(p, sizeof *p, true, CODE); }
void __tsan_vptr_read(void** p) { access(p, sizeof *p, false, CODE); }
// clang calls these from version 16 on; the wrapped functions record the access.
void* __tsan_memcpy(void* to, const void* from, unsigned long n) { return memcpy(to, from, n); }
void* __tsan_memmove(void* to, const void* from, unsigned long n) { return memmove(to, from, n); }
void* __tsan_memset(void* to, int value, unsigned long n) { return memset(to, value, n); }
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

#define PLAIN(n)                                                        \
  void __tsan_read##n(void* p) { access(p, n, false, CODE); }           \
  void __tsan_write##n(void* p) { access(p, n, true, CODE); }           \
  void __tsan_unaligned_read##n(void* p) { access(p, n, false, CODE); } \
  void __tsan_unaligned_write##n(void* p) { access(p, n, true, CODE); } \
  void __tsan_read_write##n(void* p) { access(p, n, true, CODE); }      \
  void __tsan_unaligned_read_write##n(void* p) { access(p, n, true, CODE); }
PLAIN(1);
PLAIN(2);
PLAIN(4);
PLAIN(8);
PLAIN(16);

#define CHANGE(bits, T, name, expression)                                                 \
  T __tsan_atomic##bits##_##name(volatile T* p, T v, int order) {                         \
    return change<T>(p, order, CODE,                                                      \
                     [v]([[maybe_unused]] T old) { return static_cast<T>(expression); }); \
  }
#define ATOMIC(bits, T)                                                                          \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                       \
    access(p, sizeof *p, false, CODE);                                                           \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                              \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int order) {                              \
    access(p, sizeof *p, true, CODE);                                                            \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                    \
    if (me != kNobody && releases(order)) {                                                      \
      ended(state.locks.change(core(), number(p), v, v, false, true), CODE);                     \
    }                                                                                            \
  }                                                                                              \
  CHANGE(bits, T, exchange, v)                                                                   \
  CHANGE(bits, T, fetch_add, old + v)                                                            \
  CHANGE(bits, T, fetch_sub, old - v)                                                            \
  CHANGE(bits, T, fetch_and, (old & v))                                                          \
  CHANGE(bits, T, fetch_or, (old | v))                                                           \
  CHANGE(bits, T, fetch_xor, (old ^ v))                                                          \
  CHANGE(bits, T, fetch_nand, ~(old & v))                                                        \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int order, \
                                                     int) {                                      \
    return compare_exchange<T>(p, expected, v, order, CODE);                                     \
  }                                                                                              \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int order,   \
                                                   int) {                                        \
    return compare_exchange<T>(p, expected, v, order, CODE);                                     \
  }                                                                                              \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int order, int) { \
    compare_exchange<T>(p, &expected, v, order, CODE);                                           \
    return expected;                                                                             \
  }

ATOMIC(8, uint8_t);
ATOMIC(16, uint16_t);
ATOMIC(32, uint32_t);
ATOMIC(64, uint64_t);

void* __wrap_memset(void* p, int value, size_t n) {
  access(p, n, true, CODE);
  return memset(p, value, n);
}
void* __wrap_memcpy(void* to, const void* from, size_t n) {
  access(from, n, false, CODE);
  access(to, n, true, CODE);
  return memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, size_t n) {
  access(from, n, false, CODE);
  access(to, n, true, CODE);
  return memmove(to, from, n);
}

int __wrap_clock_gettime(clockid_t clock, timespec* out) {
  if (state.scheduler == nullptr) return clock_gettime(clock, out);
  constexpr uint64_t kSecond = 1'000'000'000;
  const uint64_t now = kSecond + state.scheduler->now_ns();
  *out = {static_cast<time_t>(now / kSecond), static_cast<long>(now % kSecond)};
  return 0;
}

// The same bytes in each run.
ssize_t __wrap_getrandom(void* out, size_t n, unsigned) {
  static lab::Random random(1);
  for (size_t i = 0; i < n; ++i)
    static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(random.next());
  return static_cast<ssize_t>(n);
}

int __wrap_madvise(void* p, size_t n, int advice) {
  if (advice == MADV_DONTNEED) drop(p, n);
  return madvise(p, n, advice);
}
int __wrap_munmap(void* p, size_t n) {
  drop(p, n);
  return munmap(p, n);
}

long __wrap_syscall(long call, long a, long b, long c, long d, long e, long f) {
  void* const p = reinterpret_cast<void*>(a);
  if (call == SYS_madvise) return __wrap_madvise(p, static_cast<size_t>(b), static_cast<int>(c));
  if (call == SYS_munmap) return __wrap_munmap(p, static_cast<size_t>(b));
  if (call == SYS_getrandom) return __wrap_getrandom(p, static_cast<size_t>(b), 0);
  if (call == SYS_futex && me != kNobody) {
    const auto* const word = static_cast<const uint32_t*>(p);
    const long what = b & FUTEX_CMD_MASK;
    if (what == FUTEX_WAIT) {
      wait();
      state.scheduler->wait_while_equal(core(), word, static_cast<uint32_t>(c));
    } else {
      state.scheduler->wake(word, static_cast<unsigned>(c));
    }
    return 0;
  }
  return syscall(call, a, b, c, d, e, f);
}

int __wrap_sched_yield() {
  if (me == kNobody) return sched_yield();
  yield();
  return 0;
}
int __wrap_nanosleep(const timespec* time, timespec* left) {
  if (me == kNobody) return nanosleep(time, left);
  yield();
  return 0;
}
int __wrap_usleep(useconds_t time) {
  if (me == kNobody) return usleep(time);
  yield();
  return 0;
}

// A mutex of the C library is a word that a thread changes, and a wait.
int __wrap_pthread_mutex_trylock(pthread_mutex_t* mutex) {
  access(mutex, sizeof(int), true, CODE);
  const int result = pthread_mutex_trylock(mutex);
  changed<uint32_t>(mutex, result != 0, 1, result != 0, __ATOMIC_ACQUIRE, CODE);
  return result;
}
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (me == kNobody) return pthread_mutex_lock(mutex);
  while (__wrap_pthread_mutex_trylock(mutex) == EBUSY) yield();
  return 0;
}
int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex) {
  access(mutex, sizeof(int), true, CODE);
  const int result = pthread_mutex_unlock(mutex);
  if (me != kNobody) {
    changed<uint32_t>(mutex, 1, 0, false, __ATOMIC_RELEASE, CODE);
  }
  return result;
}

}  // extern "C"
