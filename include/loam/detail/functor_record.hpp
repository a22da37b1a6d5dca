// How a functor lies in a block of functor_queue and concurrent_functor_queue.
//
//   | operations : 8 | next : 4 | functor : 4 | (padding) | the functor itself | (padding) |
//      |                |          offset from the record's start
//      |                offset to the next record, a multiple of 16
//      null: no more functors in this block
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "loam/detail/config.hpp"

namespace loam::detail {

template <typename... Arguments>
struct functor_operations {
  /// Calls the functor, then destroys it, also when the call throws.
  void (*consume)(void* functor, Arguments... arguments);
  void (*destroy)(void* functor) noexcept;
};

template <typename F, typename... Arguments>
struct functor_operations_of {
  static void consume(void* functor, Arguments... arguments) {
    struct destroyer {
      F* functor;
      ~destroyer() { std::destroy_at(functor); }
    } f{static_cast<F*>(functor)};
    // A functor is called once at most, so it is called as an rvalue if that is possible: its
    // members may then be moved out.
    if constexpr (std::is_invocable_v<F, Arguments...>) {
      static_cast<void>(std::invoke(std::move(*f.functor), static_cast<Arguments&&>(arguments)...));
    } else {
      static_cast<void>(std::invoke(*f.functor, static_cast<Arguments&&>(arguments)...));
    }
  }
  static void destroy(void* functor) noexcept { std::destroy_at(static_cast<F*>(functor)); }

  static constexpr functor_operations<Arguments...> table{consume, destroy};
};

inline constexpr std::size_t kRecordAlignment = 16;

template <typename... Arguments>
struct alignas(kRecordAlignment) functor_record {
  const functor_operations<Arguments...>* operations;
  std::uint32_t next;
  std::uint32_t functor;

  [[nodiscard]] void* target() noexcept { return reinterpret_cast<char*>(this) + functor; }
  void consume(Arguments... arguments) {
    operations->consume(target(), static_cast<Arguments&&>(arguments)...);
  }
  void destroy() noexcept { operations->destroy(target()); }
};

/// Bytes that a record of an F takes at most: its alignment may need padding in front.
template <typename F>
inline constexpr std::size_t kMostRecordBytes =
    round_up(sizeof(F), kRecordAlignment) + kRecordAlignment +
    (alignof(F) > kRecordAlignment ? alignof(F) - kRecordAlignment : 0);

/// Makes an F in a record at `at` and returns the record's end. If the constructor throws, no
/// record is made. pre: kMostRecordBytes<F> bytes are free there
template <typename F, typename... Arguments, typename... Initial>
char* write_functor(char* at, Initial&&... initial) {
  static_assert(kMostRecordBytes<F> <= UINT32_MAX / 2, "a functor of gigabytes");
  using record = functor_record<Arguments...>;
  static_assert(sizeof(record) == kRecordAlignment);
  std::size_t offset = sizeof(record);
  if constexpr (alignof(F) > kRecordAlignment) offset += padding(at + offset, alignof(F));
  const std::size_t bytes = offset + round_up(sizeof(F), kRecordAlignment);
  std::construct_at(reinterpret_cast<F*>(at + offset), std::forward<Initial>(initial)...);
  std::construct_at(reinterpret_cast<record*>(at),
                    record{&functor_operations_of<F, Arguments...>::table,
                           static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(offset)});
  return at + bytes;
}

}  // namespace loam::detail

namespace loam {

/// How a functor queue takes memory; the queue's header says what a block is.
struct functor_queue_options {
  /// Bytes of a block. Fewer call the source more often, more leave more in each lane in use. A
  /// power of two less 32: allocators that put a header in front of a block stay within the power
  /// of two, and other allocators lose nothing.
  std::size_t block_bytes = (std::size_t{64} << 10) - 32;
  /// Empty blocks that the queue keeps for reuse; it frees further ones at once. More hold more
  /// after a peak.
  std::size_t retained_blocks = 8;
};

}  // namespace loam
