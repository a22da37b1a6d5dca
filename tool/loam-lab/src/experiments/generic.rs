//! What can be said of any experiment. It uses only the keys that every checkpoint has.

use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart};

use crate::analyse::figures::{largest, last, rate, Better, Figure, FigureTable};
use crate::analyse::runs::{Run, View};
use crate::charts;
use crate::experiments::phrases;

/// With more series than this, charts show them side by side instead of one chart each.
const MOST_CHARTS_PER_KEY: usize = 4;
/// With more curves than this, a reader can not tell them apart in one chart.
const MOST_CURVES: usize = 12;

/// The columns of an experiment that defines none.
pub fn figures() -> Vec<Figure> {
    vec![
        Figure {
            id: "speed",
            title: "speed",
            meaning: "operations of all checkpoints, divided by the seconds of all checkpoints",
            unit: Unit::PerSecond,
            better: Better::Higher,
            of: |run| rate(run.points()),
        },
        overhead(|run| last(run, "overhead")),
        peak(),
        Figure {
            id: "resident",
            title: "resident at end",
            meaning: "resident memory at the last checkpoint",
            unit: Unit::Bytes,
            better: Better::Lower,
            of: |run| last(run, "resident_bytes"),
        },
        faults(),
    ]
}

/// Overhead, computed by `of`.
pub fn overhead(of: fn(&Run) -> Option<f64>) -> Figure {
    Figure {
        id: "overhead",
        title: "overhead",
        meaning: "(resident - baseline) / requested and live - 1, at the end",
        unit: Unit::Percent,
        better: Better::Lower,
        of,
    }
}

/// Peak resident memory.
pub fn peak() -> Figure {
    Figure {
        id: "peak",
        title: "peak memory",
        meaning: "largest resident memory of the process at any time",
        unit: Unit::Bytes,
        better: Better::Lower,
        of: |run| largest(run, "peak_resident_bytes"),
    }
}

/// Page faults.
pub fn faults() -> Figure {
    Figure {
        id: "faults",
        title: "page faults",
        meaning: "minor and major page faults of the measured part",
        unit: Unit::Count,
        better: Better::Lower,
        of: |run| largest(run, "faults"),
    }
}

/// A row in words.
pub fn sentence(table: &FigureTable, row: usize) -> String {
    if table.view.base == Some(row) {
        return phrases::reference(&reference_parts(table, row));
    }
    let base = phrases::call_base(table.view, row);
    let ratio = |id| table.cell(row, id).and_then(|cell| cell.ratio);
    let speed = ratio("speed").map(|ratio| phrases::speed(&ratio, &base));
    let memory = ratio("peak").map(|ratio| phrases::memory(&ratio, &base));
    let parts: Vec<String> = [speed, memory].into_iter().flatten().collect();
    if parts.is_empty() {
        return format!("ran, but shares no figure with {base}.");
    }
    parts.join("; ") + "."
}

/// Speed and peak of the row that all other rows are compared with.
pub fn reference_parts(table: &FigureTable, row: usize) -> Vec<String> {
    let value = |id: &str| table.cell(row, id).map(|cell| cell.value.median);
    let speed = value("speed").map(|v| format!("{} operations", Unit::PerSecond.show(v)));
    let peak = value("peak").map(|v| format!("{} at the peak", Unit::Bytes.show(v)));
    [speed, peak].into_iter().flatten().collect()
}

/// The findings of the whole experiment.
pub fn findings(table: &FigureTable) -> Vec<String> {
    [
        ("speed", "Fastest"),
        ("peak", "Smallest at its peak"),
        ("overhead", "Least wasteful"),
    ]
    .into_iter()
    .filter_map(|(id, adjective)| phrases::leader(table, id, adjective))
    .collect()
}

/// Keys that get a chart if an experiment has them.
const KEYS: [(&str, &str, Unit); 5] = [
    (
        "operations_per_second",
        "Operations a second",
        Unit::PerSecond,
    ),
    ("overhead", "Memory overhead", Unit::Percent),
    ("resident_bytes", "Resident memory", Unit::Bytes),
    ("faults", "Page faults since the start", Unit::Count),
    (
        "latency_p999",
        "Latency, 99.9th percentile",
        Unit::Nanoseconds,
    ),
];

/// A chart for each key: curves over x if there are few series, else series side by side.
pub fn charts(view: &View) -> Vec<Chart> {
    let names = view.series_names();
    let has_curves = |name: &String| {
        view.rows.iter().flat_map(|row| &row.runs).any(|run| {
            run.series(name)
                .is_some_and(|series| series.points.len() > 1)
        })
    };
    let curves: Vec<&String> = names.iter().filter(|name| has_curves(name)).collect();
    let mut charts = Vec::new();
    for (key, title, unit) in KEYS {
        if !curves.is_empty() && curves.len() <= MOST_CHARTS_PER_KEY {
            for series in &curves {
                let title = match curves.len() {
                    1 => title.to_owned(),
                    _ => format!("{title}: {series}"),
                };
                charts.extend(over_x(view, series, key, &title, unit));
            }
        } else if names.len() > 1 {
            charts.extend(side_by_side(view, &names, key, title, unit));
        }
    }
    charts
}

fn over_x(view: &View, series: &str, key: &str, title: &str, unit: Unit) -> Vec<Chart> {
    let reading = "Median of the rounds; the band is their range.";
    let all = charts::curves(view, |_| true, series, |point| point.number(key));
    let y = Axis::of(title, unit);
    if all.len() <= MOST_CURVES {
        let x = charts::fitting_axis(view, series);
        return charts::lines(view, &format!("{series}-{key}"), title, reading, x, y, all)
            .into_iter()
            .collect();
    }
    let mut variants: Vec<&str> = view.rows.iter().map(|row| row.variant.as_str()).collect();
    variants.dedup();
    variants
        .into_iter()
        .filter_map(|variant| {
            let part = charts::curves(
                view,
                |row| row.variant == variant,
                series,
                |p| p.number(key),
            );
            let id = format!("{series}-{key}-{variant}");
            let title = format!("{title}: {variant}");
            charts::lines(
                view,
                &id,
                &title,
                reading,
                charts::fitting_axis(view, series),
                y.clone(),
                part,
            )
        })
        .collect()
}

fn side_by_side(view: &View, names: &[String], key: &str, title: &str, unit: Unit) -> Vec<Chart> {
    let curves = charts::by_series(view, names, |point| point.number(key));
    let x = Axis::categories("", names.to_vec());
    let reading = "Each place on the x axis is a series of its own; median over its points.";
    let id = format!("series-{key}");
    charts::lines(view, &id, title, reading, x, Axis::of(title, unit), curves)
        .into_iter()
        .collect()
}
