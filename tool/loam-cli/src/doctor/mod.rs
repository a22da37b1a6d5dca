//! `loam doctor`: what is wrong with a program's memory.
//!
//! `loam_counters::diagnosis` judges; here the process is chosen and looked at, once or for a
//! while, and the answer is written.

pub mod args;
mod text;

use std::time::Duration;

use anyhow::Result;
use serde_json::{json, Value};

use loam_census::diagnosis::{census_of, name_growth, pools_of};
use loam_census::diff::Change;
use loam_counters::diagnosis::{Diagnosis, Evidence, Examined};
use loam_process::choose;
use loam_process::ending::Watch;
use loam_process::process::Identity;
use loam_record::grower::{Grower, Grown};

use crate::exit::{leave, Exit};
use crate::output;
use args::DoctorOptions;

/// Runs the verb.
pub fn run(options: &DoctorOptions) -> Result<Exit> {
    let ending = match options.watch {
        Some(_) => Watch::in_good_order(&[]).begin(leave)?,
        None => Watch::at_once(&[]).begin(leave)?,
    };
    let identity = &choose::one(&options.target)?;
    let mut examined = Examined::of(identity)?;
    let before = options
        .watch
        .and_then(|_| census_of(&examined.evidence, None));
    // Without the right to see faults the doctor still says what it can.
    let grower = match options.stacks {
        true => Grower::begin(identity.key.pid)
            .map_err(|error| output::print_warning(&format!("{error:#}")))
            .ok(),
        false => None,
    };
    let growth = options
        .watch
        .map(|limit| examined.watch(identity, limit, |pause| ending.wait(pause).is_some()))
        .transpose()?;
    let pools = pools_of(&examined.evidence);
    examined.evidence.credit(pools);
    let mut diagnosis = Diagnosis::of(&examined.evidence, growth.as_ref());
    let stacks = grower.map(Grower::end).transpose()?;
    let grown = before.and_then(|before| name_growth(&mut diagnosis, &examined.evidence, &before));
    let answer = Answer {
        identity,
        evidence: &examined.evidence,
        diagnosis: &diagnosis,
        grown: grown.unwrap_or_default(),
        stacks: stacks.as_ref(),
        took: examined.took,
    };
    let text = if options.json {
        serde_json::to_string_pretty(&document(&answer))? + "\n"
    } else {
        text::render(&answer)
    };
    for gap in stacks.iter().flat_map(|stacks| &stacks.gaps) {
        output::print_warning(gap);
    }
    output::write_stdout(&text)?;
    Ok(if diagnosis.is_sick() {
        Exit::Finding
    } else if diagnosis.is_healthy() {
        Exit::Done
    } else {
        Exit::Error
    })
}

/// What the doctor says, and of whom.
pub struct Answer<'a> {
    identity: &'a Identity,
    evidence: &'a Evidence,
    diagnosis: &'a Diagnosis,
    /// Rows of the census that grew while it was watched, if what it holds grows.
    grown: Vec<Change>,
    /// Under which stacks memory came to the heap, if that was asked for.
    stacks: Option<&'a Grown>,
    took: Duration,
}

/// Fields may be added; none is removed or changes its meaning while `version` stays.
fn document(answer: &Answer) -> Value {
    let evidence = answer.evidence;
    json!({
        "format": "loam-doctor",
        "version": 1,
        "pid": answer.identity.key.pid,
        "name": answer.identity.name,
        "command": answer.identity.command,
        "allocator": evidence.allocator,
        "healthy": answer.diagnosis.is_healthy(),
        "unknown": answer.diagnosis.unknown,
        "findings": answer.diagnosis.findings,
        "ruled_out": answer.diagnosis.ruled_out,
        "grown": answer.grown,
        "evidence": evidence.document(),
        "stacks": answer.stacks.map(|grown| json!({
            "seconds": grown.seconds,
            "bytes": grown.total,
            "paths": grown.paths,
            "gaps": grown.gaps,
        })),
        "took_seconds": answer.took.as_secs_f64(),
    })
}
