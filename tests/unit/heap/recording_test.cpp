// Recording of a live process while threads call the heap all the time. The reports match the
// events, from the first live block to the last call.
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "heap/blocks.h"
#include "heap/heap.h"
#include "heap/recording.h"
#include "observers/detours.h"
#include "observers/recording_request.h"
#include "os/os.h"

namespace loam {
namespace {

using Request = RecordingRequest;

// The functions of a recorder that remembers the reports.
struct Told {
  std::mutex mutex;
  std::unordered_map<const void*, size_t> live;
  size_t existed = 0, calls = 0, odd = 0, begun = 0, ended = 0;
  std::atomic<bool> is_on{false};
  const char* refusal = nullptr;
};
Told told;

void note_allocated(const void* block, size_t bytes) {
  const std::lock_guard lock(told.mutex);
  ++told.calls;
  if (block != nullptr && !told.live.emplace(block, bytes).second) ++told.odd;
}
void note_freed(const void* block) {
  const std::lock_guard lock(told.mutex);
  ++told.calls;
  if (told.live.erase(block) == 0) ++told.odd;
}

const Recorder kRecorder = {
    Recorder::kVersion,
    [](const char*) -> const char* {
      if (told.refusal != nullptr) return told.refusal;
      ++told.begun;
      told.live.clear();
      told.existed = told.calls = told.odd = 0;
      told.is_on = true;
      return nullptr;
    },
    [] { ++told.ended, told.is_on = false; },
    [] { return told.is_on ? 1 : 0; },
    [](const void* block, size_t bytes) {
      ++told.existed;
      if (!told.live.emplace(block, bytes).second) ++told.odd;
    },
    [](const void* block, size_t bytes, size_t) { note_allocated(block, bytes); },
    [](void* block) { note_freed(block); },
    [](void* block) { note_freed(block); },
    [](void* block, size_t bytes) { note_allocated(block, bytes); },
};

void ask(Request::State state) {
  recording_request.state = state;
  // Writes one byte, as the tool does.
  reinterpret_cast<std::atomic<uint8_t>*>(&taken_detours)[1].store(kRecorded >> 8);
}

// Calls the heap until it has answered.
void wait_for(Request::State state) {
  while (recording_request.state != state) heap::free(heap::allocate(100));
}

void record() {
  ask(Request::kAsked);
  wait_for(Request::kRecording);
}

void stop() {
  ask(Request::kStopAsked);
  wait_for(Request::kIdle);
}

// If a thread loses the processor during a call while recording begins, that call may be missing.
constexpr size_t kMissing = 1;

class RecordingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::start_once(); }
};

// What a trim gives back when a peak is over. `asks`: another one was asked for before.
size_t left_to_trim(bool asks) {
  std::vector<void*> blocks;
  for (int i = 0; i < 3000; ++i) {
    blocks.push_back(heap::allocate(12000));
    memset(blocks.back(), 1, 12000);
  }
  // The heap keeps a part of what falls: for a second, or a sixteenth of the use.
  for (size_t i = 0; i < blocks.size(); ++i)
    if (i % 2 != 0) heap::free(blocks[i]);
  if (asks) {
    recording_request.trim = Request::kTrimAsked;
    reinterpret_cast<std::atomic<uint8_t>*>(&taken_detours)[1].store(kRecorded >> 8);
    while (recording_request.trim != Request::kTrimIdle) heap::free(heap::allocate(100));
  }
  const size_t left = heap::compact().released_bytes;
  for (size_t i = 0; i < blocks.size(); i += 2) heap::free(blocks[i]);
  static_cast<void>(heap::compact());
  return left;
}

TEST_F(RecordingTest, ATrimIsMadeByAThreadOfTheHeapWhileTheProgramCalls) {
  const size_t without = left_to_trim(false);
  EXPECT_GT(without, size_t{256} << 10);
  EXPECT_LT(left_to_trim(true), without / 4);
}

TEST_F(RecordingTest, WhatLivesIsToldFirstAndThenEachCall) {
  std::vector<void*> blocks;
  for (size_t bytes : {1, 100, 3000, 40'000, 3'000'000, 40'000'000})
    blocks.push_back(heap::allocate(bytes));
  // Cached blocks are no longer live.
  for (int i = 0; i < 300; ++i) blocks.push_back(heap::allocate(100));
  for (int i = 0; i < 200; ++i) heap::free(blocks.back()), blocks.pop_back();
  record();
  EXPECT_EQ(told.odd, 0u);
  for (void* block : blocks) EXPECT_EQ(told.live.count(block), 1u);
  EXPECT_LE(told.existed, blocks.size() + 20) << "what gtest and the heap's thread have";
  const size_t before = told.calls;
  void* aligned = heap::allocate_aligned(256, 300);
  void* zeroed = heap::allocate_zeroed(50'000);
  void* grown = heap::reallocate(heap::allocate(10), 5000);
  EXPECT_EQ(told.calls - before, 5u) << "a resize is two, and what it calls is a part of it";
  EXPECT_EQ(told.live.at(aligned), 300u);
  EXPECT_EQ(told.live.at(zeroed), 50'000u);
  EXPECT_EQ(told.live.at(grown), 5000u);
  for (void* block : {aligned, zeroed, grown}) heap::free(block);
  for (void* block : blocks) heap::free(block);
  EXPECT_EQ(told.odd, 0u);
  stop();
  const size_t after = told.calls;
  for (int i = 0; i < 1000; ++i) heap::free(heap::allocate(100));
  EXPECT_EQ(told.calls, after);
  EXPECT_FALSE(is_on_slow_path()) << "fast paths are taken again";
  EXPECT_TRUE(heap::is_valid());
}

TEST_F(RecordingTest, ThreadsGoOnWhileItBeginsAndEnds) {
  constexpr size_t kThreads = 4;
  std::atomic<bool> ends{false};
  const auto churn = [&](unsigned seed) {
    void* blocks[64] = {};
    for (unsigned i = 0; !ends; ++i) {
      seed = seed * 1664525u + 1013904223u;
      void*& block = blocks[seed >> 26];
      heap::free(block);
      block = heap::allocate(1 + (seed >> 8) % (i % 50 == 0 ? 100'000 : 700));
    }
    for (void* block : blocks) heap::free(block);
  };
  for (int round = 0; round < 3; ++round) {
    ends = false;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(churn, i + 1);
    record();
    // One thread begins meanwhile, and one ends.
    std::thread([] { heap::free(heap::allocate(100)); }).join();
    for (size_t calls = told.calls; calls < 20'000;) {
      const std::lock_guard lock(told.mutex);
      calls = told.calls;
    }
    if (round == 1) {
      ends = true;
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    }
    stop();
    EXPECT_LE(told.odd, kThreads * kMissing);
    ends = true;
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(told.begun, told.ended);
  EXPECT_TRUE(heap::is_valid());
}

// Both switch the threads over while these run, each in its own way, by bits of one word.
TEST_F(RecordingTest, AProfilerMayListenMeanwhile) {
  const auto until = [](auto is_so) {
    while (!is_so()) heap::free(heap::allocate(100));
  };
  const auto listen = [](uint16_t listeners) {
    os::loam_allocation_listeners = listeners;
    os::loam_free_listeners = listeners;
  };
  const auto probed = [] { return (detours() & kProbed) != 0; };
  const auto whole = [] {
    void* small = heap::allocate(100);
    void* large = heap::allocate(100'000);
    void* grown = heap::reallocate(heap::allocate(10), 5000);
    EXPECT_EQ(told.live.at(small) + told.live.at(large) + told.live.at(grown), 105'100u);
    for (void* block : {small, large, grown}) heap::free(block);
    EXPECT_LE(told.odd, kMissing);
  };
  listen(1);
  until(probed);
  record();
  EXPECT_TRUE(probed()) << "the request has lost the heap's own bit";
  whole();
  listen(0);
  until([&] { return !probed(); });
  whole();
  listen(1);
  until(probed);
  whole();
  stop();
  EXPECT_TRUE(probed());
  listen(0);
  until([&] { return !probed(); });
  EXPECT_EQ(detours(), unsigned{kRecorded});
  EXPECT_FALSE(is_on_slow_path());
  EXPECT_TRUE(heap::is_valid());
}

TEST_F(RecordingTest, ARecorderThatIsGoneEndsIt) {
  record();
  told.is_on = false;
  wait_for(Request::kIdle);
  EXPECT_EQ(told.begun, told.ended);
  for (int i = 0; i < 1000; ++i) heap::free(heap::allocate(100));
  EXPECT_FALSE(is_on_slow_path());
}

TEST_F(RecordingTest, ARefusalSaysWhyAndLeavesTheHeapAsItWas) {
  told.refusal = "there is no room";
  ask(Request::kAsked);
  wait_for(Request::kRefused);
  EXPECT_STREQ(recording_request.why, "there is no room");
  for (int i = 0; i < 1000; ++i) heap::free(heap::allocate(100));
  EXPECT_FALSE(is_on_slow_path());
  told.refusal = nullptr;
  record();
  stop();
}

TEST_F(RecordingTest, AChildIsNotRecordedAndCanBe) {
  record();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const size_t before = told.calls;
    for (int i = 0; i < 1000; ++i) heap::free(heap::allocate(100));
    if (told.calls != before || is_on_slow_path()) _exit(1);
    record();
    heap::free(heap::allocate(100));
    _exit(told.calls >= 2 && told.odd <= kMissing ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  stop();
}

}  // namespace

const Recorder* load_recorder(const char*, const char**) { return &kRecorder; }

}  // namespace loam
