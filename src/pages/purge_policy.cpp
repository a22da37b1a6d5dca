#include "pages/purge_policy.h"

namespace loam {

Pages PurgePolicy::peak_of(unsigned slots) const {
  size_t peak = 0;
  for (unsigned back = 0; back < slots; ++back) {
    const size_t p = peaks_[(slot_ + kSlots - back) % kSlots];
    peak = p > peak ? p : peak;
  }
  return Pages(peak);
}

// The level of use that this slot and an earlier one both reached, minus the highest use between
// them. The maximum over earlier slots.
size_t PurgePolicy::late_return() const {
  size_t most = 0, between = 0;
  for (unsigned back = 1; back < kSlots; ++back) {
    const size_t then = peaks_[(slot_ + kSlots - back) % kSlots];
    const size_t both = then < peaks_[slot_] ? then : peaks_[slot_];
    if (back > 1 && both > between && both - between > most) most = both - between;
    if (then > between) between = then;
  }
  return most;
}

// Use rose: what it regains of an earlier fall came back, whatever the time between.
void PurgePolicy::note_rise(size_t used) {
  came_back_.note(use_.note(used));
  note_slow_return(used);
}

void PurgePolicy::note_slow_return(size_t used) {
  const size_t level = used < before_silence_ ? used : before_silence_;
  if (level > in_silence_) came_back_slowly_.note(level - in_silence_);
}

// pre: use_.note(used)
Pages PurgePolicy::decide_fall(Pages used, Pages dirty, Pages returns) {
  if (LOAM_UNLIKELY(keeps_falls_)) return Pages(0);
  const Pages held = used > hollow_ ? used - hollow_ : Pages(0);
  Pages bound = Pages(held.count / kFallShare) + kFallFloor;
  const Pages rest(bound.count / 2);
  if (returns > bound) bound = returns;
  quiet_ = dirty > bound ? dirty + kBatch : bound;
  const Pages fallen(use_.fallen() < dirty.count ? use_.fallen() : dirty.count);
  if (fallen <= bound) return Pages(0);
  // Most of the heap's use is over, and so is the use of what lay free at its peak.
  const bool is_deep = used.count < use_.high() / 2;
  const Pages free = is_deep ? dirty : fallen;
  quiet_ = bound;
  return returns > rest ? free - returns : free - rest;
}

void PurgePolicy::end_slot(size_t used) {
  const size_t late = late_return();
  came_back_.note(late);
  came_back_late_.note(late);
  slot_ = (slot_ + 1) % kSlots;
  peaks_[slot_] = used;
  // A peak that is older than the window counts no more.
  if (const size_t high = peak_of(kSlots).count; high < use_.high()) use_.forget(high, used);
  slot_began_ms_ += kSlotMs;
  if (slot_ != 0) return;
  came_back_.end_round();
  came_back_late_.end_round();
  came_back_slowly_.end_round();
}

PurgePolicy::Decision PurgePolicy::decide(uint64_t now_ms, Pages used, Pages dirty,
                                          uint64_t running_ms) {
  if (slot_began_ms_ == 0) slot_began_ms_ = last_ms_ = now_ms;
  // The window slides by slots; a long time without calls empties it whole.
  for (unsigned moved = 0; now_ms - slot_began_ms_ >= kSlotMs && moved < kSlots; ++moved)
    end_slot(used.count);
  if (now_ms - slot_began_ms_ >= kSlotMs) {
    slot_began_ms_ = now_ms;
    came_back_ = came_back_late_ = came_back_slowly_ = {};
    use_.forget();
  }
  observe(used);
  static_cast<void>(use_.note(used.count));  // after observe() it is no rise
  // Use may have risen again before this decision.
  if (now_ms - last_ms_ >= kSilenceMs) {
    before_silence_ = now_ms - last_ms_ < kHoldMs ? last_peak_ : 0;
    in_silence_ = last_used_ < used.count ? last_used_ : used.count;
    note_slow_return(used.count);
  }
  last_used_ = used.count;

  const uint64_t passed = now_ms - last_ms_ < 1000 ? now_ms - last_ms_ : 1000;
  // The budget is the same share of several threads' time, because each thread frees, and each
  // would fault.
  uint64_t ran = 0;
  if (running_ms != 0) {
    // In the child of a fork() that clock starts again from zero.
    if (last_running_ms_ != 0 && running_ms > last_running_ms_) ran = running_ms - last_running_ms_;
    last_running_ms_ = running_ms;
  }
  if (ran < passed) ran = passed;
  if (ran > kMostRunning * passed) ran = kMostRunning * passed;
  spent_ -= static_cast<int64_t>(ran) * kPagesPerSecond / 1000;
  if (spent_ < 0) spent_ = 0;
  last_ms_ = now_ms;

  const size_t returns = this->returns().count;
  const size_t most = recent_peak().count, least = latest_peak().count;
  last_peak_ = most;
  const auto smaller = [](size_t a, size_t b) { return a < b ? a : b; };
  const auto larger = [](size_t a, size_t b) { return a > b ? a : b; };
  const size_t soon = smaller(used.count + returns, peak_of(kSilenceMs / kSlotMs).count);
  const size_t late = smaller(used.count + came_back_late_.most(), most);
  const size_t expected = larger(larger(soon, late), least);
  const Pages keep = Pages(expected) - used + kFloor;
  Decision decision;
  const size_t known = most > used.count ? most - used.count : 0;
  decision.fall = decide_fall(used, dirty, Pages(returns < known ? returns : known));
  dirty -= decision.fall;
  decision.idle = decision.young = dirty > keep ? dirty - keep : Pages(0);
  const Pages affordable(spent_ < kBudgetCap ? static_cast<size_t>(kBudgetCap - spent_) : 0);
  if (decision.young > affordable) decision.young = affordable;
  if (decision.young < kBatch) decision.young = Pages(0);
  decision.idle_before_ms = static_cast<uint32_t>(now_ms > kSoonMs ? now_ms - kSoonMs : 0);
  return decision;
}

}  // namespace loam
