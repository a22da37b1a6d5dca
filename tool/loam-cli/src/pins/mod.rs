//! `loam pins`: whose blocks keep sparse pages, of a trace or of a process.

pub mod args;
mod text;

use anyhow::{anyhow, Result};
use serde_json::{json, Value};

use loam_counters::kept::{heap_of, Seen};
use loam_lab::pins::target::{named, Named};
use loam_lab::pins::{self, ProcessPins, TracePins};
use loam_lab::replay::Survey;
use loam_process::apart;
use loam_process::glibc::GlibcError;
use loam_process::process::Identity;
use loam_process::symbols::Symbols;

use crate::exit::Exit;
use crate::output;
use args::PinsOptions;

/// Runs the verb.
pub fn run(options: &PinsOptions) -> Result<Exit> {
    let named = named(&options.target, options.process)?;
    output::print_warnings(&named.faults());
    let text = match named {
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
