//! Merges several results files into one: jobs of one sweep, on one machine or on many.
//!
//! Measurements on like machines with the same program become one experiment, and their rounds
//! follow each other: the trials that a ratio compares stay in one round of one file. If anything
//! differs (machine, program, trace, speed), the measurement becomes an experiment of its own,
//! named `NAME`, `NAME-2`, ...; no figure is ever formed over two machines. `Part` names the origin
//! of each experiment.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thiserror::Error;

use loam_format::results::{
    AllocatorRecord, ExperimentRecord, Options, Part, Results, State, Trial,
};

use crate::replay;

/// Why files can not be merged.
#[derive(Debug, Error)]
pub enum MergeError {
    /// There is nothing to merge with.
    #[error("one results file is merged already; name two or more")]
    Single,
    /// A setting of the whole run differs.
    #[error(
        "{first} and {other} do not belong together: {what} is {before} in the one and {after} in \
         the other; merge files of one sweep"
    )]
    Different {
        /// A file.
        first: PathBuf,
        /// The other one.
        other: PathBuf,
        /// Which setting.
        what: &'static str,
        /// Its value in the first file.
        before: String,
        /// Its value in the other file.
        after: String,
    },
    /// The same trial is in both.
    #[error(
        "{first} and {other} have the same trial, {trial} of {started}: a file was named twice, or \
         is a copy or a merged file that has the other"
    )]
    Twice {
        /// A file.
        first: PathBuf,
        /// The other one.
        other: PathBuf,
        /// The trial.
        trial: String,
        /// When it began.
        started: String,
    },
    /// One label stands for two libraries, on like machines.
    #[error(
        "{label} is not the same in {first} and {other}, which were measured on like machines: \
         another library, version or setting; give one of them another label (LABEL=NAME) and \
         measure it again"
    )]
    Allocator {
        /// A file.
        first: PathBuf,
        /// The other one.
        other: PathBuf,
        /// The label.
        label: String,
    },
}

/// Merges files, in the order in which they are named.
pub fn merge(files: Vec<(PathBuf, Results)>) -> Result<Results, MergeError> {
    if files.len() < 2 {
        return Err(MergeError::Single);
    }
    same_settings(&files)?;
    no_trial_twice(&files)?;
    let mut files = files.into_iter();
    let (path, first) = files.next().expect("there are two or more");
    let mut merged = Results {
        format: first.format.clone(),
        created: first.created.clone(),
        updated: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        tool: first.tool.clone(),
        machine: first.machine.clone(),
        options: Options { ..first.options },
        experiments: Vec::new(),
        allocators: Vec::new(),
        trials: Vec::new(),
        ..first
    };
    add(&mut merged, &path, first)?;
    for (path, results) in files {
        add(&mut merged, &path, results)?;
    }
    replay::note_errors(&mut merged);
    Ok(merged)
}

fn same_settings(files: &[(PathBuf, Results)]) -> Result<(), MergeError> {
    let (first, base) = &files[0];
    for (other, results) in &files[1..] {
        let settings = [
            (
                "the version of loam",
                &base.tool.version,
                &results.tool.version,
            ),
            (
                "the form",
                &base.options.form.name().to_owned(),
                &results.options.form.name().to_owned(),
            ),
            (
                "the seed",
                &base.options.seed.to_string(),
                &results.options.seed.to_string(),
            ),
        ];
        for (what, before, after) in settings {
            if before != after {
                return Err(MergeError::Different {
                    first: first.clone(),
                    other: other.clone(),
                    what,
                    before: before.clone(),
                    after: after.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Fails if two files contain the same trial. A trial is identified by its start time, its
/// duration, its allocator and its last line.
fn no_trial_twice(files: &[(PathBuf, Results)]) -> Result<(), MergeError> {
    let is_same = |a: &Trial, b: &Trial| {
        let key = |one: &Trial| {
            (
                one.started.clone(),
                one.seconds.to_bits(),
                one.allocator.clone(),
            )
        };
        let printed = |one: &Trial| one.lines.last().map(|line| line.get().to_owned());
        key(a) == key(b) && printed(a) == printed(b)
    };
    for (at, (first, results)) in files.iter().enumerate() {
        for (other, others) in &files[at + 1..] {
            let mut pairs = results
                .trials
                .iter()
                .filter_map(|trial| others.trials.iter().find(|one| is_same(trial, one)));
            if let Some(trial) = pairs.next() {
                return Err(MergeError::Twice {
                    first: first.clone(),
                    other: other.clone(),
                    trial: trial.describe(),
                    started: trial.started.clone(),
                });
            }
        }
    }
    Ok(())
}

fn add(merged: &mut Results, path: &Path, results: Results) -> Result<(), MergeError> {
    for record in &results.allocators {
        match merged
            .allocators
            .iter_mut()
            .find(|known| known.label == record.label)
        {
            None => merged.allocators.push(record.clone()),
            Some(known) if !known.measured && record.measured => *known = record.clone(),
            Some(_) => {}
        }
    }
    merged.created = merged.created.clone().min(results.created.clone());
    merged.options.rounds = merged.options.rounds.max(results.options.rounds);
    merged.options.timeout_seconds = merged
        .options
        .timeout_seconds
        .max(results.options.timeout_seconds);
    if results.state != State::Complete {
        merged.state = State::Interrupted;
    }
    let mut trials = results.trials;
    for record in results.experiments {
        let old = record.name.clone();
        let part = record.part.clone().unwrap_or_else(|| Part {
            of: record.name.clone(),
            machine: results.machine.clone(),
            allocators: results.allocators.clone(),
            files: vec![path.to_path_buf()],
        });
        let at = merged
            .experiments
            .iter()
            .position(|known| is_one(known, &record, &part));
        let name = match at {
            Some(at) => join(&mut merged.experiments[at], &record, part)?,
            None => {
                let name = fresh(&merged.experiments, &part.of);
                merged.experiments.push(ExperimentRecord {
                    name: name.clone(),
                    part: Some(part),
                    ..record
                });
                name
            }
        };
        let known = merged
            .trials
            .iter()
            .filter(|trial| trial.experiment == name);
        let rounds = known.map(|trial| trial.round + 1).max().unwrap_or(0);
        let (own, others): (Vec<Trial>, Vec<Trial>) = trials
            .into_iter()
            .partition(|trial| trial.experiment == old);
        trials = others;
        let position = merged.trials.len() as u32;
        merged.trials.extend(own.into_iter().map(|trial| Trial {
            experiment: name.clone(),
            round: trial.round + rounds,
            position: trial.position + position,
            ..trial
        }));
    }
    Ok(())
}

/// Whether both experiments measured the same on like machines.
fn is_one(known: &ExperimentRecord, record: &ExperimentRecord, part: &Part) -> bool {
    let same_trace = match (&known.trace, &record.trace) {
        (Some(a), Some(b)) => {
            (&a.sha256, a.process, a.speed_percent) == (&b.sha256, b.process, b.speed_percent)
        }
        (a, b) => a.is_none() && b.is_none(),
    };
    let same_part = known
        .part
        .as_ref()
        .is_some_and(|known| known.of == part.of && known.machine.is_like(&part.machine));
    // A replay's program is the replayer. Its arguments name files that were made for this run
    // only, so they are not compared.
    let same_cases = record.trace.is_some()
        || record.cases.iter().all(|case| {
            let known = known.cases.iter().find(|one| one.name == case.name);
            known.is_none_or(|known| known.arguments == case.arguments)
        });
    same_part && same_trace && same_cases && known.sha256 == record.sha256
}

/// Adds an experiment to the same experiment of earlier files. Returns its name.
fn join(
    known: &mut ExperimentRecord,
    record: &ExperimentRecord,
    part: Part,
) -> Result<String, MergeError> {
    let whole = known
        .part
        .as_mut()
        .expect("every experiment of a merged file has a part");
    for allocator in part.allocators {
        match whole
            .allocators
            .iter_mut()
            .find(|one| one.label == allocator.label)
        {
            None => whole.allocators.push(allocator),
            Some(one) if !one.measured => *one = allocator,
            Some(one) if allocator.measured && !is_same_library(one, &allocator) => {
                return Err(MergeError::Allocator {
                    first: whole.files.first().cloned().unwrap_or_default(),
                    other: part.files.first().cloned().unwrap_or_default(),
                    label: allocator.label,
                });
            }
            Some(_) => {}
        }
    }
    whole.files.extend(part.files);
    // Each file planned its own allocators, in its own rounds.
    known.cases.extend(record.cases.iter().cloned());
    if let (Some(trace), Some(other)) = (&mut known.trace, &record.trace) {
        trace.same_allocator = trace.same_allocator.take().or(other.same_allocator.clone());
        for remark in &other.remarks {
            if !trace.remarks.contains(remark) {
                trace.remarks.push(remark.clone());
            }
        }
    }
    Ok(known.name.clone())
}

fn is_same_library(a: &AllocatorRecord, b: &AllocatorRecord) -> bool {
    (&a.sha256, &a.environment) == (&b.sha256, &b.environment)
}

/// A name that is not used yet: `replay`, `replay-2`, ...
fn fresh(known: &[ExperimentRecord], name: &str) -> String {
    let is_free = |wanted: &String| known.iter().all(|one| one.name != *wanted);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(is_free)
        .expect("numbers do not end")
}
