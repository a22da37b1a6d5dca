//! A command that is really run in several ways, in turn.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, Result};

use loam_format::results::AllocatorRecord;
use loam_process::preload;

use super::order;
use super::real::{self, Real, RealError};
use super::watchdog::Watchdog;
use super::Stop;

/// A way to run the command, and what it took.
#[derive(Debug)]
pub struct Way {
    /// The allocator's label.
    pub label: String,
    /// The changes of the environment.
    environment: Vec<(OsString, OsString)>,
    /// What each run took.
    pub runs: Vec<Real>,
    /// Why it can not be run.
    pub failed: Option<String>,
}

impl Way {
    /// On an allocator.
    pub fn of(record: &AllocatorRecord) -> Way {
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

/// Runs the command once in each way. A way that has failed is left out from then on; without the
/// figures of the first way there is nothing to compare with.
pub fn round(
    ways: &mut [Way],
    round: u32,
    (program, command): (&Path, &[OsString]),
    timeout: Duration,
    stop: &dyn Stop,
    watchdog: &Watchdog,
) -> Result<()> {
    let all: Vec<usize> = (0..ways.len()).collect();
    for at in order::shuffled(&all, round) {
        let way = &mut ways[at];
        if way.failed.is_some() {
            continue;
        }
        match real::run(program, command, &way.environment, timeout, stop, watchdog) {
            Ok(run) => way.runs.push(run),
            Err(stopped @ RealError::Stopped(_)) => return Err(stopped.into()),
            Err(error) if at == 0 => {
                return Err(anyhow!(
                    "the command can not be tried on {}: {error}",
                    way.label
                ))
            }
            Err(error) => way.failed = Some(error.to_string()),
        }
    }
    Ok(())
}
