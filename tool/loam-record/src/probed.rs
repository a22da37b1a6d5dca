//! A process that runs already, on any allocator: which blocks stay, and who asked for them, by
//! probes on the allocator's functions. A block of a window is a block of the trace, with a weight.
//!
//! One thread reads what the probes write, walks the heap from time to time, and writes the trace.

use std::time::Instant;

use anyhow::{anyhow, Result};

use loam_census::heap;
use loam_census::target::Live;
use loam_format::trace::{Ended, Statistics};
use loam_process::perf::rights::Rights;
use loam_process::probes::{Probes, Source};
use loam_process::process::{Identity, Pid, Stat};

use crate::stays::{self, Sum};
use crate::written::Written;

/// What the trace says of itself.
pub const SAMPLED: &str =
    "each block stands for others, seen by probes on the allocator's functions";
/// How often the heap is walked at the end: one walk may miss a block.
const LAST_WALKS: usize = 2;

/// What was recorded.
#[derive(Debug)]
pub struct Recorded {
    /// Why the recording ended by itself; none: the caller wanted it.
    pub reason: Option<(Ended, String)>,
    /// For how long the process was watched.
    pub seconds: f64,
    /// What stays, by types.
    pub stays: Vec<Sum>,
    /// What is in the file.
    pub statistics: Statistics,
    walk: Walk,
}

/// Why probes can not be set in a process; none: they can.
pub fn refused(pid: Pid) -> Result<Option<String>> {
    Ok(match Rights::over(pid).refuses_probes() {
        Some(why) => Some(why),
        None if sources(pid)?.is_empty() => Some(NO_FUNCTIONS.to_owned()),
        None => None,
    })
}

const NO_FUNCTIONS: &str =
    "no file of the process has an allocator's functions by name, so probes have no place";

fn sources(pid: Pid) -> Result<Vec<Source>> {
    Identity::sketch(pid)?.require_memory()?;
    Ok(Probes::sources_of(pid)?)
}

/// Sets the probes, or says why they can not be set.
pub fn begin(pid: Pid, cost: f64) -> Result<Probes> {
    let probes = Probes::begin(pid, sources(pid)?, cost);
    probes.map_err(|error| unset(pid, &Rights::over(pid).explain_probes(&error)))
}

/// The error of probes that are not set.
pub fn unset(pid: Pid, why: &str) -> anyhow::Error {
    anyhow!(
        "probes can not be set in process {pid}: {why}; `loam record --pid {pid} --growth` needs \
         less"
    )
}

/// Writes what is seen, until `is_wanted_end` or an end of the process or of the file.
pub fn record(
    probes: &mut Probes,
    pid: Pid,
    mut written: Written,
    mut is_wanted_end: impl FnMut() -> bool,
) -> Result<Recorded> {
    let rights = Rights::over(pid);
    let begun = Instant::now();
    let mut walk = Walk::of(pid);
    let reason = loop {
        let changes = probes
            .pass()
            .map_err(|error| unset(pid, &rights.explain_probes(&error)))?;
        written.take(&changes, probes.sites())?;
        written.look()?;
        if is_wanted_end() {
            break None;
        }
        if probes.is_over() {
            let is_there = Stat::read(pid).is_ok_and(|stat| !stat.is_dead());
            break Some(match is_there {
                true => (Ended::Exec, "the process became another program".to_owned()),
                false => (Ended::Unknown, "the process ended".to_owned()),
            });
        }
        if written.is_full() {
            break Some(Written::full());
        }
        if probes.wants_look() {
            walk.look(probes);
        }
        probes.wait();
    };
    let seconds = begun.elapsed().as_secs_f64();
    probes.stop();
    if probes.has_gaps() && !matches!(reason, Some((Ended::Unknown | Ended::Exec, _))) {
        for _ in 0..LAST_WALKS {
            walk.look(probes);
        }
    }
    let changes = probes.finish();
    written.take(&changes, probes.sites())?;
    let is_over = matches!(reason, Some((Ended::Unknown | Ended::Exec, _)));
    // Elsewhere nobody knows which of the blocks live.
    let sums = match !is_over && (!probes.has_gaps() || walk.failed.is_none()) {
        true => stays::of(pid, &probes.living()),
        false => Vec::new(),
    };
    written.know(&sums, probes.sites())?;
    let (_, lost) = probes.samples();
    let statistics = written.end(probes.sites(), lost, reason.clone())?;
    Ok(Recorded {
        reason,
        seconds,
        stays: sums,
        statistics,
        walk,
    })
}

/// The walk of the heap from outside, as long as it can be done.
#[derive(Debug)]
struct Walk {
    pid: Pid,
    /// Why not.
    failed: Option<String>,
}

impl Walk {
    fn of(pid: Pid) -> Walk {
        Walk { pid, failed: None }
    }

    fn look(&mut self, probes: &mut Probes) {
        if self.failed.is_some() {
            return;
        }
        let begun = Instant::now();
        let places = probes.places();
        let found = Live::open(self.pid)
            .map_err(|error| error.to_string())
            .and_then(|live| heap::sizes_at(&live, &places).map_err(|error| error.to_string()));
        match found {
            Ok(sizes) => probes.looked(&places, &sizes, begun.elapsed()),
            Err(why) => self.failed = Some(why),
        }
    }
}

/// What was not seen, and what it cost, in sentences.
pub fn gaps(probes: &Probes, recorded: &Recorded) -> Vec<String> {
    let (took, all) = probes.cost();
    let all = all.as_secs_f64();
    let share = match all > 0.0 {
        true => 100.0 * took.as_secs_f64() / all,
        false => 0.0,
    };
    let mut lines = vec![format!(
        "probes took the process {:.0} ms, {share:.1} % of its processor time, in {} windows",
        1000.0 * took.as_secs_f64(),
        probes.windows()
    )];
    let (_, lost) = probes.samples();
    if lost > 0 {
        lines.push(format!(
            "{lost} events came too fast and were lost; weights make up for blocks, but a block \
             whose free was lost may count as live"
        ));
    }
    if !probes.has_gaps() {
        lines.push("all frees were watched, so what counts as live lives".to_owned());
        return lines;
    }
    let watched = 100.0 * probes.watched();
    lines.push(match &recorded.walk.failed {
        None => format!(
            "frees were watched in {watched:.1} % of the process's time, and the heap was walked \
             {} times; a block that was freed meanwhile, and whose place another of the same size \
             took, may count as live",
            probes.looks()
        ),
        Some(why) => format!(
            "frees were watched in {watched:.1} % of the process's time, and the heap can not be \
             walked ({why}); a block that was freed meanwhile counts as live in the trace, and \
             what grew is told as if each stack's blocks were freed at an even pace"
        ),
    });
    lines
}
