//! `replay`: a recorded program's requests, on each allocator.

use loam_format::results::{ReplayErrorRecord, Results, TraceRecord};
use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart, Curve, Mark};
use loam_report::grid::Grid;

use super::{generic, phrases, Experiment};
use crate::analyse::figures::{largest, Better, Figure, FigureTable};
use crate::analyse::runs::{Run, View};
use crate::charts;

/// A replayed trace.
pub struct Replay;

/// How far the peak of a replay on *another* allocator than the recorded one may be from really
/// running the program on it. `bench/replay-error --others` compares: nine of ten peaks are within
/// this (docs/replay.md). A smaller difference between two allocators decides nothing.
const OTHERS_ERROR: f64 = 0.10;

const SERIES: &str = "replay";
const MEMORY: &str = "anonymous_bytes";

/// The trace that is replayed.
fn trace<'a>(view: &View<'a>) -> Option<&'a TraceRecord> {
    let experiments = &view.results.experiments;
    let record = experiments.iter().find(|one| one.name == view.experiment)?;
    record.trace.as_ref()
}

fn seconds(run: &Run) -> Option<f64> {
    let seconds: Vec<f64> = run.points().filter_map(|point| point.seconds).collect();
    (!seconds.is_empty()).then(|| seconds.iter().sum())
}

/// The mean over the recording's time; over the points, if all points have the same time.
pub fn average(run: &Run) -> Option<f64> {
    let points: Vec<(f64, f64)> = run
        .points()
        .filter_map(|point| Some((point.x?, point.number(MEMORY)?)))
        .collect();
    let (first, last) = (points.first()?, points.last()?);
    let length = last.0 - first.0;
    if length <= 0.0 {
        return Some(points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64);
    }
    let pairs = points.windows(2);
    let area: f64 = pairs
        .map(|two| (two[1].0 - two[0].0) * (two[0].1 + two[1].1) / 2.0)
        .sum();
    Some(area / length)
}

/// Processor time of all threads, without that of measuring.
pub fn processor(run: &Run) -> Option<f64> {
    let seconds = run
        .points()
        .map(|point| point.number("processor_seconds"))
        .collect::<Option<Vec<f64>>>()?;
    (!seconds.is_empty()).then(|| seconds.iter().sum())
}

/// The largest resident memory, without the replayer's own.
pub fn peak(run: &Run) -> Option<f64> {
    run.end.get("heap_peak_bytes")?.as_f64()
}

/// Resident memory after the last event.
pub fn at_end(run: &Run) -> Option<f64> {
    run.points().filter_map(|point| point.number(MEMORY)).last()
}

/// The figures of one trial of a trace.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The process of the trace.
    pub process: u32,
    /// The allocator's label.
    pub allocator: String,
    /// Whether the trace was recorded on this allocator.
    pub is_recorded: bool,
    /// Its settings: `NAME=VALUE`, separated by blanks.
    pub settings: String,
    /// The trial's round.
    pub round: u32,
    /// Whether other work kept the machine busy.
    pub noisy: bool,
    /// Peak resident memory, as in `figures`.
    pub peak: Option<f64>,
    /// Average resident memory over the recording's time.
    pub average: Option<f64>,
    /// Resident memory after the last event.
    pub end: Option<f64>,
    /// Time of all operations.
    pub seconds: Option<f64>,
    /// Processor time of all threads.
    pub processor_seconds: Option<f64>,
    /// Page faults.
    pub faults: Option<f64>,
    /// Percent of the recording's time; 0: without pauses.
    pub speed_percent: u64,
    /// The error of the replay, if it is known.
    pub error: Option<ReplayErrorRecord>,
}

/// The trials of a trace in a results file, by the trace's digest.
pub fn trials(results: &Results, sha256: &str) -> Vec<Replayed> {
    let records = results.experiments.iter().filter_map(|record| {
        let trace = record.trace.as_ref()?;
        (trace.sha256 == sha256).then_some((record, trace))
    });
    let mut found = Vec::new();
    for (record, trace) in records {
        let view = View::of(results, &record.name);
        for row in &view.rows {
            let known = results
                .allocators
                .iter()
                .find(|one| one.label == row.allocator);
            let settings = known.map_or_else(Vec::new, |one| {
                let settings = one.environment.iter();
                settings
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect()
            });
            found.extend(row.runs.iter().chain(&row.left_out).map(|run| Replayed {
                process: trace.process,
                allocator: row.allocator.clone(),
                is_recorded: trace.same_allocator.as_deref() == Some(&row.allocator),
                settings: settings.join(" "),
                round: run.round,
                noisy: run.noisy,
                peak: peak(run),
                average: average(run),
                end: at_end(run),
                seconds: seconds(run),
                processor_seconds: processor(run),
                faults: largest(run, "faults"),
                speed_percent: trace.speed_percent,
                error: trace.error,
            }));
        }
    }
    found
}

/// The smallest row of a figure, or the rows between which a replay can not tell.
fn smallest(table: &FigureTable, id: &str, adjective: &str) -> Option<String> {
    let best = table.best(id)?;
    let least = table.cell(best, id)?.value.median;
    let within = |row: &usize| {
        table
            .cell(*row, id)
            .is_some_and(|cell| cell.value.median <= least * (1.0 + OTHERS_ERROR))
    };
    let names: Vec<String> = (0..table.view.rows.len())
        .filter(within)
        .map(|row| phrases::call(&table.view.rows[row].allocator))
        .collect();
    match names.len() {
        1 => phrases::leader(table, id, adjective),
        _ => Some(format!(
            "{adjective}: cannot tell between {}.",
            loam_format::words::list(&names)
        )),
    }
}

/// The result of the check of the replay, in a sentence.
pub fn judged(error: Option<&ReplayErrorRecord>, trace: &TraceRecord) -> String {
    if let Some(format) = &trace.imported {
        return format!(
            "This replay can NOT be checked: the trace was imported from {format}, which says \
             neither what memory the program had nor which pages it touched; all pages of its \
             blocks are touched here. No advice is drawn from it."
        );
    }
    let Some(error) = error else {
        let why = match &trace.same_allocator {
            None => format!(
                "{} is not here",
                match trace.recorded_allocator.as_str() {
                    "" => "the recorded allocator is not known and",
                    label => label,
                }
            ),
            Some(_) => "the trace has too few samples of the heap's memory".to_owned(),
        };
        return format!(
            "The error of this replay is not known: {why}. Nothing below says how close it is to \
             the program."
        );
    };
    let figures = format!(
        "replay error {:.1} % at the peak, {:.1} % on average ({} points, {} on {})",
        100.0 * error.at_peak.abs(),
        100.0 * error.on_average,
        error.points,
        loam_format::words::count(error.trials, "trial"),
        trace
            .same_allocator
            .as_deref()
            .unwrap_or("the recorded allocator"),
    );
    if error.reproduces {
        format!("The trace reproduces the program: {figures}.")
    } else {
        format!(
            "The trace does NOT reproduce the program: {figures}; 5 % is the most that is \
             believed. No advice is drawn from it."
        )
    }
}

impl Experiment for Replay {
    fn name(&self) -> &str {
        SERIES
    }

    fn title(&self) -> String {
        "A recorded program".to_owned()
    }

    fn question(&self) -> String {
        "The requests of a program that was recorded, by as many threads, in the same order, \
         touching the same pages: how much memory would it have had, and how much time, on each \
         allocator?"
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
        vec![
            bytes(
                "peak",
                "peak",
                "largest resident memory, less that of the replayer before the first request",
                peak,
            ),
            bytes(
                "average",
                "average",
                "resident anonymous memory, less the replayer's, over the recording's time",
                average,
            ),
            bytes("end", "at the end", "the same after the last event", at_end),
            Figure {
                unit: Unit::Seconds,
                ..bytes(
                    "time",
                    "time",
                    "seconds of all operations; measuring is not in it",
                    seconds,
                )
            },
            Figure {
                better: Better::Neither,
                ..bytes(
                    "live",
                    "most live",
                    "requested and not yet freed, at the points",
                    |run| largest(run, "live_bytes"),
                )
            },
            generic::faults(),
        ]
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        if let Some(trace) = trace(table.view) {
            if !trace.error.is_some_and(|error| error.reproduces) {
                return "figures of a replay that is not known to reproduce the program."
                    .to_owned();
            }
        }
        let value = |id: &str| table.cell(row, id).map(|cell| cell.value.median);
        if table.view.base == Some(row) {
            let part =
                |id: &str, name: &str| Some(format!("{} {name}", Unit::Bytes.show(value(id)?)));
            let parts = [part("average", "on average"), part("peak", "at the peak")];
            return phrases::reference(&parts.into_iter().flatten().collect::<Vec<_>>());
        }
        let base = phrases::call_base(table.view, row);
        let ratio = |id: &str, what: &str| {
            let summary = table.cell(row, id)?.ratio?;
            Some(format!(
                "{:.2} times the {what}{}",
                summary.median,
                phrases::interval(&summary)
            ))
        };
        let parts: Vec<String> = [
            ratio("average", "average memory"),
            ratio("peak", "peak"),
            ratio("time", "time"),
        ]
        .into_iter()
        .flatten()
        .collect();
        match parts.is_empty() {
            true => format!("ran, but shares no figure with {base}."),
            false => format!("{} of {base}.", parts.join(", ")),
        }
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        let Some(trace) = trace(table.view) else {
            return Vec::new();
        };
        let mut found = vec![judged(trace.error.as_ref(), trace)];
        if trace.error.is_some_and(|error| error.reproduces) {
            found.push(format!(
                "That error is of the recorded allocator. On others a replay's peak was within \
                 {:.0} % of the real one in nine of ten comparisons, so smaller differences decide \
                 nothing.",
                100.0 * OTHERS_ERROR
            ));
            let leaders = [
                smallest(table, "average", "Least memory on average"),
                smallest(table, "peak", "Smallest at its peak"),
                phrases::leader(table, "time", "Fastest"),
            ];
            found.extend(leaders.into_iter().flatten());
        }
        found
    }

    fn grids(&self, view: &View) -> Vec<Grid> {
        let Some(trace) = trace(view) else {
            return Vec::new();
        };
        let table = FigureTable::of(view, self.figures());
        let mut grid = Grid::new(
            "The trace and the error of its replay",
            &self.findings(&table).join(" "),
            &["", ""],
        );
        let pauses = match trace.speed_percent {
            0 => "left out (time-driven purging does not happen)".to_owned(),
            percent => format!(
                "kept, at {} times the recording's speed",
                percent as f64 / 100.0
            ),
        };
        let share = |value: f64| format!("{:+.1} %", 100.0 * value);
        let error = trace.error.as_ref();
        let rows = [
            ("trace", trace.path.display().to_string()),
            ("command", trace.command.join(" ")),
            ("process", format!("{} ({})", trace.process, trace.program)),
            ("recorded on", trace.recorded_allocator.clone()),
            ("events", trace.events.to_string()),
            ("threads", trace.threads.to_string()),
            ("recorded", Unit::Seconds.show(trace.seconds)),
            ("pauses", pauses),
            (
                "error at the peak",
                error.map_or("not known".into(), |e| share(e.at_peak)),
            ),
            (
                "error on average",
                error.map_or("not known".into(), |e| {
                    format!("{:.1} %", 100.0 * e.on_average)
                }),
            ),
            (
                "error on others",
                format!("{:.0} % at the peak in nine of ten", 100.0 * OTHERS_ERROR),
            ),
        ];
        grid.rows = rows
            .into_iter()
            .map(|(name, text)| vec![name.to_owned(), text])
            .collect();
        vec![grid]
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let seconds = |mut curve: Curve| {
            curve.points.iter_mut().for_each(|point| point.x /= 1e6);
            curve
        };
        let mut curves = charts::curves(view, |_| true, SERIES, |point| point.number(MEMORY));
        if let Some(row) = view.base_row() {
            curves.push(charts::design(row, "live", SERIES, |point| {
                point.live_bytes
            }));
            let recorded = |point: &loam_format::results::lines::Checkpoint| {
                point.number("recorded_heap_bytes")
            };
            curves.push(charts::design(row, "recorded", SERIES, recorded));
        }
        let chart = charts::lines(
            view,
            "memory",
            "Memory over the recording's time",
            "Resident anonymous memory of each allocator; `live` is what the program asked for and \
             had not freed, `recorded` what its heap had resident when it was recorded. A line \
             across is a moment that the program named.",
            Axis::of("Time of the recording", Unit::Seconds),
            Axis::of("Resident memory", Unit::Bytes),
            curves.into_iter().map(seconds).collect(),
        );
        let marks = trace(view).map_or(&[][..], |trace| &trace.marks);
        let marks = marks.iter().map(|mark| Mark {
            x: mark.seconds,
            label: mark.name.clone(),
        });
        let chart = chart.map(|chart| Chart {
            marks: marks.collect(),
            ..chart
        });
        chart.into_iter().collect()
    }
}
