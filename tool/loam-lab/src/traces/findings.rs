//! What is wrong with a trace: unreadable parts, and events that do not fit together.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use loam_format::trace::{Batch, Ended, How, Item, Ordered, Repairs, Wanted};

use crate::replay::lineage;
use crate::replay::room::Room;
use crate::replay::ReplayError;

/// What was found about a process.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ProcessFindings {
    /// Events that were read.
    pub events: u64,
    /// Events that were written, according to the end of the process's stream; none: the trace
    /// lacks the end.
    pub written: Option<u64>,
    /// What did not fit together. If a forked child frees blocks from before its fork, this does
    /// not count.
    pub repairs: Repairs,
    /// How it ended, if the trace says.
    pub ended: Option<Ended>,
    /// Why recording stopped early, if it did.
    pub reason: Option<String>,
}

/// What was found in a trace.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Findings {
    /// Its bytes.
    pub bytes: u64,
    /// Events that were read.
    pub events: u64,
    /// Chunks that could not be read.
    pub damaged_chunks: u64,
    /// The first damages, in words.
    pub damage: Vec<String>,
    /// Events in chunks that could not be read, as far as later events show the number.
    pub missing_events: u64,
    /// The processes, by number.
    pub processes: BTreeMap<u32, ProcessFindings>,
    /// What is wrong, in sentences; empty: nothing is wrong.
    pub wrong: Vec<String>,
}

/// Reads a trace once.
pub fn of(path: &Path) -> Result<Findings, ReplayError> {
    let mut items = lineage::open(path, Wanted::ALL)?;
    let mut ordered: BTreeMap<u32, Ordered> = BTreeMap::new();
    let mut findings = Findings::default();
    let mut forked: BTreeMap<u32, bool> = BTreeMap::new();
    let mut acts = Vec::new();
    // Blocks that the unfinished streams hold together.
    let mut held = 0;
    let room = Room::of_this_process();
    while let Some(batch) = items.next_batch().map_err(|source| ReplayError::Read {
        path: path.to_owned(),
        source,
    })? {
        match batch {
            Batch::Events(stream, _, records) => {
                let process = findings.processes.entry(stream).or_default();
                process.events += records.len() as u64;
                findings.events += records.len() as u64;
                let ordered = ordered.entry(stream).or_default();
                held -= ordered.held();
                for record in records {
                    ordered.push(record, &mut acts);
                    acts.clear();
                }
                held += ordered.held();
                room.holds(held, path)?;
            }
            Batch::Item(stream, item) => {
                let process = findings.processes.entry(stream).or_default();
                match *item {
                    Item::Process(known) => {
                        forked.insert(stream, known.how == How::Fork);
                    }
                    Item::End(end) => {
                        process.written = Some(end.events);
                        process.ended = Some(end.ended);
                        process.reason = end.reason;
                        // The process has no further events, so its live blocks need no memory.
                        if let Some(mut done) = ordered.remove(&stream) {
                            held -= done.held();
                            done.finish(&mut acts);
                            acts.clear();
                            process.repairs = done.repairs();
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    for (stream, mut rest) in ordered {
        rest.finish(&mut acts);
        acts.clear();
        findings.processes.entry(stream).or_default().repairs = rest.repairs();
    }
    for (stream, process) in &mut findings.processes {
        if forked.get(stream) == Some(&true) {
            process.repairs.unknown_frees = 0;
        }
    }
    findings.bytes = items.offset();
    findings.damaged_chunks = items.damaged();
    findings.damage = items
        .damage()
        .iter()
        .take(20)
        .map(ToString::to_string)
        .collect();
    findings.missing_events = items.missing();
    findings.wrong = wrong(&findings);
    Ok(findings)
}

fn wrong(findings: &Findings) -> Vec<String> {
    let mut wrong = findings.damage.clone();
    let more = findings
        .damaged_chunks
        .saturating_sub(findings.damage.len() as u64);
    if more > 0 {
        wrong.push(format!("{more} more chunks can not be read"));
    }
    if findings.missing_events > 0 {
        wrong.push(format!(
            "{} events lie in chunks that can not be read",
            findings.missing_events
        ));
    }
    let is_whole = wrong.is_empty() && findings.processes.values().all(|one| one.written.is_some());
    if findings.events == 0 && is_whole {
        wrong.push(
            "it has no events: the program called neither malloc nor free, or it has a malloc of \
             its own (`loam check` says which)"
                .to_owned(),
        );
    }
    for (stream, process) in &findings.processes {
        let mut add = |text: String| wrong.push(format!("process {stream}: {text}"));
        let repairs = &process.repairs;
        if repairs.dropped > 0 {
            add(format!(
                "{} events were not recorded (dropped)",
                repairs.dropped
            ));
        }
        if repairs.unknown_frees > 0 {
            add(format!(
                "{} frees are of blocks that nobody saw begin",
                repairs.unknown_frees
            ));
        }
        if repairs.allocations_over_live > 0 {
            add(format!(
                "{} blocks were handed out where another one lived",
                repairs.allocations_over_live
            ));
        }
        match process.written {
            None => add(
                "it has no end: the recording was cut off, what came before is whole".to_owned(),
            ),
            Some(written) if written != process.events => add(format!(
                "its end says {written} events, and {} can be read",
                process.events
            )),
            Some(_) => {}
        }
        if let Some(reason) = &process.reason {
            add(reason.clone());
        }
    }
    wrong
}
