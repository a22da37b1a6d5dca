//! A process that runs already, on any allocator: under which stacks its heap grows. A page that
//! came is a block of the trace, and a page that went is a free.
//!
//! One thread reads the kernel's samples and writes the trace. Nothing of the process waits for it:
//! samples that come too fast are lost, counted, and told.

use std::time::Instant;

use anyhow::{bail, Result};

use loam_format::trace::{Ended, Statistics};
use loam_format::units::bytes;
use loam_process::growth::Growth;
use loam_process::perf::rights::Rights;
use loam_process::process::{Pid, Stat};
use loam_record::describe;
use loam_record::written::Written;

use super::args::RecordOptions;
use super::ends::Ends;
use super::name_of;
use super::progress::Progress;
use super::target::Target;
use crate::exit::{Coded, Exit};
use crate::output;

/// What the trace says of itself.
const SAMPLED: &str = "each block is memory that came to the heap, seen by page faults";

/// Runs the verb.
pub fn record(options: &RecordOptions, pid: Pid, ends: &mut Ends) -> Result<Exit> {
    let target = Target::open(options)?;
    let mut growth = begin(pid)?;
    let words = describe::words_of(pid);
    let name = words.first().map(|word| name_of(word.as_ref()));
    let (file, path) = target.settle(&name.unwrap_or_default(), pid as u32)?;
    let mut written = Written::begin(file, pid, &words, SAMPLED, options.max_size)?;
    let progress = Progress::begin();
    progress.tell(&format!(
        "loam: recording under which stacks the heap of process {pid} grows, by its page faults; \
         the process is not changed; Ctrl-C ends it"
    ));
    let started = Stat::read(pid)?.started;
    let begun = Instant::now();
    let reason = loop {
        let changes = growth.pass();
        written.take(&changes, growth.sites())?;
        written.look()?;
        if ends.are_reached() {
            break None;
        }
        let stat = Stat::read(pid);
        if !stat.is_ok_and(|stat| stat.started == started && !stat.is_dead()) {
            break Some((Ended::Unknown, "the process ended".to_owned()));
        }
        if growth.is_over() {
            break Some((Ended::Exec, "the process became another program".to_owned()));
        }
        if written.is_full() {
            break Some((
                Ended::Running,
                "the file has reached its --max-size".to_owned(),
            ));
        }
        growth.wait();
    };
    let seconds = begun.elapsed().as_secs_f64();
    // The pages of a process that is gone are gone too; those of the last check count.
    let changes = match &reason {
        Some((Ended::Unknown | Ended::Exec, _)) => Vec::new(),
        _ => growth.end(),
    };
    written.take(&changes, growth.sites())?;
    let total = growth
        .total()
        .ok()
        .filter(|_| !matches!(&reason, Some((Ended::Unknown | Ended::Exec, _))));
    let statistics = written.end(growth.sites(), growth.samples().1, reason.clone())?;
    progress.end();
    if let Some((_, reason)) = &reason {
        output::print_warning(&format!("recording ended early: {reason}"));
    }
    let shown = output::path(&path);
    output::say(&summary(&growth, total, seconds, &shown, &statistics));
    for line in gaps(&growth) {
        output::say(&format!("loam: {line}"));
    }
    Ok(Exit::Done)
}

/// Begins to watch a process, or says which right is missing.
pub fn begin(pid: Pid) -> Result<Growth> {
    match Stat::read(pid) {
        Ok(stat) if !stat.is_dead() => {}
        _ => bail!("there is no process {pid}"),
    }
    let rights = Rights::over(pid);
    let refused = |why: String| Coded {
        exit: Exit::Error,
        message: format!("the growth of process {pid} can not be seen: {why}"),
    };
    if let Some(why) = rights.refuses_faults() {
        return Err(refused(why).into());
    }
    Ok(Growth::begin(pid).map_err(|error| refused(rights.explain(&error)))?)
}

fn summary(
    growth: &Growth,
    total: Option<u64>,
    seconds: f64,
    shown: &str,
    statistics: &Statistics,
) -> String {
    let seen: f64 = growth
        .sites()
        .all()
        .iter()
        .map(|site| site.bytes.max(0.0))
        .sum();
    let came = match total {
        Some(total) => format!("{} came to the heap in {seconds:.0} s", bytes(total as f64)),
        None => format!("the heap was watched for {seconds:.0} s"),
    };
    let stacks = growth
        .sites()
        .all()
        .iter()
        .filter(|site| site.bytes > 0.0)
        .count();
    format!(
        "loam: {came}; {} of it came under {stacks} stacks (from {} samples), in {}: {shown}; \
         next: loam trace info {}",
        bytes(seen),
        growth.samples().0,
        bytes(statistics.file_bytes as f64),
        loam_format::plain::word(shown)
    )
}

/// What was not seen, in sentences.
pub fn gaps(growth: &Growth) -> Vec<String> {
    let mut lines = Vec::new();
    let (_, lost) = growth.samples();
    if lost > 0 {
        lines.push(format!(
            "{lost} samples came too fast and were lost; {} count for the stack of the page before",
            bytes(growth.filled() as f64)
        ));
    }
    if let Some(share) = growth.share() {
        lines.push(format!(
            "page faults came so fast that only a part of the time was sampled, to keep the cost \
             small, at last {:.1} %; bytes are estimates",
            100.0 * share
        ));
    }
    if !growth.sees_kernel() {
        lines.push(
            "memory that the kernel filled first (read() into a fresh buffer) was not seen; that \
             needs CAP_PERFMON"
                .to_owned(),
        );
    }
    lines
}
