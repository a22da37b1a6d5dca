#include "heap/options.h"

#include <cstring>

#include "cache/thread_cache.h"
#include "heap/background_purge.h"
#include "heap/publisher.h"
#include "heap/sampler.h"
#include "os/fatal.h"
#include "os/os.h"

namespace loam {

namespace {

void complain(const char* name) {
  for (const Option& option : kOptions) {
    if (strcmp(option.name, name) != 0) continue;
    for (const char* part : {"loam: ", option.name, " must be one of ", option.values, "; using ", option.initial, "\n"}) {
      os::write_error(part, strlen(part));
    }
  }
}

// The value's place in the option's two values, or -1 when it is not set (or wrong, which is reported).
int choice(const char* name, const char* first, const char* second) {
  const char* value = os::option(name);
  if (value == nullptr) return -1;
  if (strcmp(value, first) == 0) return 0;
  if (strcmp(value, second) == 0) return 1;
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
  if (strcmp(value, "off") == 0) return;
  const uint64_t calls = number(value, Sampler::kMaxRate);
  if (calls == 0) return complain("LOAM_SAMPLE");
  if (sampler.start(calls)) return;
  constexpr const char kRefused[] = "loam: LOAM_SAMPLE: the system refused memory for it; sampling stays off\n";
  os::write_error(kRefused, sizeof kRefused - 1);
}

}  // namespace

void apply_options() {
  if (choice("LOAM_ON_CORRUPTION", "abort", "report") == 1) set_corruption_policy(CorruptionPolicy::kReport);
  if (choice("LOAM_BACKGROUND_PURGE", "off", "on") == 1) background_purge.enable();
  if (choice("LOAM_CHECK_FREE", "fast", "full") == 1) set_full_free_checks(true);
  if (const char* value = os::option("LOAM_SAMPLE"); value != nullptr) start_sampling(value);
  if (const char* value = os::option("LOAM_PUBLISH"); value != nullptr) publisher.enable(value);
}

}  // namespace loam
