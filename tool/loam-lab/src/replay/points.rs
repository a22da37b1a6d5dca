//! The points at which a replay is measured: when the recorder looked at the process.

use super::survey::Survey;

/// Points at most. Each stops all threads, some milliseconds where much is resident.
const MOST_POINTS: usize = 500;
/// Of those, points that the trace has no sample for: spread over the events, so that threads stay together and short
/// programs have a curve.
pub const SPREAD_POINTS: u64 = 100;
/// Points at which the heap's mappings are told from others: each reads all mappings.
const MOST_COMPARED: usize = 200;

/// When somebody looked at the process, and how large its heap was then; thinned, the largest kept.
pub fn of(survey: &Survey, streams: &[u32]) -> Vec<(u64, Option<u64>)> {
    let samples = streams
        .iter()
        .filter_map(|stream| survey.processes.get(stream))
        .flat_map(|process| &process.samples);
    let mut all: Vec<(u64, Option<u64>)> = samples
        .filter_map(|sample| Some((sample.time?, sample.resident_heap)))
        .collect();
    all.sort_unstable();
    let most = MOST_POINTS - SPREAD_POINTS as usize;
    let (mut compared, plain): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, heap)| heap.is_some());
    thin(&mut compared, MOST_COMPARED);
    let mut rest = plain;
    thin(&mut rest, most.saturating_sub(compared.len()));
    compared.extend(rest);
    compared.sort_unstable();
    compared
}

fn thin(points: &mut Vec<(u64, Option<u64>)>, most: usize) {
    if points.len() <= most {
        return;
    }
    let peak = points.iter().copied().max_by_key(|(_, heap)| *heap);
    let stride = points.len().div_ceil(most.max(1));
    let mut at = 0;
    points.retain(|point| {
        at += 1;
        at % stride == 0 || Some(*point) == peak
    });
}
