// An intrusive doubly linked list: every operation O(1), no allocation. T derives from ListLink<T>
// (or holds it as its only base of that tag). Not thread-safe: the owner's lock covers it.
//
//   head_ -> first <-> second <-> ... <-> last <- tail_         (not circular; null at both ends)
#pragma once

#include "base/check.h"

namespace loam {

template <class T, class Tag = void>
struct ListLink {
  T* next = nullptr;
  T* previous = nullptr;
};

template <class T, class Tag = void>
class List {
  using Link = ListLink<T, Tag>;

 public:
  [[nodiscard]] bool empty() const { return head_ == nullptr; }
  [[nodiscard]] T* front() const { return head_; }
  [[nodiscard]] T* back() const { return tail_; }
  [[nodiscard]] static T* next(const T* item) { return link(item)->next; }
  [[nodiscard]] static T* previous(const T* item) { return link(item)->previous; }

  void push_front(T* item) {
    Link* node = link(item);
    node->previous = nullptr;
    node->next = head_;
    (head_ != nullptr ? link(head_)->previous : tail_) = item;
    head_ = item;
  }

  void push_back(T* item) {
    Link* node = link(item);
    node->next = nullptr;
    node->previous = tail_;
    (tail_ != nullptr ? link(tail_)->next : head_) = item;
    tail_ = item;
  }

  /// Inserts `item` behind `place`, or at the front if that is null.
  void insert_after(T* place, T* item) {
    if (place == nullptr) return push_front(item);
    Link* node = link(item);
    node->previous = place;
    node->next = link(place)->next;
    (node->next != nullptr ? link(node->next)->previous : tail_) = item;
    link(place)->next = item;
  }

  void remove(T* item) {
    Link* node = link(item);
    (node->previous != nullptr ? link(node->previous)->next : head_) = node->next;
    (node->next != nullptr ? link(node->next)->previous : tail_) = node->previous;
    node->next = node->previous = nullptr;
  }

  /// Removes all items up to `last`. They stay linked through `next`, and the next of the last one
  /// is null.
  void remove_front(T* last) {
    head_ = link(last)->next;
    (head_ != nullptr ? link(head_)->previous : tail_) = nullptr;
    link(last)->next = nullptr;
  }

  /// True if an item of a list is the only one there.
  [[nodiscard]] static bool is_alone(const T* item) {
    return next(item) == nullptr && previous(item) == nullptr;
  }

  /// For a range-based loop, whose body may remove its item from the list, and no other item.
  struct Iterator {
    T* at;
    T* next = at != nullptr ? link(at)->next : nullptr;
    [[nodiscard]] T* operator*() const { return at; }
    void operator++() { *this = Iterator{next}; }
    [[nodiscard]] bool operator!=(const Iterator& other) const { return at != other.at; }
  };
  [[nodiscard]] Iterator begin() const { return Iterator{head_}; }
  [[nodiscard]] Iterator end() const { return Iterator{nullptr}; }

  /// True if the ends agree, the links agree in both directions, and there is no cycle shorter than
  /// `limit` items.
  [[nodiscard]] bool is_valid(size_t limit = SIZE_MAX) const {
    const T* before = nullptr;
    for (const T* item = head_; item != nullptr; before = item, item = next(item)) {
      if (link(item)->previous != before || limit-- == 0) return false;
    }
    return before == tail_;
  }

 private:
  static Link* link(T* item) { return item; }
  static const Link* link(const T* item) { return item; }

  T* head_ = nullptr;
  T* tail_ = nullptr;
};

}  // namespace loam
