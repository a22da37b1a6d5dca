//! `loam trace import`: makes a trace of another tool's recording, and says what it lacks.

use anyhow::{bail, Result};

use loam_format::words;
use loam_lab::traces::import::Import;

use crate::exit::Exit;
use crate::output;

/// Imports the recording.
pub fn run(import: &Import) -> Result<Exit> {
    let shown = output::path(&import.recording);
    let imported = import.run()?;
    let trace = output::path(&import.output);
    if let Some(error) = &imported.stopped {
        bail!(
            "{shown}: {error}\n{trace} has the {} events that come before",
            imported.events
        );
    }
    output::say(&format!(
        "{} events of {} and {} from {}: {trace}\nlost: {}\nA replay of it can not be checked \
         against the program. Next: loam replay {trace}{}",
        imported.events,
        words::count_of(imported.processes as usize, "process", "processes"),
        words::count(imported.threads as usize, "thread"),
        imported.about.format,
        words::list(&imported.about.lost),
        match imported.about.has_stacks {
            true => format!(", or for its stacks: loam pins {trace}"),
            false => String::new(),
        },
    ));
    Ok(Exit::Done)
}
