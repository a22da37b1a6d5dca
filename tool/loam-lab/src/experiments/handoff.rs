//! `handoff`: one thread allocates, another frees.

use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart};

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Run, View};
use crate::charts::{self, place};
use crate::experiments::{generic, phrases, Experiment};

/// Producer and consumer.
pub struct Handoff;

const SERIES: [(&str, &str); 2] = [("1 to 1", "one to one"), ("N to N", "N to N")];

fn peak_of(run: &Run, series: &str) -> Option<f64> {
    pick::last(run, series, "peak_resident_bytes")
}

impl Experiment for Handoff {
    fn name(&self) -> &str {
        "handoff"
    }

    fn title(&self) -> String {
        "Producer and consumer".to_owned()
    }

    fn question(&self) -> String {
        "One thread allocates, another frees: what does it cost, and does the memory of blocks \
         that end in another thread pile up?"
            .to_owned()
    }

    fn figures(&self) -> Vec<Figure> {
        let speed = |id, title, meaning, of| Figure {
            id,
            title,
            meaning,
            unit: Unit::PerSecond,
            better: Better::Higher,
            of,
        };
        vec![
            speed(
                "speed",
                "one to one",
                "allocations and frees a second, one producer and one consumer",
                |run| pick::speed(run, SERIES[0].0),
            ),
            speed(
                "many",
                "N to N",
                "the same with as many of each as the machine has cores",
                |run| pick::speed(run, SERIES[1].0),
            ),
            Figure {
                meaning: "largest resident memory of the process at any time; what the rings hold \
                          at most is a fraction of a MiB",
                ..generic::peak()
            },
            generic::faults(),
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let base = phrases::call_base(table.view, row);
        let ratio = |id| table.cell(row, id).and_then(|cell| cell.ratio);
        if table.view.base == Some(row) {
            return phrases::reference(&generic::reference_parts(table, row));
        }
        let parts: Vec<String> = [
            ratio("speed").map(|r| format!("one to one {}", phrases::speed(&r, &base))),
            ratio("many").map(|r| format!("N to N {}", phrases::speed(&r, &base))),
            ratio("peak").map(|r| phrases::memory(&r, &base)),
        ]
        .into_iter()
        .flatten()
        .collect();
        parts.join("; ") + "."
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        [
            phrases::leader(table, "speed", "Fastest from one thread to another"),
            phrases::leader(table, "many", "Fastest with many"),
            phrases::leader(table, "peak", "The smallest process"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let speeds =
            SERIES.map(|(series, label)| place(label, move |run| pick::speed(run, series)));
        let peaks = SERIES.map(|(series, label)| place(label, move |run| peak_of(run, series)));
        let over = SERIES.iter().filter_map(|(series, label)| {
            let curves = charts::curves(view, |_| true, series, |point| point.resident_bytes);
            charts::lines(
                view,
                &format!("resident-{series}"),
                &format!("Resident memory, {label}"),
                "A line that rises is memory that piles up because its blocks end in another \
                 thread than they began in.",
                charts::x_axis(view, series),
                Axis::of("Resident memory", Unit::Bytes),
                curves,
            )
        });
        let bars = [
            charts::bars(
                view,
                "speed",
                "Operations a second",
                "Higher is faster: allocations by one side and frees by the other.",
                &speeds,
                Axis::of("Operations a second", Unit::PerSecond),
            ),
            charts::bars(
                view,
                "peak",
                "Peak memory",
                "Lower is better.",
                &peaks,
                Axis::of("Resident memory", Unit::Bytes),
            ),
        ];
        bars.into_iter().flatten().chain(over).collect()
    }
}
