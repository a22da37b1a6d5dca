//! `loam map`: the pages of a heap as a picture, of a trace or of a process.

pub mod args;

use std::path::PathBuf;

use anyhow::{anyhow, bail, Result};

use loam_counters::kept::{heap_of, Seen};
use loam_format::units::bytes;
use loam_lab::pins;
use loam_lab::pins::target::{named, Named};
use loam_lab::store::Store;
use loam_process::apart;
use loam_process::symbols::Symbols;

use crate::exit::Exit;
use crate::output;
use args::MapOptions;

/// Runs the verb.
pub fn run(options: &MapOptions) -> Result<Exit> {
    let named = named(&options.target, options.process)?;
    output::print_warnings(&named.faults());
    let name = match &named {
        Named::Trace(survey, _) => survey.path.file_stem().map_or_else(
            || "trace".to_owned(),
            |stem| stem.to_string_lossy().into_owned(),
        ),
        Named::Process(identity) => format!("loam-{}", identity.key.pid),
    };
    let path = options
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{name}-map.html")));
    // Before the work, so that a place that can not be written costs none.
    let store = Store::claim(&path, pins::looks_like_map)?;
    let page = match named {
        Named::Trace(survey, stream) => {
            let mut symbols = Symbols::default();
            let page = pins::map_of_trace(&survey, stream, &mut symbols)?;
            output::print_warnings(&symbols.doubts());
            page
        }
        Named::Process(identity) => {
            if let Seen::Loam(_) = heap_of(&identity)? {
                bail!(
                    "{} ({}) is on Loam, whose pages its counters do not show one by one: `loam \
                     pins {}` tells its size classes; for a map record it with `loam record \
                     --stacks -- COMMAND`",
                    identity.name,
                    identity.key.pid,
                    identity.key.pid
                );
            }
            let pid = identity.key.pid;
            // Apart from this thread: reading a stranger's memory may never end.
            apart::within(move || pins::map_of_process(&identity))
                .map_err(|doing| anyhow!("process {pid} can not be read: {doing}"))??
        }
    };
    store.replace(|file| file.write_all(page.as_bytes()))?;
    output::say(&format!(
        "loam: a map of {}: {}; open it in a browser",
        bytes(page.len() as f64),
        output::path(&path)
    ));
    Ok(Exit::Done)
}
