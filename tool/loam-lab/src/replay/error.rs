//! How far a replay is from what was recorded: resident bytes of the heap, at the points where the recorder looked.
//!
//! Method: of each trial on the recorded allocator, the largest of its points against the largest recorded one, and
//! the mean of the distances at all points as a share of the recorded mean; the median over the trials. A look took the
//! recorder some time, while the program went on: the distance is that from what the replay had at the look, shortly
//! before and shortly after it (`points::LOOK_TIME`), and none if the recorded size lies between those. Threshold:
//! 5 %, since differences between allocators that are worth acting on are larger, and those below it are often
//! matters of page alignment. Few points say nothing.

use loam_format::results::{ReplayErrorRecord, Results};

use crate::analyse::runs::{Run, View};
use crate::analyse::stats;
use crate::replay::points;

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
    let points = run.points().filter_map(|point| {
        Some(Look {
            time: point.x? * 1e3,
            replayed: point.number("heap_bytes")?,
            recorded: point.number("recorded_heap_bytes"),
        })
    });
    of_looks(&points.collect::<Vec<_>>())
}

/// A look of the replay at its heap.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// Nanoseconds of the recording.
    time: f64,
    /// What it had.
    replayed: f64,
    /// What the recorder saw, if it looked then.
    recorded: Option<f64>,
}

fn of_looks(looks: &[Look]) -> Option<RunError> {
    let (mut replayed_peak, mut peak, mut sum, mut distance, mut points) =
        (0f64, 0f64, 0.0, 0.0, 0);
    // A microsecond more: times are written in whole ones.
    let near = points::LOOK_TIME as f64 + 1e3;
    for look in looks {
        let Some(recorded) = look.recorded else {
            continue;
        };
        let beside = looks
            .iter()
            .filter(|other| (other.time - look.time).abs() <= near);
        let (low, high) = beside.fold((look.replayed, look.replayed), |(low, high), other| {
            (low.min(other.replayed), high.max(other.replayed))
        });
        distance += (low - recorded).max(recorded - high).max(0.0);
        sum += recorded;
        peak = peak.max(recorded);
        replayed_peak = replayed_peak.max(look.replayed);
        points += 1;
    }
    if points < FEWEST_POINTS || sum <= 0.0 {
        return None;
    }
    Some(RunError {
        at_peak: replayed_peak / peak - 1.0,
        on_average: distance / sum,
        points,
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
        let look = |time: f64, replayed, recorded| Look {
            time: time * 1e9,
            replayed,
            recorded,
        };
        let mut looks = vec![
            look(1.0, 90.0, Some(100.0)),
            look(2.0, 210.0, Some(200.0)),
            look(3.0, 100.0, Some(100.0)),
        ];
        let error = of_looks(&looks).unwrap();
        assert!((error.at_peak - 0.05).abs() < 1e-9);
        assert!((error.on_average - 20.0 / 400.0).abs() < 1e-9);
        // What was seen lies between what the replay had shortly before and after.
        looks.push(look(1.02, 105.0, None));
        looks.push(look(1.99, 195.0, None));
        looks.push(look(2.5, 500.0, None));
        let error = of_looks(&looks).unwrap();
        assert!((error.at_peak - 0.05).abs() < 1e-9);
        assert_eq!((error.on_average, error.points), (0.0, 3));
        assert_eq!(of_looks(&looks[..2]), None);
        assert_eq!(of_looks(&[look(0.0, 0.0, Some(0.0)); 5]), None);
    }
}
