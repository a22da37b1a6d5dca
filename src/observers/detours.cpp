#include "observers/detours.h"

namespace loam {

constinit std::atomic<unsigned> taken_detours{0};
constinit std::atomic<unsigned> slow_for{0};

void make_every_call_slow(SlowFor why, bool on) {
  const unsigned bit = static_cast<unsigned>(why);
  on ? slow_for.fetch_or(bit) : slow_for.fetch_and(~bit);
}

void take_detour(Detour detour) {
  take_rare_detour(detour);
  make_every_call_slow(SlowFor::kDetour, true);
}

void take_rare_detour(Detour detour) { taken_detours.fetch_or(detour, std::memory_order_relaxed); }

void take_passing_detour(Detour detour) {
  make_every_call_slow(SlowFor::kPassingDetour, true);
  taken_detours.fetch_or(detour);
}

void leave_passing_detour(Detour detour) {
  taken_detours.fetch_and(~unsigned{detour});
  make_every_call_slow(SlowFor::kPassingDetour, false);
}

}  // namespace loam
