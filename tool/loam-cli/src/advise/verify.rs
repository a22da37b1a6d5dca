//! `loam advise --verify`: runs the command on what the replays advise.

use std::path::Path;

use anyhow::Result;

use loam_format::results::Results;
use loam_lab::advise::answer::{advised, record};
use loam_lab::advise::page::Answer;
use loam_lab::advise::verify::{self, Verification, Verified};
use loam_lab::measure::real::RealError;
use loam_lab::measure::watchdog::Watchdog;
use loam_lab::measure::ways::{self, Way};

use super::args::AdviseOptions;
use super::interrupted;
use crate::lab::stop::Stop;
use crate::output;
use crate::run::require_preloadable;

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
        let record = record(results, label)?;
        if let Some(library) = &record.path {
            let arguments = &options.command[1..];
            require_preloadable(program, arguments, library, false, "run on it", "loam run")?;
        }
        ways.push(Way::of(record));
    }
    let watchdog = Watchdog::start()?;
    let (timeout, rounds) = (options.measure.timeout, options.measure.rounds);
    for round in 0..rounds {
        output::say(&format!("really run: round {} of {rounds}", round + 1));
        let command = (program, options.command.as_slice());
        let done = ways::round(&mut ways, round, command, timeout, stop, &watchdog);
        done.map_err(|error| match error.downcast_ref() {
            Some(RealError::Stopped(signal)) => interrupted(*signal),
            _ => error,
        })?;
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
        Some(held) => Some(advised(results, &held.allocator)?),
        None => None,
    };
    answer.verified = Some(verification);
    Ok(())
}
