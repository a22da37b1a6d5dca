#include "cache/detours.h"

#include "cache/thread_cache.h"

namespace loam {

constinit unsigned detours = 0;

void take_detour(Detour detour) {
  take_rare_detour(detour);
  keep_magazines_armed();
}

void take_rare_detour(Detour detour) { detours |= detour; }

}  // namespace loam
