//! Charts of an experiment's rows: curves of their series, bars of their figures.

pub mod axes;

pub use axes::{fitting_axis, steps_axis, x_axis};

use loam_format::results::lines::Checkpoint;
use loam_report::chart::{Axis, Chart, Curve, Kind, Point};

use crate::analyse::runs::{Row, Run, View};
use crate::analyse::{pick, stats};

/// Bars at named places; none if there is nothing to draw.
pub fn bars(
    view: &View,
    id: &str,
    title: &str,
    reading: &str,
    places: &[Place],
    y: Axis,
) -> Option<Chart> {
    // A place that no row reached is left out.
    let is_used = |place: &&Place| {
        view.rows
            .iter()
            .any(|row| pick::of_row(row, &place.1).is_some())
    };
    let places: Vec<&Place> = places.iter().filter(is_used).collect();
    let names = places.iter().map(|place| place.0.clone()).collect();
    let curve = |row: &Row| Curve {
        points: places
            .iter()
            .enumerate()
            .filter_map(|(x, place)| spread(x as f64, &row.values(&place.1)))
            .collect(),
        ..empty(row)
    };
    let curves = view.rows.iter().map(curve).collect();
    let x = Axis::categories("", names);
    chart(Kind::Bars, view, [id, title, reading], x, y, curves)
}

/// A horizontal bar for each row, made of parts; none if there is nothing to draw.
pub fn stack(
    view: &View,
    id: &str,
    title: &str,
    reading: &str,
    parts: &[Place],
    y: Axis,
) -> Option<Chart> {
    let rows: Vec<&Row> = view.plain_rows().collect();
    let names = rows.iter().map(|row| row.label()).collect();
    let curve = |part: &Place| Curve {
        label: part.0.clone(),
        allocator: String::new(),
        variant: "part".to_owned(),
        points: rows
            .iter()
            .enumerate()
            .filter_map(|(x, row)| spread(x as f64, &row.values(&part.1)))
            .collect(),
    };
    let curves = parts.iter().map(curve).collect();
    let x = Axis::categories("", names);
    chart(Kind::Stack, view, [id, title, reading], x, y, curves)
}

/// A chart of curves; none if there is nothing to draw.
pub fn lines(
    view: &View,
    id: &str,
    title: &str,
    reading: &str,
    x: Axis,
    y: Axis,
    curves: Vec<Curve>,
) -> Option<Chart> {
    chart(Kind::Lines, view, [id, title, reading], x, y, curves)
}

/// A chart of points; none if there is nothing to draw.
pub fn scatter(
    view: &View,
    id: &str,
    title: &str,
    reading: &str,
    x: Axis,
    y: Axis,
    curves: Vec<Curve>,
) -> Option<Chart> {
    chart(Kind::Scatter, view, [id, title, reading], x, y, curves)
}

/// The chart, if there is something to draw; its id is unique among all experiments.
fn chart(
    kind: Kind,
    view: &View,
    [id, title, reading]: [&str; 3],
    x: Axis,
    y: Axis,
    curves: Vec<Curve>,
) -> Option<Chart> {
    let id = format!("{}-{id}", view.experiment);
    Chart::of(kind, [&id, title, reading], x, y, curves)
}

/// A named place of bars, or a part of a stack, and how its figure is made.
pub type Place = (String, Box<dyn Fn(&Run) -> Option<f64>>);

/// A place by its name.
pub fn place(name: &str, of: impl Fn(&Run) -> Option<f64> + 'static) -> Place {
    (name.to_owned(), Box::new(of))
}

/// A curve for each wanted row: one series, one figure of its checkpoints.
pub fn curves(
    view: &View,
    wanted: impl Fn(&Row) -> bool,
    series: &str,
    figure: impl Fn(&Checkpoint) -> Option<f64>,
) -> Vec<Curve> {
    view.rows
        .iter()
        .filter(|row| wanted(row))
        .map(|row| Curve {
            points: points(row, series, &figure),
            ..empty(row)
        })
        .collect()
}

/// A curve of one row under a name of its own, for charts that compare designs and not allocators.
pub fn design(
    row: &Row,
    label: &str,
    series: &str,
    figure: impl Fn(&Checkpoint) -> Option<f64>,
) -> Curve {
    Curve {
        label: label.to_owned(),
        allocator: row.allocator.clone(),
        variant: "design".to_owned(),
        points: points(row, series, &figure),
    }
}

fn empty(row: &Row) -> Curve {
    Curve {
        label: row.label(),
        allocator: row.allocator.clone(),
        variant: row.variant.clone(),
        points: Vec::new(),
    }
}

fn points(row: &Row, series: &str, figure: &impl Fn(&Checkpoint) -> Option<f64>) -> Vec<Point> {
    let of_run = |run: &Run| run.series(series).map_or(0, |series| series.points.len());
    let length = row.runs.iter().map(of_run).max().unwrap_or(0);
    (0..length)
        .filter_map(|index| {
            let at: Vec<&Checkpoint> = row
                .runs
                .iter()
                .filter_map(|run| run.series(series)?.points.get(index))
                .collect();
            let x = at.first()?.x.unwrap_or(index as f64);
            let values: Vec<f64> = at.iter().filter_map(|point| figure(point)).collect();
            spread(x, &values)
        })
        .collect()
}

/// The point at x whose value is the median; none without values.
pub fn spread(x: f64, values: &[f64]) -> Option<Point> {
    Some(Point {
        x,
        y: stats::median(values)?,
        low: values.iter().copied().reduce(f64::min)?,
        high: values.iter().copied().reduce(f64::max)?,
        count: values.len(),
        x_range: None,
    })
}

/// A curve for each row with one point for each series: the median of the series' points.
pub fn by_series(
    view: &View,
    names: &[String],
    figure: impl Fn(&Checkpoint) -> Option<f64>,
) -> Vec<Curve> {
    let place = |row: &Row, (index, name): (usize, &String)| {
        let of_run = |run: &Run| {
            let points = &run.series(name)?.points;
            stats::median(&points.iter().filter_map(&figure).collect::<Vec<f64>>())
        };
        let values: Vec<f64> = row.runs.iter().filter_map(of_run).collect();
        spread(index as f64, &values)
    };
    view.rows
        .iter()
        .map(|row| Curve {
            points: names
                .iter()
                .enumerate()
                .filter_map(|each| place(row, each))
                .collect(),
            ..empty(row)
        })
        .collect()
}

/// One point for each row of the base variant: one figure against another.
pub fn trade(view: &View, x: fn(&Run) -> Option<f64>, y: fn(&Run) -> Option<f64>) -> Vec<Curve> {
    view.plain_rows()
        .map(|row| {
            let values = |of: fn(&Run) -> Option<f64>| -> Vec<f64> { row.values(of) };
            let point = || {
                let across = spread(0.0, &values(x))?;
                let point = spread(across.y, &values(y))?;
                Some(Point {
                    x_range: Some((across.low, across.high)),
                    ..point
                })
            };
            Curve {
                points: point().into_iter().collect(),
                ..empty(row)
            }
        })
        .collect()
}
