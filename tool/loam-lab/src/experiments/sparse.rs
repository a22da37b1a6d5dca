//! `sparse`: a heap whose few live blocks lie on many pages.

use loam_format::results::lines::Checkpoint;
use loam_format::results::{Case, Form};
use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart};

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Run, View};
use crate::charts::{self, place};
use crate::experiments::{phrases, Experiment, Headline};

/// Sparse heaps.
pub struct Sparse;

const SERIES: &str = "sparse";

/// A key of the point of a step at a divisor.
fn at(run: &Run, step: &str, divisor: f64, key: &str) -> Option<f64> {
    let is_it = |point: &&Checkpoint| {
        point.extra.get("step").is_some_and(|name| name == step)
            && point.number("divisor") == Some(divisor)
    };
    pick::points(run, SERIES).iter().find(is_it)?.number(key)
}

fn resident(run: &Run, step: &str, divisor: f64) -> Option<f64> {
    at(run, step, divisor, "resident_bytes")
}

fn baseline(run: &Run) -> f64 {
    let baseline = run.start.get("baseline_resident_bytes");
    baseline.and_then(serde_json::Value::as_f64).unwrap_or(0.0)
}

/// The live bytes when one block in ten is left.
pub fn live(run: &Run) -> Option<f64> {
    at(run, "compact", 10.0, "live_bytes")
}

/// The memory that the allocator gave back when it was asked. Until then it kept that memory for
/// later use.
pub fn kept(run: &Run) -> Option<f64> {
    Some((resident(run, "thin", 10.0)? - resident(run, "compact", 10.0)?).max(0.0))
}

/// The memory that is not live and that stays although the allocator was asked for it. The
/// surviving blocks hold it.
pub fn pinned(run: &Run) -> Option<f64> {
    Some((resident(run, "compact", 10.0)? - baseline(run) - live(run)?).max(0.0))
}

fn label(point: &Checkpoint) -> String {
    let step = point
        .extra
        .get("step")
        .and_then(|name| name.as_str())
        .unwrap_or("step");
    match (step, point.number("divisor")) {
        ("thin", Some(divisor)) => format!("thin to 1/{divisor:.0}"),
        _ => step.to_owned(),
    }
}

impl Experiment for Sparse {
    fn name(&self) -> &str {
        "sparse"
    }

    fn title(&self) -> String {
        "Sparse heaps".to_owned()
    }

    fn question(&self) -> String {
        "Memory is filled with small blocks and thinned out at random to a tenth, a hundredth, a \
         thousandth: does the memory come back, by itself, after idling, or when it is asked for?"
            .to_owned()
    }

    fn cases(&self, plan: &super::CaseContext) -> Vec<Case> {
        // These are counts of pages, which differ little from round to round. One round suffices
        // for a first look.
        let rounds = match plan.form {
            Form::Quick => 1,
            Form::Full => plan.rounds,
        };
        let case = plan.case("malloc", &[], plan.labels.to_vec());
        vec![Case { rounds, ..case }]
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
        vec![
            bytes("full", "full", "resident memory when filled", |run| {
                resident(run, "fill", 1.0)
            }),
            bytes(
                "tenth",
                "a tenth left",
                "resident memory with one block in ten left, at once",
                |run| resident(run, "thin", 10.0),
            ),
            bytes(
                "compact",
                "asked back",
                "the same after asking for memory back",
                |run| resident(run, "compact", 10.0),
            ),
            bytes(
                "hundredth",
                "a hundredth",
                "with one block in a hundred left, asked back",
                |run| resident(run, "compact", 100.0),
            ),
            bytes(
                "pinned",
                "pinned",
                "what neither the program needs nor asking brings back, a tenth left",
                pinned,
            ),
            Figure {
                unit: Unit::Seconds,
                ..bytes(
                    "refill",
                    "refill takes",
                    "seconds of filling up again",
                    |run| at(run, "refill", 1.0, "seconds"),
                )
            },
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let value = |id| {
            table
                .cell(row, id)
                .map(|cell| Unit::Bytes.show(cell.value.median))
        };
        let parts: Vec<String> = [
            value("tenth")
                .zip(value("compact"))
                .map(|(at_once, asked)| {
                    format!(
                        "with one block in ten left {at_once} stay, {asked} after asking for it \
                         back"
                    )
                }),
            value("hundredth").map(|v| format!("{v} with one in a hundred left")),
        ]
        .into_iter()
        .flatten()
        .collect();
        parts.join("; ") + "."
    }

    fn headline(&self) -> Option<Headline> {
        Some(Headline {
            figure: "pinned",
            heading: "free memory that can not come back",
            why: "Random survivors: one small block in ten lives on, nearly every page has one, \
                  and a page with a live block stays.",
        })
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        let mut found = Vec::new();
        let row = table.view.base_row();
        let live = row.and_then(|row| pick::of_row(row, live));
        let full = row.and_then(|row| pick::of_row(row, |run| at(run, "fill", 1.0, "live_bytes")));
        if let (Some(live), Some(full)) = (live, full) {
            found.push(format!(
                "Of {} one block in ten stays, {} in all. A block can not be moved, so the page \
                 that it lies on must stay: random survivors sit on nearly every page.",
                Unit::Bytes.show(full),
                Unit::Bytes.show(live)
            ));
        }
        found.extend(phrases::leader(
            table,
            "compact",
            "With a tenth left and memory asked back, the smallest process",
        ));
        found.extend(phrases::leader(table, "hundredth", "With a hundredth left"));
        found
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let mut curves = charts::curves(view, |_| true, SERIES, |point| point.resident_bytes);
        curves.extend(
            view.base_row()
                .map(|row| charts::design(row, "live", SERIES, |point| point.live_bytes)),
        );
        let run = view.base_row().and_then(|row| row.runs.first());
        let points = run.map_or(&[][..], |run| pick::points(run, SERIES));
        let names = points.iter().map(label).collect();
        [
            charts::stack(
                view,
                "parts",
                "Where the memory is when one block in ten is left",
                "Needed: what the program still holds. Kept: free, and given back when asked. \
                 Pinned: free, but on pages with a block that lives; this is fragmentation.",
                &[
                    place("needed", live),
                    place("kept", kept),
                    place("pinned", pinned),
                ],
                Axis::of("Resident memory", Unit::Bytes),
            ),
            charts::lines(
                view,
                "resident",
                "Resident memory after each step",
                "The line of what is live is the least that is possible.",
                Axis::categories("", names),
                Axis::of("Resident memory", Unit::Bytes),
                curves,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
