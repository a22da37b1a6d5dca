//! How far a replay is from what was recorded: resident bytes of the heap, at the points where the recorder looked.
//!
//! Method: of each trial on the recorded allocator, the largest of its points against the largest recorded one, and
//! the mean of the distances at all points as a share of the recorded mean; the median over the trials. Threshold:
//! 5 %, since differences between allocators that are worth acting on are larger, and those below it are often
//! matters of page alignment. Few points say nothing.

use loam_format::results::{ReplayErrorRecord, Results};

use crate::analyse::runs::{Run, View};
use crate::analyse::stats;

/// The largest error with which a replay is believed.
pub const LARGEST: f64 = 0.05;
/// The fewest points that can be compared.
pub const FEWEST_POINTS: usize = 3;

/// One trial's error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunError {
    /// Share of the recorded peak; negative: the replay has less.
    pub at_peak: f64,
    /// Mean distance, as a share of the recorded mean.
    pub on_average: f64,
    /// Points.
    pub points: usize,
}

/// A trial's error; none if too few points can be compared.
pub fn of_run(run: &Run) -> Option<RunError> {
    let pairs = run.points().filter_map(|point| {
        Some((
            point.number("heap_bytes")?,
            point.number("recorded_heap_bytes")?,
        ))
    });
    of_pairs(&pairs.collect::<Vec<_>>())
}

/// The error of pairs `(replayed, recorded)`.
fn of_pairs(pairs: &[(f64, f64)]) -> Option<RunError> {
    let peak = |value: fn(&(f64, f64)) -> f64| pairs.iter().map(value).reduce(f64::max);
    let (replayed, recorded) = (peak(|pair| pair.0)?, peak(|pair| pair.1)?);
    let sum: f64 = pairs.iter().map(|(_, recorded)| recorded).sum();
    let distance: f64 = pairs
        .iter()
        .map(|(replayed, recorded)| (replayed - recorded).abs())
        .sum();
    if pairs.len() < FEWEST_POINTS || recorded <= 0.0 || sum <= 0.0 {
        return None;
    }
    Some(RunError {
        at_peak: replayed / recorded - 1.0,
        on_average: distance / sum,
        points: pairs.len(),
    })
}

/// The error over all trials on the recorded allocator; none if there are none.
pub fn verdict(results: &Results) -> Option<ReplayErrorRecord> {
    let trace = results
        .experiments
        .iter()
        .find_map(|record| record.trace.as_ref())?;
    let same = trace.same_allocator.as_ref()?;
    let view = View::of(results, "replay");
    let row = view.rows.iter().find(|row| row.allocator == *same)?;
    let errors: Vec<RunError> = row.runs.iter().filter_map(of_run).collect();
    let median = |value: fn(&RunError) -> f64| {
        let values: Vec<f64> = errors.iter().map(value).collect();
        stats::median(&values)
    };
    let (at_peak, on_average) = (median(|e| e.at_peak)?, median(|e| e.on_average)?);
    Some(ReplayErrorRecord {
        at_peak,
        on_average,
        points: errors.iter().map(|error| error.points).min()?,
        trials: errors.len(),
        reproduces: at_peak.abs() <= LARGEST && on_average <= LARGEST,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_peaks_and_the_mean_distance() {
        let pairs = [(90.0, 100.0), (210.0, 200.0), (100.0, 100.0)];
        let error = of_pairs(&pairs).unwrap();
        assert!((error.at_peak - 0.05).abs() < 1e-9);
        assert!((error.on_average - 20.0 / 400.0).abs() < 1e-9);
        assert_eq!(of_pairs(&pairs[..2]), None);
        assert_eq!(of_pairs(&[(0.0, 0.0); 5]), None);
    }
}
