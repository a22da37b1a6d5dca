//! A process that runs already, on any allocator: which blocks stay, and who asked for them, by
//! probes on the allocator's functions. A block of a window is a block of the trace, with a weight.
//!
//! One thread reads what the probes write, walks the heap from time to time, and writes the trace.

use std::time::Instant;

use anyhow::{bail, Result};

use loam_census::heap;
use loam_census::target::Live;
use loam_format::trace::{Ended, Statistics};
use loam_format::units::bytes;
use loam_process::perf::rights::Rights;
use loam_process::probes::{Probes, Source};
use loam_process::process::{Pid, Stat};
use loam_record::written::Written;
use loam_record::{describe, paths, stays};

use super::args::RecordOptions;
use super::ends::Ends;
use super::name_of;
use super::progress::Progress;
use super::target::Target;
use crate::exit::{Coded, Exit};
use crate::output;

/// What the trace says of itself.
const SAMPLED: &str = "each block stands for others, seen by probes on the allocator's functions";
/// How often the heap is walked at the end: one walk may miss a block.
const LAST_WALKS: usize = 2;

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
    match Stat::read(pid) {
        Ok(stat) if !stat.is_dead() => {}
        _ => bail!("there is no process {pid}"),
    }
    Ok(Probes::sources_of(pid)?)
}

/// Runs the verb.
pub fn record(options: &RecordOptions, pid: Pid, ends: &mut Ends, cost: f64) -> Result<Exit> {
    let coded = |why: String| Coded {
        exit: Exit::Error,
        message: format!(
            "probes can not be set in process {pid}: {why}; `loam record --pid {pid} --growth` \
             needs less"
        ),
    };
    if let Some(why) = refused(pid)? {
        return Err(coded(why).into());
    }
    let sources = sources(pid)?;
    let target = Target::open(options)?;
    let words = describe::words_of(pid);
    let name = words.first().map(|word| name_of(word.as_ref()));
    let rights = Rights::over(pid);
    let probes = Probes::begin(pid, sources, cost);
    let mut probes = probes.map_err(|error| coded(rights.explain_probes(&error)))?;
    let (file, path) = target.settle(&name.unwrap_or_default(), pid as u32)?;
    let mut written = Written::begin(file, pid, &words, SAMPLED, options.max_size)?;
    let progress = Progress::begin();
    progress.tell(&format!(
        "loam: {}; Ctrl-C ends it",
        first_line(pid, &probes, cost)
    ));
    let begun = Instant::now();
    let mut walk = Walk::of(pid);
    let reason = loop {
        let changes = probes
            .pass()
            .map_err(|error| coded(rights.explain_probes(&error)))?;
        written.take(&changes, probes.sites())?;
        written.look()?;
        if ends.are_reached() {
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
            break Some((
                Ended::Running,
                "the file has reached its --max-size".to_owned(),
            ));
        }
        if probes.wants_look() {
            walk.look(&mut probes);
        }
        probes.wait();
    };
    let seconds = begun.elapsed().as_secs_f64();
    probes.stop();
    if probes.has_gaps() && !matches!(reason, Some((Ended::Unknown | Ended::Exec, _))) {
        for _ in 0..LAST_WALKS {
            walk.look(&mut probes);
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
    progress.end();
    if let Some((_, reason)) = &reason {
        output::print_warning(&format!("recording ended early: {reason}"));
    }
    let growth = probes.growth();
    let grown = paths::of(pid, probes.sites(), |site| growth[site]);
    if !grown.is_empty() {
        output::say(&format!(
            "Grew, as what was handed out in the first half and lives at the end, times two:\n{}",
            paths::text(&grown)
        ));
    }
    let shown = output::path(&path);
    output::say(&summary(&probes, seconds, &shown, &statistics));
    for line in stays::line(&sums).into_iter().chain(gaps(&probes, &walk)) {
        output::say(&format!("loam: {line}"));
    }
    Ok(Exit::Done)
}

/// The walk of the heap from outside, as long as it can be done.
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

fn first_line(pid: Pid, probes: &Probes, cost: f64) -> String {
    let files: Vec<&str> = probes
        .sources()
        .iter()
        .map(|source| source.name.as_str())
        .collect();
    let files = loam_format::plain::line(&files.join(" and ")).into_owned();
    format!(
        "recording which blocks of process {pid} stay, by probes (breakpoints that the kernel \
         sets) on the allocator's functions in {files}, for at most {:.1} % of its processor time",
        100.0 * cost
    )
}

fn summary(probes: &Probes, seconds: f64, shown: &str, statistics: &Statistics) -> String {
    let estimate = probes.estimate();
    let stacks = probes
        .sites()
        .all()
        .iter()
        .filter(|site| site.bytes >= 0.5)
        .count();
    format!(
        "loam: {} +- {} were handed out in {seconds:.0} s and live, under {stacks} stacks (from {} \
         blocks of {} that were seen), in {}: {shown}; next: loam trace info {}",
        bytes(estimate.bytes),
        bytes(estimate.error),
        estimate.blocks,
        probes.samples().0,
        bytes(statistics.file_bytes as f64),
        loam_format::plain::word(shown)
    )
}

/// What was not seen, and what it cost, in sentences.
fn gaps(probes: &Probes, walk: &Walk) -> Vec<String> {
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
    lines.push(match &walk.failed {
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
