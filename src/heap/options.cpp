#include "heap/options.h"

#include <cstring>

#include "cache/thread_cache.h"
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

}  // namespace

void apply_options() {
  if (choice("LOAM_ON_CORRUPTION", "abort", "report") == 1) set_corruption_policy(CorruptionPolicy::kReport);
  if (choice("LOAM_CHECK_FREE", "fast", "full") == 1) set_full_free_checks(true);
}

}  // namespace loam
