// The directory by which readers in other processes find the heap's figures by name.
// formats/counters.md describes the format; this file is its C++ form.
//
//   loam_counters:  | header 128 | tables, 64 each | fields, 48 each |
//
// It is constant after relocation, and the heap itself never reads it.
#pragma once

#include "base/config.h"

namespace loam {

enum class TableKind : uint32_t {
  kRecord = 1,
  kArray = 2,
  kList = 3,
  kNested = 4,
  kPointed = 5,
  kGroup = 6,
  kChain = 7,
  // Of records that are as many as the heap's blocks. Readers of counters pass them over.
  kDetail = 8,
  kDetailChain = 9
};

inline constexpr uint32_t kNoOffset = UINT32_MAX;

struct CounterHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_size;
  uint32_t total_size;
  uint32_t table_size;
  uint32_t table_count;
  uint32_t field_size;
  uint32_t field_count;
  uint32_t recording_version;  ///< kRecordingVersion, or 0: the process can not be recorded
  const void* self;
  char library[32];
  const void* recording;  ///< RecordingRequest (observers/recording_request.h)
  const void* detours;    ///< the word of which a reader stores one byte, the bit's
  uint32_t detour;        ///< this one, when it has asked
  uint32_t trim_version;  ///< kTrimVersion, or 0: the process can not be asked for a trim
  uint64_t reserved[3];
};
static_assert(sizeof(CounterHeader) == 128);

struct CounterTable {
  char name[24];
  TableKind kind;
  uint32_t parent;
  union {
    const void* address;
    uint64_t offset;  ///< inner tables: in the parent's record
  };
  uint32_t stride;
  uint32_t count;
  uint32_t link;  ///< lists: offset of the next pointer; kPointed: of the number's power of two;
                  ///< kGroup: group size
  uint32_t lock;
  uint64_t reserved;
};
static_assert(sizeof(CounterTable) == 64);

struct CounterField {
  char name[24];
  uint32_t table;
  uint32_t offset;
  uint32_t width;
  uint32_t count;
  uint64_t reserved;
};
static_assert(sizeof(CounterField) == 48);

/// The directory; its size depends on the number of tables and fields.
[[nodiscard]] const CounterHeader* counter_directory();

/// Calls visit(context, address, length) for every piece of memory that a reader may need; the
/// pieces do not overlap. pre: every lock of the heap is held
void for_each_piece(void (*visit)(void*, const void*, size_t), void* context);

}  // namespace loam
