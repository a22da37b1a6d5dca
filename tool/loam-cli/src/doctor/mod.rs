//! `loam doctor`: what is wrong with a program's memory.
//!
//! `loam_counters::diagnosis` judges; here the process is chosen and looked at, once or for a
//! while, and the answer is written.

pub mod args;
mod grower;
mod text;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{json, Value};

use loam_census::census::{Census, Wanted};
use loam_census::diff::{self, Change};
use loam_census::python;
use loam_census::target::Live;
use loam_counters::diagnosis::{Diagnosis, Evidence, Growth, Kind, PythonPools};
use loam_counters::view::View;
use loam_format::plain;
use loam_process::allocator::GLIBC;
use loam_process::apart;
use loam_process::choose;
use loam_process::container::Limits;
use loam_process::glibc::{self, GlibcError, GlibcHeap};
use loam_process::process::{Identity, ProcessKey};

use crate::census;
use crate::ending::{Ending, Watch};
use crate::exit::{Coded, Exit};
use crate::output;
use crate::stats;
use args::DoctorOptions;
use grower::{Grower, Grown};

/// The pause after a look is this many times as long as the look.
const PAUSE: u32 = 3;
/// A watch may take this many times the requested time, until there are enough looks.
const LONGER: u32 = 8;

/// Runs the verb.
pub fn run(options: &DoctorOptions) -> Result<Exit> {
    let ending = match options.watch {
        Some(_) => Watch::in_good_order(&[]).begin()?,
        None => Watch::at_once(&[]).begin()?,
    };
    let found = choose::find(&options.target)?;
    let [identity] = found.as_slice() else {
        return Err(failure(stats::ambiguous(
            &options.target,
            &found,
            "name one by its number",
        )));
    };
    let mut examined = examine(identity)?;
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
        .map(|limit| watch(identity, &mut examined, limit, &ending))
        .transpose()?;
    examined.evidence.python = pools_of(&examined.evidence);
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

/// One look.
struct Examined {
    evidence: Evidence,
    took: Duration,
}

fn examine(identity: &Identity) -> Result<Examined> {
    let begun = Instant::now();
    let pid = identity.key.pid;
    let view = View::with_free_pages(identity.clone())?;
    let is_on_glibc = view.snapshot().is_none()
        && view.counters.is_ok()
        && view
            .allocator
            .as_ref()
            .is_some_and(|allocator| allocator.name == GLIBC);
    let heap = is_on_glibc.then(|| read_glibc(identity.key)).transpose()?;
    Ok(Examined {
        evidence: Evidence::of(&view, heap, Limits::of(pid)),
        took: begun.elapsed(),
    })
}

/// Bytes that a trim from outside would give back, by one look.
pub(crate) fn trimmable(identity: &Identity) -> Result<u64> {
    match examine(identity)?.evidence.heap {
        Ok(heap) => Ok(heap.trim.from_outside()),
        Err(reason) => Err(anyhow::anyhow!(reason)),
    }
}

/// Apart from this thread: reading a stranger's memory may never end. The inner error is evidence;
/// of a process that ended there is none.
fn read_glibc(key: ProcessKey) -> Result<Result<GlibcHeap, String>> {
    let read = move || glibc::read(key);
    let read: Result<Result<GlibcHeap, GlibcError>, _> = apart::within(read);
    Ok(match read {
        Ok(Err(GlibcError::Process(error))) if error.is_gone() => return Err(error.into()),
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(doing) => Err(format!("it can not be read: {doing}")),
    })
}

/// A census of a larger heap takes more time and memory than a doctor's visit should.
const LARGEST_CENSUS: u64 = 8 << 30;
/// How many rows of growth the finding names.
const ROWS_NAMED: usize = 3;

/// What the live blocks are, where that can be told at a moderate cost.
fn census_of(evidence: &Evidence, between: Option<Duration>) -> Option<Census> {
    let heap = evidence.heap.as_ref().ok()?;
    let room = evidence.limits.memory.map_or(u64::MAX, |limit| limit / 4);
    let is_moderate = !heap.is_peer && heap.live <= LARGEST_CENSUS.min(room);
    let wanted = Wanted {
        wait: between,
        content: false,
    };
    is_moderate.then(|| census::of_process(evidence.pid, wanted).ok())?
}

/// Says which types grow and how they are reached, if what the program holds grows.
fn name_growth(
    diagnosis: &mut Diagnosis,
    evidence: &Evidence,
    before: &Census,
) -> Option<Vec<Change>> {
    let finding = diagnosis
        .findings
        .iter_mut()
        .find(|one| one.kind == Kind::Leak)?;
    let after = census_of(evidence, Some(census::BETWEEN))?;
    let mut changes = diff::of(before, &after);
    changes.retain(|one| one.bytes > 0);
    let words = changes.iter().filter_map(Change::in_words);
    let words = words.map(|text| plain::line(&text).into_owned());
    finding.evidence.extend(words.take(ROWS_NAMED));
    if let Some(first) = changes.first() {
        finding.remedy = format!(
            "look at what makes {}: {}",
            plain::line(&first.title()),
            finding.remedy
        );
    }
    changes.truncate(20);
    Some(changes)
}

/// What CPython's own allocator keeps. Apart from this thread: reading a stranger's memory may
/// never end.
fn pools_of(evidence: &Evidence) -> Option<PythonPools> {
    evidence
        .runtime
        .filter(|runtime| runtime.name == "Python")?;
    let pid = evidence.pid;
    let found = apart::within(move || {
        let live = Live::open(pid).ok()?;
        python::of_process(&live)
    });
    let pools = found.ok()??;
    Some(PythonPools {
        arenas: pools.arenas,
        bytes: pools.pool_bytes,
        blocks: pools.blocks,
        live_bytes: pools.block_bytes,
        sparse_arenas: pools.sparse_arenas,
        sparse_bytes: pools.sparse_bytes,
    })
}

/// Looks again and again. The last look is the one that is judged.
fn watch(
    identity: &Identity,
    examined: &mut Examined,
    limit: Duration,
    ending: &Ending,
) -> Result<Growth> {
    let mut growth = Growth::default();
    growth.add(Duration::ZERO, &examined.evidence);
    let begun = Instant::now();
    let longest = limit * LONGER;
    let mut fastest = examined.took;
    // On a machine that is busy looks are slow, and few of them would say little.
    while begun.elapsed() < limit || (!growth.is_enough() && begun.elapsed() < longest) {
        let pause = (limit / Growth::ENOUGH as u32).max(fastest * PAUSE);
        if ending.wait(pause).is_some() {
            break;
        }
        *examined = examine(identity)?;
        fastest = fastest.min(examined.took);
        growth.add(begun.elapsed(), &examined.evidence);
    }
    Ok(growth)
}

fn failure(message: String) -> anyhow::Error {
    Coded {
        exit: Exit::Error,
        message,
    }
    .into()
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
        "evidence": {
            "resident_bytes": evidence.resident,
            "swapped_bytes": evidence.swapped,
            "lazily_freed_bytes": evidence.lazily_freed,
            "huge_page_bytes": evidence.huge,
            "common_bytes": evidence.common,
            "outside_heap_bytes": evidence
                .outside
                .iter()
                .map(|one| (one.name, one.resident))
                .collect::<std::collections::BTreeMap<_, _>>(),
            "outside_heap_own_bytes": evidence.own_outside(),
            "stack_bytes": evidence.stacks.resident,
            "stacks_without_thread": evidence.stacks_without_thread,
            "held_file_bytes": evidence.held_files.bytes,
            "runtime": evidence.runtime.map(|runtime| runtime.name),
            "python_pools": evidence.python,
            "heap": evidence.heap.as_ref().ok(),
            "heap_error": evidence.heap.as_ref().err(),
            "cores": evidence.limits.cores,
            "usable_cores": evidence.limits.usable_cores(),
            "memory_limit_bytes": evidence.limits.memory,
            "memory_reclaimable_bytes": evidence.limits.memory_reclaimable,
        },
        "stacks": answer.stacks.map(|grown| json!({
            "seconds": grown.seconds,
            "bytes": grown.total,
            "paths": grown.paths,
            "gaps": grown.gaps,
        })),
        "took_seconds": answer.took.as_secs_f64(),
    })
}
