//! `loam advise --verify`: runs the command on what the replays advise.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{bail, Result};

use loam_format::results::{AllocatorRecord, Results};
use loam_lab::advise::page::Answer;
use loam_lab::advise::verify::{self, Verification, Verified};
use loam_lab::measure::order;
use loam_lab::measure::real::{self, Real, RealError};
use loam_lab::measure::watchdog::Watchdog;
use loam_process::preload;

use super::args::AdviseOptions;
use crate::exit::{Coded, Exit};
use crate::lab::stop::Stop;
use crate::output;
use crate::run::require_preloadable;

/// A way to run the command, and what it took.
struct Way {
    label: String,
    environment: Vec<(OsString, OsString)>,
    runs: Vec<Real>,
    failed: Option<String>,
}

/// Runs the command, and takes back an advice that does not hold.
pub fn run(
    options: &AdviseOptions,
    program: &Path,
    results: &Results,
    answer: &mut Answer,
    stop: &Stop,
) -> Result<()> {
    let candidates = verify::candidates(&answer.places, &answer.recorded);
    if candidates.is_empty() {
        let words = "Nothing is advised, so the command was not run.";
        answer.remarks.push(words.to_owned());
        return Ok(());
    }
    let mut ways = Vec::new();
    for label in [&answer.recorded].into_iter().chain(&candidates) {
        let record = super::record(results, label)?;
        if let Some(library) = &record.path {
            let arguments = &options.command[1..];
            require_preloadable(program, arguments, library, false, "run on it", "loam run")?;
        }
        ways.push(Way::of(record));
    }
    let watchdog = Watchdog::start()?;
    let timeout = options.measure.timeout;
    let rounds = options.measure.rounds;
    for round in 0..rounds {
        output::say(&format!("really run: round {} of {rounds}", round + 1));
        let all: Vec<usize> = (0..ways.len()).collect();
        for at in order::shuffled(&all, round) {
            let way = &mut ways[at];
            if way.failed.is_some() {
                continue;
            }
            let command = &options.command;
            match real::run(program, command, &way.environment, timeout, stop, &watchdog) {
                Ok(run) => way.runs.push(run),
                Err(RealError::Stopped(signal)) => {
                    return Err(Coded {
                        exit: Exit::Signal(signal),
                        message: "interrupted; no advice".to_owned(),
                    }
                    .into())
                }
                // Without its figures there is nothing to compare with.
                Err(error) if at == 0 => {
                    bail!("the command can not be tried on {}: {error}", way.label)
                }
                Err(error) => way.failed = Some(error.to_string()),
            }
        }
    }
    let (base, others) = ways
        .split_first()
        .expect("the recorded allocator comes first");
    let judged: Vec<Verified> = others
        .iter()
        .map(|way| match &way.failed {
            Some(why) => verify::failed(&way.label, why.clone()),
            None => verify::judge(&way.label, &way.runs, &base.runs),
        })
        .collect();
    let verification = Verification::of(&base.runs, judged);
    answer.advised = match verification.held() {
        Some(held) => Some(super::advised(results, &held.allocator)?),
        None => None,
    };
    answer.verified = Some(verification);
    Ok(())
}

impl Way {
    fn of(record: &AllocatorRecord) -> Way {
        let settings = record.environment.iter();
        let mut environment: Vec<(OsString, OsString)> = settings
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        if let Some(library) = &record.path {
            let before = std::env::var_os("LD_PRELOAD");
            environment.push((
                "LD_PRELOAD".into(),
                preload::with_ours_first(library, before),
            ));
        }
        Way {
            label: record.label.clone(),
            environment,
            runs: Vec::new(),
            failed: None,
        }
    }
}
