//! Whether an advice holds: the recorded command and the two best candidates, really run, in turn.
//!
//! A replay knows the recorded requests. It does not know what a program does with its memory, what
//! its threads wait for, or whether it runs on another allocator at all.

use serde::Serialize;

use loam_format::units::Unit;
use loam_report::grid::Grid;

use super::{best, ratio, Place};
use crate::analyse::stats::Summary;
use crate::measure::real::Real;

/// How many candidates are run.
pub const MOST: usize = 2;
/// By what factor a figure may grow where the other one falls.
const WORSE: f64 = 1.01;

/// The figures of one candidate, each divided by those of the recorded allocator in the same round.
#[derive(Debug, Clone, Serialize)]
pub struct Verified {
    /// The label.
    pub allocator: String,
    /// Average private resident memory.
    pub memory_ratio: Option<Summary>,
    /// The largest of it that a look saw.
    pub peak_ratio: Option<Summary>,
    /// Processor time.
    pub time_ratio: Option<Summary>,
    /// Whether the program needs surely less of one, and at most a hundredth more of the other.
    pub holds: bool,
    /// Why there are no figures.
    pub failed: Option<String>,
}

/// The best place, and the best one without it.
pub fn candidates(places: &[Place], base: &str) -> Vec<String> {
    let mut rest = places.to_vec();
    let mut found = Vec::new();
    while let Some(place) = best(&rest, base).filter(|_| found.len() < MOST) {
        found.push(place.allocator.clone());
        rest.retain(|one| Some(&one.allocator) != found.last());
    }
    found
}

/// Judges the runs of a candidate beside those of the recorded allocator, in the same order of
/// rounds.
pub fn judge(allocator: &str, runs: &[Real], base: &[Real]) -> Verified {
    let ratios = |figure: fn(&Real) -> f64| {
        let pairs = runs.iter().zip(base);
        let pairs = pairs.filter(|(_, base)| figure(base) > 0.0);
        let ratios: Vec<f64> = pairs
            .map(|(one, base)| figure(one) / figure(base))
            .collect();
        Summary::of(&ratios)
    };
    let (memory, time) = (ratios(|one| one.average), ratios(|one| one.processor));
    let other = base.first().map(|base| base.status);
    let failed = runs.iter().find(|one| Some(one.status) != other);
    let failed = failed.map(|one| format!("it ended with {}", one.status));
    let saves = |one: Option<Summary>| one.is_some_and(|one| one.high < 1.0);
    let keeps = |one: Option<Summary>| one.is_some_and(|one| one.median <= WORSE);
    Verified {
        allocator: allocator.to_owned(),
        holds: failed.is_none()
            && ((saves(memory) && keeps(time)) || (saves(time) && keeps(memory))),
        memory_ratio: memory,
        peak_ratio: ratios(|one| one.peak),
        time_ratio: time,
        failed,
    }
}

/// One that could not be run.
pub fn failed(allocator: &str, why: String) -> Verified {
    Verified {
        allocator: allocator.to_owned(),
        memory_ratio: None,
        peak_ratio: None,
        time_ratio: None,
        holds: false,
        failed: Some(why),
    }
}

/// What the runs showed.
#[derive(Debug, Clone, Serialize)]
pub struct Verification {
    /// Average private resident memory on the recorded allocator, in bytes.
    pub memory: Option<Summary>,
    /// The largest of it that a look saw.
    pub peak: Option<Summary>,
    /// Processor time, in seconds.
    pub time: Option<Summary>,
    /// The candidates, the best of the replays first.
    pub candidates: Vec<Verified>,
}

impl Verification {
    /// That of the recorded allocator's runs, and of judged candidates.
    pub fn of(base: &[Real], candidates: Vec<Verified>) -> Verification {
        let summary = |figure: fn(&Real) -> f64| {
            let values: Vec<f64> = base.iter().map(figure).collect();
            Summary::of(&values)
        };
        Verification {
            memory: summary(|one| one.average),
            peak: summary(|one| one.peak),
            time: summary(|one| one.processor),
            candidates,
        }
    }

    /// The best candidate that holds.
    pub fn held(&self) -> Option<&Verified> {
        self.candidates.iter().find(|one| one.holds)
    }

    /// The runs as a table. `base` is the recorded allocator.
    pub fn grid(&self, base: &str) -> Grid {
        let mut grid = Grid::new(
            "Really run",
            "The command itself, in turn with the recorded allocator. Memory is of all its \
             processes, without files. Ratios are to the recorded allocator, paired by round, with \
             their interval",
            &["", "average memory", "peak", "processor time", ""],
        );
        let shown = |one: Option<Summary>, unit: Unit| {
            one.map_or_else(|| "-".to_owned(), |one| unit.show(one.median))
        };
        grid.rows.push(vec![
            format!("{base} (recorded)"),
            shown(self.memory, Unit::Bytes),
            shown(self.peak, Unit::Bytes),
            shown(self.time, Unit::Seconds),
            String::new(),
        ]);
        for one in &self.candidates {
            let verdict = match (&one.failed, one.holds) {
                (Some(why), _) => why.clone(),
                (None, true) => "holds".to_owned(),
                (None, false) => "does not hold".to_owned(),
            };
            grid.rows.push(vec![
                one.allocator.clone(),
                ratio(&one.memory_ratio),
                ratio(&one.peak_ratio),
                ratio(&one.time_ratio),
                verdict,
            ]);
        }
        grid
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn run(average: f64, processor: f64) -> Real {
        Real {
            average,
            peak: average,
            processor,
            status: ExitStatus::from_raw(0),
        }
    }

    #[test]
    fn an_advice_holds_if_one_figure_surely_falls_and_the_other_stays() {
        let base = [run(100.0, 1.0), run(102.0, 1.1), run(98.0, 0.9)];
        let scaled = |memory: f64, time: f64| {
            base.map(|one| run(one.average * memory, one.processor * time))
        };
        for (memory, time, holds) in [
            (0.9, 1.0, true),
            (1.01, 0.9, true),
            (0.5, 1.02, false),
            (1.02, 0.5, false),
            (1.0, 1.0, false),
        ] {
            let found = judge("other", &scaled(memory, time), &base);
            assert_eq!(found.holds, holds, "{memory} {time}: {found:?}");
        }
        // One round in three is worse: not surely.
        let unsure = [run(80.0, 1.0), run(110.0, 1.1), run(80.0, 0.9)];
        assert!(!judge("other", &unsure, &base).holds);
    }

    #[test]
    fn a_program_that_ends_in_another_way_is_not_served() {
        let base = [run(100.0, 1.0); 2];
        let mut runs = [run(50.0, 0.5); 2];
        runs[1].status = ExitStatus::from_raw(11);
        let found = judge("other", &runs, &base);
        assert!(!found.holds);
        assert!(found.failed.is_some_and(|why| why.contains("signal")));
    }
}
