//! A process that runs already, on any allocator: under which stacks its heap grows. A page that
//! came is a block of the trace, and a page that went is a free.
//!
//! One thread reads the kernel's samples and writes the trace. Nothing of the process waits for it:
//! samples that come too fast are lost, counted, and told.

use std::time::Instant;

use anyhow::{anyhow, Result};

use loam_format::trace::{Ended, Statistics};
use loam_format::units::bytes;
use loam_process::growth::Growth;
use loam_process::perf::rights::Rights;
use loam_process::process::{Identity, Pid, Stat};

use crate::written::Written;

/// What the trace says of itself.
pub const SAMPLED: &str = "each block is memory that came to the heap, seen by page faults";

/// What was recorded.
#[derive(Debug)]
pub struct Recorded {
    /// Why the recording ended by itself; none: the caller wanted it.
    pub reason: Option<(Ended, String)>,
    /// For how long the process was watched.
    pub seconds: f64,
    /// By how much the heap grew, if the process lives on.
    pub total: Option<u64>,
    /// What is in the file.
    pub statistics: Statistics,
}

/// Begins to watch a process, or says which right is missing.
pub fn begin(pid: Pid) -> Result<Growth> {
    Identity::sketch(pid)?.require_memory()?;
    let rights = Rights::over(pid);
    let refused = |why: String| anyhow!("the growth of process {pid} can not be seen: {why}");
    if let Some(why) = rights.refuses_faults() {
        return Err(refused(why));
    }
    Growth::begin(pid).map_err(|error| refused(rights.explain(&error)))
}

/// Writes what is seen, until `is_wanted_end` or an end of the process or of the file.
pub fn record(
    growth: &mut Growth,
    pid: Pid,
    mut written: Written,
    mut is_wanted_end: impl FnMut() -> bool,
) -> Result<Recorded> {
    let started = Stat::read(pid)?.started;
    let begun = Instant::now();
    let reason = loop {
        let changes = growth.pass();
        written.take(&changes, growth.sites())?;
        written.look()?;
        if is_wanted_end() {
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
            break Some(Written::full());
        }
        growth.wait();
    };
    let seconds = begun.elapsed().as_secs_f64();
    let is_gone = matches!(&reason, Some((Ended::Unknown | Ended::Exec, _)));
    // The pages of a process that is gone are gone too; those of the last check count.
    let changes = match is_gone {
        true => Vec::new(),
        false => growth.end(),
    };
    written.take(&changes, growth.sites())?;
    let total = growth.total().ok().filter(|_| !is_gone);
    let statistics = written.end(growth.sites(), growth.samples().1, reason.clone())?;
    Ok(Recorded {
        reason,
        seconds,
        total,
        statistics,
    })
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
