//! `loam advise`: its arguments.

use std::path::PathBuf;

use clap::Args;

use loam_lab::options::MeasureOptions;

use crate::replay::args::{measured, parse_speed, Speed};
use crate::replay::Which;

/// Say which allocator or setting a recorded program should run on, and what that brings.
///
/// Each allocator here is tried once, as it is and as its authors advise to save memory. Those that no other one
/// beats in average memory and in processor time get all trials, in turn with the recorded allocator. One line to
/// copy follows, or that nothing helps, and what to change in the program: sizes just above a size class, containers
/// that grow step by step, caches without a cut-off, and what keeping long-lived blocks in a heap of their own saves. A replay that is more than 5 % off from what was recorded, or whose error is
/// not known, is no source of advice.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// A trace that `loam record` wrote
    trace: PathBuf,

    /// What to try: NAME or PATH, each with :VARIABLE=VALUE settings (default: every allocator here)
    #[arg(long, value_name = "LIST")]
    allocators: Vec<String>,

    /// Which process of the trace, by the number that `loam trace info` shows (default: the busiest)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// `max` leaves out the program's pauses; a number keeps them, scaled: 1 as recorded, 10 ten times as fast
    ///
    /// What a heap gives back as time passes shows only with pauses.
    #[arg(long, value_name = "max|N", default_value = "max", value_parser = parse_speed)]
    speed: Speed,

    /// Rounds: trials of each that is left after the first
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    trials: u32,

    /// Seconds after which a trial is stopped
    #[arg(long, value_name = "S", default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: u64,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,

    /// Write a page with the chart of processor time against memory
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  loam record --output t.trace -- ./server
  loam advise t.trace                 every allocator here
  loam advise t.trace --speed 1       with the program's pauses
  loam advise t.trace --allocators loam,jemalloc,jemalloc:memory
  loam advise t.trace --html advice.html

Exit code 0 with and without advice, 2 if the trace is no source of it.";

/// What to advise on.
#[derive(Debug)]
pub struct AdviseOptions {
    /// What is replayed.
    pub which: Which,
    /// How to measure; the allocators may be missing.
    pub measure: MeasureOptions,
    /// JSON instead of text.
    pub json: bool,
}

impl AdviseArgs {
    /// Plain options.
    pub fn resolve(self) -> AdviseOptions {
        AdviseOptions {
            which: Which {
                trace: self.trace,
                process: self.process,
                speed: self.speed,
            },
            measure: MeasureOptions {
                html: self.html,
                ..measured(self.allocators, self.trials, self.timeout)
            },
            json: self.json,
        }
    }
}
