// Who watches a call, in which order, and who serves it.
#include "heap/observed.h"

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr const char* kNames[] = {
    "allocate",      "allocate pages", "allocate aligned", "free", "free pages", "reallocate",
    "try to resize", "stay",           "resize run",       "move"};
static_assert(std::size(kNames) == kOperations);

// The table that docs/walkthrough.md quotes.
std::string table() {
  std::string text = "operation       ";
  for (const ObserverRow& row : kObserverRows) text += std::string("  ") + row.name;
  text += "\n";
  for (unsigned i = 0; i < kOperations; ++i) {
    char line[160];
    snprintf(line, sizeof line, "%-16s", kNames[i]);
    text += line;
    for (const ObserverRow& row : kObserverRows) {
      const char mark = !watches(row.detour, Operation(i)) ? '.' : row.serves ? 's' : 'x';
      snprintf(line, sizeof line, "  %*c%*s", int(std::string(row.name).size() + 1) / 2, mark,
               int(std::string(row.name).size()) / 2, "");
      text += line;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  for (const ObserverRow& row : kObserverRows) {
    char line[160];
    snprintf(line, sizeof line, "%-16s  %s\n", row.name, row.what);
    text += line;
  }
  return text;
}

TEST(Observed, TheWalkthroughQuotesTheTable) {
  std::ifstream file(LOAM_ROOT "/docs/walkthrough.md");
  std::stringstream walkthrough;
  walkthrough << file.rdbuf();
  ASSERT_FALSE(walkthrough.str().empty());
  EXPECT_NE(walkthrough.str().find(table()), std::string::npos)
      << "docs/walkthrough.md should have this table:\n"
      << table();
}

TEST(Observed, EachObserverHasABitOfItsOwn) {
  unsigned bits = 0;
  for (const ObserverRow& row : kObserverRows) {
    EXPECT_EQ(bits & row.detour, 0u) << row.name;
    bits |= row.detour;
  }
}

std::vector<std::string> seen;

// Watches in the place of the two rows whose bits they have.
template <Detour kBit>
struct Watch {
  static constexpr Detour kDetour = kBit;
  template <Operation kOperation>
  void before(const Call&) {
    seen.push_back("before " + std::to_string(kBit));
  }
  template <Operation kOperation>
  void after(const Call& call, void* result) {
    EXPECT_EQ(result, call.block);
    seen.push_back("after " + std::to_string(kBit));
  }
};
using TwoWatches = Nest<Watch<kProbed>, Watch<kSampled>>;

// What is seen of an operation while these detours are taken.
template <Operation kOperation>
std::vector<std::string> seen_with(unsigned taken) {
  taken_detours.store(taken);
  seen.clear();
  int block = 0;
  EXPECT_EQ(TwoWatches::serve<kOperation>({.block = &block},
                                          [&]() -> void* {
                                            seen.push_back("serve");
                                            return &block;
                                          }),
            &block);
  taken_detours.store(0);
  return seen;
}

TEST(Observed, OnlyThoseThatAreOnWatchAndTheFirstIsTheOutermost) {
  using Seen = std::vector<std::string>;
  EXPECT_EQ(seen_with<kFree>(0), (Seen{"serve"}));
  EXPECT_EQ(seen_with<kFree>(kProbed), (Seen{"before 8", "serve", "after 8"}));
  EXPECT_EQ(seen_with<kFree>(kProbed | kSampled),
            (Seen{"before 8", "before 1", "serve", "after 1", "after 8"}));
}

TEST(Observed, NobodySeesWhatItsRowDoesNotName) {
  ASSERT_FALSE(watches(kSampled, kMove));
  EXPECT_EQ(seen_with<kMove>(kProbed | kSampled).size(), 3u);
  ASSERT_FALSE(watches(kProbed, kReallocate));
  EXPECT_EQ(seen_with<kReallocate>(kProbed | kSampled).size(), 1u);
}

}  // namespace
}  // namespace loam
