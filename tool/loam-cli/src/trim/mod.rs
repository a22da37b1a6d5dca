//! `loam trim`: free pages of a running program's heap go back to the system.
//!
//! `loam_counters::trim` does it; here processes are chosen, and what was done is written.

pub mod args;
mod keeper;

use anyhow::Result;
use serde_json::json;

use loam_counters::trim::{self, Heap, Reason};
use loam_format::units::{bytes, Unit};
use loam_format::words::{self, count};
use loam_process::choose;
use loam_process::container::Limits;
use loam_process::process::{private_bytes, Identity, Pid};
use loam_process::trim::Outcome;

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
        // The error of a process that can not be trimmed stands alone.
        if let (false, Some(heap)) = (options.json, trim::trimmable(&identity)) {
            output::write_stdout(&first_line(&identity, heap, options))?;
        }
        // What goes wrong with one process is said, and the others are trimmed all the same.
        let done = trim::run(&identity, &options.wish);
        if matches!(done, Err(Reason::Failure(_))) {
            exit = Exit::Error;
        }
        if options.json {
            documents.push(trim::document(&identity, options.wish.dry_run, &done));
            continue;
        }
        match &done {
            Ok(outcome) => output::write_stdout(&text(outcome, options.wish.dry_run))?,
            Err(reason @ Reason::Little(_)) => {
                output::write_stdout(&format!("Left alone: {reason}.\n"))?;
            }
            Err(reason) => {
                output::print_error(&anyhow::anyhow!(named(
                    identity.key.pid,
                    &reason.to_string()
                )));
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
            private_bytes(identity.key.pid).is_some_and(|bytes| bytes >= options.wish.above)
        });
    }
    found.retain(|identity| is_wanted(identity, options));
    if is_all {
        // A look needs no stop.
        found.retain(|identity| {
            trim::trimmable(identity).is_some()
                && matches!(trim::predict(identity), Ok(could) if could.could >= options.wish.above)
        });
    }
    Ok(found)
}

/// Whether the group of a process, and its limit, are as it was asked.
fn is_wanted(identity: &Identity, options: &TrimOptions) -> bool {
    let pid = identity.key.pid;
    let is_in = options.cgroup.as_ref().is_none_or(|group| group.holds(pid));
    let is_near = |part| Limits::of(pid).uses(part);
    is_in && options.when_limit.is_none_or(is_near)
}

fn first_line(identity: &Identity, heap: Heap, options: &TrimOptions) -> String {
    let (name, pid) = (&identity.name, identity.key.pid);
    match (options.wish.dry_run, heap == Heap::Loam) {
        (true, true) => format!(
            "{name} ({pid}): a dry run, which changes nothing; a trim asks its own heap, which is \
             Loam and trims at the process's next slow call\n"
        ),
        (true, false) => {
            format!("{name} ({pid}): a dry run, which neither stops nor changes it\n")
        }
        (false, true) => format!(
            "{name} ({pid}): asks its heap, which is Loam, to give free pages back by a thread of \
             its own\n"
        ),
        (false, false) => format!(
            "{name} ({pid}): stops one thread for at most {} at a time, and longer where that has \
             to wait for a busy processor; lets it drop free pages of the heap by madvise\n",
            Unit::Seconds.show(options.wish.max_stop.as_secs_f64())
        ),
    }
}

/// The reason with the number of the process, which some reasons name themselves.
fn named(pid: Pid, reason: &str) -> String {
    let name = format!("process {pid}");
    let is_digit = |letter: char| letter.is_ascii_digit();
    let mut rests = reason.split(name.as_str()).skip(1);
    match rests.any(|rest| !rest.starts_with(is_digit)) {
        true => reason.to_owned(),
        false => format!("{name}: {reason}"),
    }
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
        text += &format!("Stays: {}.\n", words::list(&stays));
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
            " (longest {}, all {} without waits for a busy processor)",
            time(outcome.longest_at_work),
            time(outcome.stood - outcome.waited)
        ),
    };
    text += &format!(
        "{} resident before, {} after: gave back {}{swapped} in {} and {}; longest stop {}, all \
         stops {}{waits}, in all {}\n",
        size(outcome.resident.0),
        size(outcome.resident.1),
        size(outcome.bytes),
        count(outcome.ranges as usize, "range"),
        count(outcome.slices as usize, "stop"),
        time(outcome.longest),
        time(outcome.stood),
        time(outcome.took),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_and_one_stop_are_singular() {
        let mut outcome = Outcome {
            ranges: 1,
            slices: 1,
            ..Outcome::default()
        };
        let said = text(&outcome, false);
        assert!(said.contains(" in 1 range and 1 stop; "), "{said}");
        (outcome.ranges, outcome.slices) = (204, 6);
        let said = text(&outcome, false);
        assert!(said.contains(" in 204 ranges and 6 stops; "), "{said}");
    }

    #[test]
    fn a_reason_names_the_process_once() {
        let ended = "process 13119 ended while it was read";
        assert_eq!(named(13119, ended), ended);
        let traced = "process 13119 traces it";
        assert_eq!(named(1311, traced), format!("process 1311: {traced}"));
    }
}
