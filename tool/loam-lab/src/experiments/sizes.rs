//! `sizes`: which block sizes get slower from round to round (article 004).

use loam_format::units::{self, Unit};
use loam_format::words;
use loam_report::chart::{Axis, Chart, Curve, Point};
use loam_report::grid::Grid;

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Row, Run, View};
use crate::charts;
use crate::experiments::claims::{Claim, Verdict};
use crate::experiments::{generic, phrases, Experiment};

/// Which sizes decay.
pub struct Sizes;

const NS: &str = "ns_per_block";
/// A size decays if later rounds take this many times as long as earlier ones.
const DECAYED: f64 = 1.25;
/// A size stands out if it costs this many times as much as both its neighbours.
const DEARER: f64 = 1.5;
const ALTERNATING: [(&str, &str); 3] = [
    ("alternating 65536 and 65504", "alternating"),
    (
        "alternating-compact 65536 and 65504",
        "with memory asked back between",
    ),
    ("alternating-aligned 65536 and 65504", "aligned"),
];

/// The sizes that were measured, ascending. Each is a series with a number as its name.
fn swept(view: &View) -> Vec<u64> {
    let names = view.series_names();
    let mut sizes: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    sizes.sort_unstable();
    sizes
}

fn sizes_of(run: &Run) -> Vec<u64> {
    let mut sizes: Vec<u64> = run
        .series
        .iter()
        .filter_map(|series| series.name.parse().ok())
        .collect();
    sizes.sort_unstable();
    sizes
}

fn cost(run: &Run, size: u64) -> Option<f64> {
    pick::median(run, &size.to_string(), NS)
}

fn decay(run: &Run, size: u64) -> Option<f64> {
    pick::decay(run, &size.to_string(), NS)
}

/// The median over all sizes that lie in a range.
fn over_sizes(
    run: &Run,
    range: std::ops::RangeInclusive<u64>,
    of: fn(&Run, u64) -> Option<f64>,
) -> Option<f64> {
    let sizes = sizes_of(run);
    let values: Vec<f64> = sizes
        .iter()
        .filter(|size| range.contains(size))
        .filter_map(|size| of(run, *size))
        .collect();
    crate::analyse::stats::median(&values)
}

fn worst_decay(run: &Run) -> Option<f64> {
    sizes_of(run)
        .iter()
        .filter_map(|size| decay(run, *size))
        .reduce(f64::max)
}

const SMALL: std::ops::RangeInclusive<u64> = 0..=16_384;
const LARGE: std::ops::RangeInclusive<u64> = 16_385..=u64::MAX;

/// `64 KiB`, `64 KiB - 32`
fn name(size: u64) -> String {
    let power = size.next_power_of_two();
    match power - size {
        0 => units::bytes(size as f64)
            .replace(".00", "")
            .replace(".0 ", " "),
        less => format!("{} - {less}", name(power)),
    }
}

/// Sizes that decay under an allocator, with the factor.
fn decaying(row: &Row, sizes: &[u64]) -> Vec<(u64, f64)> {
    let of = |size: &u64| {
        let decay = pick::surely_above(row, DECAYED, |run| decay(run, *size))?;
        Some((*size, decay))
    };
    sizes.iter().filter_map(of).collect()
}

/// Sizes that cost more than the next smaller and the next larger one.
fn dear(row: &Row, sizes: &[u64]) -> Vec<(u64, f64)> {
    let of = |size: &u64| pick::of_row(row, |run| cost(run, *size));
    sizes
        .windows(3)
        .filter_map(|near| {
            let (before, own, after) = (of(&near[0])?, of(&near[1])?, of(&near[2])?);
            let factor = own / before.max(after);
            (factor > DEARER).then_some((near[1], factor))
        })
        .collect()
}

fn list(found: &[(u64, f64)]) -> Option<String> {
    let text = |(size, factor): &(u64, f64)| format!("{} ({factor:.1}x)", name(*size));
    (!found.is_empty()).then(|| found.iter().map(text).collect::<Vec<_>>().join(", "))
}

impl Experiment for Sizes {
    fn name(&self) -> &str {
        "sizes"
    }

    fn title(&self) -> String {
        "Which sizes decay".to_owned()
    }

    fn question(&self) -> String {
        "Blocks of one size are allocated and freed first in, first out, round after round: which \
         sizes get slower, and which cost more than their neighbours?"
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
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            of,
        };
        vec![
            time(
                "small",
                "to 16 KiB",
                "time of a block, allocated and freed; median over the sizes to 16 KiB",
                |run| over_sizes(run, SMALL, cost),
            ),
            time(
                "large",
                "above",
                "the same over the sizes above 16 KiB",
                |run| over_sizes(run, LARGE, cost),
            ),
            Figure {
                unit: Unit::Ratio,
                ..time(
                    "decay",
                    "later / earlier",
                    "later rounds by earlier ones, the first left out; median over all sizes",
                    |run| over_sizes(run, 0..=u64::MAX, decay),
                )
            },
            Figure {
                unit: Unit::Ratio,
                ..time(
                    "worst",
                    "worst size",
                    "the same of the size that decays most",
                    worst_decay,
                )
            },
            Figure {
                unit: Unit::Bytes,
                ..time(
                    "freed",
                    "left when freed",
                    "resident memory when all is freed",
                    |run| pick::step(run, "after", "freed", "resident_bytes"),
                )
            },
            Figure {
                unit: Unit::Bytes,
                ..time(
                    "idle",
                    "after idling",
                    "resident memory after idling",
                    |run| pick::step(run, "after", "idle", "resident_bytes"),
                )
            },
            generic::faults(),
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let sizes = swept(table.view);
        let own = &table.view.rows[row];
        let mut parts = vec![match list(&decaying(own, &sizes)) {
            None => "no size decays".to_owned(),
            Some(list) => format!("decays at {list}"),
        }];
        parts.extend(list(&dear(own, &sizes)).map(|l| format!("dearer than both neighbours: {l}")));
        if let Some(ratio) = table.cell(row, "small").and_then(|cell| cell.ratio) {
            if table.view.base != Some(row) {
                let base = phrases::call_base(table.view, row);
                parts.push(format!(
                    "to 16 KiB {}",
                    phrases::speed(&ratio.inverse(), &base)
                ));
            }
        }
        parts.join("; ") + "."
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        let total = most_allocated(table.view);
        [
            phrases::leader(table, "small", "Fastest to 16 KiB"),
            phrases::leader(table, "large", "Fastest above"),
            phrases::leader(table, "freed", "When all is freed the smallest process"),
            total.map(|total| {
                format!(
                    "A round took up to {}; the article's decay began past 4 GiB.",
                    units::bytes(total)
                )
            }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn claims(&self, table: &FigureTable) -> Vec<Claim> {
        claims(table.view)
    }

    fn grids(&self, view: &View) -> Vec<Grid> {
        let sizes = swept(view);
        let mut grid = Grid::new(
            "Sizes that decay, sizes that are dear",
            "Decays: later rounds take over a quarter longer than earlier ones, in every trial. \
             Dear: half as much again as both neighbouring sizes.",
            &["allocator", "decays", "dearer than both neighbours"],
        );
        for row in &view.rows {
            let none = || Some("none".to_owned());
            let cells = vec![
                list(&decaying(row, &sizes)).or_else(none),
                list(&dear(row, &sizes)).or_else(none),
            ];
            grid.row(&row.allocator, cells);
        }
        grid.or_nothing().into_iter().collect()
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let sizes = swept(view);
        let over =
            |id: &str, title: &str, reading: &str, y: Axis, of: fn(&Run, u64) -> Option<f64>| {
                let curve = |row: &Row| Curve {
                    label: row.label(),
                    allocator: row.allocator.clone(),
                    variant: row.variant.clone(),
                    points: sizes
                        .iter()
                        .filter_map(|size| point(row, *size, of))
                        .collect(),
                };
                let x = Axis {
                    log: true,
                    ..Axis::of("bytes a block", Unit::Bytes)
                };
                let curves = view.rows.iter().map(curve).collect();
                charts::lines(view, id, title, reading, x, y, curves)
            };
        let mut charts: Vec<Chart> = [
            over(
                "cost",
                "Time of a block, by size",
                "Lower is faster: allocating, writing the first word, freeing. A spike is a size \
                 that costs more than its neighbours.",
                Axis::of("Time a block", Unit::Nanoseconds),
                cost,
            )
            .map(Chart::logarithmic),
            over(
                "decay",
                "Later rounds by earlier rounds, by size",
                "1 is no change. In the article 64 KiB rose to 10.",
                Axis::of("Later / earlier rounds", Unit::Ratio),
                decay,
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        for (series, title) in ALTERNATING {
            let curves = charts::curves(view, |_| true, series, |point| point.number(NS));
            charts.extend(charts::lines(
                view,
                &series.replace(' ', "-"),
                &format!("64 KiB and 64 KiB - 32 in turn: {title}"),
                "Odd rounds allocate 64 KiB, even ones 64 KiB - 32. A saw-tooth is a size that \
                 costs more; a rise is a heap that decays.",
                charts::x_axis(view, series),
                Axis::of("Time a block", Unit::Nanoseconds),
                curves,
            ));
        }
        for size in &sizes {
            let series = size.to_string();
            let curves = charts::curves(view, |_| true, &series, |point| point.number(NS));
            let small = charts::lines(
                view,
                &series,
                &name(*size),
                "Time a block, by round.",
                charts::x_axis(view, &series),
                Axis::of("Time a block", Unit::Nanoseconds),
                curves,
            );
            charts.extend(
                small.map(|chart| chart.in_group("Time of a block by round, size by size")),
            );
        }
        charts
    }
}

/// The largest total of a round.
fn most_allocated(view: &View) -> Option<f64> {
    let largest = |run: &Run| {
        run.points()
            .filter_map(|point| point.number("total_bytes"))
            .reduce(f64::max)
    };
    pick::of_row(view.base_row()?, largest)
}

fn point(row: &Row, size: u64, of: fn(&Run, u64) -> Option<f64>) -> Option<Point> {
    let values = row.values(|run| of(run, size));
    charts::spread(size as f64, &values)
}

fn claims(view: &View) -> Vec<Claim> {
    let sizes = swept(view);
    if sizes.is_empty() {
        return Vec::new();
    }
    let decays = |wanted: &dyn Fn(u64) -> bool| -> Vec<String> {
        let of = |row: &Row| {
            let found: Vec<(u64, f64)> = decaying(row, &sizes)
                .into_iter()
                .filter(|(size, _)| wanted(*size))
                .collect();
            list(&found).map(|list| format!("{}: {list}", phrases::call(&row.allocator)))
        };
        view.rows.iter().filter_map(of).collect()
    };
    let say = |found: &[String]| match found {
        [] => format!(
            "under none of {}",
            words::count(view.rows.len(), "allocator")
        ),
        some => some.join("; "),
    };
    let all = view.rows.len();
    const FOUR_GIB: f64 = 4294967296.0;
    let is_small = most_allocated(view).is_none_or(|total| total < FOUR_GIB);
    let small = decays(&|size| size <= *SMALL.end());
    let notorious = decays(&|size| [65_536, 131_072, 524_288].contains(&size));
    let less = decays(&|size| size > *SMALL.end() && !size.is_power_of_two());
    vec![
        Claim::new(
            "Sizes to 16 KiB get slower with every round once a round passes 4 GiB",
            if is_small {
                Verdict::Untested
            } else {
                Verdict::of_some(small.len(), all)
            },
            if is_small {
                format!(
                    "rounds took less; getting slower below that: {}",
                    say(&small)
                )
            } else {
                say(&small)
            },
        ),
        Claim::new(
            "Exactly 64, 128 and 512 KiB decay, 64 KiB worst",
            Verdict::of_some(notorious.len(), all),
            say(&notorious),
        ),
        Claim::new(
            "Powers of two minus 32 bytes do not decay",
            Verdict::of_some(all - less.len(), all),
            say(&less),
        ),
    ]
}
