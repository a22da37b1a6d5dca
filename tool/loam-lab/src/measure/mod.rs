//! Runs trials: a new process for each, in a fair order. Each result is on disk before the next
//! trial begins.
//!
//! ```text
//! warm-up of each experiment -> round 0: every experiment, case, allocator
//!                            -> round 1: the same, allocators in the opposite order
//!                            -> round 2: rotated by one, ...
//! ```
//!
//! Before each trial as much memory is touched as it will need (`heat`).
//!
//! A round goes through all experiments, so that an interrupted run has results of each. The
//! allocators of one experiment run next to each other, because the state of the machine is then
//! the same.

pub mod estimate;
mod heat;
mod launch;
mod noise;
pub mod order;
pub mod real;
mod trial;
pub mod watchdog;
pub mod ways;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use loam_format::results::{Case, Results, State, Status, Trial};

use crate::store::{self, Store, StoreError};
use heat::Heat;
use watchdog::Watchdog;

pub use order::steps;

/// Whether measuring is to stop. This is checked between and during trials, never in the middle of
/// writing a file.
pub trait Stop: fmt::Debug {
    /// The signal that asked to stop.
    fn signal(&self) -> Option<u8>;
}

/// Receives progress reports.
pub trait Progress {
    /// A step begins.
    fn begin(&mut self, step: &Step);
    /// The step ended.
    fn end(&mut self, step: &Step, trial: &Trial);
    /// A step is left out, because an earlier trial of it took too long.
    fn skip(&mut self, step: &Step);
}

/// What the trials need beyond what the results file says.
#[derive(Debug)]
pub struct Bench {
    /// Longest time for one trial.
    pub timeout: Duration,
    /// Whether the user asked to stop (Ctrl-C and the like).
    pub stop: Box<dyn Stop>,
    /// Ends a trial if the lab itself can not.
    pub watchdog: Watchdog,
}

/// Why measuring ended.
#[derive(Debug)]
pub enum Ending {
    /// Everything was run.
    Complete,
    /// A signal asked to stop.
    Interrupted(u8),
    /// The results could not be written any more. Finished trials up to the named one are on disk.
    Unsaved {
        /// The error.
        error: StoreError,
        /// The trials that are not on disk.
        lost: String,
    },
}

/// One place in the plan.
#[derive(Debug, Clone)]
pub struct Step {
    /// The experiment's name.
    pub experiment: String,
    /// Its program.
    pub workload: PathBuf,
    /// How it is run.
    pub case: Case,
    /// Label of the allocator.
    pub allocator: String,
    /// Counted from 0.
    pub round: u32,
    /// Whether this is the first run, which is not counted.
    pub warm_up: bool,
}

/// Runs everything that is planned and not yet in the results: the steps that `steps` returns.
pub fn measure(
    results: &mut Results,
    steps: &[Step],
    store: &Store,
    bench: &Bench,
    progress: &mut dyn Progress,
) -> Ending {
    let mut checksums: HashMap<(String, String), String> = known_checksums(results);
    let mut heat = Heat::of(&results.trials);
    for step in steps {
        if let Some(signal) = bench.stop.signal() {
            return interrupted(results, store, signal);
        }
        if took_too_long(step, results, bench) {
            progress.skip(step);
            continue;
        }
        progress.begin(step);
        let position = results.trials.len() as u32;
        let Some(mut trial) = trial::run(step, position, results, bench, &heat) else {
            let signal = bench.stop.signal().unwrap_or(2);
            return interrupted(results, store, signal);
        };
        check_result(&mut trial, &mut checksums);
        heat.learn(&trial);
        progress.end(step, &trial);
        let lost = trial.describe();
        results.trials.push(trial);
        results.updated = now();
        if let Err(error) = store::save(results, store) {
            results.state = State::Stopped;
            return Ending::Unsaved { error, lost };
        }
    }
    results.state = State::Complete;
    results.updated = now();
    match store::save(results, store) {
        Ok(()) => Ending::Complete,
        Err(error) => Ending::Unsaved {
            error,
            lost: "the mark that the run is complete".into(),
        },
    }
}

/// Whether a counted trial of the same case and allocator was stopped after at least the time that
/// is allowed now. A later round would only wait as long again.
fn took_too_long(step: &Step, results: &Results, bench: &Bench) -> bool {
    results.trials.iter().any(|trial| {
        trial.status == Status::TimedOut
            && !trial.warm_up
            && trial.seconds >= bench.timeout.as_secs_f64()
            && trial.experiment == step.experiment
            && trial.case == step.case.name
            && trial.allocator == step.allocator
    })
}

fn interrupted(results: &mut Results, store: &Store, signal: u8) -> Ending {
    results.state = State::Interrupted;
    results.updated = now();
    match store::save(results, store) {
        Ok(()) => Ending::Interrupted(signal),
        Err(error) => Ending::Unsaved {
            error,
            lost: "the mark that it was interrupted".into(),
        },
    }
}

/// A workload's end line may carry a checksum of its result. The same requests must give the same
/// result under every allocator. Otherwise an allocator handed out memory twice.
fn check_result(trial: &mut Trial, checksums: &mut HashMap<(String, String), String>) {
    let Some(checksum) = checksum(trial) else {
        return;
    };
    let key = (trial.experiment.clone(), trial.case.clone());
    let expected = checksums.entry(key).or_insert_with(|| checksum.clone());
    if *expected != checksum {
        trial.status = Status::WrongResult;
        trial.reason = Some(format!(
            "it computed {checksum} where the others computed {expected}: memory was corrupted, \
             or the workload's input changed meanwhile"
        ));
    }
}

fn checksum(trial: &Trial) -> Option<String> {
    if trial.status != Status::Ok {
        return None;
    }
    let last: serde_json::Value = serde_json::from_str(trial.lines.last()?.get()).ok()?;
    last.get("checksum")?.as_str().map(str::to_owned)
}

fn known_checksums(results: &Results) -> HashMap<(String, String), String> {
    let mut known = HashMap::new();
    for trial in &results.trials {
        if let Some(checksum) = checksum(trial) {
            known
                .entry((trial.experiment.clone(), trial.case.clone()))
                .or_insert(checksum);
        }
    }
    known
}

/// The current time, in the format of results files.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}
