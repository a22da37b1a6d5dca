//! `loam advise`: its arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use loam_lab::options::MeasureOptions;
use loam_lab::replay::{Speed, Which};

use crate::replay::args::{measured, parse_speed};

/// Say which allocator and settings suit a recorded program best, and what they save.
///
/// Each allocator is first tried once, with its defaults and with the settings that its authors
/// advise to save memory. An allocator stays in the choice if no other one needs both less memory
/// on average and less processor time. Those that stay are measured in all trials, in turn with the
/// recorded allocator.
///
/// The answer is one line to copy, or that no allocator helps. Then it says what to change in the
/// program: sizes just above a size class, containers that grow by small steps, caches without a
/// limit, and what a heap of their own for long-lived blocks would save.
///
/// With --verify and a command, the two best allocators are then tried for real: the command is run
/// on each and on the recorded allocator, in turn, --trials times. An advice stands only if it
/// needs less memory or less processor time, and at most 1 % more of the other.
///
/// If the replay is more than 5 % off from what was recorded, or if its error is not known, there
/// is no advice.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// A trace, which `loam record` or `loam trace import` wrote
    trace: PathBuf,

    /// Try these allocators: NAME or PATH, each with settings as :VARIABLE=VALUE (default: every
    /// allocator found)
    #[arg(long, value_name = "LIST")]
    allocators: Vec<String>,

    /// Replay this process, by its number in `loam trace info` (default: the process that requested
    /// most bytes)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// `auto` keeps the program's pauses; `max` leaves them out; a number N keeps them and makes
    /// them N times shorter
    ///
    /// Some allocators give memory back as time passes. That shows only with pauses. `auto` makes
    /// the pauses of a recording longer than ten seconds shorter, so that a trial takes about ten
    /// seconds. The table says by how much.
    #[arg(long, value_name = "auto|max|N", default_value = "auto", value_parser = parse_speed)]
    speed: Speed,

    /// Measure each allocator that stays in the choice N times
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    trials: u32,

    /// Stop a trial after S seconds
    #[arg(long, value_name = "S", default_value_t = 3_600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: u64,

    /// Run COMMAND on the two best allocators and on the recorded one, and advise only what really
    /// helps
    ///
    /// COMMAND gets no input, and what it prints is thrown away. It must end by itself.
    #[arg(long, requires = "command")]
    verify: bool,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,

    /// Write a page with a chart of processor time against memory to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// With --verify: the program and its arguments
    #[arg(last = true, value_name = "COMMAND", requires = "verify")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  loam record --output t.trace -- ./server
  loam advise t.trace                 try every allocator found
  loam advise t.trace --speed 1       keep the program's pauses whole, however long
  loam advise t.trace --allocators loam,jemalloc,jemalloc:memory
  loam advise t.trace --html advice.html
  loam advise t.trace --verify -- ./server --replay requests.log

Exit code 0 with advice or if nothing helps, 2 if the trace allows no advice.";

/// What to advise on.
#[derive(Debug)]
pub struct AdviseOptions {
    /// What is replayed.
    pub which: Which,
    /// How to measure; the allocators may be missing.
    pub measure: MeasureOptions,
    /// The command that is really run; empty: none.
    pub command: Vec<OsString>,
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
            command: self.command,
            json: self.json,
        }
    }
}
