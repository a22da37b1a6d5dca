//! Which axes fit a series.

use loam_format::results::lines::Checkpoint;
use loam_format::units::Unit;
use loam_report::chart::Axis;

use crate::analyse::runs::View;

/// An axis whose largest value is this many times its smallest is drawn logarithmically.
const LOG_FROM: f64 = 64.0;

/// The x axis that fits a series: named steps if its points have names and count from 0, else
/// numbers.
pub fn fitting_axis(view: &View, series: &str) -> Axis {
    let mut points = view
        .rows
        .iter()
        .flat_map(|row| &row.runs)
        .filter_map(|run| run.series(series))
        .flat_map(|series| series.points.iter().enumerate());
    let is_step = |(index, point): (usize, &Checkpoint)| {
        point.x == Some(index as f64)
            && point.extra.get("step").is_some_and(|name| name.is_string())
    };
    if points.all(is_step) {
        steps_axis(view, series)
    } else {
        x_axis(view, series)
    }
}

/// The x axis of a series. It is logarithmic if the points are spread widely.
pub fn x_axis(view: &View, series: &str) -> Axis {
    let points = || {
        view.rows
            .iter()
            .flat_map(|row| &row.runs)
            .filter_map(|run| run.series(series))
            .flat_map(|series| &series.points)
    };
    let unit = points()
        .map(|point| point.x_unit.as_str())
        .find(|unit| !unit.is_empty());
    let xs = || points().filter_map(|point| point.x);
    let (low, high) = (xs().reduce(f64::min), xs().reduce(f64::max));
    let is_wide = low
        .zip(high)
        .is_some_and(|(low, high)| low > 0.0 && high / low >= LOG_FROM);
    Axis {
        log: is_wide,
        ..Axis::of(unit.unwrap_or("checkpoint"), Unit::Count)
    }
}

/// The x axis of a series whose points are named steps.
pub fn steps_axis(view: &View, series: &str) -> Axis {
    let longest = view
        .rows
        .iter()
        .flat_map(|row| &row.runs)
        .filter_map(|run| run.series(series))
        .max_by_key(|series| series.points.len());
    let names = longest.map(|series| {
        let name = |(index, point): (usize, &Checkpoint)| {
            let step = point.extra.get("step").and_then(serde_json::Value::as_str);
            step.map_or_else(|| format!("step {}", index + 1), str::to_owned)
        };
        series.points.iter().enumerate().map(name).collect()
    });
    Axis::categories("", names.unwrap_or_default())
}
