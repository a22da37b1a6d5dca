// Features that only <loam/win32.h> has: last errors, information classes (idea 17), exceptions,
// the C run-time's functions.
#include <csetjmp>
#include <cstdlib>
#include <new>
#include <thread>

#include "interface.h"

namespace heaps {
namespace {

constexpr DWORD kUntouched = 0xbeef;
constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

/// The last error that `call` leaves; kUntouched if it sets none.
template <typename Call>
DWORD error_of(Call call) {
  SetLastError(kUntouched);
  call();
  return GetLastError();
}

TEST(Win32Errors, EachThreadHasItsOwn) {
  SetLastError(5);
  std::thread([] {
    EXPECT_EQ(GetLastError(), DWORD{NO_ERROR});
    SetLastError(0xffffffff);
    EXPECT_EQ(GetLastError(), 0xffffffffu);
  }).join();
  EXPECT_EQ(GetLastError(), 5u);
}

TEST(Win32Errors, OfAllocation) {
  const Scoped<Win32Interface> heap;
  void* block = nullptr;
  EXPECT_EQ(error_of([&] { block = HeapAlloc(heap, 0, 100); }), kUntouched);
  EXPECT_EQ(error_of([&] { EXPECT_EQ(HeapAlloc(heap, 0, SIZE_MAX), nullptr); }),
            DWORD{ERROR_NOT_ENOUGH_MEMORY});
  EXPECT_EQ(error_of([&] { EXPECT_EQ(HeapReAlloc(heap, 0, block, SIZE_MAX - 7), nullptr); }),
            DWORD{ERROR_NOT_ENOUGH_MEMORY});
  EXPECT_EQ(error_of([&] {
              EXPECT_EQ(HeapReAlloc(heap, HEAP_REALLOC_IN_PLACE_ONLY, block, kMiB), nullptr);
            }),
            DWORD{ERROR_NOT_ENOUGH_MEMORY});
  EXPECT_EQ(error_of([&] { EXPECT_EQ(HeapReAlloc(heap, 0, nullptr, 1), nullptr); }),
            DWORD{ERROR_INVALID_PARAMETER});
  EXPECT_EQ(error_of([&] { EXPECT_EQ(HeapSize(heap, 0, &heap), SIZE_MAX); }),
            DWORD{ERROR_INVALID_PARAMETER});
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapFree(heap, 0, &block)); }),
            DWORD{ERROR_INVALID_PARAMETER});
  EXPECT_EQ(error_of([&] { EXPECT_TRUE(HeapFree(heap, 0, block)); }), kUntouched);
  EXPECT_EQ(error_of([&] { EXPECT_TRUE(HeapFree(heap, 0, nullptr)); }), kUntouched);
}

TEST(Win32Errors, OfHandles) {
  EXPECT_EQ(error_of([] { EXPECT_EQ(HeapAlloc(nullptr, 0, 1), nullptr); }), DWORD{ERROR_NOACCESS});
  EXPECT_EQ(error_of([] { EXPECT_FALSE(HeapDestroy(nullptr)); }), DWORD{ERROR_NOACCESS});
  EXPECT_EQ(error_of([] { EXPECT_FALSE(HeapLock(nullptr)); }), DWORD{ERROR_NOACCESS});
  EXPECT_EQ(error_of([] { EXPECT_FALSE(HeapDestroy(GetProcessHeap())); }),
            DWORD{ERROR_INVALID_HANDLE});
  EXPECT_EQ(error_of([] { EXPECT_FALSE(HeapDestroy(loam_default())); }),
            DWORD{ERROR_INVALID_HANDLE});
  int no_heap[64] = {};
  EXPECT_EQ(error_of([&] { EXPECT_EQ(HeapAlloc(no_heap, 0, 1), nullptr); }),
            DWORD{ERROR_INVALID_HANDLE});
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapFree(no_heap, 0, no_heap)); }),
            DWORD{ERROR_INVALID_HANDLE});
  EXPECT_EQ(error_of([] { EXPECT_EQ(HeapCreate(HEAP_CREATE_ENABLE_EXECUTE, 0, 0), nullptr); }),
            DWORD{ERROR_NOT_SUPPORTED});
  EXPECT_EQ(error_of([] { EXPECT_EQ(HeapCreate(0, kMiB, 64 * kKiB), nullptr); }),
            DWORD{ERROR_INVALID_PARAMETER});
}

TEST(Win32Errors, Idea05ValidateSetsNone) {
  const Scoped<Win32Interface> heap;
  int local = 0;
  EXPECT_EQ(error_of([&] {
              EXPECT_FALSE(HeapValidate(heap, 0, &local));
              EXPECT_FALSE(HeapValidate(heap, 0, reinterpret_cast<void*>(16)));
              EXPECT_FALSE(HeapValidate(nullptr, 0, nullptr));
              EXPECT_TRUE(HeapValidate(heap, 0, nullptr));
            }),
            kUntouched);
}

TEST(Win32Errors, OfWalkAndSummary) {
  const Scoped<Win32Interface> heap;
  PROCESS_HEAP_ENTRY entry;
  entry.lpData = nullptr;
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapWalk(heap, &entry)); }), DWORD{ERROR_NO_MORE_ITEMS});
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapWalk(heap, nullptr)); }),
            DWORD{ERROR_INVALID_PARAMETER});
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapWalk(nullptr, &entry)); }), DWORD{ERROR_NOACCESS});
  entry.lpData = &entry;
  entry.wFlags = PROCESS_HEAP_ENTRY_BUSY;
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapWalk(heap, &entry)); }),
            DWORD{ERROR_INVALID_PARAMETER});
  HEAP_SUMMARY summary = {};
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapSummary(heap, 0, &summary)); }),
            DWORD{ERROR_INVALID_PARAMETER});
  summary.cb = sizeof summary;
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapSummary(heap, 1, &summary)); }),
            DWORD{ERROR_INVALID_PARAMETER});
  EXPECT_EQ(error_of([&] { EXPECT_TRUE(HeapSummary(heap, 0, &summary)); }), kUntouched);
  EXPECT_EQ(summary.cbMaxReserve, SIZE_MAX);
  const Scoped<Win32Interface> fixed({.maximum = kMiB});
  EXPECT_TRUE(HeapSummary(fixed, 0, &summary));
  EXPECT_EQ(summary.cbMaxReserve, kMiB);
}

TEST(Win32Information, Idea17QueryWithBuffersOfEverySort) {
  const Scoped<Win32Interface> heap;
  const HEAP_INFORMATION_CLASS which = HeapCompatibilityInformation;
  SIZE_T returned = 77;
  unsigned char buffer[16];
  std::memset(buffer, 0xcc, sizeof buffer);
  EXPECT_EQ(
      error_of([&] { EXPECT_FALSE(HeapQueryInformation(heap, which, nullptr, 0, &returned)); }),
      DWORD{ERROR_INSUFFICIENT_BUFFER});
  EXPECT_EQ(returned, 4u);
  returned = 77;
  EXPECT_EQ(
      error_of([&] { EXPECT_FALSE(HeapQueryInformation(heap, which, buffer, 3, &returned)); }),
      DWORD{ERROR_INSUFFICIENT_BUFFER});
  EXPECT_EQ(returned, 4u);
  EXPECT_TRUE(is_filled(buffer, sizeof buffer, 0xcc));
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapQueryInformation(heap, which, nullptr, 3, nullptr)); }),
            DWORD{ERROR_INSUFFICIENT_BUFFER});
  EXPECT_EQ(
      error_of([&] { EXPECT_FALSE(HeapQueryInformation(nullptr, which, buffer, 4, nullptr)); }),
      DWORD{ERROR_NOACCESS});
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(HeapQueryInformation(heap, which, nullptr, 4, nullptr)); }),
            DWORD{ERROR_NOACCESS});
  EXPECT_EQ(error_of([&] {
              EXPECT_FALSE(HeapQueryInformation(heap, HeapOptimizeResources, buffer, 4, nullptr));
            }),
            DWORD{ERROR_INVALID_PARAMETER});
  returned = 77;
  EXPECT_EQ(
      error_of([&] { EXPECT_TRUE(HeapQueryInformation(heap, which, buffer, 16, &returned)); }),
      kUntouched);
  EXPECT_EQ(returned, 4u);
  EXPECT_TRUE(is_filled(buffer, 4, 0));
  EXPECT_TRUE(is_filled(buffer + 4, 12, 0xcc))
      << "four bytes are written, whatever the buffer's size";
  EXPECT_TRUE(HeapQueryInformation(heap, which, buffer, 4, nullptr));
}

TEST(Win32Information, Idea18RefusalsHaveTheirErrors) {
  const Scoped<Win32Interface> heap;
  const auto set = [&](ULONG mode) {
    return error_of([&] {
      EXPECT_FALSE(HeapSetInformation(heap, HeapCompatibilityInformation, &mode, sizeof mode));
    });
  };
  ULONG two = 2;
  EXPECT_EQ(set(1), DWORD{ERROR_NOT_SUPPORTED});
  EXPECT_EQ(set(3), DWORD{ERROR_INVALID_PARAMETER});
  EXPECT_EQ(error_of([&] {
              EXPECT_FALSE(HeapSetInformation(heap, HeapCompatibilityInformation, &two, 3));
            }),
            DWORD{ERROR_INSUFFICIENT_BUFFER});
  EXPECT_TRUE(HeapSetInformation(heap, HeapCompatibilityInformation, &two, sizeof two));
  EXPECT_EQ(set(0), DWORD{ERROR_GEN_FAILURE});
  EXPECT_EQ(set(1), DWORD{ERROR_GEN_FAILURE});
}

TEST(Win32Information, OptimizeResources) {
  HEAP_OPTIMIZE_RESOURCES_INFORMATION how = {HEAP_OPTIMIZE_RESOURCES_CURRENT_VERSION, 0};
  EXPECT_TRUE(HeapSetInformation(nullptr, HeapOptimizeResources, &how, sizeof how)) << "all heaps";
  EXPECT_TRUE(HeapSetInformation(GetProcessHeap(), HeapOptimizeResources, &how, sizeof how));
  how.Version = 2;
  EXPECT_EQ(error_of([&] {
              EXPECT_FALSE(HeapSetInformation(nullptr, HeapOptimizeResources, &how, sizeof how));
            }),
            DWORD{ERROR_INVALID_PARAMETER});
  EXPECT_EQ(error_of([&] {
              EXPECT_FALSE(HeapSetInformation(nullptr, static_cast<HEAP_INFORMATION_CLASS>(2), &how,
                                              sizeof how));
            }),
            DWORD{ERROR_INVALID_PARAMETER});
}

// The setting is for the whole process and permanent, so the test has a process of its own.
TEST(Win32InformationDeathTest, TerminationOnCorruption) {
  EXPECT_EQ(error_of([] {
              int value = 0;
              EXPECT_FALSE(HeapSetInformation(nullptr, HeapEnableTerminationOnCorruption, &value,
                                              sizeof value));
            }),
            DWORD{ERROR_INVALID_PARAMETER});
  EXPECT_DEATH(
      {
        if (!HeapSetInformation(nullptr, HeapEnableTerminationOnCorruption, nullptr, 0))
          std::exit(0);
        const HANDLE heap = HeapCreate(0, 0, 0);
        void* const block = HeapAlloc(heap, 0, 100);
        HeapFree(heap, 0, block);
        HeapFree(heap, 0, block);
      },
      "loam: ");
}

TEST(Win32Compact, GivesTheLargestFreeBlockAndMemoryBack) {
  const Scoped<Win32Interface> heap;
  // Free pages that all heaps share count too, so a fresh heap may have some or none.
  SIZE_T largest = 0;
  const DWORD error = error_of([&] { largest = HeapCompact(heap, 0); });
  EXPECT_EQ(error, largest == 0 ? DWORD{NO_ERROR} : kUntouched)
      << "no space is told from failure by the last error";
  EXPECT_EQ(error_of([] { EXPECT_EQ(HeapCompact(nullptr, 0), 0u); }), DWORD{ERROR_NOACCESS});
  void* blocks[200];
  for (void*& block : blocks) block = HeapAlloc(heap, 0, 1000);
  for (int i = 0; i < 200; ++i) {
    if (i % 10 != 0) {
      ASSERT_TRUE(HeapFree(heap, 0, blocks[i]));
    }
  }
  EXPECT_GE(HeapCompact(heap, 0), 1000u);
  EXPECT_TRUE(HeapValidate(heap, 0, nullptr));
  static_cast<void>(HeapCompact(GetProcessHeap(), 0));
}

// --- HEAP_GENERATE_EXCEPTIONS -------------------------------------------------------------------

#if !defined(_WIN32)  // the system raises exceptions of its own there

DWORD raised_status;
SIZE_T raised_bytes;
int raised_count;

class Exceptions : public ::testing::Test {
 protected:
  void SetUp() override {
    raised_status = 0;
    raised_bytes = 0;
    raised_count = 0;
    before_ = loam_win32_set_exception_handler([](DWORD status, SIZE_T bytes) {
      raised_status = status;
      raised_bytes = bytes;
      ++raised_count;
    });
  }
  void TearDown() override { loam_win32_set_exception_handler(before_); }

 private:
  loam_win32_exception_handler before_ = nullptr;
};

TEST_F(Exceptions, TheHandlerIsCalledOnceAndNullReturned) {
  const HANDLE heap = HeapCreate(HEAP_GENERATE_EXCEPTIONS, 0, kMiB);
  ASSERT_NE(heap, nullptr);
  EXPECT_EQ(HeapAlloc(heap, 0, 2 * kMiB), nullptr);
  EXPECT_EQ(raised_count, 1);
  EXPECT_EQ(raised_status, STATUS_NO_MEMORY);
  EXPECT_EQ(raised_bytes, 2 * kMiB);
  EXPECT_EQ(HeapAlloc(heap, HEAP_GENERATE_EXCEPTIONS, SIZE_MAX), nullptr);
  EXPECT_EQ(raised_count, 2) << "the heap's flag and the call's are one";
  void* const block = HeapAlloc(heap, 0, 100);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(HeapReAlloc(heap, HEAP_REALLOC_IN_PLACE_ONLY, block, 2 * kMiB), nullptr);
  EXPECT_EQ(raised_count, 3);
  EXPECT_EQ(HeapReAlloc(heap, 0, &raised_count, 100), nullptr);
  EXPECT_EQ(raised_status, STATUS_ACCESS_VIOLATION);
  EXPECT_TRUE(HeapDestroy(heap));
}

TEST_F(Exceptions, TheCallsFlagIsEnough) {
  const Scoped<Win32Interface> heap({.maximum = kMiB});
  EXPECT_EQ(HeapAlloc(heap, 0, 2 * kMiB), nullptr);
  EXPECT_EQ(raised_count, 0);
  EXPECT_EQ(HeapAlloc(heap, HEAP_GENERATE_EXCEPTIONS, 2 * kMiB), nullptr);
  EXPECT_EQ(raised_count, 1);
}

TEST_F(Exceptions, AHandlerMayThrow) {
  loam_win32_set_exception_handler([](DWORD, SIZE_T) { throw std::bad_alloc(); });
  const HANDLE heap = HeapCreate(HEAP_GENERATE_EXCEPTIONS, 0, kMiB);
  EXPECT_THROW(static_cast<void>(HeapAlloc(heap, 0, 2 * kMiB)), std::bad_alloc);
  EXPECT_NE(HeapAlloc(heap, 0, 100), nullptr) << "no lock stays behind";
  EXPECT_TRUE(HeapDestroy(heap));
}

std::jmp_buf out_of_handler;

TEST_F(Exceptions, AHandlerMayJump) {
  loam_win32_set_exception_handler([](DWORD, SIZE_T) { std::longjmp(out_of_handler, 1); });
  const HANDLE heap = HeapCreate(HEAP_GENERATE_EXCEPTIONS, 0, kMiB);
  if (setjmp(out_of_handler) == 0) {
    static_cast<void>(HeapAlloc(heap, 0, 2 * kMiB));
    ADD_FAILURE() << "the handler was not called";
  }
  EXPECT_NE(HeapAlloc(heap, 0, 100), nullptr);
  EXPECT_TRUE(HeapDestroy(heap));
}

TEST(ExceptionsDeathTest, WithoutAHandlerTheProcessEnds) {
  EXPECT_DEATH(
      {
        const HANDLE heap = HeapCreate(HEAP_GENERATE_EXCEPTIONS, 0, kMiB);
        static_cast<void>(HeapAlloc(heap, 0, 2 * kMiB));
      },
      "loam: HEAP_GENERATE_EXCEPTIONS: out of memory, and no exception handler is set");
}

#endif

}  // namespace
}  // namespace heaps
