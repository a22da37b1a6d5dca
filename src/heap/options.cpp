#include "heap/options.h"

#include <cstring>
#include <initializer_list>

#include "base/text.h"
#include "cache/thread_cache.h"
#include "counters/publisher.h"
#include "hardening/hardening.h"
#include "heap/all_locks.h"
#include "heap/background_purge.h"
#include "observers/sampler.h"
#include "os/fatal.h"
#include "os/os.h"
#include "pages/page_heap.h"

constinit bool loam_keeps_deep_binding = false;

namespace loam {

namespace {

// `used`: the value that replaces the wrong one; null: the option's initial value.
void complain(const char* name, const char* used = nullptr) {
  for (const Option& option : kOptions) {
    if (!text::same(option.name, name)) continue;
    if (used == nullptr) used = option.initial;
    for (const char* part :
         {"loam: ", option.name, " must be one of ", option.values, "; using ", used, "\n"}) {
      os::write_error(part, text::length(part));
    }
  }
}

// A part of a value, without the blanks around it.
struct Word {
  const char* begin;
  size_t length;

  Word(const char* at, size_t bytes) : begin(at), length(bytes) {
    while (length != 0 && is_blank(*begin)) ++begin, --length;
    while (length != 0 && is_blank(begin[length - 1])) --length;
  }
  explicit Word(const char* text) : Word(text, text::length(text)) {}

  /// Compares without regard to case. pre: `word` is in small letters
  [[nodiscard]] bool begins_with(const char* word, size_t bytes) const {
    if (length < bytes) return false;
    for (size_t i = 0; i < bytes; ++i) {
      if (small(begin[i]) != word[i]) return false;
    }
    return true;
  }
  [[nodiscard]] bool is(const char* word) const {
    return length == text::length(word) && begins_with(word, length);
  }
  [[nodiscard]] Word behind(size_t bytes) const { return {begin + bytes, length - bytes}; }

  static char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

 private:
  static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
};

// The index of the value among the option's values, or -1 when it is not set. A wrong value is
// reported, and counts as `protects` if one of the values protects more.
int choice(const char* name, std::initializer_list<const char*> values,
           const char* protects = nullptr) {
  const char* value = os::option(name);
  if (value == nullptr) return -1;
  const auto index_of = [&](const Word& word) {
    int index = 0;
    for (const char* known : values) {
      if (word.is(known)) return index;
      ++index;
    }
    return -1;
  };
  const Word word(value);
  if (const int index = index_of(word); index >= 0) return index;
  if (word.length == 0) protects = nullptr;  // empty: as if it was not set
  complain(name, protects);
  return protects == nullptr ? -1 : index_of(Word(protects));
}

// The text as a whole number from 1 to `most`; 0 for any other text.
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
  if (Word(value).is("off")) return;
  const uint64_t calls = number(value, Sampler::kMaxRate);
  if (calls == 0) return complain("LOAM_SAMPLE");
  if (sampler.start(calls)) return;
  constexpr const char kRefused[] =
      "loam: LOAM_SAMPLE: the system refused memory for it; sampling stays off\n";
  os::write_error(kRefused, sizeof kRefused - 1);
}

struct Wish {
  unsigned features = 0;
  size_t quarantine_bytes = Hardening::kQuarantineBytes;
};

// "4M": a number of bytes, with K, M or G for the binary multiples; 0 for anything else.
size_t bytes_of(Word text) {
  char digits[24] = {};
  if (text.length == 0 || text.length >= sizeof digits) return 0;
  memcpy(digits, text.begin, text.length);
  unsigned shift = 0;
  char& unit = digits[text.length - 1];
  if (const char kind = Word::small(unit); kind == 'k' || kind == 'm' || kind == 'g') {
    shift = kind == 'k' ? 10 : kind == 'm' ? 20 : 30;
    unit = '\0';
  }
  return number(digits, Hardening::kMostQuarantineBytes >> shift) << shift;
}

// Adds one word of the list; false when it is no known word.
bool add_wish(Word word, Wish* wish) {
  constexpr struct {
    const char* word;
    unsigned features;
  } kWords[] = {
      {"off", 0},
      {"canary", Hardening::kCanary},
      {"quarantine", Hardening::kQuarantine},
      {"zero", Hardening::kZero},
      {"random", Hardening::kRandom},
      {"guards", Hardening::kGuards},
      {"trace", Hardening::kTrace},
      {"sample", Hardening::kSample},
      {"all", Hardening::kAll},
  };
  for (const auto& known : kWords) {
    if (!word.is(known.word)) continue;
    wish->features |= known.features;
    return true;
  }
  constexpr const char kSized[] = "quarantine=";
  constexpr size_t kPrefix = sizeof kSized - 1;
  if (!word.begins_with(kSized, kPrefix)) return false;
  const size_t bytes = bytes_of(word.behind(kPrefix));
  if (bytes < kPageBytes) return false;
  wish->quarantine_bytes = bytes;
  wish->features |= Hardening::kQuarantine;
  return true;
}

void harden(const Wish& wish, bool full_checks, const PlainHeap& plain) {
  if (hardening.start(wish.features, wish.quarantine_bytes, full_checks, plain)) return;
  // The checks alone need no memory, only time.
  if (full_checks) set_full_free_checks(true);
  constexpr const char kRefused[] =
      "loam: hardening: the system refused memory for it, or threads run already; it stays off\n";
  os::write_error(kRefused, sizeof kRefused - 1);
}

void apply_hardening(const char* list, bool full_checks, PlainHeap (*plain)()) {
  Wish wish;
  bool is_understood = true;
  unsigned words = 0;
  for (const char* at = list; at != nullptr && *at != '\0';) {
    const size_t length = text::length_until(at, ',');
    const Word word(at, length);
    // An empty word is ignored, but a list of only empty words is wrong.
    if (word.length != 0) {
      ++words;
      is_understood = add_wish(word, &wish) && is_understood;
    }
    at += length;
    if (*at == ',') ++at;
  }
  const bool is_empty = list == nullptr || Word(list).length == 0;
  if (!is_understood || (words == 0 && !is_empty)) {
    // A typing mistake must not remove the protection that the user wanted.
    constexpr const char kWrong[] =
        "loam: LOAM_HARDEN must be off, all, or a list of canary, quarantine, quarantine=BYTES "
        "(from 4K on, as in 4M), "
        "zero, random, guards, trace, sample; a word that is none of these counts as all\n";
    os::write_error(kWrong, sizeof kWrong - 1);
    wish.features |= Hardening::kAll;
  }
  if (wish.features != 0 || full_checks) harden(wish, full_checks, plain());
}

}  // namespace

void apply_options(PlainHeap (*plain)()) {
  if (LOAM_LIKELY(!os::has_options())) return;  // most programs, and this runs at the start of each
  if (choice("LOAM_ON_CORRUPTION", {"abort", "report"}, "abort") == 1)
    set_corruption_policy(CorruptionPolicy::kReport);
  if (const int when = choice("LOAM_HUGE_PAGES", {"auto", "on", "off"}); when >= 0)
    page_heap.huge_pages().use(HugeSurplus::When(when));
  if (choice("LOAM_BACKGROUND_PURGE", {"off", "on"}) == 1) background_purge.enable();
  loam_keeps_deep_binding = choice("LOAM_DEEP_BINDING", {"ignore", "keep"}) == 1;
  const bool full_checks = choice("LOAM_CHECK_FREE", {"fast", "full"}, "full") == 1;
  apply_hardening(os::option("LOAM_HARDEN"), full_checks, plain);
  if (const char* value = os::option("LOAM_SAMPLE"); value != nullptr) start_sampling(value);
  if (const char* value = os::option("LOAM_PUBLISH"); value != nullptr)
    publisher.enable(value, {&heap::lock_everything, &heap::unlock_everything});
}

}  // namespace loam
