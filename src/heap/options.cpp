#include "heap/options.h"

#include <cstring>

#include "os/fatal.h"
#include "os/os.h"

namespace loam {

void apply_options() {
  const char* on_corruption = os::option("LOAM_ON_CORRUPTION");
  if (on_corruption == nullptr || strcmp(on_corruption, "abort") == 0) return;
  if (strcmp(on_corruption, "report") == 0) {
    set_corruption_policy(CorruptionPolicy::kReport);
    return;
  }
  constexpr char kMessage[] = "loam: LOAM_ON_CORRUPTION must be abort or report; using abort\n";
  os::write_error(kMessage, sizeof kMessage - 1);
}

}  // namespace loam
