//! `lfh`: the low-fragmentation-heap analysis, with the three charts of its article.

use super::phrases;
use super::{generic, Experiment};
use crate::lab::analyse::figures::{mean_of_last_three, rate, Better, Figure, FigureTable};
use crate::lab::analyse::runs::{Row, Run, View};
use crate::lab::analyse::stats;
use crate::lab::draw::chart::{self, Axis, Chart};
use crate::lab::results::lines::Checkpoint;
use crate::output::units::Unit;
use crate::output::words;

/// The low-fragmentation-heap analysis.
pub struct Lfh;

const MAIN: &str = "iterations";
const AFTER: &str = "after";

/// An allocator that keeps this part of its best speed is not called slower.
const STEADY: f64 = 0.95;
/// Before this many iterations the heap still fills, and the kernel's page faults set the pace.
const WARMED_UP: f64 = 1_000_000.0;

fn main_points(run: &Run) -> Option<&[Checkpoint]> {
    run.series(MAIN).map(|series| series.points.as_slice())
}

fn after_step(run: &Run, step: &str) -> Option<f64> {
    let is_step = |point: &&Checkpoint| point.extra.get("step").is_some_and(|name| name == step);
    run.series(AFTER)?
        .points
        .iter()
        .find(is_step)?
        .resident_bytes
}

impl Experiment for Lfh {
    fn name(&self) -> &str {
        "lfh"
    }

    fn title(&self) -> String {
        "The low-fragmentation-heap analysis".to_owned()
    }

    fn question(&self) -> String {
        "Blocks of nine sizes are allocated and freed at random, up to millions of times: how much \
         memory is lost, how often must the kernel be asked, and does malloc get slower?"
            .to_owned()
    }

    fn figures(&self) -> Vec<Figure> {
        vec![
            Figure {
                id: "speed",
                title: "speed",
                meaning: "allocations and frees of the whole run, by the seconds that they took",
                unit: Unit::PerSecond,
                better: Better::Higher,
                of: |run| rate(main_points(run)?),
            },
            Figure {
                meaning: "(resident - baseline) / requested and live - 1; \
                          mean of the last three checkpoints",
                ..generic::overhead(|run| mean_of_last_three(main_points(run)?, "overhead"))
            },
            generic::peak(),
            generic::faults(),
            Figure {
                id: "freed",
                title: "left when freed",
                meaning: "resident memory right after everything was freed",
                unit: Unit::Bytes,
                better: Better::Lower,
                of: |run| after_step(run, "freed"),
            },
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let overhead = |row| table.cell(row, "overhead").map(|cell| cell.value.median);
        if table.view.base == Some(row) {
            return generic::sentence(table, row).replace(
                " at the peak.",
                &overhead(row).map_or(" at the peak.".to_owned(), |value| {
                    format!(" at the peak, {} overhead.", Unit::Percent.show(value))
                }),
            );
        }
        let Some(base) = table.view.base_row() else {
            return String::new();
        };
        let mut parts = Vec::new();
        if let Some(ratio) = table.cell(row, "speed").and_then(|cell| cell.ratio) {
            parts.push(phrases::speed(&ratio, &base.allocator));
        }
        if let (Some(own), Some(theirs)) = (overhead(row), table.view.base.and_then(overhead)) {
            let (own, theirs) = (Unit::Percent.show(own), Unit::Percent.show(theirs));
            parts.push(format!("{own} overhead against {theirs}"));
        }
        if let Some(x) = overtakes(base, &table.view.rows[row]) {
            parts.push(format!("ahead from {} iterations on", phrases::grouped(x)));
        }
        parts.join("; ") + "."
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        let mut findings = Vec::new();
        findings.extend(phrases::leader(
            table,
            "speed",
            "Fastest over the whole run",
        ));
        findings.extend(phrases::leader(
            table,
            "overhead",
            "The least memory overhead",
        ));
        findings.extend(decay(table.view));
        findings.extend(early_and_late(table));
        findings.extend(phrases::leader(
            table,
            "freed",
            "After everything was freed, the smallest process",
        ));
        findings
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let over = |id: &str, title: &str, reading: &str, key: &'static str, unit| {
            let curves = chart::curves(view, Row::is_plain, MAIN, |point| point.number(key));
            let (x, y) = (chart::x_axis(view, MAIN), Axis::of(title, unit));
            Chart::lines(view, id, title, reading, x, y, curves)
        };
        let speed =
            "Higher is faster. Each point covers the iterations since the point before it; \
                     the line is the median of the rounds, the band their range.";
        let overhead = "Lower is better: memory that the process holds beyond what the program \
                        asked for, as a part of what it asked for.";
        let faults = "Lower is better: each fault is a visit to the kernel for a page, most of \
                      them for memory that had been given back and was needed again.";
        let latency = "Lower is better: one sampled operation in a thousand took longer than this.";
        let after = chart::curves(view, Row::is_plain, AFTER, |point| point.resident_bytes);
        [
            over(
                "overhead",
                "Memory overhead",
                overhead,
                "overhead",
                Unit::Percent,
            ),
            over(
                "faults",
                "Page faults since the start",
                faults,
                "faults",
                Unit::Count,
            ),
            over(
                "speed",
                "Operations a second",
                speed,
                "operations_per_second",
                Unit::PerSecond,
            ),
            frontier(self, view),
            over(
                "latency",
                "Latency, 99.9th percentile",
                latency,
                "latency_p999",
                Unit::Nanoseconds,
            )
            .map(|chart| Chart {
                y: Axis {
                    log: true,
                    ..chart.y
                },
                ..chart
            }),
            Chart::lines(
                view,
                "after",
                "Resident memory when everything is freed",
                "Lower is better: what the process still holds right after the last free, and \
                 after it asked for memory to be given back (malloc_trim, where it exists).",
                chart::steps_axis(view, AFTER),
                Axis::of("Resident memory", Unit::Bytes),
                after,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Speed against overhead: the picture of the trade that every allocator makes.
fn frontier(experiment: &Lfh, view: &View) -> Option<Chart> {
    let figures = experiment.figures();
    let figure = |id: &str| figures.iter().find(|figure| figure.id == id);
    let (speed, overhead) = (figure("speed")?, figure("overhead")?);
    let curves = chart::trade(view, overhead.of, speed.of);
    Chart::scatter(
        view,
        "trade",
        "Speed against memory",
        "Up is faster, left is less waste: the best place is the upper left corner. Bars show the \
         range of the rounds.",
        Axis::of("Memory overhead", Unit::Percent),
        Axis::of("Operations a second", Unit::PerSecond),
        curves,
    )
}

/// Median speed at each x.
fn speeds(row: &Row) -> Vec<(f64, f64)> {
    let first = row.runs.iter().find_map(main_points).unwrap_or_default();
    first
        .iter()
        .enumerate()
        .filter_map(|(index, point)| {
            let at = |run: &Run| main_points(run)?.get(index)?.operations_per_second;
            let values: Vec<f64> = row.runs.iter().filter_map(at).collect();
            Some((point.x?, stats::median(&values)?))
        })
        .collect()
}

/// The iteration from which on a row is faster than the base for good.
fn overtakes(base: &Row, row: &Row) -> Option<f64> {
    let base = speeds(base);
    let pairs: Vec<(f64, bool)> = speeds(row)
        .iter()
        .filter_map(|(x, own)| {
            let (_, theirs) = base.iter().find(|(other, _)| other == x)?;
            Some((*x, own > theirs))
        })
        .collect();
    let behind_last = pairs.iter().rposition(|(_, ahead)| !ahead);
    pairs
        .get(behind_last.map_or(0, |index| index + 1))
        .map(|(x, _)| *x)
}

/// Who slows down between the first warm checkpoint and the last.
fn decay(view: &View) -> Option<String> {
    let mut slowed = Vec::new();
    let mut steady = 0;
    for row in view.plain_rows() {
        let warm: Vec<f64> = speeds(row)
            .iter()
            .filter(|(x, _)| *x >= WARMED_UP)
            .map(|(_, speed)| *speed)
            .collect();
        let (Some(best), Some(last)) = (warm.iter().copied().reduce(f64::max), warm.last()) else {
            continue;
        };
        if warm.len() < 2 {
            continue;
        }
        if *last < best * STEADY {
            let percent = (1.0 - last / best) * 100.0;
            slowed.push(format!("{} ({percent:.0}%)", phrases::call(&row.allocator)));
        } else {
            steady += 1;
        }
    }
    if slowed.is_empty() && steady == 0 {
        return None;
    }
    Some(if slowed.is_empty() {
        "Once warm, none of them gets slower as iterations grow: the article's slow-down is not \
         seen here."
            .to_owned()
    } else {
        format!(
            "As iterations grow, these fall behind their own best speed: {}; {} within 5% of it.",
            words::list(&slowed),
            match steady {
                0 => "none of the others stays".to_owned(),
                1 => "one stays".to_owned(),
                n => format!("{n} stay"),
            }
        )
    })
}

/// The article: the low-fragmentation policy costs more memory at first and less after.
fn early_and_late(table: &FigureTable) -> Option<String> {
    let view = table.view;
    let row = &view.rows[table.row_of("loam")?];
    let base = view
        .base_row()
        .filter(|base| base.allocator != row.allocator)?;
    let overhead = |row: &Row, late: bool| {
        let at = |run: &Run| {
            let points = main_points(run)?;
            if late {
                mean_of_last_three(points, "overhead")
            } else {
                points.first()?.overhead
            }
        };
        let values: Vec<f64> = row.runs.iter().filter_map(at).collect();
        stats::median(&values)
    };
    let (own_early, base_early) = (overhead(row, false)?, overhead(base, false)?);
    let (own_late, base_late) = (overhead(row, true)?, overhead(base, true)?);
    let word = |own: f64, theirs: f64| if own > theirs { "more" } else { "less" };
    Some(format!(
        "Against {}, Loam loses {} memory at the first checkpoint ({} against {}) and {} at the \
         end ({} against {}).",
        phrases::call(&base.allocator),
        word(own_early, base_early),
        Unit::Percent.show(own_early),
        Unit::Percent.show(base_early),
        word(own_late, base_late),
        Unit::Percent.show(own_late),
        Unit::Percent.show(base_late),
    ))
}
