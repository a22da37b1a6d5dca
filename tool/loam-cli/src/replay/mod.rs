//! `loam replay`: a trace becomes an experiment of the lab.
//!
//! ```text
//! survey the trace -> prepare it (once, in a temporary folder)
//!   -> the lab's trials of native/replayer -> the error of the replay
//!   -> the lab's table and report
//! ```

pub mod args;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use loam_format::words;
use loam_lab::plan::{self, Ready};
use loam_lab::replay::lives::Lives;
use loam_lab::replay::{self, ReplayError, Survey, Which};
use loam_process::layout::{Layout, REPLAYER_NAME};

use crate::exit::Exit;
use crate::lab::{self, stop::Stop};
use crate::output;
use args::ReplayOptions;

/// Runs the verb.
pub fn run(options: &ReplayOptions, layout: &Layout) -> Result<Exit> {
    let replayer = find_replayer(layout)?;
    let which = &options.which;
    let survey = which.survey()?;
    // From here on a signal is noted, so that the temporary folder goes.
    let stop = Stop::when_asked()?;
    let ready = match ready(which, &survey, &std::env::temp_dir(), &stop) {
        Err(error) => return interrupted(&error).ok_or(error),
        Ok(ready) => ready,
    };
    let plan = plan::replay(&options.measure, layout, &replayer, ready)?;
    let mut reproduces = true;
    let exit = lab::carry_out(plan, &options.measure, layout, stop, |results| {
        reproduces = replay::judge(results);
        true
    })?;
    Ok(match exit {
        Exit::Done if !reproduces => Exit::Finding,
        other => other,
    })
}

/// A place for prepared replays; it goes with the value.
pub fn folder() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("loam-replay-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .context("no temporary folder for the prepared replay")
}

/// Prepares a trace in a folder of its own.
pub fn ready(which: &Which, survey: &Survey, folder: &Path, stop: &Stop) -> Result<Ready> {
    ready_with(which, survey, None, folder, stop)
}

/// The same, and notes how long each block lives.
pub fn ready_with(
    which: &Which,
    survey: &Survey,
    lives: Option<&Lives>,
    folder: &Path,
    stop: &Stop,
) -> Result<Ready> {
    let stream = survey.choose(which.process)?;
    output::print_warnings(&survey.warnings(stream));
    let ready = which.ready(survey, lives, folder, stop)?;
    output::say(&format!(
        "replaying {}: {} events of {}, {}",
        output::path(&which.trace),
        ready.record.events,
        ready.record.program,
        words::count(ready.record.threads as usize, "thread"),
    ));
    Ok(ready)
}

/// How to end if the error is that the user wanted to stop.
pub fn interrupted(error: &anyhow::Error) -> Option<Exit> {
    match error.downcast_ref::<ReplayError>() {
        Some(ReplayError::Interrupted(signal)) => Some(Exit::Signal(*signal)),
        _ => None,
    }
}

/// The replayer, which the build brings.
pub fn find_replayer(layout: &Layout) -> Result<PathBuf> {
    let found = layout.find(REPLAYER_NAME);
    let found = found.context("the replayer is not built")?;
    Ok(std::path::absolute(found)?)
}
