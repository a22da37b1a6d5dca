//! `contention`: how often threads collide on the heap's locks (article 002).

use loam_format::units::{self, Unit};
use loam_report::chart::{Axis, Chart, Curve};
use loam_report::grid::Grid;

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Row, Run, View};
use crate::charts;
use crate::experiments::claims::{Claim, Verdict};
use crate::experiments::{generic, phrases, Experiment};

/// Heap lock contention.
pub struct Contention;

const SHARED: &str = "shared";
/// Series, and their names in words.
const ARRANGEMENTS: [(&str, &str); 3] = [
    (SHARED, "one shared heap"),
    ("per-thread", "a private heap a thread"),
    ("per-class", "a private heap a class"),
];
const COLLISIONS: &str = "collisions_per_second";
const SPEED: &str = "operations_per_second";
/// Collisions are counted over a short time. With fewer than this many a second, the findings do
/// not mention them.
const RARE: f64 = 1.0;

fn most_threads(run: &Run) -> Option<f64> {
    pick::last(run, SHARED, "x")
}

fn at_most(run: &Run, series: &str, key: &str) -> Option<f64> {
    pick::at(run, series, most_threads(run)?, key)
}

fn source(row: &Row) -> &str {
    let run = row.runs.first();
    let source = run.and_then(|run| run.start.get("collisions_source")?.as_str());
    source.unwrap_or("unknown")
}

impl Experiment for Contention {
    fn name(&self) -> &str {
        "contention"
    }

    fn title(&self) -> String {
        "Heap lock contention".to_owned()
    }

    fn question(&self) -> String {
        "Several threads allocate and free at once: how often does one wait for another in the \
         heap, what does it cost, and do private heaps help?"
            .to_owned()
    }

    fn shape<'a>(&self, view: View<'a>) -> View<'a> {
        view.merged()
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
        let collisions = |id, title, meaning, of| Figure {
            better: Better::Lower,
            ..speed(id, title, meaning, of)
        };
        vec![
            speed("one", "1 thread", "operations a second, one shared heap, one thread", |run| {
                pick::at(run, SHARED, 1.0, SPEED)
            }),
            speed("two", "2 threads", "the same with two threads", |run| {
                pick::at(run, SHARED, 2.0, SPEED)
            }),
            speed(
                "speed",
                "most threads",
                "the same with twice as many threads as the machine has cores",
                |run| at_most(run, SHARED, SPEED),
            ),
            collisions(
                "collisions",
                "collisions",
                "waits for another thread a second with most threads and one shared heap: from the \
                 allocator's own counters (Loam, jemalloc), else the threads' voluntary context \
                 switches, which do not see a lock that only spins",
                |run| at_most(run, SHARED, COLLISIONS),
            ),
            collisions(
                "thread-collisions",
                "heap a thread",
                "collisions a second with most threads, a private heap for each",
                |run| at_most(run, "per-thread", COLLISIONS),
            ),
            collisions(
                "class-collisions",
                "heap a class",
                "collisions a second with most threads, a private heap for each of the nine sizes",
                |run| at_most(run, "per-class", COLLISIONS),
            ),
            generic::peak(),
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let own = &table.view.rows[row];
        let value = |id| table.cell(row, id).map(|cell| cell.value.median);
        let mut parts = Vec::new();
        if let (Some(one), Some(most)) = (value("one"), value("speed")) {
            parts.push(format!(
                "from one thread to the most its speed grows {:.2} times",
                most / one
            ));
        }
        if let Some(collisions) = value("collisions") {
            parts.push(format!(
                "{} collisions a second ({})",
                number(collisions),
                source(own)
            ));
        }
        if let (Some(before), Some(after)) = (value("collisions"), value("thread-collisions")) {
            parts.push(format!(
                "with a heap a thread {} ({})",
                number(after),
                change(before, after)
            ));
        }
        if let Some(ratio) = table.cell(row, "speed").and_then(|cell| cell.ratio) {
            if table.view.base != Some(row) {
                parts.push(phrases::speed(&ratio, &phrases::call_base(table.view, row)));
            }
        }
        parts.join("; ") + "."
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        let mut found: Vec<String> = [
            phrases::leader(table, "speed", "Fastest with the most threads"),
            phrases::leader(table, "one", "Fastest with one thread"),
        ]
        .into_iter()
        .flatten()
        .collect();
        found.push(
            "Collisions are not counted alike everywhere: Loam and jemalloc count their own locks' \
             waits; for the others they are the context switches of threads that had to sleep."
                .to_owned(),
        );
        found
    }

    fn claims(&self, table: &FigureTable) -> Vec<Claim> {
        claims(table)
    }

    fn grids(&self, view: &View) -> Vec<Grid> {
        let mut grid = Grid::new(
            "Collisions and speed by arrangement, with the most threads",
            "Collisions a second, then operations a second. Private heaps are there only with \
             allocators that offer them; blocks too large for a heap's own spans still come from \
             what all heaps share.",
            &[
                "allocator",
                ARRANGEMENTS[0].1,
                ARRANGEMENTS[1].1,
                ARRANGEMENTS[2].1,
                "counted by",
            ],
        );
        for row in &view.rows {
            let cell = |series: &'static str| {
                let of =
                    |key: &'static str| pick::of_row(row, move |run| at_most(run, series, key));
                let (collisions, speed) = (of(COLLISIONS)?, of(SPEED)?);
                Some(format!(
                    "{}; {}",
                    number(collisions),
                    Unit::PerSecond.show(speed)
                ))
            };
            let mut cells: Vec<Option<String>> = ARRANGEMENTS
                .iter()
                .map(|(series, _)| cell(series))
                .collect();
            if cells[0].is_some() {
                cells.push(Some(source(row).to_owned()));
                grid.row(&row.allocator, cells);
            }
        }
        grid.or_nothing().into_iter().collect()
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let shared = |id: &str, title: &str, reading: &str, key: &'static str, axis: &str| {
            let curves = charts::curves(view, |_| true, SHARED, move |point| point.number(key));
            let (x, y) = (
                charts::x_axis(view, SHARED),
                Axis::of(axis, Unit::PerSecond),
            );
            charts::lines(view, id, title, reading, x, y, curves)
        };
        let mut charts: Vec<Chart> = [
            shared(
                "collisions",
                "Collisions a second, one shared heap",
                "Lower is better: how often a thread had to wait for another one inside the heap. \
                 The article counted 15 a second with two threads.",
                COLLISIONS,
                "Collisions a second",
            ),
            shared(
                "speed",
                "Throughput, one shared heap",
                "Higher is better: operations of all threads together. A line that rises uses the \
                 cores; a flat one waits.",
                SPEED,
                "Operations a second",
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        for row in view.rows.iter().filter(|row| has_private_heaps(row)) {
            for (key, title) in [(COLLISIONS, "collisions"), (SPEED, "throughput")] {
                charts.extend(arrangements(view, row, key, title));
            }
        }
        charts
    }
}

fn has_private_heaps(row: &Row) -> bool {
    row.runs
        .iter()
        .any(|run| run.series("per-thread").is_some())
}

fn arrangements(view: &View, row: &Row, key: &'static str, title: &str) -> Option<Chart> {
    let curves: Vec<Curve> = ARRANGEMENTS
        .iter()
        .map(|(series, label)| charts::design(row, label, series, move |point| point.number(key)))
        .collect();
    charts::lines(
        view,
        &format!("arrangements-{}-{title}", row.allocator),
        &format!(
            "Private heaps under {}: {title}",
            phrases::call(&row.allocator)
        ),
        "The same requests from one shared heap, from a heap for each thread, and from a heap for \
         each of the nine sizes behind a class's own operator new and delete.",
        charts::x_axis(view, SHARED),
        Axis::of(title, Unit::PerSecond),
        curves,
    )
}

/// A count per second, which may be a fraction.
fn number(value: f64) -> String {
    if value >= 10.0 {
        units::grouped(value.round_ties_even() as u64)
    } else {
        format!("{value:.1}")
    }
}

fn change(before: f64, after: f64) -> String {
    if before < RARE {
        return "there were hardly any before".to_owned();
    }
    let percent = (after / before - 1.0) * 100.0;
    let word = if percent > 0.0 { "more" } else { "less" };
    format!("{:.0}% {word}", percent.abs())
}

fn claims(table: &FigureTable) -> Vec<Claim> {
    let at_two = |row: usize| {
        pick::of_row(&table.view.rows[row], |run| {
            pick::at(run, SHARED, 2.0, COLLISIONS)
        })
    };
    let mut claims = Vec::new();
    let (system, loam) = (table.row_of("system"), table.row_of("loam"));
    if let Some(collisions) = system.and_then(at_two) {
        claims.push(Claim::new(
            "Two threads on the default heap collide about 15 times a second",
            Verdict::of(collisions >= RARE),
            format!(
                "the system's malloc gives each thread an arena: {} sleeps a second on its locks \
                 with two threads",
                number(collisions)
            ),
        ));
    }
    if let (Some(theirs), Some(own)) = (system.and_then(at_two), loam.and_then(at_two)) {
        claims.push(Claim::new(
            "The low-fragmentation heap has half the contention",
            Verdict::of(own < theirs),
            format!(
                "Loam's locks were waited for {} times a second, the system's {} times; the two \
                 are not counted alike",
                number(own),
                number(theirs)
            ),
        ));
    }
    let private = loam.and_then(|row| {
        let of = |id| table.cell(row, id).map(|cell| cell.value.median);
        Some((
            of("collisions")?,
            of("thread-collisions")?,
            of("class-collisions")?,
        ))
    });
    if let Some((shared, thread, class)) = private {
        let better = [thread, class]
            .iter()
            .filter(|after| **after < shared)
            .count();
        claims.push(Claim::new(
            "A separate heap for what allocates much takes the contention away",
            Verdict::of_some(better, 2),
            format!(
                "under Loam with the most threads {} collisions a second in one heap, {} with a \
                 heap a thread, {} with a heap a class; what is left is the page heap, which all \
                 heaps share and which serves blocks over 32 KiB",
                number(shared),
                number(thread),
                number(class)
            ),
        ));
    }
    claims
}
