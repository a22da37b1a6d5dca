//! Trims again and again: chooses, looks, trims, and tells what was done, as text and as metrics.

use std::collections::HashSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use loam_counters::trim::{self, Reason, Wish};
use loam_export::server;
use loam_export::trims::Tally;
use loam_process::choose::{self, ChoiceError, Target};
use loam_process::ending::Watch;
use loam_process::process::{private_bytes, Identity, ProcessKey};
use loam_process::trim::keep::Keeper;

use super::args::TrimOptions;
use super::{first_line, is_wanted, text};
use crate::exit::{leave, Exit};
use crate::export::tell;
use crate::output;

/// Runs until a signal ends it, or until none of the processes is left that were named by numbers.
/// A trim that has begun is brought to its end.
pub fn run(options: &TrimOptions, every: Duration) -> Result<Exit> {
    let tally = Tally::default();
    let Some(listen) = &options.listen else {
        let ending = Watch::in_good_order(&[]).begin(leave)?;
        return rounds(options, every, &tally, &|pause| {
            ending.wait(pause).map(|_| Exit::Done)
        });
    };
    drop(Watch::pipe_signal_only().begin(leave)?);
    let (end, ends) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let tally = &tally;
        scope.spawn(move || {
            let wait = |pause| match ends.recv_timeout(pause) {
                Err(RecvTimeoutError::Disconnected) => Some(Exit::Done),
                _ => None,
            };
            let exit = rounds(options, every, tally, &wait).unwrap_or_else(|error| {
                output::print_error(&error);
                Exit::Error
            });
            // Without them there is nothing to serve.
            std::process::exit(exit.code().into());
        });
        let served = server::serve(listen, options.allow_remote, tally.clone(), tell);
        if let Err(error) = &served {
            output::print_error(error);
            std::process::exit(Exit::of_error(error).code().into());
        }
        drop(end);
        served.map(|()| Exit::Done)
    })
}

fn rounds(
    options: &TrimOptions,
    every: Duration,
    tally: &Tally,
    wait: &dyn Fn(Duration) -> Option<Exit>,
) -> Result<Exit> {
    let mut keeper = Keeper::new(options.wish.above, every, options.when_limit.is_none());
    let mut told = HashSet::new();
    loop {
        let begun = Instant::now();
        let found = processes(options)?;
        let alive: HashSet<ProcessKey> = found.iter().map(|identity| identity.key).collect();
        let is_by_number = |target: &Target| matches!(target, Target::Pid(_));
        let has_names = options.targets.iter().any(|target| !is_by_number(target));
        if alive.is_empty() && !options.targets.is_empty() && !has_names {
            output::say("loam: all of these processes have ended");
            return Ok(Exit::Done);
        }
        keeper.keep(&alive);
        told.retain(|(key, _)| alive.contains(key));
        for identity in &found {
            if let Some(exit) = wait(Duration::ZERO) {
                return Ok(exit);
            }
            round(options, &mut keeper, tally, &mut told, identity)?;
        }
        tally.end_round(alive.len(), keeper.resting(Instant::now()));
        if let Some(exit) = wait(every.saturating_sub(begun.elapsed())) {
            return Ok(exit);
        }
    }
}

/// The processes of a round. One that has ended, or a name that nothing has now, is no error: it
/// may come.
fn processes(options: &TrimOptions) -> Result<Vec<Identity>> {
    if options.targets.is_empty() {
        return Ok(choose::all()?);
    }
    let mut found = Vec::new();
    for target in &options.targets {
        match choose::find(target) {
            Ok(some) => found.extend(some),
            Err(ChoiceError::Unlisted(error)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(found)
}

/// What goes wrong with one process is told once.
fn round(
    options: &TrimOptions,
    keeper: &mut Keeper,
    tally: &Tally,
    told: &mut HashSet<(ProcessKey, String)>,
    identity: &Identity,
) -> Result<()> {
    let key = identity.key;
    let resident = || private_bytes(key.pid).unwrap_or(0);
    if !keeper.is_due(key, Instant::now(), resident()) || !is_wanted(identity, options) {
        return Ok(());
    }
    let Some(heap) = trim::trimmable(identity) else {
        return Ok(());
    };
    let begun = Instant::now();
    let could = match trim::predict(identity) {
        Ok(found) => found.could,
        Err(reason) => return refused(options, tally, told, identity, reason),
    };
    if !keeper.is_worth(key, Instant::now(), begun.elapsed(), could) {
        return Ok(());
    }
    let looked = Wish {
        above: 0,
        ..options.wish
    };
    let outcome = match trim::run(identity, &looked) {
        Ok(outcome) => outcome,
        // The next one is tried after a pause as long as that of a look.
        Err(reason) => return refused(options, tally, told, identity, reason),
    };
    keeper.trimmed(key, Instant::now(), outcome.bytes, resident());
    tally.add(&identity.name, &outcome);
    let said = match options.json {
        true => trim::document(identity, false, &Ok(outcome)).to_string() + "\n",
        false => first_line(identity, heap, options) + &text(&outcome, false),
    };
    output::write_stdout(&said)?;
    Ok(())
}

fn refused(
    options: &TrimOptions,
    tally: &Tally,
    told: &mut HashSet<(ProcessKey, String)>,
    identity: &Identity,
    reason: Reason,
) -> Result<()> {
    tally.refuse(&identity.name);
    if told.insert((identity.key, reason.to_string())) {
        match options.json {
            true => {
                let line = trim::document(identity, false, &Err(reason)).to_string() + "\n";
                output::write_stdout(&line)?;
            }
            false => output::print_warning(&super::named(identity.key.pid, &reason.to_string())),
        }
    }
    Ok(())
}
