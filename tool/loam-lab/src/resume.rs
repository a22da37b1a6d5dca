//! What happens to an earlier run in the results file. `--resume` keeps its finished trials if they
//! measured the same thing. Without it, and without `--overwrite`, a file that holds finished
//! trials is refused.

use std::path::Path;

use thiserror::Error;

use loam_format::results::{Results, Status};
use loam_format::words;

use crate::store::{self, StoreError};

/// Why a run can not be continued.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// The file is not usable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Finished trials would be lost.
    #[error(
        "{path} has {}; {}--overwrite replaces it, --json names another file",
        words::count(*trials, "finished trial"),
        if *goes_on { "--resume goes on with that run, " } else { "" }
    )]
    Finished {
        /// The file.
        path: String,
        /// Number of trials.
        trials: usize,
        /// Whether `--resume` can go on with the run.
        goes_on: bool,
    },
    /// The trials of both runs could not be compared with each other.
    #[error(
        "{path} can not be resumed: {}; give the same options as before, or another --json",
        differences.join("; ")
    )]
    Different {
        /// The file.
        path: String,
        /// The earlier and the present value of each setting that differs.
        differences: Vec<String>,
    },
}

/// Refuses a file with finished trials. A file that can not be read as results is refused as well,
/// because its contents are not known.
pub fn require_unfinished(path: &Path) -> Result<(), ResumeError> {
    // A device or a pipe holds nothing.
    if !path
        .metadata()
        .is_ok_and(|meta| meta.is_file() && meta.len() > 0)
    {
        return Ok(());
    }
    let earlier = store::load(path)?;
    match earlier.trials.iter().filter(|trial| !trial.warm_up).count() {
        0 => Ok(()),
        trials => Err(ResumeError::Finished {
            path: path.display().to_string(),
            trials,
            goes_on: earlier.can_go_on(),
        }),
    }
}

/// Takes over the file's trials. If the file does not exist yet, the run was interrupted before the
/// first trial.
pub fn take_over(results: &mut Results, path: &Path) -> Result<(), ResumeError> {
    if !path.metadata().is_ok_and(|meta| meta.len() > 0) {
        return Ok(());
    }
    let earlier = store::load(path)?;
    let differences = differences(&earlier, results);
    if !differences.is_empty() {
        let path = path.display().to_string();
        return Err(ResumeError::Different { path, differences });
    }
    results.created = earlier.created;
    results.trials = earlier.trials;
    // Failed trials run again: an out-of-memory kill or a full disk may be over.
    results
        .trials
        .retain(|trial| !trial.warm_up && matches!(trial.status, Status::Ok | Status::Unavailable));
    Ok(())
}

fn differences(earlier: &Results, now: &Results) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: &str, before: String, after: String| {
        if before != after {
            found.push(format!("{what} was {before} and is {after}"));
        }
    };
    let (old, new) = (&earlier.options, &now.options);
    check(
        "the form",
        old.form.name().to_owned(),
        new.form.name().to_owned(),
    );
    check("the seed", old.seed.to_string(), new.seed.to_string());
    check(
        "the processor",
        earlier.machine.cpu.clone(),
        now.machine.cpu.clone(),
    );
    check(
        "the kernel",
        earlier.machine.kernel.clone(),
        now.machine.kernel.clone(),
    );
    for experiment in &now.experiments {
        if let Some(old) = earlier
            .experiments
            .iter()
            .find(|old| old.name == experiment.name)
        {
            let what = format!("the program of {}", experiment.name);
            check(&what, short(&old.sha256), short(&experiment.sha256));
        }
    }
    for record in now.allocators.iter().filter(|record| record.measured) {
        let Some(old) = earlier
            .allocators
            .iter()
            .find(|old| old.label == record.label)
        else {
            continue;
        };
        let digest = |sha256: &Option<String>| sha256.as_deref().map_or("none".into(), short);
        if old.measured {
            check(
                &format!("the library of {}", record.label),
                digest(&old.sha256),
                digest(&record.sha256),
            );
            let settings = |all: &std::collections::BTreeMap<String, String>| format!("{all:?}");
            let what = format!("the settings of {}", record.label);
            check(
                &what,
                settings(&old.environment),
                settings(&record.environment),
            );
        }
    }
    found
}

fn short(sha256: &str) -> String {
    sha256.chars().take(12).collect()
}
