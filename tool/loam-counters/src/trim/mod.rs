//! Trims a process, whatever its heap is: glibc's by `loam_process::trim`, and Loam's by asking it
//! (`own`).

mod own;

use std::fmt::Display;
use std::time::Duration;

use loam_format::units::bytes;
use loam_process::allocator::{self, GLIBC, LOAM};
use loam_process::apart;
use loam_process::mappings;
use loam_process::process::{Identity, Pid};
use loam_process::remote::ProcessMemory;
use loam_process::trim::{self, Options, Outcome};
use serde_json::{json, Value};
use thiserror::Error;

use crate::{is_of_peer, locate};

/// What is wanted of a trim.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Only if so many bytes could go back.
    pub above: u64,
    /// Only a prediction.
    pub dry_run: bool,
    /// The longest stop of a thread.
    pub max_stop: Duration,
    /// Whether seccomp filters that can not be read are believed to allow the calls.
    pub trusts_filters: bool,
}

/// Why a process was not trimmed.
#[derive(Debug, Error)]
pub enum Reason {
    /// Less could go back than was asked for.
    #[error("only {} could go back", bytes(*.0 as f64))]
    Little(u64),
    /// Anything else.
    #[error("{0}")]
    Failure(String),
}

fn failure(why: impl Display) -> Reason {
    Reason::Failure(why.to_string())
}

/// The heaps that can be trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heap {
    /// That of glibc.
    Glibc,
    /// Loam.
    Loam,
}

/// Which of them the process has.
pub fn kind(pid: Pid) -> Result<Heap, Reason> {
    let found = mappings::read_names(pid).map_err(failure)?;
    let directory = || locate::find(pid, &found).ok().flatten();
    let memory = ProcessMemory::of(pid);
    let has_counters = || directory().is_some_and(|address| !is_of_peer(&memory, address));
    let name = |counters| allocator::of_process(pid, &found, counters).map(|one| one.name);
    let name = name(false).unwrap_or_default();
    match name.as_str() {
        LOAM => Ok(Heap::Loam),
        // A program may be linked with Loam's archive.
        _ if has_counters() => Ok(Heap::Loam),
        GLIBC => Ok(Heap::Glibc),
        _ => Err(Reason::Failure(other(&name))),
    }
}

/// The heap of a process that can be trimmed now. Of all processes only these are trimmed.
pub fn trimmable(identity: &Identity) -> Option<Heap> {
    let pid = identity.key.pid;
    let is_out = identity.of_the_kernel || trim::tracer(pid).is_some();
    (!is_out).then(|| kind(pid).ok())?
}

/// What a trim would give back.
pub fn predict(identity: &Identity) -> Result<Outcome, Reason> {
    let pid = identity.key.pid;
    if kind(pid)? == Heap::Loam {
        return own::predict(identity);
    }
    // Apart from this thread: reading a stranger's memory may never end.
    match apart::within(move || trim::predict(pid)) {
        Ok(found) => found.map_err(failure),
        Err(doing) => Err(failure(format!("it can not be read: {doing}"))),
    }
}

/// Trims, or predicts.
pub fn run(identity: &Identity, wish: &Wish) -> Result<Outcome, Reason> {
    identity.require_memory().map_err(failure)?;
    let pid = identity.key.pid;
    let heap = kind(pid)?;
    if wish.dry_run || wish.above > 0 {
        let found = predict(identity)?;
        if found.could < wish.above {
            return Err(Reason::Little(found.could));
        }
        if wish.dry_run {
            return Ok(found);
        }
    }
    if heap == Heap::Loam {
        return own::trim(identity);
    }
    let how = Options {
        max_stop: wish.max_stop,
        trusts_filters: wish.trusts_filters,
    };
    trim::run(pid, &how).map_err(failure)
}

/// What was done to a process, for programs. Fields may be added; none is removed or changes its
/// meaning while `version` stays.
pub fn document(identity: &Identity, dry_run: bool, done: &Result<Outcome, Reason>) -> Value {
    let mut document = json!({
        "pid": identity.key.pid,
        "name": identity.name,
        "dry_run": dry_run,
    });
    let more = match done {
        Err(reason @ Reason::Little(_)) => json!({ "left_alone": reason.to_string() }),
        Err(reason) => json!({ "error": reason.to_string() }),
        Ok(outcome) => json!({
            "resident_before_bytes": outcome.resident.0,
            "resident_after_bytes": outcome.resident.1,
            "could_give_back_bytes": outcome.could,
            "given_back_bytes": outcome.bytes,
            "swap_given_back_bytes": outcome.swapped,
            "ranges": outcome.ranges,
            "stops": outcome.slices,
            "futile_stops": outcome.futile,
            "longest_stop_seconds": outcome.longest.as_secs_f64(),
            "longest_stop_at_work_seconds": outcome.longest_at_work.as_secs_f64(),
            "all_stops_seconds": outcome.stood.as_secs_f64(),
            "waited_for_processor_seconds": outcome.waited.as_secs_f64(),
            "stays_between_blocks_bytes": outcome.between,
            "stays_small_bytes": outcome.small,
            "stays_shared_bytes": outcome.shared,
            "stays_changed_bytes": outcome.changed,
            "problems": outcome.problems,
            "took_seconds": outcome.took.as_secs_f64(),
        }),
    };
    if let (Value::Object(document), Value::Object(more)) = (&mut document, more) {
        document.extend(more);
    }
    document
}

/// What helps on an allocator whose free pages can not be told from outside.
fn other(name: &str) -> String {
    let knob = match name {
        "jemalloc" => {
            "MALLOC_CONF=dirty_decay_ms:1000,muzzy_decay_ms:0, or the call mallctl \
                       \"arena.<i>.purge\""
        }
        "mimalloc" => "MIMALLOC_PURGE_DELAY=0, or the call mi_collect(true)",
        "tcmalloc" => "TCMALLOC_RELEASE_RATE=10, or the call MallocExtension::ReleaseFreeMemory",
        "snmalloc" | "rpmalloc" | "Hoard" => "it has none: only its end gives free pages back",
        "oneTBB's malloc" => "the call scalable_allocation_command(TBBMALLOC_CLEAN_ALL_BUFFERS, 0)",
        "musl's malloc" => "it has none, and gives whole free groups of blocks back by itself",
        "" => {
            return "it has no allocator that is known: which of its pages are free can not be told"
                .to_owned()
        }
        _ => "see its manual",
    };
    format!("it is on {name}, whose free pages can not be told from outside; its own knob: {knob}")
}
