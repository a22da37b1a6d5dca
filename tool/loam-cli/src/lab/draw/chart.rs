//! Charts as data: what is to be drawn, without saying how. The report's script draws them, and
//! the table and the CSV file beside each chart hold the same points.

use serde::Serialize;

pub use super::axis::{fitting_axis, steps_axis, x_axis, Axis};

use crate::lab::analyse::runs::{Row, Run, View};
use crate::lab::analyse::stats;
use crate::lab::results::lines::Checkpoint;

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Curves over x, with bands.
    Lines,
    /// One point an allocator, with error bars.
    Scatter,
}

/// A point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Place on the x axis.
    pub x: f64,
    /// Median of the rounds.
    pub y: f64,
    /// Smallest of the rounds.
    pub low: f64,
    /// Largest of the rounds.
    pub high: f64,
    /// How many rounds.
    pub count: usize,
    /// Range of x, in scatter charts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_range: Option<(f64, f64)>,
}

/// A curve.
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// The allocator, which decides its colour.
    pub allocator: String,
    /// The variant, which decides its dashes.
    pub variant: String,
    /// Its points.
    pub points: Vec<Point>,
}

/// A chart.
#[derive(Debug, Clone, Serialize)]
pub struct Chart {
    /// Unique in the report.
    pub id: String,
    /// The heading.
    pub title: String,
    /// How to read it.
    pub reading: String,
    /// How it is drawn.
    pub kind: Kind,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// What is drawn.
    pub curves: Vec<Curve>,
}

impl Chart {
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
        Chart::of(Kind::Lines, view, [id, title, reading], x, y, curves)
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
        Chart::of(Kind::Scatter, view, [id, title, reading], x, y, curves)
    }

    fn of(
        kind: Kind,
        view: &View,
        [id, title, reading]: [&str; 3],
        x: Axis,
        y: Axis,
        mut curves: Vec<Curve>,
    ) -> Option<Chart> {
        curves.retain(|curve| !curve.points.is_empty());
        if curves.is_empty() {
            return None;
        }
        Some(Chart {
            id: identifier(&format!("{}-{id}", view.experiment)),
            title: title.to_owned(),
            reading: reading.to_owned(),
            kind,
            x,
            y,
            curves,
        })
    }
}

/// Letters, digits and hyphens only: it becomes part of a page's anchors and of file names.
fn identifier(text: &str) -> String {
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    text.chars().map(clean).collect()
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

fn spread(x: f64, values: &[f64]) -> Option<Point> {
    Some(Point {
        x,
        y: stats::median(values)?,
        low: values.iter().copied().reduce(f64::min)?,
        high: values.iter().copied().reduce(f64::max)?,
        count: values.len(),
        x_range: None,
    })
}

/// A curve for each row over the series themselves: the median of each series' points.
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

/// One point a row of the base variant: one figure against another.
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
