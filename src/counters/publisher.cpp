#include "counters/publisher.h"

#include <cstring>

#include "base/text.h"
#include "base/units.h"
#include "counters/counter_directory.h"
#include "counters/shown_counters.h"
#include "os/fatal.h"
#include "os/os.h"

namespace loam {

constinit Publisher publisher;
constinit char Publisher::folder_[256] = {};
constinit char Publisher::name_[32] = {};
constinit Publisher::Pause Publisher::pause_ = {};

namespace {

struct ImageHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_size;
  uint64_t generation;
  uint64_t block_address;
  uint64_t process;
  uint64_t taken_ns;
  uint32_t segment_count;
  uint32_t segment_size;
  uint64_t total_bytes;
};
static_assert(sizeof(ImageHeader) == 64);

struct Segment {
  uint64_t address;
  uint64_t length;
  uint64_t offset;
};

struct Size {
  size_t pieces;
  size_t bytes;
};

void measure(void* context, const void*, size_t length) {
  Size* size = static_cast<Size*>(context);
  ++size->pieces;
  size->bytes += length;
}

struct Copy {
  char* image;
  Segment* segments;
  size_t count;
  size_t end;
};

void copy(void* context, const void* address, size_t length) {
  Copy* to = static_cast<Copy*>(context);
  to->segments[to->count++] = {reinterpret_cast<uint64_t>(address), length, to->end};
  memcpy(to->image + to->end, address, length);
  to->end += length;
}

// Heap sort by address: it needs no memory and has no worst case.
void sort(Segment* segments, size_t count) {
  const auto sift = [&](size_t root, size_t end) {
    for (size_t child; (child = 2 * root + 1) < end; root = child) {
      if (child + 1 < end && segments[child].address < segments[child + 1].address) ++child;
      if (segments[root].address >= segments[child].address) return;
      const Segment moved = segments[root];
      segments[root] = segments[child];
      segments[child] = moved;
    }
  };
  for (size_t i = count / 2; i-- > 0;) sift(i, count);
  for (size_t end = count; end > 1;) {
    --end;
    const Segment last = segments[end];
    segments[end] = segments[0];
    segments[0] = last;
    sift(0, end);
  }
}

// A process looks for images that ended processes left behind at its first image, at its end, and
// whenever it has written this many more images, plus one for each this many images of other
// processes. A hundred processes that look at a hundred files make some thousand looks a second.
// Chosen.
constexpr unsigned kWritesPerSweep = 4;
// Bound: how long the program's end waits for an image that is being written. A write takes less,
// except on a disk that stalls; then the next process removes the file.
constexpr unsigned kMostWaitMs = 100;

void refuse_to_publish(const char* what) {
  ReportLine line;
  line.add("loam: LOAM_PUBLISH: ").add(what).add("; nothing is published\n");
  os::write_error(line.text(), line.length());
}

}  // namespace

void Publisher::enable(const char* where, const Pause& pause) {
  if (text::same(where, "off")) return;
  if (!text::same(where, "1") && where[0] != '/')
    return refuse_to_publish("the value must be off, 1 or an absolute path");
  if (const char* why = os::private_folder(where, folder_, sizeof folder_))
    return refuse_to_publish(why);
  pause_ = pause;
  state_.store(State::kIdle, std::memory_order_relaxed);
  start();
}

void Publisher::name_file() {
  const text::Decimal number(os::process_number());
  memcpy(name_, number.digits(), number.length());
  memcpy(name_ + number.length(), ".image", sizeof ".image");
}

void Publisher::start() {
  State expected = State::kIdle;
  // acq_rel: the new thread sees the names. Its start allocates; that call comes back here and
  // finds kStarted
  if (!state_.compare_exchange_strong(expected, State::kStarted, std::memory_order_acq_rel)) return;
  name_file();
  if (!os::start_thread(&run)) state_.store(State::kFailed, std::memory_order_relaxed);
}

void Publisher::run() {
  // Most children of a fork() end, or call exec(), before a reader would have looked.
  if (publisher.is_child_) os::sleep_ms(kPeriodMs);
  for (unsigned until_sweep = 0;;) {
    // seq_cst, as in stop(): either this thread sees that publishing has ended, or stop() sees that
    // this thread writes
    publisher.writes_.store(true);
    if (publisher.state_.load() == State::kStarted) {
      publisher.write_one();
      if constexpr (os::kShowsCounters) show_counters();
      if (until_sweep-- == 0)
        until_sweep = kWritesPerSweep + os::remove_dead_files(folder_) / kWritesPerSweep;
    }
    publisher.writes_.store(false);
    os::sleep_ms(kPeriodMs);
  }
}

bool Publisher::make_room(size_t bytes) {
  if (bytes <= room_) return true;
  const size_t room = round_up(bytes + bytes / 4, os::granularity());
  void* memory = os::map_block(room, os::granularity());
  if (memory == nullptr) return false;
  if (buffer_ != nullptr) os::release(buffer_, room_);
  buffer_ = static_cast<char*>(memory);
  room_ = room;
  return true;
}

void Publisher::write_one() {
  Copy image{};
  for (;;) {
    Size size{};
    pause_.begin();
    for_each_piece(&measure, &size);
    const size_t body = sizeof(ImageHeader) + size.pieces * sizeof(Segment);
    if (body + size.bytes <= room_) {
      image = {buffer_, reinterpret_cast<Segment*>(buffer_ + sizeof(ImageHeader)), 0, body};
      for_each_piece(&copy, &image);
    }
    pause_.end();
    if (image.image != nullptr) break;
    if (!make_room(body + size.bytes)) return;  // the next period tries again
  }
  sort(image.segments, image.count);
  generation_ += 2;
  const ImageHeader header{{'L', 'O', 'A', 'M', 'I', 'M', 'A', 'G'},
                           1,
                           sizeof(ImageHeader),
                           generation_,
                           reinterpret_cast<uint64_t>(counter_directory()),
                           os::process_number(),
                           os::wall_clock_ns(),
                           static_cast<uint32_t>(image.count),
                           sizeof(Segment),
                           image.end};
  memcpy(buffer_, &header, sizeof header);
  // If the system refuses (a full disk), the old image stays, and its time shows its age.
  static_cast<void>(os::publish_file(folder_, name_, buffer_, image.end));
}

void Publisher::stop() {
  State expected = State::kStarted;
  if (!state_.compare_exchange_strong(expected, State::kFailed)) return;
  for (unsigned waited = 0; writes_.load() && waited < kMostWaitMs; ++waited) os::sleep_ms(1);
  os::remove_file(folder_, name_);
  static_cast<void>(os::remove_dead_files(folder_));
}

}  // namespace loam
