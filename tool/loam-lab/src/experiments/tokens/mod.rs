//! `tokens`: a preprocessor that got slower with every run.

mod claims;
mod findings;

use loam_format::results::lines::Checkpoint;
use loam_format::results::{Case, Form};
use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart};

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::runs::{Row, Run, View, PLAIN};
use crate::charts;
use crate::experiments::{generic, CaseContext, Experiment, Headline};

/// The preprocessor that got slower every run.
pub struct Tokens;

const MAIN: &str = "runs";
const AFTER: &str = "after";

/// The article's other designs of the program, compared on one allocator.
const DESIGNS: [&str; 3] = ["null", "pool", "arena"];
/// The article's last remedy: a private low-fragmentation heap, which only this project's library
/// offers.
const PRIVATE_HEAP: &str = "loam-lfh";

fn runs(run: &Run) -> Option<&[Checkpoint]> {
    run.series(MAIN).map(|series| series.points.as_slice())
}

fn total_seconds(run: &Run) -> Option<f64> {
    runs(run)?.iter().map(|point| point.seconds).sum()
}

/// The last run's time, divided by the second run's. The first run also warms the page cache and
/// the heap.
fn last_by_second(run: &Run) -> Option<f64> {
    let points = runs(run)?;
    let last = points.last().filter(|_| points.len() > 2)?;
    Some(last.seconds? / points.get(1)?.seconds?)
}

fn last_by_first(run: &Run) -> Option<f64> {
    let points = runs(run)?;
    let last = points.last().filter(|_| points.len() > 1)?;
    Some(last.seconds? / points.first()?.seconds?)
}

impl Experiment for Tokens {
    fn name(&self) -> &str {
        "tokens"
    }

    fn title(&self) -> String {
        "The preprocessor that got slower every run".to_owned()
    }

    fn question(&self) -> String {
        "A preprocessor reads the system's own headers again and again in one process and frees \
         everything after each run: does the next run get slower, and does the memory come back?"
            .to_owned()
    }

    fn cases(&self, plan: &CaseContext) -> Vec<Case> {
        let mut cases = vec![plan.case(PLAIN, &[], plan.labels.to_vec())];
        // The other designs explain the figures and do not compete: in the quick form one round of
        // them is enough.
        let rounds = if plan.form == Form::Quick {
            1
        } else {
            plan.rounds
        };
        if let Some(reference) = plan.reference() {
            for design in DESIGNS {
                let case = plan.case(design, &["--variant", design], vec![reference.clone()]);
                cases.push(Case { rounds, ..case });
            }
        }
        if let Some(loam) = plan.loam {
            let arguments = ["--variant", PRIVATE_HEAP];
            let case = plan.case(PRIVATE_HEAP, &arguments, vec![loam.to_owned()]);
            cases.push(Case { rounds, ..case });
        }
        cases
    }

    fn figures(&self) -> Vec<Figure> {
        vec![
            Figure {
                id: "seconds",
                title: "all runs",
                meaning: "seconds of all runs together",
                unit: Unit::Seconds,
                better: Better::Lower,
                of: total_seconds,
            },
            Figure {
                id: "slowdown",
                title: "last / first run",
                meaning: "time of the last run divided by that of the first",
                unit: Unit::Ratio,
                better: Better::Lower,
                of: last_by_first,
            },
            Figure {
                id: "steady",
                title: "last / second",
                meaning: "time of the last run divided by that of the second, which no longer \
                          fills caches and the heap",
                unit: Unit::Ratio,
                better: Better::Lower,
                of: last_by_second,
            },
            generic::peak(),
            Figure {
                id: "freed",
                title: "left when freed",
                meaning: "resident memory after the last run, when everything is freed",
                unit: Unit::Bytes,
                better: Better::Lower,
                of: |run| runs(run)?.last()?.resident_bytes,
            },
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        findings::sentence(table, row)
    }

    fn headline(&self) -> Option<Headline> {
        Some(Headline {
            figure: "freed",
            heading: "left when all is freed",
            why:
                "A program that runs again and again: what an allocator keeps after everything was \
                  freed is what it sets aside for the next run, or can not give back.",
        })
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        findings::all(table)
    }

    fn claims(&self, table: &FigureTable) -> Vec<super::claims::Claim> {
        claims::all(table)
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let x = || charts::x_axis(view, MAIN);
        let plain =
            |of: fn(&Checkpoint) -> Option<f64>| charts::curves(view, Row::is_plain, MAIN, of);
        let reference = view
            .base_row()
            .map(|row| row.allocator.clone())
            .unwrap_or_default();
        let is_design = |row: &Row| row.variant != PLAIN || row.allocator == reference;
        let designs = charts::curves(view, is_design, MAIN, |point| point.seconds);
        let has_designs = view.rows.iter().any(|row| row.variant != PLAIN);
        [
            charts::lines(
                view,
                "time",
                "Time of each run",
                "Every run does the same work, so a line that rises is a heap that gets slower. \
                 Median of the rounds; the band is their range.",
                x(),
                Axis::of("Seconds a run", Unit::Seconds),
                plain(|point| point.seconds),
            ),
            charts::lines(
                view,
                "ratio",
                "Each run against the first",
                "1 is the time of the first run; the article's program rose by up to 0.4 a run.",
                x(),
                Axis::of("Time / time of the first run", Unit::Ratio),
                plain(|point| point.number("slowdown")),
            ),
            charts::lines(
                view,
                "memory",
                "Resident memory after each run",
                "Everything is freed at each of these points: what is left is what the allocator \
                 keeps.",
                x(),
                Axis::of("Resident memory", Unit::Bytes),
                plain(|point| point.resident_bytes),
            ),
            charts::lines(
                view,
                "designs",
                "The article's other designs",
                "The same program with a null allocator that never frees, a block pool, an arena \
                 and a private heap, beside plain malloc.",
                x(),
                Axis::of("Seconds a run", Unit::Seconds),
                designs,
            )
            .filter(|_| has_designs),
            charts::lines(
                view,
                "after",
                "Resident memory after asking for it back",
                "After the last run and a call of malloc_trim, where the allocator has it.",
                charts::steps_axis(view, AFTER),
                Axis::of("Resident memory", Unit::Bytes),
                charts::curves(view, Row::is_plain, AFTER, |point| point.resident_bytes),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
