// The rings between a recorded process and the drainer. They are a private interface between one
// version of the recorder and the same version of `loam record` (tool/loam-process/src/rings). Both
// compare kRingVersion.
//
//   DIR/session    the drainer's page: its process, its heartbeat, what happens when a ring is full
//   DIR/PID.N      one process image: after its start, its exec or its fork
//   DIR/PID.N.maps where stacks are sampled: the image's mappings as the system shows them, when
//                  its first stack is copied and again at its end
//
//   PID.N:  | control, 4 KiB | slots, 128 bytes each, kSlots of them | ring | ring | ...
//
// Pages are allocated (fallocate) before they are touched, so a full file system is an error and
// never SIGBUS. All numbers are little-endian, as both supported processors are.
//
// Order. A free is stamped and published before it takes effect. An allocation is stamped and
// published after it took effect and before its caller has the block. The drainer reads all heads
// (S1), and then all heads again (S2): first that of the ring whose thread holds the lease on
// shared stamps (lease.h), then all others. It takes T = the largest stamp within S1, and emits the
// events of S2 with stamps up to T. It writes its heartbeat between passes only.
//
// Proof that no emitted event lacks a predecessor. Let x be an event with stamp(x) <= T, and y an
// event on which x depends (the allocation of the block that x frees, or the free of the address
// that x allocates). y was published before x could begin, so before stamp(x) was read, so before
// the event that gave T was stamped, so before its head was published, so before S1 read that head.
// S2 reads every head after that, so S2 sees y. An event that comes later with a stamp below T is
// independent of all emitted events. The processor may read the stamp some tens of nanoseconds
// early; the reader of the trace repairs that.
//
// An event x that shares a stamp has the stamp of an earlier event of its ring, so the proof does
// not hold for it. lease.h proves that its predecessors have lower stamps, and are in S2 if x is.
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LOAM_RING_MAGIC UINT64_C(0x31474e49524d4c00)  // "\0LMRING1"

enum {
  kRingVersion = 5,
  kSlots = 65536,
  kControlBytes = 4096,
  kSlotBytes = 128,
  kUnitBytes = 16,
  // 4,096 events. A thread that allocates little keeps this ring, so many threads are cheap.
  kSmallRing = 64 * 1024,
  // A busy thread moves to this ring, because the drainer sleeps up to some milliseconds between
  // its passes.
  kLargeRing = 1024 * 1024,
  kLargeRings = 256,
  // The first rings of a process: they are mapped at its start, and get their memory by madvise()
  // when they are needed. A filter of system calls that the program sets later may know no
  // openat().
  kWindowBytes = 32 * 1024 * 1024,
  // The copied bytes of a stack, from the stack pointer on: some hundred frames. A small ring holds
  // one stack.
  kStackBytes = 32 * 1024,
};

#define LOAM_SESSION_FILE "session"

// The way in which a process image began.
enum { kBeganByExec = 1, kBeganByFork = 2, kBeganByAttach = 3 };
// The known facts about its end.
enum { kRunning = 0, kEndedNormally = 1, kSwitchedOff = 2 };

// What the drainer knows of a process that the process itself does not: bits of Control's `told`.
enum {
  kIsLeft = 1,      // the file is not drained any more: the process goes on unrecorded
  kIsFiltered = 2,  // a filter restricts its system calls
};

// The drainer's page, DIR/session.
typedef struct Session {
  uint64_t magic;
  uint32_t version;
  uint32_t drainer;        // its process, for messages. It lives while it holds a lock on the page
  uint64_t drainer_start;  // its start, in ticks since the machine's start, from /proc/PID/stat
  _Atomic uint64_t heartbeat;  // CLOCK_MONOTONIC, ns; written between passes, every 5 to 15 ms
  _Atomic uint32_t is_over;    // the recording has ended, so no process begins to record
  uint32_t drops_when_full;    // 0: wait for the drainer
  uint64_t stack_bytes;        // one stack for this many requested bytes, on average; 0: none
} Session;

typedef struct Control {
  uint64_t magic;
  uint32_t version;
  uint32_t pid;
  uint64_t start;             // as drainer_start
  uint64_t ticks_per_second;  // of the stamps; 0: the drainer computes it from pairs
  // The same moment on three clocks.
  uint64_t stamp;
  uint64_t monotonic;
  uint64_t realtime;
  uint32_t how;
  _Atomic uint32_t state;
  _Atomic uint32_t slots_made;  // slots below this number may be in use
  _Atomic uint32_t large_made;
  _Atomic uint32_t released;  // slots that a thread has left
  _Atomic uint32_t threads;   // ordinals given out so far
  _Atomic uint64_t file_end;
  _Atomic uint64_t lost;  // events for which no ring had room
  uint32_t fork_number;   // the number of the fork in the parent; 0: the first event found a fork
                          // that was not announced
  uint32_t parent;        // its process
  char parent_file[32];   // its file in DIR
  char why[256];          // the reason if it was switched off
  char program[512];      // its file
  char allocator[484];    // the file that contains the real malloc
  _Atomic uint32_t told;  // by the drainer
  uint64_t space;         // the inode of its PID namespace; 0: unknown
  uint64_t time_space;    // that of its time namespace
  // A cache line of its own, since every event reads it.
  _Atomic uint64_t lease;  // on shared stamps (lease.h)
} Control;

enum { kSlotFree = 0, kSlotLive = 1, kSlotReleased = 2 };

// One ring. A thread that ends leaves its ring to another thread, which goes on after the last
// event. Every owner begins with a kTime record that names the thread.
typedef struct Slot {
  // The owner's cache line.
  _Atomic uint32_t state;
  uint32_t is_large;
  _Atomic uint64_t head;         // all bytes published so far; one release store for each event
  _Atomic uint64_t ring_offset;  // 0 until the ring exists
  _Atomic uint64_t ring_bytes;
  uint8_t owners[32];
  // The drainer's cache line.
  _Atomic uint64_t tail;  // all bytes consumed so far
  uint8_t drainers[56];
} Slot;

// word0:  63 | 62..57 log2(alignment) | 56..53 family | 52..48 kind | 47..0 address or value
// word1:  63..32 low half of the stamp | 31..0 low half of the size
// A kTime record has a whole stamp in word1 and a second unit: CLOCK_MONOTONIC in ns; 63..32
// ordinal | 31..0 thread.
typedef struct Unit {
  uint64_t word0;
  uint64_t word1;
} Unit;

enum {
  kTime = 1,  // two units; written at a claim, every kTimeEvery bytes, and when the high half of
              // the stamp changes
  kAllocate = 2,  // address 0: failed
  kFree = 3,
  kResizeFrom = 4,
  kResizeTo = 5,  // address 0: failed
  kThreadBegins = 6,
  kThreadEnds = 7,
  kForks = 8,    // value: the fork's number
  kDropped = 9,  // value: events that found no room
  // The next two kinds precede their event.
  kSizeHigh = 10,  // value: high half of the size
  kTouched = 11,   // value: resident pages
  // Memory that the program maps itself, beside its heap. These events are not in the trace; the
  // drainer uses them to distinguish such memory from the heap's. value: the address; size: bytes.
  kMapped = 12,
  kUnmapped = 13,
  kTrims = 14,  // size: the bytes that malloc_trim keeps at the top
  // Precedes its event. value: the bytes that follow, padded to whole units: the registers
  // (Registers), then the stack from the stack pointer on.
  kStack = 15,
  kMark = 16,    // value: the bytes of the name that follows, padded to whole units
  kExists = 17,  // as kAllocate, for a block that was live before
};

enum { kKindShift = 48, kFamilyShift = 53, kAlignmentShift = 57, kTimeEvery = 4096 };

// Numbers of the trace's families (formats/trace.toml).
enum {
  kByMalloc,
  kByCalloc,
  kByAligned,
  kByValloc,
  kByNew,
  kByNewArray,
  kByAlignedNew,
  kByAlignedNewArray
};
enum { kByFree, kByFreeSized, kByDelete, kByDeleteSized, kByDeleteArray, kByDeleteArraySized };

_Static_assert(sizeof(Unit) == kUnitBytes, "the drainer counts units of 16 bytes");
_Static_assert(sizeof(Slot) == kSlotBytes, "the drainer finds slots by their number");
_Static_assert(offsetof(Slot, tail) == 64,
               "what the drainer writes lies in a cache line of its own");
_Static_assert(sizeof(Control) <= kControlBytes, "slots follow the first page");
_Static_assert(offsetof(Control, lease) % 64 == 0, "no other word of its cache line changes");
