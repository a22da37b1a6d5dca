//! Picks numbers out of a run by the names of its series. The experiments make their figures,
//! tables and charts of these.

use loam_format::results::lines::Checkpoint;

use crate::analyse::runs::{Row, Run};
use crate::analyse::{figures, stats};

/// The points of a series; empty if the run has none of that name.
pub fn points<'r>(run: &'r Run, series: &str) -> &'r [Checkpoint] {
    run.series(series).map_or(&[], |series| &series.points)
}

/// Operations of a series, divided by the seconds that they took.
pub fn speed(run: &Run, series: &str) -> Option<f64> {
    figures::rate(points(run, series))
}

/// The median of a key over the points of a series.
pub fn median(run: &Run, series: &str, key: &str) -> Option<f64> {
    let values: Vec<f64> = points(run, series)
        .iter()
        .filter_map(|point| point.number(key))
        .collect();
    stats::median(&values)
}

/// A key of the first point.
pub fn first(run: &Run, series: &str, key: &str) -> Option<f64> {
    points(run, series).first()?.number(key)
}

/// A key of the last point.
pub fn last(run: &Run, series: &str, key: &str) -> Option<f64> {
    points(run, series).last()?.number(key)
}

/// A key of the point at x.
pub fn at(run: &Run, series: &str, x: f64, key: &str) -> Option<f64> {
    let point = points(run, series)
        .iter()
        .find(|point| point.x == Some(x))?;
    point.number(key)
}

/// A key of the last point whose `step` has that name.
pub fn step(run: &Run, series: &str, step: &str, key: &str) -> Option<f64> {
    let is_it = |point: &&Checkpoint| point.extra.get("step").is_some_and(|name| name == step);
    points(run, series).iter().rev().find(is_it)?.number(key)
}

/// How a key grew: its median over the second half of the points, divided by that over the first
/// half. The first point is left out, because it also fills the heap and the processor's caches.
/// None with fewer than three points. Halves and medians are used because a single round may meet a
/// busy machine.
pub fn decay(run: &Run, series: &str, key: &str) -> Option<f64> {
    let points = points(run, series);
    let values: Vec<f64> = points
        .iter()
        .skip(1)
        .filter_map(|point| point.number(key))
        .collect();
    if values.len() < 2 {
        return None;
    }
    let (early, late) = values.split_at(values.len() / 2);
    Some(stats::median(late)? / stats::median(early)?)
}

/// A median over the rounds that is above a threshold, if the figure is above 1 in every round.
pub fn surely_above(
    row: &Row,
    threshold: f64,
    figure: impl Fn(&Run) -> Option<f64>,
) -> Option<f64> {
    let values = row.values(figure);
    let median = stats::median(&values)?;
    (median > threshold && values.iter().all(|value| *value > 1.0)).then_some(median)
}

/// The median over the runs of a row.
pub fn of_row(row: &Row, figure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    stats::median(&row.values(figure))
}
