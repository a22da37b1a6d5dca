//! `loam trim`: free pages of a running program's heap go back to the system.
//!
//! `loam_process::trim` does it; here processes are chosen, and what was done is written.

pub mod args;

use anyhow::Result;
use serde_json::{json, Value};

use loam_format::units::{bytes, Unit};
use loam_process::allocator::{self, GLIBC};
use loam_process::apart;
use loam_process::choose;
use loam_process::mappings;
use loam_process::process::Identity;
use loam_process::trim::{self, Options, Outcome};

use crate::exit::Exit;
use crate::output;
use args::TrimOptions;

/// Runs the verb.
pub fn run(options: &TrimOptions) -> Result<Exit> {
    let mut exit = Exit::Done;
    let mut documents = Vec::new();
    for target in &options.targets {
        for identity in choose::find(target)? {
            if !options.json {
                output::write_stdout(&first_line(&identity, options))?;
            }
            let done = one(&identity, options);
            if done.is_err() {
                exit = Exit::Error;
            }
            match (&done, options.json) {
                (_, true) => documents.push(document(&identity, options, &done)),
                (Ok(outcome), false) => output::write_stdout(&text(outcome, options.dry_run))?,
                (Err(reason), false) => {
                    output::print_error(&anyhow::anyhow!("process {}: {reason}", identity.key.pid));
                }
            }
        }
    }
    if options.json {
        let all = json!({ "format": "loam-trim", "version": 1, "processes": documents });
        output::write_stdout(&(serde_json::to_string_pretty(&all)? + "\n"))?;
    }
    Ok(exit)
}

/// What goes wrong with one process is said, and the others are trimmed all the same.
fn one(identity: &Identity, options: &TrimOptions) -> Result<Outcome, String> {
    identity
        .require_memory()
        .map_err(|error| error.to_string())?;
    let pid = identity.key.pid;
    let found = mappings::read_names(pid).map_err(|error| error.to_string())?;
    let allocator = allocator::of_process(pid, &found, false);
    let name = allocator.map_or_else(String::new, |allocator| allocator.name);
    if name != GLIBC {
        return Err(other(&name));
    }
    let how = Options {
        max_stop: options.max_stop,
        trusts_filters: options.trust_filters,
    };
    if options.dry_run {
        // Apart from this thread: reading a stranger's memory may never end.
        return match apart::within(move || trim::predict(pid)) {
            Ok(found) => found.map_err(|error| error.to_string()),
            Err(doing) => Err(format!("it can not be read: {doing}")),
        };
    }
    trim::run(pid, &how).map_err(|error| error.to_string())
}

/// What helps on an allocator whose free pages can not be told from outside.
fn other(name: &str) -> String {
    let knob = match name {
        "Loam" => "its free pages go back by themselves within seconds; `malloc_trim(0)` in the program does it at once",
        "jemalloc" => "MALLOC_CONF=dirty_decay_ms:1000,muzzy_decay_ms:0, or the call mallctl \"arena.<i>.purge\"",
        "mimalloc" => "MIMALLOC_PURGE_DELAY=0, or the call mi_collect(true)",
        "tcmalloc" => "TCMALLOC_RELEASE_RATE=10, or the call MallocExtension::ReleaseFreeMemory",
        "" => return "it has no allocator that is known: which of its pages are free can not be told".to_owned(),
        _ => "see its manual",
    };
    format!("it is on {name}, whose free pages can not be told from outside; its own knob: {knob}")
}

fn first_line(identity: &Identity, options: &TrimOptions) -> String {
    let (name, pid) = (&identity.name, identity.key.pid);
    if options.dry_run {
        return format!("{name} ({pid}): a dry run, which neither stops nor changes it\n");
    }
    format!(
        "{name} ({pid}): stops one thread for at most {} at a time, and lets it drop free pages of the heap by madvise\n",
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
    let waits = match outcome.waited.as_millis() {
        0 => String::new(),
        _ => format!(
            " without {} of waits for a busy processor",
            time(outcome.waited)
        ),
    };
    text += &format!(
        "{} resident before, {} after: gave back {}{swapped} in {} ranges and {} stops; longest stop {}, all stops {}{waits}, in all {}\n",
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
fn document(identity: &Identity, options: &TrimOptions, done: &Result<Outcome, String>) -> Value {
    let mut document = json!({
        "pid": identity.key.pid,
        "name": identity.name,
        "dry_run": options.dry_run,
    });
    let more = match done {
        Err(reason) => json!({ "error": reason }),
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
