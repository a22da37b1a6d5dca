//! `queue`: containers of functors, filled and emptied round after round (article 004).

use loam_format::units::Unit;
use loam_format::words;
use loam_report::chart::{Axis, Chart, Curve};
use loam_report::grid::Grid;

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Row, Run, View};
use crate::charts::{self, place, Place};
use crate::experiments::claims::{Claim, Verdict};
use crate::experiments::{generic, phrases, Experiment};

/// Queues of functors.
pub struct Queue;

/// Containers: the workload's names, and the names in words.
const CONTAINERS: [(&str, &str); 7] = [
    ("deque", "std::queue over std::deque"),
    ("queue-list", "std::queue over std::list"),
    ("list", "std::list"),
    ("map", "std::map"),
    ("concurrent", "concurrent queue"),
    ("functor", "Loam's functor queue"),
    ("functor-concurrent", "Loam's, many threads"),
];
/// What operator new does with the nodes of a list. The first name is the series in merged rows.
const WAYS: [(&str, &str); 6] = [
    ("list sequential", "malloc"),
    ("aligned list sequential", "aligned"),
    ("padded list sequential", "padded by hand"),
    ("list sequential 3 strings", "malloc, 3 strings"),
    ("aligned list sequential 3 strings", "aligned, 3 strings"),
    ("padded list sequential 3 strings", "padded, 3 strings"),
];
/// A series that grows by more than this factor is called slower.
const SLOWED: f64 = 1.1;

fn seconds_of(run: &Run, series: &str) -> Option<f64> {
    pick::median(run, series, "seconds")
}

fn list_decay(run: &Run) -> Option<f64> {
    pick::decay(run, "list sequential", "seconds")
}

impl Experiment for Queue {
    fn name(&self) -> &str {
        "queue"
    }

    fn title(&self) -> String {
        "Queues of functors".to_owned()
    }

    fn question(&self) -> String {
        "Lambdas that capture strings are pushed into containers and popped, round after round in \
         one process: which container is fast, and does it get slower from round to round?"
            .to_owned()
    }

    fn shape<'a>(&self, view: View<'a>) -> View<'a> {
        view.merged()
    }

    fn figures(&self) -> Vec<Figure> {
        let time = |id, title, meaning, of| Figure {
            id,
            title,
            meaning,
            unit: Unit::Seconds,
            better: Better::Lower,
            of,
        };
        let ratio = |id, title, meaning, of| Figure {
            unit: Unit::Ratio,
            ..time(id, title, meaning, of)
        };
        vec![
            time(
                "list",
                "std::list",
                "seconds of a round of std::list, sequential; median of the rounds",
                |run| seconds_of(run, "list sequential"),
            ),
            time(
                "deque",
                "deque",
                "the same of std::queue over std::deque",
                |run| seconds_of(run, "deque sequential"),
            ),
            time(
                "functor",
                "functor queue",
                "the same of Loam's functor queue",
                |run| seconds_of(run, "functor sequential"),
            ),
            ratio(
                "decay",
                "later / earlier",
                "later rounds of std::list by earlier ones, the first left out; malloc",
                list_decay,
            ),
            ratio(
                "aligned-decay",
                "aligned",
                "the same, operator new through aligned allocation",
                |run| pick::decay(run, "aligned list sequential", "seconds"),
            ),
            ratio(
                "padded-decay",
                "padded",
                "the same, operator new aligned by hand",
                |run| pick::decay(run, "padded list sequential", "seconds"),
            ),
            generic::peak(),
            Figure {
                unit: Unit::Bytes,
                ..time(
                    "freed",
                    "left when freed",
                    "resident memory after the last round",
                    |run| pick::step(run, "after", "freed", "resident_bytes"),
                )
            },
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let value = |id| table.cell(row, id).map(|cell| cell.value.median);
        let mut parts = Vec::new();
        if let (Some(list), Some(functor)) = (value("list"), value("functor")) {
            parts.push(format!(
                "a functor queue is {:.1} times as fast as std::list",
                list / functor
            ));
        }
        parts.extend(value("decay").map(|decay| format!("std::list's {}", trend(decay))));
        if let Some(ratio) = table.cell(row, "list").and_then(|cell| cell.ratio) {
            if table.view.base != Some(row) {
                let base = phrases::call_base(table.view, row);
                parts.push(format!(
                    "with std::list {}",
                    phrases::speed(&ratio.inverse(), &base)
                ));
            }
        }
        parts.join("; ") + "."
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        [
            phrases::leader(table, "list", "Fastest with std::list, a node an entry,"),
            phrases::leader(table, "functor", "Fastest with Loam's functor queue"),
            Some(who_slows(table)),
            phrases::leader(table, "freed", "After the last round the smallest process"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn claims(&self, table: &FigureTable) -> Vec<Claim> {
        claims(table)
    }

    fn grids(&self, view: &View) -> Vec<Grid> {
        let head: Vec<&str> = std::iter::once("allocator")
            .chain(CONTAINERS.map(|(_, label)| label))
            .collect();
        let grid = |title: &str, reading: &str, key: &'static str, unit: Unit| {
            let mut grid = Grid::new(title, reading, &head);
            for row in &view.rows {
                let cell = |(name, _): &(&str, &str)| {
                    let series = format!("{name} sequential");
                    let value = pick::of_row(row, |run| pick::median(run, &series, key))?;
                    Some(unit.show(value))
                };
                grid.row(&row.allocator, CONTAINERS.iter().map(cell).collect());
            }
            grid.or_nothing()
        };
        let time = grid(
            "Time of a round, by container",
            "Pushing all, then popping all; median of the rounds.",
            "seconds",
            Unit::Seconds,
        );
        let bytes = grid(
            "Memory of an entry, by container",
            "Resident memory when full, by entry: a functor and its two strings.",
            "loaded_bytes_per_entry",
            Unit::Bytes,
        );
        [time, bytes].into_iter().flatten().collect()
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let mut charts = Vec::new();
        let shown: Vec<&Row> = view
            .rows
            .iter()
            .enumerate()
            .filter(|(index, row)| view.base == Some(*index) || row.allocator == "loam")
            .map(|(_, row)| row)
            .collect();
        for row in &shown {
            charts.extend(by_container(view, row));
        }
        for row in &shown {
            charts.extend(by_way(view, row));
        }
        let curves = charts::curves(view, |_| true, "list sequential", |point| point.seconds);
        charts.extend(charts::lines(
            view,
            "rounds",
            "std::list, time of each round by allocator",
            "Every round does the same work in the same process; a line that rises is a heap that \
             gets slower.",
            charts::x_axis(view, "list sequential"),
            Axis::of("Seconds a round", Unit::Seconds),
            curves,
        ));
        for (test, title) in [
            ("sequential", "Push all, then pop all"),
            ("threads", "The same from several threads"),
            ("at-once", "Pushing and popping at once"),
        ] {
            let places: Vec<Place> = CONTAINERS
                .iter()
                .map(|(name, label)| {
                    let series = format!("{name} {test}");
                    place(label, move |run| seconds_of(run, &series))
                })
                .collect();
            let y = Axis::of("Seconds a round", Unit::Seconds);
            let reading = "Lower is faster: median of the rounds, by container and allocator.";
            charts.extend(charts::bars(view, test, title, reading, &places, y));
        }
        charts
    }
}

fn by_container(view: &View, row: &Row) -> Option<Chart> {
    let curves: Vec<Curve> = CONTAINERS
        .iter()
        .map(|(name, label)| {
            charts::design(row, label, &format!("{name} sequential"), |point| {
                point.seconds
            })
        })
        .collect();
    let who = phrases::call(&row.allocator);
    charts::lines(
        view,
        &format!("containers-{}", row.allocator),
        &format!("Containers, time of each round under {who}"),
        "The article's chart: its containers' lines rose with every round, that of the functor \
         queue hardly.",
        charts::x_axis(view, "list sequential"),
        Axis::of("Seconds a round", Unit::Seconds),
        curves,
    )
}

fn by_way(view: &View, row: &Row) -> Option<Chart> {
    let curves: Vec<Curve> = WAYS
        .iter()
        .map(|(series, label)| charts::design(row, label, series, |point| point.seconds))
        .collect();
    let who = phrases::call(&row.allocator);
    charts::lines(
        view,
        &format!("ways-{}", row.allocator),
        &format!("std::list, what operator new does, under {who}"),
        "In the article only aligned and padded allocation decayed, and three strings even with \
         plain malloc: blocks a little larger, nothing else.",
        charts::x_axis(view, "list sequential"),
        Axis::of("Seconds a round", Unit::Seconds),
        curves,
    )
}

fn trend(decay: f64) -> String {
    let percent = (decay - 1.0) * 100.0;
    if decay > SLOWED {
        format!("later rounds take {percent:.0}% longer than earlier ones")
    } else if decay < 2.0 - SLOWED {
        format!("later rounds take {:.0}% less than earlier ones", -percent)
    } else {
        "rounds stay equally fast".to_owned()
    }
}

/// Allocators under which a series got slower, with the factor.
fn slowed(table: &FigureTable, id: &str) -> Vec<String> {
    let rows = table.view.rows.iter().enumerate();
    rows.filter_map(|(index, row)| {
        let value = table.cell(index, id)?.value;
        let percent = (value.median - 1.0) * 100.0;
        let is_slower = value.median > SLOWED && value.low > 1.0;
        is_slower.then(|| format!("{} (by {percent:.0}%)", phrases::call(&row.allocator)))
    })
    .collect()
}

fn measured(table: &FigureTable, id: &str) -> usize {
    (0..table.view.rows.len())
        .filter(|row| table.cell(*row, id).is_some())
        .count()
}

fn who_slows(table: &FigureTable) -> String {
    match slowed(table, "decay").as_slice() {
        [] => {
            "Under no allocator later rounds of std::list take over 10% longer than earlier ones: \
               the article's decay is not seen here."
                .to_owned()
        }
        some => format!(
            "std::list gets slower from round to round under {}.",
            words::list(some)
        ),
    }
}

fn claims(table: &FigureTable) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut decays = |said: &'static str, id: &str| {
        let all = measured(table, id);
        if all > 0 {
            let slow = slowed(table, id);
            let found = match slow.as_slice() {
                [] => format!("none of {} gets slower", words::count(all, "allocator")),
                some => format!("slower under {}", words::list(some)),
            };
            claims.push(Claim::new(said, Verdict::of_some(slow.len(), all), found));
        }
    };
    decays(
        "With aligned operator new, std::list slows from round to round",
        "aligned-decay",
    );
    decays(
        "Padding by hand does the same as aligned allocation",
        "padded-decay",
    );
    if measured(table, "decay") > 0 {
        let slow = slowed(table, "decay");
        claims.push(Claim::new(
            "Through plain malloc, two strings each, rounds do not slow",
            Verdict::of_some(
                measured(table, "decay") - slow.len(),
                measured(table, "decay"),
            ),
            who_slows(table).trim_end_matches('.').to_owned(),
        ));
    }
    let base = table.view.base;
    let of = |id| {
        base.and_then(|row| table.cell(row, id))
            .map(|cell| cell.value.median)
    };
    if let (Some(list), Some(deque), Some(functor)) = (of("list"), of("deque"), of("functor")) {
        claims.push(Claim::new(
            "A queue that writes functors into large blocks outperforms the standard containers",
            Verdict::of_some(
                usize::from(functor < list) + usize::from(functor < deque),
                2,
            ),
            format!(
                "a round takes {} with it, {} with std::list and {} with a deque",
                Unit::Seconds.show(functor),
                Unit::Seconds.show(list),
                Unit::Seconds.show(deque)
            ),
        ));
    }
    claims
}
