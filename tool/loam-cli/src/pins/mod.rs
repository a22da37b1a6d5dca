//! `loam pins`: whose blocks keep sparse pages, of a trace or of a process.

pub mod args;
mod text;

use std::path::Path;

use anyhow::{anyhow, bail, Result};
use serde_json::{json, Value};

use loam_counters::kept;
use loam_counters::view::View;
use loam_lab::pins::{self, ProcessPins, TracePins};
use loam_lab::replay::{self, Survey};
use loam_process::apart;
use loam_process::choose::{self, Target};
use loam_process::glibc::GlibcError;
use loam_process::process::Identity;
use loam_process::symbols::Symbols;

use crate::exit::Exit;
use crate::output;
use crate::stats;
use args::PinsOptions;

/// What the user named.
#[derive(Debug)]
pub enum Named {
    /// A trace, read once, and the process of it.
    Trace(Box<Survey>, u32),
    /// A process.
    Process(Identity),
}

/// A file of that name is a trace; anything else is a process, unless only a file can have such a
/// name.
pub fn named(target: &str, process: Option<u32>) -> Result<Named> {
    let path = Path::new(target);
    let is_name_of_a_file = target.contains('/') || target.ends_with(".trace");
    if is_name_of_a_file || path.exists() && !path.is_dir() {
        let survey = replay::survey_of_all(path)?;
        let stream = survey.choose(process)?;
        for damage in &survey.damage {
            output::print_warning(damage);
        }
        if let Some(cut) = survey.processes[&stream].cut() {
            output::print_warning(&cut);
        }
        return Ok(Named::Trace(Box::new(survey), stream));
    }
    let named: Target = target.parse().map_err(|error: String| anyhow!(error))?;
    let mut found = choose::find(&named)?;
    match found.len() {
        1 => Ok(Named::Process(found.remove(0))),
        _ => bail!(stats::ambiguous(&named, &found, "name one by its number")),
    }
}

/// What a process allocates with, as far as its blocks can be seen.
pub enum Seen {
    /// glibc's malloc: its heap can be walked.
    Glibc,
    /// Loam: its counters.
    Loam(kept::Kept),
}

/// Looks which heap a process has; an error where its blocks can not be seen.
pub fn heap_of(identity: &Identity) -> Result<Seen> {
    let view = View::of(identity.clone())?;
    if let Some(snapshot) = view.snapshot() {
        return Ok(Seen::Loam(kept::of(snapshot)));
    }
    view.counters.as_ref().map_err(|error| anyhow!("{error}"))?;
    let name = view
        .allocator
        .as_ref()
        .map_or("an unknown allocator", |one| &one.name);
    if name == loam_process::allocator::GLIBC {
        return Ok(Seen::Glibc);
    }
    bail!(
        "{} ({}) is on {name}, whose blocks can not be seen from outside: record it with `loam \
         record --stacks -- COMMAND`, and name the trace instead",
        identity.name,
        identity.key.pid
    )
}

/// Runs the verb.
pub fn run(options: &PinsOptions) -> Result<Exit> {
    let text = match named(&options.target, options.process)? {
        Named::Trace(survey, stream) => of_trace(options, &survey, stream)?,
        Named::Process(identity) => of_process(options, &identity)?,
    };
    output::write_stdout(&text)?;
    Ok(Exit::Done)
}

fn of_trace(options: &PinsOptions, survey: &Survey, stream: u32) -> Result<String> {
    let mut symbols = Symbols::default();
    let found = pins::of_trace(survey, stream, options.at, options.by, &mut symbols)?;
    let text = if options.json {
        pretty(&trace_document(survey, &found))?
    } else {
        text::of_trace(survey, &found, options.at, options.top)
    };
    output::print_warnings(&symbols.doubts());
    Ok(text)
}

fn of_process(options: &PinsOptions, identity: &Identity) -> Result<String> {
    let key = identity.key;
    match heap_of(identity)? {
        Seen::Loam(kept) if options.json => pretty(&process_document(
            identity,
            "Loam",
            serde_json::to_value(&kept)?,
        )),
        Seen::Loam(kept) => Ok(text::of_loam(identity, &kept, options.top)),
        Seen::Glibc => {
            // Apart from this thread: reading a stranger's memory may never end.
            let walked: Result<Result<ProcessPins, GlibcError>, _> =
                apart::within(move || pins::of_process(key));
            let found = walked
                .map_err(|doing| anyhow!("process {} can not be read: {doing}", key.pid))??;
            if !options.json {
                return Ok(text::of_glibc(identity, &found, options.top));
            }
            let mut document = serde_json::to_value(&found)?;
            document["total_bytes"] = found.pins.total().into();
            pretty(&process_document(identity, "glibc", document))
        }
    }
}

fn pretty(document: &Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

/// Fields may be added; none is removed or changes its meaning while `version` stays.
fn process_document(identity: &Identity, heap: &str, pins: Value) -> Value {
    json!({
        "format": "loam-pins",
        "version": 1,
        "pid": identity.key.pid,
        "name": identity.name,
        "heap": heap,
        "pins": pins,
    })
}

/// The same of a trace.
fn trace_document(survey: &Survey, found: &TracePins) -> Value {
    let mut pins = json!(found);
    pins["total_bytes"] = found.pins.total().into();
    json!({ "format": "loam-pins", "version": 1, "trace": survey.path, "pins": pins })
}
