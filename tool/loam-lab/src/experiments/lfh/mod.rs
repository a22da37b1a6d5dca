//! `lfh`: the low-fragmentation-heap analysis, with the three charts of its article.

mod claims;
mod findings;

use loam_format::results::lines::Checkpoint;
use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart};

use crate::analyse::figures::{mean_of_last_three, rate, Better, Figure, FigureTable};
use crate::analyse::runs::{Row, Run, View};
use crate::charts;
use crate::experiments::{generic, Experiment, Headline};

/// The low-fragmentation-heap analysis.
pub struct Lfh;

const MAIN: &str = "iterations";
const AFTER: &str = "after";

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
        findings::sentence(table, row)
    }

    fn headline(&self) -> Option<Headline> {
        Some(Headline {
            figure: "overhead",
            heading: "memory beyond what was asked for",
            why: "Random sizes, random order: free blocks lie between live ones and are too small \
                  or of the wrong size class for what comes next; rounding up to classes adds to \
                  it.",
        })
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        findings::all(table)
    }

    fn claims(&self, table: &FigureTable) -> Vec<super::claims::Claim> {
        claims::all(table)
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let over = |id: &str, title: &str, reading: &str, key: &'static str, unit| {
            let curves = charts::curves(view, Row::is_plain, MAIN, |point| point.number(key));
            let (x, y) = (charts::x_axis(view, MAIN), Axis::of(title, unit));
            charts::lines(view, id, title, reading, x, y, curves)
        };
        let speed =
            "Higher is faster. Each point covers the iterations since the point before it; \
                     the line is the median of the rounds, the band their range.";
        let overhead = "Lower is better: memory that the process holds beyond what the program \
                        asked for, as a part of what it asked for.";
        let faults = "Lower is better: each fault is a visit to the kernel for a page, most of \
                      them for memory that had been given back and was needed again.";
        let latency = "Lower is better: one sampled operation in a thousand took longer than this.";
        let after = charts::curves(view, Row::is_plain, AFTER, |point| point.resident_bytes);
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
            charts::lines(
                view,
                "after",
                "Resident memory when everything is freed",
                "Lower is better: what the process still holds right after the last free, and \
                 after it asked for memory to be given back (malloc_trim, where it exists).",
                charts::steps_axis(view, AFTER),
                Axis::of("Resident memory", Unit::Bytes),
                after,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Speed against overhead: the trade-off that every allocator makes.
fn frontier(experiment: &Lfh, view: &View) -> Option<Chart> {
    let figures = experiment.figures();
    let figure = |id: &str| figures.iter().find(|figure| figure.id == id);
    let (speed, overhead) = (figure("speed")?, figure("overhead")?);
    let curves = charts::trade(view, overhead.of, speed.of);
    charts::scatter(
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
