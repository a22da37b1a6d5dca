//! `loam trace`: shows what is in a trace (`info`), its first events (`head`) and what is wrong
//! with it (`check`), writes tables for other programs (`export`), makes traces of other tools'
//! recordings (`import`), and compares two (`diff`).

pub mod args;
mod diff;
mod export;
mod head;
mod import;
mod info;

use std::path::Path;

use anyhow::Result;

use loam_format::words;
use loam_lab::traces::findings;

use crate::exit::Exit;
use crate::output;
use args::TraceAction;

/// Runs the verb.
pub fn run(action: &TraceAction) -> Result<Exit> {
    match action {
        TraceAction::Info {
            trace,
            process,
            json,
        } => info::run(trace, *process, *json),
        TraceAction::Head {
            trace,
            number,
            process,
        } => head::run(trace, *number, *process),
        TraceAction::Check { trace, json } => check(trace, *json),
        TraceAction::Export(options) => export::run(options),
        TraceAction::Import(import) => import::run(import),
        TraceAction::Diff {
            before,
            after,
            of,
            json,
        } => diff::run(before, after, *of, *json),
    }
}

fn check(trace: &Path, json: bool) -> Result<Exit> {
    let findings = findings::of(trace)?;
    if json {
        output::write_stdout(&(serde_json::to_string_pretty(&findings)? + "\n"))?;
    } else if findings.wrong.is_empty() {
        output::write_stdout(&format!(
            "{}: nothing is wrong: {} of {}\n",
            trace.display(),
            words::count(findings.events as usize, "event"),
            words::count_of(findings.processes.len(), "process", "processes")
        ))?;
    } else {
        let lines: Vec<String> = findings
            .wrong
            .iter()
            .map(|line| format!("  {line}\n"))
            .collect();
        output::write_stdout(&format!("{}:\n{}", trace.display(), lines.concat()))?;
    }
    Ok(match findings.wrong.is_empty() {
        true => Exit::Done,
        false => Exit::Finding,
    })
}
