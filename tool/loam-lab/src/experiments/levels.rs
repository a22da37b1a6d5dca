//! `levels`: allocate-only heaps (article 000).

use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart};
use loam_report::grid::Grid;

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Row, Run, View};
use crate::charts::{self, place, Place};
use crate::experiments::claims::{Claim, Verdict};
use crate::experiments::{generic, phrases, Experiment};

/// Allocate-only levels.
pub struct Levels;

/// Series of merged rows, and the names of the designs in words.
const DESIGNS: [(&str, &str); 5] = [
    ("free levels", "free one by one"),
    ("private-heap levels", "a private heap"),
    ("arena levels", "an arena"),
    ("loam-arena levels", "Loam's arena"),
    ("separate-heaps levels", "heaps by type"),
];
const FREE: &str = "free levels";
const ARENA: &str = "loam-arena levels";

/// The median time of the levels after the first.
fn next_level(run: &Run, series: &str) -> Option<f64> {
    let points = pick::points(run, series).iter().skip(1);
    let values: Vec<f64> = points.filter_map(|point| point.seconds).collect();
    crate::analyse::stats::median(&values)
}

fn dropping(run: &Run, series: &str) -> Option<f64> {
    pick::median(run, series, "drop_seconds")
}

fn left(run: &Run, series: &str) -> Option<f64> {
    pick::median(run, series, "resident_bytes")
}

impl Experiment for Levels {
    fn name(&self) -> &str {
        "levels"
    }

    fn title(&self) -> String {
        "Allocate-only levels".to_owned()
    }

    fn question(&self) -> String {
        "A game's level allocates many objects, uses them, and drops them all at once: what does \
         dropping cost, what is left behind, and how long does the next level take?"
            .to_owned()
    }

    fn shape<'a>(&self, view: View<'a>) -> View<'a> {
        view.merged()
    }

    fn figures(&self) -> Vec<Figure> {
        let seconds = |id, title, meaning, of| Figure {
            id,
            title,
            meaning,
            unit: Unit::Seconds,
            better: Better::Lower,
            of,
        };
        let bytes = |id, title, meaning, of| Figure {
            unit: Unit::Bytes,
            ..seconds(id, title, meaning, of)
        };
        vec![
            seconds(
                "next",
                "next level",
                "seconds of a level after the first, freed one by one",
                |run| next_level(run, FREE),
            ),
            seconds(
                "drop",
                "freeing",
                "seconds of freeing a level's objects one by one",
                |run| dropping(run, FREE),
            ),
            seconds(
                "heap-drop",
                "heap drop",
                "seconds of destroying a level's private heap",
                |run| dropping(run, "private-heap levels"),
            ),
            seconds(
                "arena-drop",
                "arena reset",
                "seconds of resetting a level's arena (Loam's)",
                |run| dropping(run, ARENA),
            ),
            bytes(
                "left",
                "left behind",
                "resident memory after a level was freed one by one",
                |run| left(run, FREE),
            ),
            bytes(
                "heap-left",
                "left by heap",
                "resident memory after a level's heap was destroyed",
                |run| left(run, "private-heap levels"),
            ),
            generic::peak(),
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let value = |id| table.cell(row, id).map(|cell| cell.value.median);
        let mut parts = Vec::new();
        if let (Some(free), left) = (value("drop"), value("left")) {
            let left = left.map_or_else(String::new, |v| {
                format!(" and leaves {}", Unit::Bytes.show(v))
            });
            parts.push(format!(
                "freeing a level takes {}{left}",
                Unit::Seconds.show(free)
            ));
        }
        if let (Some(heap), left) = (value("heap-drop"), value("heap-left")) {
            let left = left.map_or_else(String::new, |v| {
                format!(" and leaves {}", Unit::Bytes.show(v))
            });
            parts.push(format!(
                "destroying its heap {}{left}",
                Unit::Seconds.show(heap)
            ));
        }
        if let Some(ratio) = table.cell(row, "next").and_then(|cell| cell.ratio) {
            if table.view.base != Some(row) {
                let base = phrases::call_base(table.view, row);
                parts.push(format!(
                    "a level is {}",
                    phrases::speed(&ratio.inverse(), &base)
                ));
            }
        }
        parts.join("; ") + "."
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        let mut found: Vec<String> = [
            phrases::leader(table, "next", "The shortest level, freed one by one,"),
            phrases::leader(table, "left", "Least left behind"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let base = table.view.base;
        let of = |id| {
            base.and_then(|row| table.cell(row, id))
                .map(|cell| cell.value.median)
        };
        if let (Some(free), Some(arena)) = (of("drop"), of("arena-drop")) {
            found.push(format!(
                "Dropping a level at once costs next to nothing: an arena is reset in {}, where \
                 freeing one by one takes {} on {}.",
                Unit::Seconds.show(arena),
                Unit::Seconds.show(free),
                table
                    .view
                    .base_row()
                    .map_or_else(String::new, |row| phrases::call(&row.allocator))
            ));
        }
        found
    }

    fn claims(&self, table: &FigureTable) -> Vec<Claim> {
        let mut claims = Vec::new();
        let of = |row: &Row, figure: &dyn Fn(&Run) -> Option<f64>| pick::of_row(row, figure);
        if let Some(row) = table.view.base_row() {
            let times = (
                of(row, &|run| next_level(run, ARENA)),
                of(row, &|run| next_level(run, FREE)),
            );
            if let (Some(arena), Some(free)) = times {
                claims.push(Claim::new(
                    "A heap that only allocates and is reset at the end of a level serves it best",
                    Verdict::of(arena < free),
                    format!(
                        "a level takes {} with an arena and {} when freed one by one",
                        Unit::Seconds.show(arena),
                        Unit::Seconds.show(free)
                    ),
                ));
            }
        }
        if let Some(row) = table.row_of("loam").map(|index| &table.view.rows[index]) {
            let at_end = |series: &'static str| {
                of(row, &move |run| {
                    pick::last(run, series, "played_resident_bytes")
                })
            };
            if let (Some(heaps), Some(free)) = (at_end("separate-heaps levels"), at_end(FREE)) {
                claims.push(Claim::new(
                    "Separate heaps for stacks, particles and models lessen fragmentation",
                    Verdict::of(heaps < free),
                    format!(
                        "at the end of play {} with heaps by type, {} with one heap (both Loam's)",
                        Unit::Bytes.show(heaps),
                        Unit::Bytes.show(free)
                    ),
                ));
            }
        }
        claims
    }

    fn grids(&self, view: &View) -> Vec<Grid> {
        let head: Vec<&str> = std::iter::once("allocator")
            .chain(DESIGNS.map(|(_, label)| label))
            .collect();
        let grid = |title: &str, reading: &str, unit: Unit, of: fn(&Run, &str) -> Option<f64>| {
            let mut grid = Grid::new(title, reading, &head);
            for row in &view.rows {
                let cell = |(series, _): &(&str, &str)| {
                    pick::of_row(row, |run| of(run, series)).map(|value| unit.show(value))
                };
                grid.row(&row.allocator, DESIGNS.iter().map(cell).collect());
            }
            grid.or_nothing()
        };
        [
            grid(
                "Time to drop a level",
                "Median of the levels.",
                Unit::Seconds,
                dropping,
            ),
            grid(
                "Resident after dropping it",
                "Median of the levels.",
                Unit::Bytes,
                left,
            ),
            grid(
                "Time of a level",
                "After the first; load, play, drop.",
                Unit::Seconds,
                next_level,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let places = |of: fn(&Run, &'static str) -> Option<f64>| -> Vec<Place> {
            let one = |(series, label): &(&'static str, &'static str)| {
                let series: &'static str = series;
                place(label, move |run| of(run, series))
            };
            DESIGNS.iter().map(one).collect()
        };
        let curves = charts::curves(view, |_| true, FREE, |point| point.seconds);
        [
            charts::bars(
                view,
                "drop",
                "Time to drop a level",
                "Lower is faster, and the axis is logarithmic: dropping a heap or an arena at once \
                 costs a thousandth of freeing objects one by one.",
                &places(dropping),
                Axis::of("Seconds", Unit::Seconds),
            )
            .map(Chart::logarithmic),
            charts::bars(
                view,
                "left",
                "Resident memory after dropping it",
                "Lower is better. An arena keeps its blocks for the next level by design.",
                &places(left),
                Axis::of("Resident memory", Unit::Bytes),
            ),
            charts::bars(
                view,
                "next",
                "Time of the next level",
                "Lower is faster: load, play and drop; median of the levels after the first.",
                &places(next_level),
                Axis::of("Seconds a level", Unit::Seconds),
            ),
            charts::lines(
                view,
                "levels",
                "Level after level, freed one by one",
                "A line that rises is a heap that gets slower with every level.",
                charts::x_axis(view, FREE),
                Axis::of("Seconds a level", Unit::Seconds),
                curves,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
