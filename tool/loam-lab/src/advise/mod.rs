//! `loam advise`: which allocator or setting a recorded program should run on, by replays.
//!
//! ```text
//! one trial of each candidate -> those that no other beats in memory and time at once
//!   -> trials in rounds -> the frontier, and one of it that is surely better than what was
//!      recorded, or none
//! ```
//!
//! Memory is the average resident, time that of the processor. Nothing here measures. `apart`
//! judges replays that keep long-lived blocks apart, `hints` says what to change in the program,
//! `verify` judges real runs, `answer` puts all of it together, `page` has it as text, JSON and
//! HTML.

pub mod answer;
pub mod apart;
pub mod hints;
pub mod page;
pub mod rooms;
pub mod verify;

use serde::Serialize;

use loam_format::plain;
use loam_format::results::{AllocatorRecord, Results};
use loam_format::units::Unit;
use loam_report::grid::Grid;

use crate::allocators::Allocator;
use crate::allocators::Status;
use crate::analyse::runs::{Row, Run, View};
use crate::analyse::stats::Summary;
use crate::experiments::replay::{average, processor};

/// Candidates that get all trials, beside the recorded allocator.
pub const MOST_KEPT: usize = 5;
/// A candidate is beaten if another one has this part of both its memory and its time, or less. The
/// margin is needed because a single trial scatters.
const BEATEN_BY: f64 = 0.97;
/// The ratio that is worth a change. In three of five comparisons a replay on another allocator
/// than the recorded one is no further off; `--verify` really runs the command.
const WORTH: f64 = 0.95;
/// By what factor the other of the two figures may grow.
const COST: f64 = 1.10;

/// The candidates where the user names none: every allocator on this machine, as it is and as its
/// authors advise to save memory.
pub fn candidates(available: &[Allocator]) -> Vec<String> {
    let mut specs = Vec::new();
    for allocator in available.iter().filter(|one| one.status == Status::Found) {
        specs.push(allocator.name.clone());
        if allocator.name == "loam" {
            specs.push("loam:LOAM_BACKGROUND_PURGE=on".to_owned());
        } else if !allocator.memory_environment.is_empty() {
            specs.push(format!("{}:memory", allocator.name));
        }
    }
    specs
}

/// An allocator's two figures, and how they relate to those of the recorded one.
#[derive(Debug, Clone, Serialize)]
pub struct Place {
    /// The label.
    pub allocator: String,
    /// Average resident memory.
    pub memory: Summary,
    /// Processor time.
    pub time: Summary,
    /// Memory, divided by that of the recorded allocator, paired by round.
    pub memory_ratio: Option<Summary>,
    /// The program's processor time, in the same way: the rest of the program takes as long on
    /// every allocator.
    pub time_ratio: Option<Summary>,
}

/// The part of the program's processor time that its allocator takes, by the replay on the recorded
/// one: a heap that is twice as fast saves half of this. 1 if the program's time is not known.
fn heap_share(results: &Results, base: &Row) -> f64 {
    let mut traces = results
        .experiments
        .iter()
        .filter_map(|one| one.trace.as_ref());
    let program = traces.find_map(|trace| trace.processor_seconds);
    let replayed = Summary::of(&base.values(processor)).map(|one| one.median);
    match (replayed, program) {
        (Some(replayed), Some(program)) => (replayed / program).min(1.0),
        _ => 1.0,
    }
}

/// The places of all measured candidates.
pub fn places(results: &Results, base: &str) -> Vec<Place> {
    let view = View::of(results, "replay");
    let base = view.rows.iter().find(|row| row.allocator == base);
    let share = base.map_or(1.0, |base| heap_share(results, base));
    let place = |row: &Row| {
        let ratios = |figure: fn(&Run) -> Option<f64>| {
            base.map_or_else(Vec::new, |base| row.ratios(base, figure))
        };
        let of_program = |ratio: &f64| 1.0 + share * (ratio - 1.0);
        let times: Vec<f64> = ratios(processor).iter().map(of_program).collect();
        Some(Place {
            allocator: row.allocator.clone(),
            memory: Summary::of(&row.values(average))?,
            time: Summary::of(&row.values(processor))?,
            memory_ratio: Summary::of(&ratios(average)),
            time_ratio: Summary::of(&times),
        })
    };
    view.rows.iter().filter_map(place).collect()
}

/// The places that no other place beats in both figures by the factor, least memory first. Replays
/// that change the program (`apart`) are left out.
pub fn frontier(places: &[Place], factor: f64) -> Vec<&Place> {
    let beats = |other: &Place, one: &Place| {
        let (memory, time) = (
            other.memory.median / one.memory.median,
            other.time.median / one.time.median,
        );
        memory <= factor && time <= factor && (memory < 1.0 || time < 1.0)
    };
    let heaps = || places.iter().filter(|one| !apart::is_apart(&one.allocator));
    let mut kept: Vec<&Place> = heaps()
        .filter(|one| !heaps().any(|other| beats(other, one)))
        .collect();
    kept.sort_by(|a, b| a.memory.median.total_cmp(&b.memory.median));
    kept
}

/// Labels of the candidates that get further trials. The recorded allocator is left out, because it
/// is measured anyway. The replay with long-lived blocks apart that has the least memory comes
/// last.
pub fn kept(places: &[Place], base: &str) -> Vec<String> {
    let front = frontier(places, BEATEN_BY);
    let mut labels: Vec<String> = front
        .iter()
        .map(|place| place.allocator.clone())
        .filter(|label| label != base)
        .collect();
    // The two ends of the frontier are kept, and the places next to the end of least memory.
    if labels.len() > MOST_KEPT {
        let fastest = labels.pop();
        labels.truncate(MOST_KEPT - 1);
        labels.extend(fastest);
    }
    labels.extend(apart::least(places).map(|place| place.allocator.clone()));
    labels
}

/// The place to advise: one with less memory for little time, else one with less time for little
/// memory, else none. If the measurement can not tell several places from the best one, the one
/// with the fewest settings is taken.
pub fn best<'p>(places: &'p [Place], base: &str) -> Option<&'p Place> {
    let surely =
        |ratio: &Option<Summary>| ratio.is_some_and(|ratio| ratio.high <= WORTH && ratio.count > 1);
    let cheap = |ratio: &Option<Summary>| ratio.is_some_and(|ratio| ratio.median <= COST);
    let is_other = |one: &&Place| one.allocator != base && !apart::is_apart(&one.allocator);
    let others = || places.iter().filter(is_other);
    let saving = others().filter(|one| surely(&one.memory_ratio) && cheap(&one.time_ratio));
    let fast = others().filter(|one| surely(&one.time_ratio) && cheap(&one.memory_ratio));
    plainest(saving.collect(), |one| one.memory_ratio)
        .or_else(|| plainest(fast.collect(), |one| one.time_ratio))
}

/// Among the places whose interval reaches that of the smallest ratio: the one with the fewest
/// settings, then the one with the smallest ratio.
fn plainest(places: Vec<&Place>, ratio: impl Fn(&Place) -> Option<Summary>) -> Option<&Place> {
    let median = |one: &&Place| ratio(one).map_or(f64::INFINITY, |ratio| ratio.median);
    let least = places
        .iter()
        .copied()
        .min_by(|a, b| median(a).total_cmp(&median(b)))?;
    let reach = ratio(least)?.high.max(ratio(least)?.median * (2.0 - WORTH));
    let settings = |one: &&Place| one.allocator.matches(':').count();
    places
        .into_iter()
        .filter(|one| ratio(one).is_some_and(|ratio| ratio.low <= reach))
        .min_by(|a, b| (settings(a).cmp(&settings(b))).then(median(a).total_cmp(&median(b))))
}

/// The command line that runs the program on that allocator, for a shell.
pub fn line(record: &AllocatorRecord, command: &[String]) -> String {
    let mut words: Vec<String> = record
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={}", plain::word(value)))
        .collect();
    match &record.path {
        Some(_) if record.name == "loam" => words.push("loam run --".to_owned()),
        Some(path) => words.push(format!(
            "LD_PRELOAD={}",
            plain::word(&path.to_string_lossy())
        )),
        None => {}
    }
    words.extend(command.iter().map(|word| plain::word(word).into_owned()));
    words.join(" ")
}

/// The frontier as a table; the recorded allocator is in it.
pub fn grid(places: &[Place], base: &str) -> Grid {
    let mut grid = Grid::new(
        "The frontier",
        "Nothing that was measured here has less memory and takes less time than one of these. \
         Ratios are to the recorded allocator, paired by round, with their interval; that of time \
         is of the whole program",
        &[
            "",
            "average memory",
            "ratio",
            "allocator's time",
            "program's time",
        ],
    );
    let front = frontier(places, 1.0);
    let is_front = |place: &Place| front.iter().any(|one| one.allocator == place.allocator);
    let mut shown: Vec<&Place> = places
        .iter()
        .filter(|place| is_front(place) || place.allocator == base)
        .collect();
    shown.sort_by(|a, b| a.memory.median.total_cmp(&b.memory.median));
    for place in shown {
        let note = if place.allocator == base {
            " (recorded)"
        } else {
            ""
        };
        grid.rows.push(vec![
            format!("{}{note}", place.allocator),
            Unit::Bytes.show(place.memory.median),
            ratio(&place.memory_ratio),
            Unit::Seconds.show(place.time.median),
            ratio(&place.time_ratio),
        ]);
    }
    grid
}

/// `0.84 (0.83 to 0.86)`
pub fn ratio(ratio: &Option<Summary>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |one| format!("{:.2} ({:.2} to {:.2})", one.median, one.low, one.high),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(allocator: &str, memory: [f64; 3], time: [f64; 3]) -> Place {
        let summary = |values: [f64; 3]| Summary::of(&values).unwrap();
        Place {
            allocator: allocator.to_owned(),
            memory: summary(memory),
            time: summary(time),
            memory_ratio: Some(summary(memory)),
            time_ratio: Some(summary(time)),
        }
    }

    #[test]
    fn what_is_worse_in_both_is_dropped_and_what_saves_surely_is_advised() {
        let base = place("system", [1.0; 3], [1.0; 3]);
        let lean = place("lean", [0.70, 0.71, 0.72], [1.05, 1.06, 1.07]);
        let leaner = place("leaner", [0.5, 0.5, 0.5], [3.0, 3.0, 3.0]);
        let unsure = place("unsure", [0.4, 0.6, 1.1], [1.0, 1.0, 1.0]);
        let worse = place("worse", [1.2; 3], [1.2; 3]);
        let fast = place("fast", [1.02; 3], [0.5, 0.5, 0.6]);
        let names = |places: &[Place]| -> Vec<String> { kept(places, "system") };
        let all = [base.clone(), lean.clone(), leaner.clone(), worse.clone()];
        assert_eq!(names(&all), ["leaner", "lean"]);
        let advised = |places: &[Place]| best(places, "system").map(|one| one.allocator.clone());
        assert_eq!(advised(&all).as_deref(), Some("lean"));
        assert_eq!(advised(&[base.clone(), leaner, worse, unsure]), None);
        assert_eq!(
            advised(&[base.clone(), fast.clone()]).as_deref(),
            Some("fast")
        );
        // The variant with a setting is as fast within the error; then it is surely faster.
        let set = |time| place("fast:SETTING=on", [1.02; 3], time);
        let alike = [base.clone(), set([0.45, 0.49, 0.52]), fast.clone()];
        assert_eq!(advised(&alike).as_deref(), Some("fast"));
        let faster = [base, set([0.3, 0.31, 0.32]), fast];
        assert_eq!(advised(&faster).as_deref(), Some("fast:SETTING=on"));
    }
}
