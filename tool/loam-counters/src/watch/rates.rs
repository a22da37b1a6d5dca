//! What happened between two ticks.

use loam_format::counters::ids;

use crate::snapshot::Values;
use crate::watch::sampler::Sample;

/// How often something happened, a second, between two samples of one process; none where it is not
/// known in both, or where no time passed. A counter that went back (the process began anew, or one
/// of two readings was torn) counts as nothing.
pub fn per_second(
    before: &Sample,
    now: &Sample,
    of: impl Fn(&Sample) -> Option<f64>,
) -> Option<f64> {
    let seconds = now.at.checked_duration_since(before.at)?.as_secs_f64();
    if seconds <= 0.0 || before.identity.key != now.identity.key {
        return None;
    }
    Some((of(now)? - of(before)?).max(0.0) / seconds)
}

/// The same of a counter of the process.
pub fn of_counter(before: &Sample, now: &Sample, id: &str) -> Option<f64> {
    per_second(before, now, |sample| sample.snapshot()?.process.real(id))
}

/// The share of allocations that threads' caches served between two samples. Exact while the program
/// samples; without, a lower bound ([`allocs_of_caches()`]).
pub fn cache_hits(before: &Sample, now: &Sample) -> Option<HitRate> {
    let grown = |id: &str| of_counter(before, now, id);
    let allocs = |sample: &Sample| allocs_of_caches(&sample.snapshot()?.process);
    if let (Some(hits), Some(all)) = (grown(ids::CACHED_ALLOCS), grown(ids::ALLOCS)) {
        let share = (all > 0.0).then_some(hits / all)?;
        return Some(HitRate {
            share,
            is_exact: true,
        });
    }
    let (all, misses) = (per_second(before, now, allocs)?, grown(ids::CACHE_MISSES)?);
    Some(HitRate {
        share: share_of_hits(all, misses)?,
        is_exact: false,
    })
}

/// Of so many allocations; none where there were none.
pub fn share_of_hits(all: f64, misses: f64) -> Option<f64> {
    (all > 0.0).then(|| (1.0 - misses / all).max(0.0))
}

/// Allocations that threads' caches saw, hits and misses, since the start, without sampling: what came to them, freed or from
/// spans, and neither went home nor is there now. At least: frees to caches of private heaps are not counted, and a live block
/// whose span becomes mixed counts as one that went home.
pub fn allocs_of_caches(values: &Values) -> Option<f64> {
    let known = |id: &str| values.real(id);
    let came = known(ids::CACHE_FREES)? + known(ids::REFILLED_BLOCKS)?;
    Some((came - known(ids::RETURNED_BLOCKS)? - known(ids::CACHED_BLOCKS)?).max(0.0))
}

/// How often a cache served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HitRate {
    /// From 0 to 1.
    pub share: f64,
    /// Otherwise at least so often.
    pub is_exact: bool,
}

/// The share of what a heap has backed that is free: fragmentation as the Windows Heap object has it.
pub fn fragmentation(values: &Values) -> Option<f64> {
    values.real(ids::FREE_RATIO)
}
