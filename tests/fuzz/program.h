// The language of the fuzzer: a program is a list of operations, an operation is one token that
// reads like C.
//
//   # a comment
//   thread(1) b3=malloc(100) b3=calloc(10,24) h1=heap(2,0,65536) b4=loam_alloc(h1,64) free(b3)
//   fork()
//
//   b0 .. b63   blocks     h0 the default heap, h1 .. h5 private heaps
//   g0 .. g3    groups of many blocks     thread(0) the first thread .. thread(3)
//
// Every program has a meaning, so that a fuzzer may change it freely. A live block that is named as
// a result is freed first. An operation on a block, heap or thread that does not exist does
// nothing.
#ifndef LOAM_TESTS_FUZZ_PROGRAM_H
#define LOAM_TESTS_FUZZ_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

inline constexpr unsigned kBlocks = 64, kHeaps = 6, kGroups = 4, kThreads = 4;
inline constexpr unsigned kArguments = 4;

enum class Op : uint8_t {
  // settings, read before anything runs
  kOption,
  kPageSize,
  // making blocks: result b, in the order of their names in program.cpp
  kMalloc,
  kCalloc,
  kReallocNull,
  kReallocarrayNull,
  kPosixMemalign,
  kAlignedAlloc,
  kMemalign,
  kValloc,
  kPvalloc,
  kNew,
  kNewArray,
  kNewNothrow,
  kNewArrayNothrow,
  kNewAligned,
  kNewArrayAligned,
  kLoamAlloc,
  kLoamZalloc,
  kLoamAlignedAlloc,
  // freeing blocks
  kFree,
  kCfree,
  kFreeSized,
  kFreeAlignedSized,
  kDelete,
  kDeleteSized,
  kReallocZero,
  kLoamFree,
  kLoamFreeSized,
  kBadFree,
  kStaleFree,
  // resizing blocks
  kRealloc,
  kReallocarray,
  kLoamRealloc,
  kLoamZrealloc,
  kLoamAlignedRealloc,
  kLoamTryResize,
  // asking questions
  kAsk,
  kAskAnywhere,
  // heaps
  kHeap,
  kDestroy,
  kLock,
  kTryLock,
  kUnlock,
  kCompact,
  kTrim,
  kWalk,
  kValidate,
  kThreshold,
  kMode,
  // many blocks
  kFill,
  kThin,
  kDrop,
  // threads and the process
  kThread,
  kEndThread,
  kEndThreadFreeing,
  kFork,
  kMallocTrim,
  kMallinfo,
  kStatistics,
  kTick,
  kRefuse,
  kContend,
  // the Windows-shaped interface, on private heaps of either interface
  kWinHeap,
  kWinDestroy,
  kWinAlloc,
  kWinReAlloc,
  kWinFree,
  kWinAsk,
  kWinUseHeap,
  kWinAligned,
  kCount
};

struct Operation {
  Op op = Op::kAsk;
  uint8_t result = 0;
  uint64_t arguments[kArguments] = {};
};

using Program = std::vector<Operation>;

/// How an operation is written. Arguments by letter: b, h, g, t as above; n bytes, a alignment, c
/// count, s small number, m milliseconds, o an option's number, p page size.
struct Form {
  const char* name;
  char result;  ///< b, h, g, or 0
  const char* arguments;
};
const Form& form_of(Op op);

/// The options that a program may set, as NAME=VALUE without "LOAM_".
extern const char* const kOptionTexts[];
extern const unsigned kOptionTextCount;

std::string print(const Operation& operation);
std::string print(const Program& program);

/// False with what is wrong, and where, in *error.
bool parse(std::string_view text, Program* out, std::string* error);

}  // namespace fuzz

#endif
