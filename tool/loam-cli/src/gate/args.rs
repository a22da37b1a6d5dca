//! `loam gate`: its arguments.

use std::path::PathBuf;

use clap::Args;

use loam_lab::gate::limits::{Limit, Limits};
use loam_lab::options::MeasureOptions;

use crate::replay::args::{measured, parse_speed, Speed};
use crate::replay::Which;

/// Fail when a recorded program needs more memory, page faults or processor time than a baseline.
///
/// The trace is replayed on the allocator that it was recorded on. The baseline is another trace, such as that of
/// the last release: then both are replayed in turn, and each figure is compared within a round. Or it is a small
/// file that --write-baseline wrote, to be kept beside the sources; times are compared with it on the same machine
/// only. A figure fails if it grew beyond its limit and that is no chance.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct GateArgs {
    /// A trace that `loam record` wrote
    trace: PathBuf,

    /// What to compare with: a trace, or a file that --write-baseline wrote
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,

    /// Write the figures of the trace to the baseline's file, and compare nothing
    #[arg(long)]
    write_baseline: bool,

    /// How much a figure may grow: FIGURE=PERCENT, or FIGURE=off
    ///
    /// Figures: peak (5 %), average (5 %), end (10 %), faults (10 %), processor (15 %), and error (5 %), which is
    /// the most that a replay may be off from what was recorded.
    #[arg(long, value_name = "FIGURE=PERCENT")]
    limit: Vec<Limit>,

    /// The allocator to replay on: NAME or PATH, with :VARIABLE=VALUE settings (default: the recorded one)
    #[arg(long, value_name = "SPEC")]
    allocator: Option<String>,

    /// Which process of the trace, by the number that `loam trace info` shows (default: the busiest)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// `max` leaves out the program's pauses; a number keeps them, scaled: 1 as recorded, 10 ten times as fast
    #[arg(long, value_name = "max|N", default_value = "max", value_parser = parse_speed)]
    speed: Speed,

    /// Rounds: trials of each trace
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: u32,

    /// Append the answer as Markdown, for a job's summary
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Keep the trials, in a results file of `loam lab`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Seconds after which a trial is stopped
    #[arg(long, value_name = "S", default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: u64,
}

const EXAMPLES: &str = "\
Examples:
  loam record --output now.trace -- ./tests/load
  loam gate now.trace --baseline release-1.4.trace
                                 against the trace of the last release
  loam gate now.trace --baseline tests/load.json --write-baseline
                                 or write the figures down, commit them,
  loam gate now.trace --baseline tests/load.json --markdown \"$GITHUB_STEP_SUMMARY\"
                                 and compare with them later
  loam gate now.trace --baseline tests/load.json --limit peak=2% --limit processor=off

Exit code 0 if nothing got worse, 1 if something did, 2 if that can not be told.";

/// What the gate is to do.
#[derive(Debug)]
pub struct GateOptions {
    /// What is replayed.
    pub which: Which,
    /// What it is compared with.
    pub baseline: PathBuf,
    /// Write it instead.
    pub write_baseline: bool,
    /// How much worse figures may get.
    pub limits: Limits,
    /// Where the Markdown goes.
    pub markdown: Option<PathBuf>,
    /// How to measure; the allocator may be missing.
    pub measure: MeasureOptions,
}

impl GateArgs {
    /// Plain options.
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
