//! The points at which a replay is measured. Each lies between the same two events as a look of the
//! recorder at the process.

use super::lineage;
use super::survey::Survey;

/// The most points. Each point stops all threads, for some milliseconds if much memory is resident.
const MOST_POINTS: usize = 600;
/// Of these, the points without a sample in the trace. They are spread over the events, so that
/// threads stay together and short programs have a curve.
pub const SPREAD_POINTS: u64 = 100;
/// The most looks at the heap. Each of them reads all mappings.
const MOST_LOOKS: usize = 300;

/// A point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Nanoseconds since the recording began.
    pub time: u64,
    /// Resident bytes of the heap then, where the recorder looked.
    pub recorded_heap: Option<u64>,
}

/// The recorder's looks at the process, thinned. The look at the largest heap is kept.
pub fn of(survey: &Survey, streams: &[u32]) -> Vec<Point> {
    let samples = streams.iter().flat_map(|stream| {
        let until = lineage::until(survey, streams, *stream);
        let process = survey.processes.get(stream);
        let samples = process.map_or(&[][..], |process| &process.samples);
        samples
            .iter()
            .filter(move |sample| sample.time.is_some_and(|time| time < until))
    });
    let mut all: Vec<Point> = samples
        .filter_map(|sample| {
            Some(Point {
                time: sample.time?,
                recorded_heap: sample.resident_heap,
            })
        })
        .collect();
    all.sort_unstable();
    let (mut looks, mut rest): (Vec<Point>, Vec<Point>) = all
        .into_iter()
        .partition(|point| point.recorded_heap.is_some());
    thin(&mut looks, MOST_LOOKS);
    let most = MOST_POINTS - SPREAD_POINTS as usize;
    thin(&mut rest, most.saturating_sub(looks.len()));
    rest.append(&mut looks);
    rest.sort_unstable();
    rest
}

fn thin(points: &mut Vec<Point>, most: usize) {
    if points.len() <= most {
        return;
    }
    let peak = points
        .iter()
        .copied()
        .max_by_key(|point| point.recorded_heap);
    let stride = points.len().div_ceil(most.max(1));
    let mut at = 0;
    points.retain(|point| {
        at += 1;
        at % stride == 0 || Some(*point) == peak
    });
}
