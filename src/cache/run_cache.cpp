#include "cache/run_cache.h"

namespace loam {

namespace {

// Of the runs and of the room that a cache may have at most, the parts with which it begins: a
// thread that frees only a few large blocks keeps none, and the room doubles when the cache is full
// and was useful. Half and double change nothing (decision 12), nor does the time of a bypass.
constexpr uint32_t kRefusedFirst = RunCache::kMostRuns / 8;
constexpr uint64_t kFirstRoom = RunCache::kMostRoom / 8;
constexpr uint32_t kBypassed = RunCache::kMostRuns * RunCache::kMostRuns;
static_assert(RunCache::kLongest.count <= RunCache::kMostRoom);
// A full cache that served fewer blocks than 1 / kUsefulShare of the runs it was given is bypassed
// for kBypassed frees. Chosen: serving one block from here saves the shard's two locks, which is
// worth about one run that is kept in vain; trying the cache again costs some 30 runs kept in vain.
constexpr uint32_t kUsefulShare = 2;
// The fewest runs in a batch that waits in a shard as it is, even if these are all kept runs.
// Bound: one run is no batch. A batch costs about as much as parking one run, and taking its lock
// twice for two runs costs as much as the cut and the join of one run did.
constexpr unsigned kLeastBatch = 2;
static_assert(RunCache::kMostRoom / kLeastBatch <= RunCache::kLongest.count,
              "longer ones come in no batch");

}  // namespace

constinit decltype(RunCache::process_room) RunCache::process_room;

LOAM_INLINE void RunCache::set_held(uint64_t pages, uint64_t runs) {
  __atomic_store_n(&held_pages_, pages, __ATOMIC_RELAXED);
  __atomic_store_n(&held_runs_, runs, __ATOMIC_RELAXED);
}

LOAM_INLINE void RunCache::count_taken(uint64_t pages, size_t requested) {
  count_up(counts_.taken);
  count_up(counts_.taken_pages, pages);
  count_up(counts_.taken_requested, requested);
}

Span* RunCache::take_parked(Pages pages, size_t requested) {
  note_missed(pages);
  if (LOAM_UNLIKELY(shard_ == 0)) return nullptr;
  // A batch is at most half of the kept runs (pass_batch()) of a thread with as much room as this
  // one or more.
  const Pages room(limit() - held_pages_);
  const unsigned most = kMostRuns - static_cast<unsigned>(held_runs_);
  const PageHeap::Runs runs = page_heap.take_run(pages, slack_of(pages), shard_ - 1u, room, most);
  Span* const span = runs.first;
  if (span == nullptr) return nullptr;
  span->large.requested = requested;
  count_taken(span->large.pages, requested);
  if (LOAM_LIKELY(runs.rest != nullptr)) {
    keep_rest(runs);
  } else {
    publish_large(span);
  }
  return span;
}

// Keeps the rest of the batch that came with a run.
LOAM_INLINE void RunCache::keep_rest(const PageHeap::Runs& runs) {
  const uint64_t pages = runs.first->large.pages;
  runs.first->next = nullptr;
  const unsigned bin = bin_of(static_cast<unsigned>(pages));
  Span** link = &bins_[bin];
  // In a bin for several lengths: behind the runs that it has.
  while (LOAM_UNLIKELY(*link != nullptr)) link = &(*link)->next;
  __atomic_store_n(link, runs.rest, __ATOMIC_RELEASE);
  occupied_.set(bin);
  set_held(held_pages_ + runs.rest_count * pages, held_runs_ + runs.rest_count);
  used_ = true;
}

Span* RunCache::take(Pages pages, size_t requested) {
  if (pages.count > held_pages_) return take_parked(pages, requested);
  const unsigned wanted = static_cast<unsigned>(pages.count);
  const unsigned first = bin_of(wanted);
  unsigned bin = occupied_.find_set(first);
  if (bin == Occupied::kWords * 64) return take_parked(pages, requested);
  Span* span = bins_[bin];
  if (span->large.pages < wanted) {
    // A bin above kExact holds a few lengths. In the next bin all are long enough.
    bin = occupied_.find_set(bin + 1);
    if (bin == Occupied::kWords * 64) return take_parked(pages, requested);
    span = bins_[bin];
  }
  if ((span->large.pages - wanted) * kSlackShare > wanted) return take_parked(pages, requested);
  return take_out(&bins_[bin], bin, requested);
}

Span* RunCache::take_aligned(Pages pages, Pages alignment, size_t requested) {
  if (pages > kLongest || alignment.count > kPagesPerRegion)
    return nullptr;  // a region lies at a multiple of its length
  const unsigned bin = bin_of(static_cast<unsigned>(pages.count));
  // All of a bin's runs are short enough to be handed out whole.
  for (Span** link = &bins_[bin]; Span* span = *link; link = &span->next) {
    if (span->large.pages >= pages.count && span->first_page % alignment.count == 0)
      return take_out(link, bin, requested);
  }
  return nullptr;
}

LOAM_INLINE Span* RunCache::take_out(Span** link, unsigned bin, size_t requested) {
  Span* span = *link;
  const uint64_t length = span->large.pages;
  __atomic_store_n(link, List<Span>::next(span), __ATOMIC_RELEASE);
  if (bins_[bin] == nullptr) occupied_.clear(bin);
  set_held(held_pages_ - length, held_runs_ - 1);
  ++hits_;
  span->set_run_kind(SpanKind::kLarge);
  span->large.requested = requested;
  span->next = nullptr;
  count_taken(length, requested);
  return span;
}

bool RunCache::give(Span* span) {
  const uint64_t pages = span->large.pages;
  if (LOAM_UNLIKELY(!fits(pages) || pages > kLongest.count)) return false;
  count_given(pages, span->large.requested);
  const unsigned bin = bin_of(static_cast<unsigned>(pages));
  span->set_run_kind(SpanKind::kStanding);
  span->large.cached_at = ++clock_;
  span->next = bins_[bin];
  // release: pairs with the fork()ed child's copy of this memory (see above)
  __atomic_store_n(&bins_[bin], span, __ATOMIC_RELEASE);
  occupied_.set(bin);
  set_held(held_pages_ + pages, held_runs_ + 1);
  used_ = true;
  return true;
}

bool RunCache::park_refused(Span* span) {
  if (span->large.pages > kPagesPerSlab || shard_ == 0) return false;
  park_now(span);
  return true;
}

unsigned RunCache::shard() {
  if (LOAM_UNLIKELY(shard_ == 0)) shard_ = static_cast<uint8_t>(page_heap.join_shard() + 1);
  return shard_ - 1u;
}

// Whether this run's length was requested last, and at least half of the kept pages are in runs of
// it. Then the other runs return to the page heap, and later runs go and come back in batches.
LOAM_NOINLINE bool RunCache::may_come_in_batches(const Span* span) const {
  const uint64_t pages = span->large.pages;
  if (page_heap.length_asked(PageHeap::shard_of(span)) != pages) return false;
  uint64_t of_it = 0;
  for (const Span* run = bins_[bin_of(static_cast<unsigned>(pages))]; run != nullptr;
       run = List<Span>::next(run)) {
    if (run->large.pages == pages) of_it += pages;
  }
  return 2 * of_it >= held_pages_;
}

void RunCache::make_room(const Span* span) {
  const Pages pages(span->large.pages);
  if (pages > kLongest) return;
  used_ = true;
  if (held_pages_ + pages.count > room_) {
    if (room_ == 0 && ++refused_ < kRefusedFirst) return;
    // More room only where the present room was useful: a thread that frees what other threads
    // allocate needs none.
    const bool batches = may_come_in_batches(span);
    if (room_ == 0 || hits_ != 0 || held_pages_ == 0 || batches)
      static_cast<void>(grow(held_pages_ + pages.count));
    const bool useful = hits_ * kUsefulShare >= clock_ - filled_at_;
    const bool first = filled_at_ == 0;
    hits_ = 0;
    filled_at_ = clock_;
    if (pages.count > room_) return;
    if (!useful && !first && !batches) {
      flush();
      bypassed_ = kBypassed;
      asked_in_a_row_ = 0;
      return;
    }
    if (held_pages_ + pages.count <= room_ && held_runs_ < kMostRuns) return;
  }
  if (send_batch(span)) return;
  send_home(room_ / 2 < pages.count ? 0 : room_ / 2 - pages.count, kMostRuns / 2);
}

bool RunCache::pass_batch(const Span* span) {
  // While the room can still grow it grows first, so that batches become longer.
  return (room_ == kMostRoom || room_ >= kMostRuns * span->large.pages) && send_batch(span);
}

// Sends the older half of the kept runs, or more, if all have one length and it was requested last.
bool RunCache::send_batch(const Span* span) {
  const uint64_t pages = span->large.pages;
  const unsigned shard = PageHeap::shard_of(span);
  if (pages * kLeastBatch > room_ || page_heap.length_asked(shard) != pages) return false;
  const unsigned bin = bin_of(static_cast<unsigned>(pages));
  const unsigned fitting =
      kMostRuns * pages > room_ ? static_cast<unsigned>(room_ / pages) : kMostRuns;
  const unsigned batch = fitting / 2 < kLeastBatch ? kLeastBatch : fitting / 2;
  Span** link = &bins_[bin];
  unsigned count = 0;
  for (; *link != nullptr && count < fitting - batch; link = &(*link)->next) ++count;
  Span* const first = *link;
  count = 0;
  for (const Span* run = first; run != nullptr; run = List<Span>::next(run), ++count) {
    if (run->large.pages != pages || PageHeap::shard_of(run) != shard) return false;
  }
  if (count < batch) return false;
  __atomic_store_n(link, nullptr, __ATOMIC_RELEASE);
  if (bins_[bin] == nullptr) occupied_.clear(bin);
  set_held(held_pages_ - count * pages, held_runs_ - count);
  page_heap.give_batch(first, count);
  return true;
}

bool RunCache::grow(uint64_t pages) {
  uint64_t room = room_ == 0 ? kFirstRoom : 2 * room_;
  while (room < pages) room *= 2;
  if (room > kMostRoom) room = kMostRoom;
  if (room <= room_) return false;
  if (!process_room.take(Pages(room - room_).bytes(), page_heap.hints().used_bytes())) return false;
  room_ = room;
  return true;
}

// Returns the longest unused runs, until at most `keep` pages in at most `runs` runs are left.
void RunCache::send_home(uint64_t keep, uint64_t runs) {
  Span* gone = nullptr;
  for (uint32_t age = kMostRuns / 2;; age /= 2) {
    for (unsigned b = occupied_.find_set(0); b < kBins; b = occupied_.find_set(b + 1)) {
      // The old ones are at the end of their list.
      Span** link = &bins_[b];
      while (*link != nullptr && static_cast<uint32_t>(clock_ - (*link)->large.cached_at) < age)
        link = &(*link)->next;
      while (Span* span = *link) {
        if (held_pages_ <= keep && held_runs_ <= runs) break;
        __atomic_store_n(link, List<Span>::next(span), __ATOMIC_RELEASE);
        set_held(held_pages_ - span->large.pages, held_runs_ - 1);
        span->next = gone;
        gone = span;
      }
      if (bins_[b] == nullptr) occupied_.clear(b);
    }
    if ((held_pages_ <= keep && held_runs_ <= runs) || age == 0) break;
  }
  if (gone != nullptr) page_heap.give_home(gone);
}

void RunCache::flush() {
  // Uses only the lists: a fork() may have caught the cache's thread between a list and its mark or
  // its count.
  Span* gone = nullptr;
  for (Span*& first : bins_) {
    while (Span* span = first) {
      __atomic_store_n(&first, List<Span>::next(span), __ATOMIC_RELEASE);
      span->next = gone;
      gone = span;
    }
  }
  occupied_ = Occupied{};
  set_held(0, 0);
  if (gone != nullptr) page_heap.give_home(gone);
}

void RunCache::close() {
  flush();
  const Pages given_up(room_);
  room_ = 0;
  process_room.give(given_up.bytes());
  refused_ = hits_ = filled_at_ = bypassed_ = 0;
  used_ = false;
  if (shard_ != 0) page_heap.leave_shard(shard_ - 1u);
  shard_ = 0;
}

void RunCache::note_growth(Pages fresh) {
  if (held_pages_ != 0)
    send_home(held_pages_ < fresh.count ? 0 : held_pages_ - fresh.count, held_runs_);
}

void RunCache::collect() {
  if ((room_ != 0 || shard_ != 0) && !used_) close();
  if (room_ == 0) refused_ = 0;
  used_ = false;
}

bool RunCache::is_valid() const {
  uint64_t pages = 0, runs = 0;
  for (unsigned b = 0; b < kBins; ++b) {
    if (occupied_.test(b) != (bins_[b] != nullptr)) return false;
    for (const Span* span = bins_[b]; span != nullptr; span = List<Span>::next(span)) {
      if (span->kind != SpanKind::kStanding ||
          bin_of(static_cast<unsigned>(span->large.pages)) != b)
        return false;
      if (span_at(span_base(span)) != span || ++runs > kMostRuns) return false;
      pages += span->large.pages;
    }
  }
  return pages == held_pages_ && runs == held_runs_ && pages <= room_;
}

}  // namespace loam
