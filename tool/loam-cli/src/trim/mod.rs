//! `loam trim`: free pages of a running program's heap go back to the system.
//!
//! `loam_process::trim` does it; here processes are chosen, and what was done is written.

pub mod args;
mod keeper;
mod own;

use anyhow::Result;
use serde_json::{json, Value};
use thiserror::Error;

use loam_counters::locate;
use loam_format::units::{bytes, Unit};
use loam_process::allocator::{self, GLIBC, LOAM};
use loam_process::apart;
use loam_process::choose;
use loam_process::container::Limits;
use loam_process::mappings;
use loam_process::process::{private_bytes, Identity, Pid};
use loam_process::trim::{self, Options, Outcome};

use crate::exit::Exit;
use crate::output;
use args::TrimOptions;

/// Runs the verb.
pub fn run(options: &TrimOptions) -> Result<Exit> {
    if let Some(every) = options.every {
        return keeper::run(options, every);
    }
    let mut exit = Exit::Done;
    let mut documents = Vec::new();
    for identity in chosen(options)? {
        if !options.json {
            output::write_stdout(&first_line(&identity, options))?;
        }
        let done = one(&identity, options);
        if matches!(done, Err(Reason::Failure(_))) {
            exit = Exit::Error;
        }
        if options.json {
            documents.push(document(&identity, options, &done));
            continue;
        }
        match &done {
            Ok(outcome) => output::write_stdout(&text(outcome, options.dry_run))?,
            Err(reason @ Reason::Little(_)) => {
                output::write_stdout(&format!("Left alone: {reason}.\n"))?;
            }
            Err(reason) => {
                output::print_error(&anyhow::anyhow!("process {}: {reason}", identity.key.pid));
            }
        }
    }
    if options.json {
        let all = json!({ "format": "loam-trim", "version": 1, "processes": documents });
        output::write_stdout(&(serde_json::to_string_pretty(&all)? + "\n"))?;
    }
    Ok(exit)
}

/// The processes that were named, or all that may be worth it.
fn chosen(options: &TrimOptions) -> Result<Vec<Identity>> {
    let mut found = Vec::new();
    for target in &options.targets {
        found.extend(choose::find(target)?);
    }
    let is_all = options.targets.is_empty();
    if is_all {
        found = choose::all()?;
        found.retain(|identity| {
            private_bytes(identity.key.pid).is_some_and(|bytes| bytes >= options.above)
        });
    }
    found.retain(|identity| is_wanted(identity, options));
    if is_all {
        // A look needs no stop.
        found.retain(|identity| {
            may_be_trimmed(identity)
                && matches!(predicted(identity), Ok(could) if could.could >= options.above)
        });
    }
    Ok(found)
}

/// Of all processes only those are trimmed that can be.
fn may_be_trimmed(identity: &Identity) -> bool {
    let pid = identity.key.pid;
    !identity.of_the_kernel && trim::tracer(pid).is_none() && kind(pid).is_ok()
}

/// Whether the group of a process, and its limit, are as it was asked.
fn is_wanted(identity: &Identity, options: &TrimOptions) -> bool {
    let pid = identity.key.pid;
    let is_in = options.cgroup.as_ref().is_none_or(|group| group.holds(pid));
    is_in
        && options.when_limit.is_none_or(|part| {
            let limits = Limits::of(pid);
            let used = limits.memory_used.unwrap_or(0);
            let used = used.saturating_sub(limits.memory_reclaimable) as f64;
            limits
                .memory
                .is_some_and(|limit| used >= limit as f64 * part)
        })
}

/// Why a process was not trimmed.
#[derive(Debug, Error)]
enum Reason {
    /// Less could go back than was asked for.
    #[error("only {} could go back", bytes(*.0 as f64))]
    Little(u64),
    /// Anything else.
    #[error("{0}")]
    Failure(String),
}

/// The heaps that can be trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heap {
    Glibc,
    Loam,
}

/// Which of them the process has.
fn kind(pid: Pid) -> Result<Heap, Reason> {
    let failure = |error: &dyn std::fmt::Display| Reason::Failure(error.to_string());
    let found = mappings::read_names(pid).map_err(|error| failure(&error))?;
    let has_counters = || matches!(locate::find(pid, &found), Ok(Some(_)));
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

fn predicted(identity: &Identity) -> Result<Outcome, Reason> {
    let pid = identity.key.pid;
    let failure = |error: &dyn std::fmt::Display| Reason::Failure(error.to_string());
    if kind(pid)? == Heap::Loam {
        return own::predict(identity).map_err(|error| Reason::Failure(format!("{error:#}")));
    }
    // Apart from this thread: reading a stranger's memory may never end.
    match apart::within(move || trim::predict(pid)) {
        Ok(found) => found.map_err(|error| failure(&error)),
        Err(doing) => Err(failure(&format!("it can not be read: {doing}"))),
    }
}

/// What goes wrong with one process is said, and the others are trimmed all the same.
fn one(identity: &Identity, options: &TrimOptions) -> Result<Outcome, Reason> {
    let failure = |error: &dyn std::fmt::Display| Reason::Failure(error.to_string());
    identity.require_memory().map_err(|error| failure(&error))?;
    let pid = identity.key.pid;
    let heap = kind(pid)?;
    if options.dry_run || options.above > 0 {
        let found = predicted(identity)?;
        if found.could < options.above {
            return Err(Reason::Little(found.could));
        }
        if options.dry_run {
            return Ok(found);
        }
    }
    if heap == Heap::Loam {
        return own::trim(identity).map_err(|error| Reason::Failure(format!("{error:#}")));
    }
    let how = Options {
        max_stop: options.max_stop,
        trusts_filters: options.trust_filters,
    };
    trim::run(pid, &how).map_err(|error| failure(&error))
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

fn first_line(identity: &Identity, options: &TrimOptions) -> String {
    let (name, pid) = (&identity.name, identity.key.pid);
    if options.dry_run {
        return format!("{name} ({pid}): a dry run, which neither stops nor changes it\n");
    }
    if kind(pid).is_ok_and(|heap| heap == Heap::Loam) {
        return format!(
            "{name} ({pid}): asks its heap, which is Loam, to give free pages back by a \
                        thread of its own\n"
        );
    }
    format!(
        "{name} ({pid}): stops one thread for at most {} at a time, and lets it drop free pages of \
         the heap by madvise\n",
        Unit::Seconds.show(options.max_stop.as_secs_f64())
    )
}

fn text(outcome: &Outcome, dry_run: bool) -> String {
    let size = |amount: u64| bytes(amount as f64);
    let time = |time: std::time::Duration| Unit::Seconds.show(time.as_secs_f64());
    let mut text = String::new();
    let mut stays = Vec::new();
    let mut stay = |amount: u64, what: &str| {
        if amount >= 64 << 10 {
            stays.push(format!("{} {what}", size(amount)));
        }
    };
    stay(
        outcome.between,
        "free between live blocks (`loam pins` says whose)",
    );
    stay(
        outcome.small,
        "of small freed blocks, which malloc keeps for reuse",
    );
    stay(outcome.shared, "in pages that other processes have as well");
    if !dry_run {
        stay(outcome.changed, "that the program took again meanwhile");
    }
    if !stays.is_empty() {
        text += &format!("Stays: {}.\n", loam_format::words::list(&stays));
    }
    for problem in &outcome.problems {
        text += &format!("Not seen: {problem}.\n");
    }
    if dry_run {
        text += &format!(
            "A trim would give back {} of {} resident.\n",
            size(outcome.could),
            size(outcome.resident.0)
        );
        return text;
    }
    let swapped = match outcome.swapped {
        0 => String::new(),
        swapped => format!(", and {} of swap", size(swapped)),
    };
    if outcome.slices == 0 && outcome.ranges == 0 {
        text += &format!(
            "{} resident before, {} after: gave back {}; no thread was stopped, in all {}\n",
            size(outcome.resident.0),
            size(outcome.resident.1),
            size(outcome.bytes),
            time(outcome.took),
        );
        return text;
    }
    let waits = match outcome.waited.as_millis() {
        0 => String::new(),
        _ => format!(
            " without {} of waits for a busy processor",
            time(outcome.waited)
        ),
    };
    text += &format!(
        "{} resident before, {} after: gave back {}{swapped} in {} ranges and {} stops; longest \
         stop {}, all stops {}{waits}, in all {}\n",
        size(outcome.resident.0),
        size(outcome.resident.1),
        size(outcome.bytes),
        outcome.ranges,
        outcome.slices,
        time(outcome.longest_at_work),
        time(outcome.stood - outcome.waited),
        time(outcome.took),
    );
    text
}

/// Fields may be added; none is removed or changes its meaning while `version` stays.
fn document(identity: &Identity, options: &TrimOptions, done: &Result<Outcome, Reason>) -> Value {
    let mut document = json!({
        "pid": identity.key.pid,
        "name": identity.name,
        "dry_run": options.dry_run,
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
