// The bitmap against a vector of bools: every range of a small map, then random maps of the size
// that a slab has.
#include "base/bitmap.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace loam {
namespace {

using Stretch = std::pair<unsigned, unsigned>;

template <unsigned N>
struct Model {
  std::vector<bool> bits = std::vector<bool>(N);

  [[nodiscard]] unsigned find(unsigned from, bool value) const {
    while (from < N && bits[from] != value) ++from;
    return from < N ? from : N;
  }
  [[nodiscard]] unsigned run_begin(unsigned from) const {
    while (from != 0 && bits[from - 1]) --from;
    return from;
  }
  [[nodiscard]] unsigned count(unsigned first, unsigned n) const {
    unsigned total = 0;
    for (unsigned i = first; i < first + n; ++i) total += bits[i];
    return total;
  }
  [[nodiscard]] std::vector<Stretch> runs() const {
    std::vector<Stretch> result;
    for (unsigned i = find(0, true); i < N;) {
      const unsigned end = find(i, false);
      result.emplace_back(i, end - i);
      i = find(end, true);
    }
    return result;
  }
};

template <unsigned N>
std::vector<Stretch> runs_of(const Bitmap<N>& bitmap) {
  std::vector<Stretch> result;
  bitmap.for_each_run([&](unsigned first, unsigned length) { result.emplace_back(first, length); });
  return result;
}

template <unsigned N>
void expect_same(const Bitmap<N>& bitmap, const Model<N>& model) {
  ASSERT_EQ(bitmap.count(), model.count(0, N));
  for (unsigned i = 0; i < N; ++i) ASSERT_EQ(bitmap.test(i), model.bits[i]) << "bit " << i;
  for (unsigned from = 0; from <= N + 1; ++from) {
    ASSERT_EQ(bitmap.find_set(from), model.find(from, true)) << "from " << from;
    ASSERT_EQ(bitmap.find_clear(from), model.find(from, false)) << "from " << from;
    if (from <= N) {
      ASSERT_EQ(bitmap.run_begin(from), model.run_begin(from)) << "from " << from;
    }
  }
  ASSERT_EQ(runs_of(bitmap), model.runs());
}

TEST(Bitmap, EveryRangeIsSetAndClearedWithoutTouchingItsNeighbours) {
  constexpr unsigned kBits = 192;
  for (unsigned first = 0; first < kBits; ++first) {
    for (unsigned count = 0; first + count <= kBits; ++count) {
      Bitmap<kBits> set{}, cleared;
      for (uint64_t& word : cleared.words) word = ~uint64_t{0};
      set.set_range(first, count);
      cleared.clear_range(first, count);
      ASSERT_EQ(set.count(), count);
      ASSERT_EQ(cleared.count(), kBits - count);
      ASSERT_EQ(set.count_range(first, count), count);
      ASSERT_EQ(cleared.count_range(first, count), 0u);
      if (count != 0) {
        ASSERT_EQ(runs_of(set), std::vector<Stretch>({{first, count}}));
        ASSERT_EQ(set.run_begin(first + count), first);
        ASSERT_EQ(set.find_clear(first), first + count);
        ASSERT_EQ(cleared.find_clear(0), first);
        ASSERT_EQ(cleared.find_set(first), first + count);
      }
    }
  }
}

TEST(Bitmap, EmptyAndFullMapsAnswerAtBothEnds) {
  Bitmap<128> bitmap{};
  expect_same(bitmap, Model<128>{});
  bitmap.set_range(0, 128);
  expect_same(bitmap, Model<128>{std::vector<bool>(128, true)});
}

TEST(Bitmap, RandomOperationsAgreeWithTheModel) {
  constexpr unsigned kBits = 512;
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  Bitmap<kBits> bitmap{};
  Model<kBits> model;
  for (int step = 0; step < 2000; ++step) {
    const unsigned first = random.between(0, kBits - 1);
    const unsigned count =
        random.chance(50) ? random.magnitude(kBits - first) : random.between(0, kBits - first);
    const bool value = random.chance(50);
    if (count == 1) {
      value ? bitmap.set(first) : bitmap.clear(first);
    } else {
      value ? bitmap.set_range(first, count) : bitmap.clear_range(first, count);
    }
    for (unsigned i = first; i < first + count; ++i) model.bits[i] = value;
    const unsigned from = random.between(0, kBits - 1);
    const unsigned length = random.between(0, kBits - from);
    ASSERT_EQ(bitmap.count_range(from, length), model.count(from, length)) << "step " << step;
    if (step % 10 == 0) {
      expect_same(bitmap, model);
      if (testing::Test::HasFatalFailure()) FAIL() << "step " << step;
    }
  }
}

TEST(Bitmap, FindingAtOrBehindTheEndSaysNothingIsThere) {
  Bitmap<64> bitmap{};
  bitmap.set_range(0, 64);
  EXPECT_EQ(bitmap.find_set(64), 64u);
  EXPECT_EQ(bitmap.find_set(1000), 64u);
  EXPECT_EQ(bitmap.find_clear(63), 64u);
}

}  // namespace
}  // namespace loam
