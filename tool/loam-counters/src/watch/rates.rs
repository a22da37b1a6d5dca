//! Computes what happened between two ticks.

use loam_format::counters::ids;

use crate::snapshot::Values;
use crate::watch::sampler::Sample;

/// How often something happened per second, between two samples of one process. None if one of the
/// counts is unknown or no time passed. A counter that went back (the process began anew, or one of
/// two readings was torn) counts as nothing.
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

/// The same for a counter of the process.
pub fn of_counter(before: &Sample, now: &Sample, id: &str) -> Option<f64> {
    per_second(before, now, |sample| sample.snapshot()?.process.real(id))
}

/// The share of allocations that threads' caches served between two samples. It is exact while the
/// program samples, and a lower bound otherwise ([`allocs_of_caches()`]).
pub fn cache_hits(before: &Sample, now: &Sample) -> Option<HitRate> {
    let grown = |id: &str| of_counter(before, now, id);
    let allocs = |sample: &Sample| allocs_of_caches(&sample.snapshot()?.process);
    if let (Some(hits), Some(all)) = (grown(ids::CACHED_ALLOCS), grown(ids::ALLOCS)) {
        // One of two counts may be a little newer than the other.
        let share = (all > 0.0).then(|| (hits / all).min(1.0))?;
        return Some(HitRate {
            share,
            is_exact: true,
        });
    }
    let (all, misses) = (per_second(before, now, allocs)?, grown(ids::CACHE_MISSES)?);
    let share = share_of_hits(all, misses)?;
    Some(HitRate {
        share,
        // No share is above one.
        is_exact: share >= 1.0,
    })
}

/// The share of hits among `all` allocations; none if there were none.
pub fn share_of_hits(all: f64, misses: f64) -> Option<f64> {
    (all > 0.0).then(|| (1.0 - misses / all).max(0.0))
}

/// Allocations that threads' caches saw since the start, hits and misses, computed without
/// sampling. They are the blocks that came to the caches, freed or from spans, and that neither
/// went back to spans nor are in the caches now. The figure is a lower bound: frees to caches of
/// private heaps are not counted, and a live block whose span becomes mixed counts as one that went
/// back.
pub fn allocs_of_caches(values: &Values) -> Option<f64> {
    let known = |id: &str| values.real(id);
    let came = known(ids::CACHE_FREES)? + known(ids::REFILLED_BLOCKS)?;
    Some((came - known(ids::RETURNED_BLOCKS)? - known(ids::CACHED_BLOCKS)?).max(0.0))
}

/// How often caches served allocations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HitRate {
    /// From 0 to 1.
    pub share: f64,
    /// Whether the share is exact; otherwise it is a lower bound.
    pub is_exact: bool,
}

/// The free share of the heap's backed bytes: the Windows Heap object defines fragmentation this
/// way.
pub fn fragmentation(values: &Values) -> Option<f64> {
    values.real(ids::FREE_RATIO)
}
