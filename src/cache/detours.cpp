#include "cache/detours.h"

#include "cache/thread_cache.h"

namespace loam {

constinit std::atomic<unsigned> taken_detours{0};

void take_detour(Detour detour) {
  take_rare_detour(detour);
  keep_magazines_armed();
}

void take_rare_detour(Detour detour) { taken_detours.fetch_or(detour, std::memory_order_relaxed); }

void take_passing_detour(Detour detour) {
  keep_magazines_armed_meanwhile(true);
  taken_detours.fetch_or(detour);
}

void leave_passing_detour(Detour detour) {
  taken_detours.fetch_and(~unsigned{detour});
  keep_magazines_armed_meanwhile(false);
}

}  // namespace loam
