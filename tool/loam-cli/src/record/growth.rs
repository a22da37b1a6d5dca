//! A process that runs already, on any allocator: records under which stacks its heap grows, and
//! says what came. `loam_record::growth` does it.

use anyhow::Result;

use loam_format::units::bytes;
use loam_process::growth::Growth;
use loam_process::process::Pid;
use loam_record::describe;
use loam_record::ends::Ends;
use loam_record::growth::{self, Recorded};
use loam_record::target::Target;
use loam_record::written::Written;

use super::args::RecordOptions;
use super::name_of;
use super::progress::Progress;
use crate::exit::Exit;
use crate::output;

/// Runs the verb.
pub fn record(options: &RecordOptions, pid: Pid, ends: &mut Ends) -> Result<Exit> {
    let target = Target::open(options.output.as_deref(), options.overwrite)?;
    let mut growth = growth::begin(pid)?;
    let words = describe::words_of(pid);
    let name = words.first().map(|word| name_of(word.as_ref()));
    let (file, path) = target.settle(&name.unwrap_or_default(), pid as u32)?;
    let written = Written::begin(
        file.begin()?,
        pid,
        &words,
        growth::SAMPLED,
        options.max_size,
    )?;
    let progress = Progress::begin();
    progress.tell(&format!(
        "loam: recording under which stacks the heap of process {pid} grows, by its page faults; \
         the process is not changed; Ctrl-C ends it"
    ));
    let recorded = growth::record(&mut growth, pid, written, || ends.are_reached())?;
    progress.end();
    if let Some((_, reason)) = &recorded.reason {
        output::print_warning(&format!("recording ended early: {reason}"));
    }
    output::say(&summary(&growth, &recorded, &output::path(&path)));
    for line in growth::gaps(&growth) {
        output::say(&format!("loam: {line}"));
    }
    Ok(Exit::Done)
}

fn summary(growth: &Growth, recorded: &Recorded, shown: &str) -> String {
    let seen: f64 = growth
        .sites()
        .all()
        .iter()
        .map(|site| site.bytes.max(0.0))
        .sum();
    let came = match recorded.total {
        Some(total) => format!(
            "{} came to the heap in {:.0} s",
            bytes(total as f64),
            recorded.seconds
        ),
        None => format!("the heap was watched for {:.0} s", recorded.seconds),
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
        bytes(recorded.statistics.file_bytes as f64),
        loam_format::plain::word(shown)
    )
}
