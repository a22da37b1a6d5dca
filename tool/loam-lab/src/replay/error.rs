//! How far a replay is from the recording: it compares resident bytes of the heap at the points
//! where the recorder looked.
//!
//! Method: for each trial on the recorded allocator, the largest of its points is compared with the
//! largest recorded one. The distances at all points are averaged and divided by the recorded mean.
//! The result is the median over the trials. A point lies between the same two events as the middle
//! of the recorder's look; the duration of the look is ignored. Threshold: 5 %, since differences
//! between allocators that are worth acting on are larger, and smaller ones are often matters of
//! page alignment. With few points there is no verdict.

use loam_format::results::{ExperimentRecord, ReplayErrorRecord, Results};

use crate::analyse::runs::{Run, View};
use crate::analyse::stats;

/// The largest error with which a replay is trusted.
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
    /// Number of points that were compared.
    pub points: usize,
}

/// A trial's error; none if too few points can be compared.
pub fn of_run(run: &Run) -> Option<RunError> {
    let points = run.points().filter_map(|point| {
        Some((
            point.number("heap_bytes")?,
            point.number("recorded_heap_bytes")?,
        ))
    });
    of_points(&points.collect::<Vec<_>>())
}

/// The error of points, each with the replay's value and the recorded value.
fn of_points(points: &[(f64, f64)]) -> Option<RunError> {
    let recorded: f64 = points.iter().map(|point| point.1).sum();
    if points.len() < FEWEST_POINTS || recorded <= 0.0 {
        return None;
    }
    let distance: f64 = points.iter().map(|(had, was)| (had - was).abs()).sum();
    let peak = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(0.0, f64::max);
    Some(RunError {
        at_peak: peak(|point| point.0) / peak(|point| point.1) - 1.0,
        on_average: distance / recorded,
        points: points.len(),
    })
}

/// The error over all trials of an experiment on the recorded allocator; none if there are none.
pub fn verdict(results: &Results, experiment: &ExperimentRecord) -> Option<ReplayErrorRecord> {
    let same = experiment.trace.as_ref()?.same_allocator.as_ref()?;
    let view = View::of(results, &experiment.name);
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

/// Stores the error of each trace in its record.
pub fn note(results: &mut Results) {
    let errors: Vec<_> = results
        .experiments
        .iter()
        .map(|record| verdict(results, record))
        .collect();
    for (record, error) in results.experiments.iter_mut().zip(errors) {
        if let Some(trace) = &mut record.trace {
            trace.error = error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_peaks_and_the_mean_distance() {
        let points = [(90.0, 100.0), (210.0, 200.0), (100.0, 100.0)];
        let error = of_points(&points).unwrap();
        assert!((error.at_peak - 0.05).abs() < 1e-9);
        assert!((error.on_average - 20.0 / 400.0).abs() < 1e-9);
        assert_eq!(error.points, 3);
        assert_eq!(of_points(&points[..2]), None);
        assert_eq!(of_points(&[(0.0, 0.0); 5]), None);
    }
}
