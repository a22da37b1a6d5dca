//! `buffer-cache`: a cache with a bad policy is a memory leak (article 003).

use serde_json::Value;

use loam_format::results::lines::Checkpoint;
use loam_format::units::{self, Unit};
use loam_report::chart::{Axis, Chart, Curve, Kind, Point};
use loam_report::grid::Grid;

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Row, Run, View};
use crate::charts::{self, place, Place};
use crate::experiments::claims::{Claim, Verdict};
use crate::experiments::{generic, phrases, Experiment};

/// A cache with a bad policy.
pub struct BufferCache;

/// Series at the article's first chance (a request doubles with probability 1/2), and their names
/// in words.
const DEPTH_ONE: [(&str, &str); 6] = [
    ("none", "no cache"),
    ("heap", "the heap's own thread cache"),
    ("largest depth 1", "keep the largest (flawed)"),
    ("cure depth 1", "the article's cure"),
    ("buckets depth 1", "buckets of 100 bytes"),
    ("loam depth 1", "Loam's buffer cache"),
];
const DEPTHS: [u32; 3] = [1, 4, 10];
const USED: &str = "percent_used";
const LATER: f64 = 37_900.0;

fn used(point: &Checkpoint) -> Option<f64> {
    point.number(USED).map(|percent| percent / 100.0)
}

/// The median of the second half, in which the walk no longer depends on its start.
fn settled(run: &Run, series: &str) -> Option<f64> {
    let points = pick::points(run, series);
    let values: Vec<f64> = points[points.len() / 2..].iter().filter_map(used).collect();
    crate::analyse::stats::median(&values)
}

fn lowest(run: &Run, series: &str) -> Option<f64> {
    let points = pick::points(run, series).iter();
    points.filter_map(used).reduce(f64::min)
}

/// The figure nearest to the article's last line.
fn later(run: &Run, series: &str) -> Option<f64> {
    let distance = |point: &&Checkpoint| (point.x.unwrap_or(0.0) - LATER).abs() as u64;
    pick::points(run, series)
        .iter()
        .min_by_key(distance)
        .and_then(used)
}

fn percent(value: f64) -> String {
    Unit::Percent.show(value)
}

impl Experiment for BufferCache {
    fn name(&self) -> &str {
        "buffer-cache"
    }

    fn title(&self) -> String {
        "A cache with a bad policy is a memory leak".to_owned()
    }

    fn question(&self) -> String {
        "A cache of buffers stands in front of the heap: how much of what it hands out is needed, \
         under each policy, and what does the heap gain from it?"
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
        vec![
            speed(
                "speed",
                "no cache",
                "steps a second, every buffer from the heap",
                |run| pick::speed(run, "none"),
            ),
            speed(
                "cure",
                "the cure",
                "steps a second with the article's cure, depth 4",
                |run| pick::speed(run, "cure depth 4"),
            ),
            speed(
                "loam",
                "Loam's cache",
                "steps a second with loam::buffer_cache, depth 4",
                |run| pick::speed(run, "loam depth 4"),
            ),
            Figure {
                better: Better::Lower,
                unit: Unit::Bytes,
                ..speed(
                    "flawed-peak",
                    "peak, flawed",
                    "peak memory with the flawed cache of depth 10",
                    |run| pick::last(run, "largest depth 10", "peak_resident_bytes"),
                )
            },
            Figure {
                better: Better::Lower,
                unit: Unit::Bytes,
                ..speed(
                    "cure-peak",
                    "peak, cure",
                    "peak memory with the article's cure of depth 10",
                    |run| pick::last(run, "cure depth 10", "peak_resident_bytes"),
                )
            },
            generic::faults(),
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        let value = |id| table.cell(row, id).map(|cell| cell.value.median);
        let mut parts = Vec::new();
        if let (Some(plain), Some(cured), Some(loam)) =
            (value("speed"), value("cure"), value("loam"))
        {
            parts.push(format!(
                "a cache in front of it changes its speed {:.2} times (the cure) and {:.2} times \
                 (Loam's)",
                cured / plain,
                loam / plain
            ));
        }
        if let Some(ratio) = table.cell(row, "speed").and_then(|cell| cell.ratio) {
            if table.view.base != Some(row) {
                let base = phrases::call_base(table.view, row);
                parts.push(format!("without a cache {}", phrases::speed(&ratio, &base)));
            }
        }
        parts.join("; ") + "."
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(row) = table.view.base_row() {
            let of = |series: &'static str| pick::of_row(row, move |run| settled(run, series));
            if let (Some(flawed), Some(cure), Some(loam)) = (
                of("largest depth 1"),
                of("cure depth 1"),
                of("loam depth 1"),
            ) {
                found.push(format!(
                    "Once settled, a cache that keeps the largest buffer needs {} of what it \
                     handed out, the article's cure {}, Loam's buffer cache {}. This is the \
                     policy's doing: it is the same under every allocator.",
                    percent(flawed),
                    percent(cure),
                    percent(loam)
                ));
            }
            if let Some(cutoff) = cutoff(row) {
                found.push(format!(
                    "The histogram of requests suggests a cut-off of {cutoff:.0} bytes: it covers \
                     three requests in four."
                ));
            }
        }
        found.extend(phrases::leader(table, "speed", "Fastest without any cache"));
        found
    }

    fn claims(&self, table: &FigureTable) -> Vec<Claim> {
        table.view.base_row().map(claims).unwrap_or_default()
    }

    fn grids(&self, view: &View) -> Vec<Grid> {
        let row = view.base_row();
        row.map(policies).into_iter().flatten().collect()
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        // The policies do the same under every allocator, so one row shows them.
        let Some(row) = view.base_row() else {
            return Vec::new();
        };
        let used_axis = || Axis::of("Needed, of what was handed out", Unit::Percent);
        let steps = || charts::x_axis(view, "largest depth 1");
        let named = |suffix: &str| -> Vec<Curve> {
            DEPTH_ONE
                .iter()
                .filter(|(series, _)| *series != "heap")
                .map(|(series, label)| {
                    charts::design(row, label, &format!("{series}{suffix}"), used)
                })
                .collect()
        };
        let depths = DEPTHS.iter().flat_map(|depth| {
            ["largest", "cure", "loam"].map(|policy| {
                let series = format!("{policy} depth {depth}");
                charts::design(row, &series, &series, used)
            })
        });
        let places: Vec<Place> = DEPTH_ONE
            .iter()
            .map(|(series, label)| place(label, move |run| pick::speed(run, series)))
            .collect();
        [
            charts::lines(
                view,
                "used",
                "Per cent used, by policy (one buffer kept)",
                "The article's experiment, chance 1/2. 100% would be no waste. A flawed cache does \
                 not waste what it keeps; it wastes what it hands out: big buffers for small \
                 requests.",
                steps(),
                used_axis(),
                named(""),
            ),
            charts::lines(
                view,
                "used-quarter",
                "Per cent used when big requests are rarer",
                "The article's second program: a request doubles with chance 1/4.",
                steps(),
                used_axis(),
                named(" chance 1/4"),
            ),
            charts::lines(
                view,
                "depths",
                "Per cent used, by depth of the cache",
                "The more buffers a flawed cache keeps, the more it wastes; a cure does not mind.",
                steps(),
                used_axis(),
                depths.collect(),
            ),
            histogram(view, row),
            charts::bars(
                view,
                "speed",
                "What a cache is worth",
                "Higher is faster: steps a second under each allocator, without a cache and with \
                 each policy (one buffer kept). Where the bars of an allocator are equally long, a \
                 cache in front of it is not worth having.",
                &places,
                Axis::of("Steps a second", Unit::PerSecond),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Requests by size, from the end line.
fn requests(run: &Run) -> Vec<(f64, f64)> {
    let Some(Value::Object(counts)) = run.end.get("requests") else {
        return Vec::new();
    };
    let mut requests: Vec<(f64, f64)> = counts
        .iter()
        .filter_map(|(size, count)| Some((size.parse().ok()?, count.as_f64()?)))
        .collect();
    requests.sort_by(|a, b| a.0.total_cmp(&b.0));
    requests
}

fn cutoff(row: &Row) -> Option<f64> {
    row.runs.first()?.end.get("suggested_cutoff")?.as_f64()
}

fn histogram(view: &View, row: &Row) -> Option<Chart> {
    let run = row.runs.first()?;
    let found = requests(run);
    let cutoff = cutoff(row)?;
    let total: f64 = found.iter().map(|(_, count)| count).sum();
    let names = found
        .iter()
        .map(|(size, _)| format!("{size:.0} B"))
        .collect();
    let curve = |label: &str, wanted: &dyn Fn(f64) -> bool| Curve {
        label: label.to_owned(),
        allocator: row.allocator.clone(),
        variant: "design".to_owned(),
        points: found
            .iter()
            .enumerate()
            .filter(|(_, (size, count))| wanted(*size) && *count > 0.0)
            .map(|(x, (_, count))| Point {
                x: x as f64,
                y: count / total,
                low: count / total,
                high: count / total,
                count: 1,
                x_range: None,
            })
            .collect(),
    };
    charts::lines(
        view,
        "histogram",
        "Requests by size",
        &format!(
            "The article's advice: measure first. Sizes up to the cut-off of {cutoff:.0} bytes \
             make up three requests in four; bigger ones are better left to the heap."
        ),
        Axis::categories("", names),
        Axis::of("Part of all requests", Unit::Percent),
        vec![
            curve("up to the cut-off", &|size| size <= cutoff),
            curve("above it", &|size| size > cutoff),
        ],
    )
    .map(|chart| Chart {
        kind: Kind::Bars,
        ..chart
    })
}

fn policies(row: &Row) -> Option<Grid> {
    let mut grid = Grid::new(
        "Per cent used, by policy and depth",
        "Settled: median of the second half; lowest: of the whole run. Chance 1/2; the same under \
         every allocator.",
        &[
            "policy",
            "depth 1",
            "depth 4",
            "depth 10",
            "lowest at depth 1",
        ],
    );
    for (name, label) in [
        ("none", "no cache"),
        ("heap", "the heap's own thread cache"),
        ("largest", "keep the largest (flawed)"),
        ("cure", "the article's cure"),
        ("buckets", "buckets of 100 bytes"),
        ("loam", "Loam's buffer cache"),
    ] {
        let series = |depth: u32| match name {
            "none" | "heap" => name.to_owned(),
            _ => format!("{name} depth {depth}"),
        };
        let mut cells: Vec<Option<String>> = DEPTHS
            .iter()
            .map(|depth| pick::of_row(row, |run| settled(run, &series(*depth))).map(percent))
            .collect();
        cells.push(pick::of_row(row, |run| lowest(run, &series(1))).map(percent));
        grid.row(label, cells);
    }
    grid.or_nothing()
}

fn claims(row: &Row) -> Vec<Claim> {
    let mut claims = Vec::new();
    let of = |figure: fn(&Run) -> Option<f64>| pick::of_row(row, figure);
    let below_ten = of(|run| {
        let points = pick::points(run, "largest depth 1").iter();
        points
            .filter(|p| used(p).is_some_and(|u| u < 0.1))
            .find_map(|p| p.x)
    });
    if of(|run| pick::points(run, "largest depth 1").last()?.x).is_some() {
        claims.push(Claim::new(
            "A cache that keeps the largest buffer falls below 10% used within a few hundred steps",
            Verdict::of(below_ten.is_some_and(|step| step <= 1000.0)),
            below_ten.map_or_else(
                || "it never did".to_owned(),
                |step| format!("first below 10% at step {}", units::grouped(step as u64)),
            ),
        ));
    }
    if let Some(at) = of(|run| later(run, "largest depth 1")) {
        claims.push(Claim::new(
            "After 37,900 steps it is below 2%",
            Verdict::of(at < 0.02),
            format!("{} there", percent(at)),
        ));
    }
    let cure = (
        of(|run| settled(run, "cure depth 1")),
        of(|run| lowest(run, "cure depth 1")),
    );
    if let (Some(settled), Some(lowest)) = cure {
        claims.push(Claim::new(
            "The cure stays above 90%",
            Verdict::of(lowest > 0.9),
            format!(
                "{} once settled, {} at its lowest",
                percent(settled),
                percent(lowest)
            ),
        ));
    }
    let depths = [
        of(|run| settled(run, "largest depth 1")),
        of(|run| settled(run, "largest depth 4")),
        of(|run| settled(run, "largest depth 10")),
    ];
    if let [Some(one), Some(four), Some(ten)] = depths {
        claims.push(Claim::new(
            "The deeper a flawed cache, the worse",
            Verdict::of_some(usize::from(four < one) + usize::from(ten < four), 2),
            format!(
                "{} at depth 1, {} at depth 4, {} at depth 10",
                percent(one),
                percent(four),
                percent(ten)
            ),
        ));
    }
    claims
}
