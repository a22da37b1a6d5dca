#include "base/list.h"

#include <algorithm>
#include <deque>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace loam {
namespace {

struct First;
struct Second;
struct Item : ListLink<Item, First>, ListLink<Item, Second> {
  int number = 0;
};
using FirstList = List<Item, First>;
using SecondList = List<Item, Second>;

template <class L>
std::vector<const Item*> items_of(const L& list) {
  std::vector<const Item*> items;
  for (const Item* item = list.front(); item != nullptr; item = L::next(item))
    items.push_back(item);
  return items;
}

TEST(List, AnEmptyListHasNoEndsAndIsValid) {
  const FirstList list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.front(), nullptr);
  EXPECT_EQ(list.back(), nullptr);
  EXPECT_TRUE(list.is_valid());
}

TEST(List, RandomPushesAndRemovalsKeepTheOrderOfADeque) {
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  std::vector<Item> items(40);
  std::deque<Item*> model;
  FirstList list;
  for (int step = 0; step < 20'000; ++step) {
    Item* item = &items[random.below(items.size())];
    const auto found = std::find(model.begin(), model.end(), item);
    if (found != model.end()) {
      list.remove(item);
      model.erase(found);
    } else if (random.chance(50)) {
      list.push_front(item);
      model.push_front(item);
    } else {
      list.push_back(item);
      model.push_back(item);
    }
    ASSERT_EQ(list.empty(), model.empty());
    ASSERT_EQ(list.front(), model.empty() ? nullptr : model.front());
    ASSERT_EQ(list.back(), model.empty() ? nullptr : model.back());
    ASSERT_TRUE(list.is_valid());
    if (!model.empty()) {
      ASSERT_EQ(FirstList::is_alone(list.back()), model.size() == 1);
    }
    ASSERT_EQ(items_of(list), std::vector<const Item*>(model.begin(), model.end())) << step;
  }
}

TEST(List, AnItemIsInTwoListsAtOnceWithoutMixingThem) {
  Item a, b, c;
  FirstList first;
  SecondList second;
  for (Item* item : {&a, &b, &c}) first.push_back(item);
  for (Item* item : {&a, &b, &c}) second.push_front(item);
  first.remove(&b);
  EXPECT_EQ(items_of(first), std::vector<const Item*>({&a, &c}));
  EXPECT_EQ(items_of(second), std::vector<const Item*>({&c, &b, &a}));
  EXPECT_TRUE(first.is_valid());
  EXPECT_TRUE(second.is_valid());
}

TEST(List, ALoopMayRemoveItsItems) {
  Item items[4];
  FirstList list;
  for (Item& item : items) list.push_back(&item);
  std::vector<Item*> seen;
  for (Item* item : list) {
    seen.push_back(item);
    if (item != &items[2]) list.remove(item);
  }
  EXPECT_EQ(seen, (std::vector<Item*>{&items[0], &items[1], &items[2], &items[3]}));
  EXPECT_EQ(list.front(), &items[2]);
  EXPECT_EQ(list.back(), &items[2]);
}

TEST(List, ARemovedItemForgetsItsNeighbours) {
  Item a, b;
  FirstList list;
  list.push_back(&a);
  list.push_back(&b);
  list.remove(&a);
  EXPECT_EQ(FirstList::next(&a), nullptr);
  EXPECT_EQ(list.front(), &b);
  EXPECT_EQ(list.back(), &b);
}

TEST(List, ABrokenLinkOrATooLongListIsNotValid) {
  Item a, b, c;
  FirstList list;
  for (Item* item : {&a, &b, &c}) list.push_back(item);
  EXPECT_TRUE(list.is_valid(3));
  EXPECT_FALSE(list.is_valid(2));
  static_cast<ListLink<Item, First>&>(b).previous = &c;
  EXPECT_FALSE(list.is_valid());
  static_cast<ListLink<Item, First>&>(b).previous = &a;
  EXPECT_TRUE(list.is_valid());
}

TEST(List, ACycleIsFoundByTheLimit) {
  Item a, b;
  FirstList list;
  list.push_back(&a);
  list.push_back(&b);
  static_cast<ListLink<Item, First>&>(b).next = &a;
  EXPECT_FALSE(list.is_valid(100));
}

}  // namespace
}  // namespace loam
