//! Whose pages are looked at: those of a trace or of a process.

use std::path::Path;

use anyhow::{anyhow, bail, Result};

use loam_process::choose;
use loam_process::process::Identity;

use crate::replay::{self, Survey};

/// What the user named.
#[derive(Debug)]
pub enum Named {
    /// A trace, read once, and the process of it.
    Trace(Box<Survey>, u32),
    /// A process.
    Process(Identity),
}

impl Named {
    /// What is wrong with the trace.
    pub fn faults(&self) -> Vec<String> {
        match self {
            Named::Trace(survey, stream) => survey.warnings(*stream),
            Named::Process(_) => Vec::new(),
        }
    }
}

/// A file of that name is a trace; anything else is a process, unless only a file can have such a
/// name.
pub fn named(target: &str, process: Option<u32>) -> Result<Named> {
    let path = Path::new(target);
    let is_name_of_a_file = target.contains('/') || target.ends_with(".trace");
    if is_name_of_a_file || path.exists() && !path.is_dir() {
        let survey = replay::survey_of_all(path)?;
        let stream = survey.choose(process)?;
        return Ok(Named::Trace(Box::new(survey), stream));
    }
    if process.is_some() {
        bail!("--process chooses a process of a trace, and there is no file {target}");
    }
    let no_file = format!("there is no file {target}");
    let found = choose::one_or_file(target, &no_file);
    found.map(Named::Process).map_err(|error| anyhow!(error))
}
