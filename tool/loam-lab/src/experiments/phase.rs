//! `phase`: a long-running program that goes through several phases of work.

use loam_format::results::lines::Checkpoint;
use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart, Curve};

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Run, View};
use crate::charts::{self, place};
use crate::experiments::{phrases, Experiment, Headline};

/// Changing phases.
pub struct Phase;

const SERIES: &str = "phase";
const RESIDENT: &str = "resident_bytes";

fn resident(run: &Run, step: &str) -> Option<f64> {
    pick::step(run, SERIES, step, RESIDENT)
}

fn seconds(run: &Run, step: &str) -> Option<f64> {
    pick::step(run, SERIES, step, "seconds")
}

fn peak_ratio(run: &Run) -> Option<f64> {
    run.end.get("peak_ratio")?.as_f64()
}

/// `fill 1`, `thin 1`, ... `idle`, `compact`
fn label(point: &Checkpoint) -> String {
    let step = point
        .extra
        .get("step")
        .and_then(|name| name.as_str())
        .unwrap_or("step");
    match (step, point.number("round")) {
        ("fill" | "thin", Some(round)) => format!("{step} {}", round + 1.0),
        _ => step.replace("-empty", " (empty)"),
    }
}

impl Experiment for Phase {
    fn name(&self) -> &str {
        "phase"
    }

    fn title(&self) -> String {
        "Changing phases".to_owned()
    }

    fn question(&self) -> String {
        "A program fills memory with small objects, frees nine in ten at random, and goes on with \
         objects of another size, again and again: how much more memory than it needs does it hold?"
            .to_owned()
    }

    fn figures(&self) -> Vec<Figure> {
        let bytes = |id, title, meaning, of| Figure {
            id,
            title,
            meaning,
            unit: Unit::Bytes,
            better: Better::Lower,
            of,
        };
        let time = |id, title, meaning, of| Figure {
            unit: Unit::Seconds,
            ..bytes(id, title, meaning, of)
        };
        vec![
            Figure {
                unit: Unit::Ratio,
                ..bytes(
                    "ratio",
                    "peak / live",
                    "peak resident memory, less the baseline, by the most that was ever live",
                    peak_ratio,
                )
            },
            bytes(
                "thin",
                "after thinning",
                "resident memory after the last thinning to a tenth",
                |run| resident(run, "thin"),
            ),
            bytes(
                "compact",
                "compacted",
                "the same after asking for memory back",
                |run| resident(run, "compact"),
            ),
            bytes(
                "end",
                "when empty",
                "resident memory when all is freed, before asking",
                |run| resident(run, "free"),
            ),
            time(
                "compacting",
                "compact takes",
                "seconds of asking for memory back",
                |run| seconds(run, "compact"),
            ),
            time(
                "refill",
                "refill takes",
                "seconds of filling up again, page faults included",
                |run| seconds(run, "refill"),
            ),
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let value = |id| table.cell(row, id).map(|cell| cell.value.median);
        let mut parts = Vec::new();
        if let Some(ratio) = value("ratio") {
            parts.push(format!(
                "at its peak it holds {ratio:.2} times what is live"
            ));
        }
        if let (Some(thin), Some(compact)) = (value("thin"), value("compact")) {
            parts.push(format!(
                "with a tenth left {} stay resident, {} after asking for memory back",
                Unit::Bytes.show(thin),
                Unit::Bytes.show(compact)
            ));
        }
        if let Some(end) = value("end") {
            parts.push(format!("{} when all is freed", Unit::Bytes.show(end)));
        }
        parts.join("; ") + "."
    }

    fn headline(&self) -> Option<Headline> {
        Some(Headline {
            figure: "ratio",
            heading: "peak memory, by what was live",
            why: "Sizes change from phase to phase: holes of one size do not fit the next one's \
                  blocks, so a heap that can not reuse them takes new memory for every phase.",
        })
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        let mut found: Vec<String> = [
            phrases::leader(table, "ratio", "The least memory beyond what is live"),
            phrases::leader(
                table,
                "compact",
                "With a tenth left and memory asked back, the smallest process",
            ),
            phrases::leader(table, "end", "When all is freed, the smallest process"),
        ]
        .into_iter()
        .flatten()
        .collect();
        found.push(
            "A heap of size classes can use what an earlier phase left only for blocks of the same \
             class, unless it can give empty pages, or sparse spans, to other classes: that is \
             what peak / live shows."
                .to_owned(),
        );
        found
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let mut curves = charts::curves(view, |_| true, SERIES, |point| point.resident_bytes);
        curves.extend(live(view));
        let steps = [
            ("thin", "after thinning"),
            ("compact", "compacted"),
            ("free", "all freed"),
            ("compact-empty", "compacted, empty"),
        ]
        .map(|(step, name)| place(name, move |run| resident(run, step)));
        let times = [
            ("compact", "compact"),
            ("refill", "refill"),
            ("free", "free"),
        ]
        .map(|(step, name)| place(name, move |run| seconds(run, step)));
        [
            charts::lines(
                view,
                "resident",
                "Resident memory after each step",
                "The line of what is live is the least that is possible; the distance to it is \
                 waste. Nine objects in ten are freed at each `thin`.",
                Axis::categories("", names(view)),
                Axis::of("Resident memory", Unit::Bytes),
                curves,
            ),
            charts::bars(
                view,
                "left",
                "What stays resident",
                "Lower is better. After thinning a tenth is live; in the end nothing.",
                &steps,
                Axis::of("Resident memory", Unit::Bytes),
            ),
            charts::bars(
                view,
                "times",
                "What giving back and faulting back cost",
                "Lower is faster. Memory that was given back must be faulted in again by the next \
                 fill.",
                &times,
                Axis::of("Seconds", Unit::Seconds),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The program's live bytes, which are the same under every allocator.
fn live(view: &View) -> Option<Curve> {
    let row = view.base_row()?;
    Some(charts::design(row, "live", SERIES, |point| {
        point.live_bytes
    }))
}

fn names(view: &View) -> Vec<String> {
    let run = view.base_row().and_then(|row| row.runs.first());
    let points = run.map_or(&[][..], |run| pick::points(run, SERIES));
    points.iter().map(label).collect()
}
