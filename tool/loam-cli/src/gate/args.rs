//! `loam gate`: its arguments.

use std::path::PathBuf;

use clap::Args;

use loam_lab::gate::limits::{Limit, Limits};
use loam_lab::options::MeasureOptions;
use loam_lab::replay::{Speed, Which};

use crate::replay::args::{measured, parse_fixed_speed};

/// Fail when a recorded program needs more memory, page faults or processor time than a baseline.
///
/// The trace is replayed on the allocator on which it was recorded.
///
/// The baseline is another trace, such as that of the last release. Both traces are then replayed
/// in turn, and figures of the same round are compared. Or the baseline is a small file that
/// --write-baseline wrote, to keep beside the sources. Processor time is compared with it only on
/// the machine on which it was written.
///
/// A figure fails if it grew by more than its limit, and if the difference is larger than chance
/// explains.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct GateArgs {
    /// A trace, which `loam record` or `loam trace import` wrote
    trace: PathBuf,

    /// Compare with this trace, or with this file that --write-baseline wrote
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,

    /// Write the figures of the trace to the baseline's file, and do not compare
    #[arg(long)]
    write_baseline: bool,

    /// How much a figure may grow: FIGURE=PERCENT, or FIGURE=off
    ///
    /// The figures and their default limits: peak (5 %), average (5 %) and end (10 %) of resident
    /// memory; page faults (faults, 10 %); processor time (processor, 15 %); error (5 %), which is
    /// how far a replay may be from what was recorded.
    #[arg(long, value_name = "FIGURE=PERCENT")]
    limit: Vec<Limit>,

    /// Replay on this allocator: NAME or PATH, with settings as :VARIABLE=VALUE (default: the
    /// recorded one)
    #[arg(long, value_name = "SPEC")]
    allocator: Option<String>,

    /// Replay this process, by its number in `loam trace info` (default: the process that requested
    /// most bytes)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// `max` leaves out the program's pauses; a number N keeps them and makes them N times shorter
    #[arg(long, value_name = "max|N", default_value = "max", value_parser = parse_fixed_speed)]
    speed: Speed,

    /// Replay each trace N times
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: u32,

    /// Append the answer to this file as Markdown, for the summary of a CI job
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Write the trials to this file, as results of `loam lab`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Stop a trial after S seconds
    #[arg(long, value_name = "S", default_value_t = 3_600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: u64,
}

const EXAMPLES: &str = "\
Examples:
  loam record --output now.trace -- ./tests/load
  loam gate now.trace --baseline release-1.4.trace
                                 compare with the trace of the last release
  loam gate now.trace --baseline tests/load.json --write-baseline
                                 or write the figures to a file, commit it,
  loam gate now.trace --baseline tests/load.json --markdown \"$GITHUB_STEP_SUMMARY\"
                                 and compare with it later
  loam gate now.trace --baseline tests/load.json --limit peak=2% --limit processor=off

Exit code 0 if nothing got worse, 1 if something did, 2 if the trace or the baseline can not be \
used.";

/// The resolved arguments of `gate`.
#[derive(Debug)]
pub struct GateOptions {
    /// The trace to replay.
    pub which: Which,
    /// The baseline to compare with.
    pub baseline: PathBuf,
    /// Whether to write the baseline instead.
    pub write_baseline: bool,
    /// How much worse the figures may get.
    pub limits: Limits,
    /// The file for the Markdown, if one is wanted.
    pub markdown: Option<PathBuf>,
    /// How to measure. The allocator may be absent.
    pub measure: MeasureOptions,
}

impl GateArgs {
    /// Resolves the arguments into plain options.
    pub fn resolve(self) -> GateOptions {
        GateOptions {
            which: Which {
                trace: self.trace,
                process: self.process,
                speed: self.speed,
            },
            baseline: self.baseline,
            write_baseline: self.write_baseline,
            limits: Limits::with(&self.limit),
            markdown: self.markdown,
            measure: MeasureOptions {
                json: self.json,
                ..measured(
                    self.allocator.into_iter().collect(),
                    self.trials,
                    self.timeout,
                )
            },
        }
    }
}
