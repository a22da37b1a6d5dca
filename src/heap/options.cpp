#include "heap/options.h"

#include <cstring>

#include "base/text.h"
#include "cache/thread_cache.h"
#include "heap/background_purge.h"
#include "heap/hardening.h"
#include "heap/publisher.h"
#include "heap/sampler.h"
#include "os/fatal.h"
#include "os/os.h"
#include "pages/page_heap.h"

constinit bool loam_keeps_deep_binding = false;

namespace loam {

namespace {

void complain(const char* name) {
  for (const Option& option : kOptions) {
    if (!text::same(option.name, name)) continue;
    for (const char* part : {"loam: ", option.name, " must be one of ", option.values, "; using ", option.initial, "\n"}) {
      os::write_error(part, text::length(part));
    }
  }
}

// The value's place in the option's two values, or -1 when it is not set (or wrong, which is reported).
int choice(const char* name, const char* first, const char* second) {
  const char* value = os::option(name);
  if (value == nullptr) return -1;
  if (text::same(value, first)) return 0;
  if (text::same(value, second)) return 1;
  complain(name);
  return -1;
}

// A whole number from 1 to `most`, all of the text; 0 for anything else.
uint64_t number(const char* text, uint64_t most) {
  uint64_t value = 0;
  if (*text == '\0') return 0;
  for (; *text != '\0'; ++text) {
    if (*text < '0' || *text > '9') return 0;
    value = value * 10 + static_cast<uint64_t>(*text - '0');
    if (value > most) return 0;
  }
  return value;
}

void start_sampling(const char* value) {
  if (text::same(value, "off")) return;
  const uint64_t calls = number(value, Sampler::kMaxRate);
  if (calls == 0) return complain("LOAM_SAMPLE");
  if (sampler.start(calls)) return;
  constexpr const char kRefused[] = "loam: LOAM_SAMPLE: the system refused memory for it; sampling stays off\n";
  os::write_error(kRefused, sizeof kRefused - 1);
}

struct Wish {
  unsigned features = 0;
  size_t quarantine_bytes = Hardening::kQuarantineBytes;
};

bool is_word(const char* begin, size_t length, const char* word) {
  return text::length(word) == length && text::begins_with(begin, word, length);
}

// "4M": a number of bytes, with K, M or G for the binary multiples; 0 for anything else.
size_t bytes_of(const char* text, size_t length) {
  char digits[24] = {};
  if (length == 0 || length >= sizeof digits) return 0;
  memcpy(digits, text, length);
  unsigned shift = 0;
  const char unit = digits[length - 1];
  if (unit == 'K' || unit == 'M' || unit == 'G') {
    shift = unit == 'K' ? 10 : unit == 'M' ? 20 : 30;
    digits[length - 1] = '\0';
  }
  return number(digits, Hardening::kMostQuarantineBytes >> shift) << shift;
}

// One word of the list; false when it is none.
bool add_wish(const char* begin, size_t length, Wish* wish) {
  constexpr struct {
    const char* word;
    unsigned features;
  } kWords[] = {
      {"canary", Hardening::kCanary}, {"quarantine", Hardening::kQuarantine}, {"zero", Hardening::kZero},
      {"random", Hardening::kRandom}, {"guards", Hardening::kGuards},         {"trace", Hardening::kTrace},
      {"all", Hardening::kAll},       {"sample", Hardening::kSample},
  };
  for (const auto& known : kWords) {
    if (!is_word(begin, length, known.word)) continue;
    wish->features |= known.features;
    return true;
  }
  constexpr const char kSized[] = "quarantine=";
  constexpr size_t kPrefix = sizeof kSized - 1;
  if (length <= kPrefix || !text::begins_with(begin, kSized, kPrefix)) return false;
  wish->quarantine_bytes = bytes_of(begin + kPrefix, length - kPrefix);
  wish->features |= Hardening::kQuarantine;
  return wish->quarantine_bytes >= kPageBytes;
}

void harden(const Wish& wish, bool full_checks) {
  if (hardening.start(wish.features, wish.quarantine_bytes, full_checks)) return;
  // The checks alone need no memory, if they have time.
  if (full_checks) set_full_free_checks(true);
  constexpr const char kRefused[] =
      "loam: hardening: the system refused memory for it, or threads run already; it stays off\n";
  os::write_error(kRefused, sizeof kRefused - 1);
}

void apply_hardening(const char* list, bool full_checks) {
  Wish wish;
  for (const char* at = list; at != nullptr && *at != '\0' && !text::same(list, "off");) {
    const size_t length = text::length_until(at, ',');
    if (!add_wish(at, length, &wish)) {
      constexpr const char kWrong[] =
          "loam: LOAM_HARDEN must be off, all, or a list of canary, quarantine, quarantine=BYTES (from 4K on, as in 4M), "
          "zero, random, guards, trace, sample; using off\n";
      os::write_error(kWrong, sizeof kWrong - 1);
      wish = Wish{};
      break;
    }
    at += length;
    if (*at == ',') ++at;
  }
  if (wish.features != 0 || full_checks) harden(wish, full_checks);
}

}  // namespace

void apply_options() {
  if (LOAM_LIKELY(!os::has_options())) return;  // most programs, and each of them starts
  if (choice("LOAM_ON_CORRUPTION", "abort", "report") == 1) set_corruption_policy(CorruptionPolicy::kReport);
  if (choice("LOAM_HUGE_PAGES", "off", "on") == 1) page_heap.want_huge_pages();
  if (choice("LOAM_BACKGROUND_PURGE", "off", "on") == 1) background_purge.enable();
  loam_keeps_deep_binding = choice("LOAM_DEEP_BINDING", "ignore", "keep") == 1;
  apply_hardening(os::option("LOAM_HARDEN"), choice("LOAM_CHECK_FREE", "fast", "full") == 1);
  if (const char* value = os::option("LOAM_SAMPLE"); value != nullptr) start_sampling(value);
  if (const char* value = os::option("LOAM_PUBLISH"); value != nullptr) publisher.enable(value);
}

}  // namespace loam
