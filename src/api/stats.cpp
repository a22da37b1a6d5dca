// loam_stats() and its relatives: the counters of counters/stats.h in the shapes of
// include/loam/stats.h, and as text.
#include <loam/stats.h>

#include <cstring>

#include "base/text.h"
#include "counters/stats.h"

namespace {

using namespace loam;
using stats::CounterInfo;
using stats::CounterScope;
using stats::kCounters;
using stats::kUnknown;

loam_heap* inner(loam_heap* heap) { return heap == loam_default() ? stats::default_heap() : heap; }

// Fills the struct's fields in the list's order, as many as the caller's struct has. A field
// without a value becomes unknown.
template <class Struct>
bool fill(Struct* out, const stats::Values& values, bool (*wanted)(const CounterInfo&)) {
  const size_t size = out->size;
  if (size < 2 * sizeof(uint64_t)) return false;
  char* to = reinterpret_cast<char*>(out);
  memset(to + sizeof out->size, 0xff, size - sizeof out->size);
  size_t at = sizeof out->size;
  for (unsigned i = 0; i < stats::kCounterCount; ++i) {
    if (!wanted(kCounters[i])) continue;
    if (at + sizeof(uint64_t) > size) break;
    memcpy(to + at, &values.of[i], sizeof(uint64_t));
    at += sizeof(uint64_t);
  }
  return true;
}

bool of_heap(const CounterInfo& c) {
  return c.in_process && (c.scope == CounterScope::kHeap || c.scope == CounterScope::kProcess);
}
bool of_class(const CounterInfo& c) { return c.in_process && c.scope == CounterScope::kClass; }

constexpr unsigned count_of(bool heap) {
  unsigned count = 0;
  for (const CounterInfo& c : kCounters) {
    count +=
        c.in_process && (heap ? c.scope == CounterScope::kHeap || c.scope == CounterScope::kProcess
                              : c.scope == CounterScope::kClass);
  }
  return count;
}
static_assert(sizeof(struct loam_stats) == sizeof(size_t) + count_of(true) * sizeof(uint64_t),
              "the struct has the list's counters, one after another");
static_assert(offsetof(struct loam_class_stats, occupancy) ==
                  sizeof(size_t) + count_of(false) * sizeof(uint64_t),
              "the struct has the list's counters, one after another");

// Writes text in pieces of a buffer's size, and so allocates nothing.
class Text {
 public:
  Text(loam_stats_writer writer, void* context) : writer_(writer), context_(context) {}
  ~Text() { flush(); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  Text& operator<<(const char* text) {
    for (; *text != '\0'; ++text) put(*text);
    return *this;
  }
  Text& operator<<(uint64_t number) { return *this << text::Decimal(number).digits(); }
  // Writes spaces up to `width` behind a text of `length`.
  void pad(size_t length, size_t width) {
    for (; length < width; ++length) put(' ');
  }
  void ratio(double value) {
    const uint64_t millionths = static_cast<uint64_t>(value * 1e6 + 0.5);
    *this << millionths / 1'000'000 << ".";
    for (uint64_t unit = 100'000; unit != 0; unit /= 10)
      put(static_cast<char>('0' + millionths / unit % 10));
  }
  void quoted(const char* text) {
    put('"');
    for (; *text != '\0'; ++text) {
      const unsigned char c = static_cast<unsigned char>(*text);
      if (c == '"' || c == '\\') put('\\');
      if (c < 0x20 || c >= 0x7f) {  // names are the program's and may contain any byte
        constexpr char kHex[] = "0123456789abcdef";
        *this << "\\u00";
        put(kHex[c >> 4]);
        put(kHex[c & 15]);
      } else {
        put(static_cast<char>(c));
      }
    }
    put('"');
  }

 private:
  void put(char c) {
    if (used_ == sizeof buffer_) flush();
    buffer_[used_++] = c;
  }
  void flush() {
    if (used_ != 0) writer_(context_, buffer_, used_);
    used_ = 0;
  }
  loam_stats_writer writer_;
  void* context_;
  size_t used_ = 0;
  char buffer_[1024];
};

// Each part of a text is a function of its own and not inlined, so that only one table lies on the
// stack at a time.
void write_value(Text& text, const CounterInfo& counter, uint64_t value) {
  if (value == kUnknown) {
    text << "null";
  } else if (counter.kind == stats::CounterKind::kRatio) {
    double ratio;
    memcpy(&ratio, &value, sizeof ratio);
    text.ratio(ratio);
  } else {
    text << value;
  }
}

void write_counters(Text& text, const stats::Values& values, bool (*wanted)(const CounterInfo&)) {
  const char* separator = "";
  for (unsigned i = 0; i < stats::kCounterCount; ++i) {
    if (!wanted(kCounters[i])) continue;
    text << separator << "\"" << kCounters[i].id << "\": ";
    write_value(text, kCounters[i], values.of[i]);
    separator = ", ";
  }
}

void write_array(Text& text, const uint64_t* values, unsigned count) {
  while (count != 0 && values[count - 1] == 0) --count;
  text << "[";
  for (unsigned i = 0; i < count; ++i) text << (i == 0 ? "" : ", ") << values[i];
  text << "]";
}

LOAM_NOINLINE void write_classes(Text& text, loam_heap* heap) {
  text << ",\n\"classes\": [";
  const char* separator = "\n  {";
  const unsigned classes = class_count();
  for (unsigned i = 0; i < classes; ++i) {
    stats::Class k;
    if (!stats::read_class(heap, class_number(i), &k)) break;
    text << separator;
    write_counters(text, k.values, of_class);
    if (k.occupancy[0] != kUnknown) {
      text << ", \"occupancy\": ";
      write_array(text, k.occupancy, stats::kOccupancyBuckets);
    }
    text << "}";
    separator = ",\n  {";
  }
  text << "]";
}

LOAM_NOINLINE void write_locks(Text& text) {
  text << ",\n\"locks\": [";
  stats::LockFigures lock;
  for (unsigned i = 0; stats::read_lock(i, &lock); ++i) {
    text << (i == 0 ? "\n  {" : ",\n  {") << "\"name\": ";
    text.quoted(lock.name);
    text << ", \"lock_taken\": " << lock.taken << ", \"lock_waited\": " << lock.waited
         << ", \"lock_refused\": " << lock.refused << "}";
  }
  text << "]";
}

LOAM_NOINLINE void write_histograms(Text& text) {
  constexpr const char* kNames[] = {"free_runs", "unbacked_runs", "alloc_time", "free_time"};
  text << ",\n\"histograms\": {";
  for (unsigned i = 0; i < 4; ++i) {
    uint64_t bins[stats::kHistogramBins];
    const unsigned count = stats::read_histogram(static_cast<stats::Histogram>(i), bins);
    text << (i == 0 ? "\"" : ", \"") << kNames[i] << "\": ";
    if (count == 0) {
      text << "null";
    } else {
      write_array(text, bins, count);
    }
  }
  text << "}";
}

LOAM_NOINLINE void write_heaps(Text& text) {
  text << ",\n\"heaps\": [";
  stats::HeapName name;
  const char* separator = "\n  {\"name\": ";
  for (unsigned i = 0; loam_heap* heap = stats::private_heap_at(i, &name); ++i) {
    stats::Values values;
    if (!stats::read(heap, &values)) continue;
    text << separator;
    text.quoted(name.name);
    text << ", \"generation\": " << name.generation << ", \"counters\": {";
    write_counters(text, values,
                   [](const CounterInfo& c) { return c.scope == CounterScope::kHeap; });
    text << "}}";
    separator = ",\n  {\"name\": ";
  }
  text << "]";
}

}  // namespace

extern "C" {

LOAM_EXPORT loam_status loam_stats(loam_heap* heap, struct loam_stats* out) LOAM_NOEXCEPT {
  stats::Values values;
  if (out == nullptr) return LOAM_INVALID_ARGUMENT;
  if (!stats::read(inner(heap), &values)) return LOAM_INVALID_HEAP;
  return fill(out, values, of_heap) ? LOAM_OK : LOAM_INVALID_ARGUMENT;
}

LOAM_EXPORT unsigned loam_class_count() LOAM_NOEXCEPT { return class_count(); }

LOAM_EXPORT loam_status loam_class_stats(loam_heap* heap, unsigned index,
                                         struct loam_class_stats* out) LOAM_NOEXCEPT {
  if (out == nullptr) return LOAM_INVALID_ARGUMENT;
  if (index >= class_count()) return LOAM_NO_MORE;
  stats::Class k;
  if (!stats::read_class(inner(heap), class_number(index), &k)) return LOAM_INVALID_HEAP;
  if (!fill(out, k.values, of_class)) return LOAM_INVALID_ARGUMENT;
  if (out->size >= sizeof *out) memcpy(out->occupancy, k.occupancy, sizeof out->occupancy);
  return LOAM_OK;
}

LOAM_EXPORT loam_status loam_lock_stats(unsigned index, struct loam_lock_stats* out) LOAM_NOEXCEPT {
  if (out == nullptr || out->size < sizeof *out) return LOAM_INVALID_ARGUMENT;
  stats::LockFigures lock;
  if (!stats::read_lock(index, &lock)) return LOAM_NO_MORE;
  memcpy(out->name, lock.name, sizeof out->name);
  out->taken = lock.taken;
  out->waited = lock.waited;
  out->refused = lock.refused;
  return LOAM_OK;
}

LOAM_EXPORT unsigned loam_stats_histogram(loam_histogram which, uint64_t* bins,
                                          unsigned count) LOAM_NOEXCEPT {
  if (which < LOAM_FREE_RUNS || which > LOAM_FREE_TIME) return 0;
  uint64_t all[stats::kHistogramBins];
  const unsigned known = stats::read_histogram(static_cast<stats::Histogram>(which), all);
  if (bins != nullptr) memcpy(bins, all, (count < known ? count : known) * sizeof *bins);
  return known;
}

LOAM_EXPORT loam_status loam_stats_json(loam_heap* heap, loam_stats_writer writer,
                                        void* context) LOAM_NOEXCEPT {
  if (writer == nullptr) return LOAM_INVALID_ARGUMENT;
  stats::Values values;
  if (!stats::read(inner(heap), &values)) return LOAM_INVALID_HEAP;
  Text text(writer, context);
  text << "{\"format\": \"loam-stats\", \"version\": 1, \"library\": \"" << LOAM_VERSION
       << "\",\n\"counters\": {";
  write_counters(text, values, of_heap);
  text << "}";
  write_classes(text, inner(heap));
  if (heap == nullptr) {
    write_locks(text);
    write_histograms(text);
    write_heaps(text);
  }
  text << "}\n";
  return LOAM_OK;
}

LOAM_EXPORT loam_status loam_stats_print(loam_heap* heap, loam_stats_writer writer,
                                         void* context) LOAM_NOEXCEPT {
  if (writer == nullptr) return LOAM_INVALID_ARGUMENT;
  stats::Values values;
  if (!stats::read(inner(heap), &values)) return LOAM_INVALID_HEAP;
  Text text(writer, context);
  text << "loam " << LOAM_VERSION << "\n";
  for (unsigned i = 0; i < stats::kCounterCount; ++i) {
    const CounterInfo& counter = kCounters[i];
    if (!of_heap(counter) || values.of[i] == kUnknown) continue;
    text << counter.id;
    text.pad(loam::text::length(counter.id), 26);
    write_value(text, counter, values.of[i]);
    text << " " << counter.unit << "\n";
  }
  return LOAM_OK;
}

}  // extern "C"
