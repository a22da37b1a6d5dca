//! A process that runs already, on any allocator: records which blocks stay, and who asked for
//! them, and says what it found. `loam_record::probed` does it.

use anyhow::Result;

use loam_format::units::bytes;
use loam_process::probes::Probes;
use loam_process::process::{private_bytes, Pid};
use loam_record::ends::Ends;
use loam_record::probed::{self, Recorded};
use loam_record::target::Target;
use loam_record::written::Written;
use loam_record::{describe, paths, stays};

use super::args::RecordOptions;
use super::name_of;
use super::progress::Progress;
use crate::exit::Exit;
use crate::output;

/// Runs the verb.
pub fn record(options: &RecordOptions, pid: Pid, ends: &mut Ends, cost: f64) -> Result<Exit> {
    if let Some(why) = probed::refused(pid)? {
        return Err(probed::unset(pid, &why));
    }
    let target = Target::open(options.output.as_deref(), options.overwrite)?;
    let words = describe::words_of(pid);
    let name = words.first().map(|word| name_of(word.as_ref()));
    let mut probes = probed::begin(pid, cost)?;
    let (file, path) = target.settle(&name.unwrap_or_default(), pid as u32)?;
    let written = Written::begin(
        file.begin()?,
        pid,
        &words,
        probed::SAMPLED,
        options.max_size,
    )?;
    let progress = Progress::begin();
    progress.tell(&format!(
        "loam: {}; Ctrl-C ends it",
        first_line(pid, &probes, cost)
    ));
    let before = private_bytes(pid);
    let recorded = probed::record(&mut probes, pid, written, || ends.are_reached())?;
    let after = private_bytes(pid);
    progress.end();
    if let Some((_, reason)) = &recorded.reason {
        output::print_warning(&format!("recording ended early: {reason}"));
    }
    let growth = probes.growth();
    let grown = paths::of(pid, probes.sites(), |site| growth[site]);
    if !grown.is_empty() {
        output::say(&format!(
            "Grew, as what was handed out in the first half and lives at the end, times two (no \
             surer than the sum below):\n{}",
            paths::text(&grown)
        ));
    }
    output::say(&summary(&probes, &recorded, &output::path(&path)));
    let of_memory = before.zip(after).map(|(before, after)| {
        let (verb, change) = match after.checked_sub(before) {
            Some(grown) => ("grew", grown),
            None => ("fell", before - after),
        };
        format!(
            "its private memory {verb} by {} meanwhile",
            bytes(change as f64)
        )
    });
    let lines = of_memory.into_iter().chain(stays::line(&recorded.stays));
    for line in lines.chain(probed::gaps(&probes, &recorded)) {
        output::say(&format!("loam: {line}"));
    }
    Ok(Exit::Done)
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
         sets) on the allocator's functions in {files}, for about {:.1} % of its processor time \
         in the long run",
        100.0 * cost
    )
}

fn summary(probes: &Probes, recorded: &Recorded, shown: &str) -> String {
    let estimate = probes.estimate();
    let stacks = probes
        .sites()
        .all()
        .iter()
        .filter(|site| site.bytes >= 0.5)
        .count();
    format!(
        "loam: {} +- {} were handed out in {:.0} s and live, under {stacks} stacks (from {} \
         blocks of {} that were seen), in {}: {shown}; next: loam trace info {}",
        bytes(estimate.bytes),
        bytes(estimate.error),
        recorded.seconds,
        estimate.blocks,
        probes.samples().0,
        bytes(recorded.statistics.file_bytes as f64),
        loam_format::plain::word(shown)
    )
}
