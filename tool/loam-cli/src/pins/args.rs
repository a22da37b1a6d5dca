//! `loam pins`: its arguments.

use clap::{Args, ValueEnum};

use loam_lab::pins::{By, When};

/// Show which blocks keep sparse pages: pages of which less than half is live.
///
/// An allocator gives memory back page by page, so one live block keeps its whole page. The free
/// bytes of a page are divided among the blocks that keep it. The share of a row is its blame. The
/// sole blame is the part that no block of another row keeps. All blame together is the sum of the
/// free bytes of these pages.
///
/// Rows are stacks if the trace has stacks. Stacks are known for a sample of the blocks, so this
/// blame has an error, which is shown. More stacks make it smaller (`loam record --stacks=16K`).
/// Without stacks, rows are sizes, ages or threads of blocks, and blame is exact.
///
/// A running process needs no trace, and is not stopped. A heap of glibc's malloc is read block by
/// block from outside, a heap of Loam by its counters. Rows are then sizes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PinsArgs {
    /// A trace, which `loam record` or `loam trace import` wrote; or the number or the full name of
    /// a process
    #[arg(value_name = "TRACE|PID|NAME")]
    target: String,

    /// The moment of a trace: `worst` (most free bytes in sparse pages), `peak` (most live bytes),
    /// `end`, or seconds after the start
    #[arg(long, value_name = "worst|peak|end|SECONDS", default_value = "worst")]
    #[arg(value_parser = when)]
    at: When,

    /// What a row of a trace stands for (default: a stack if the trace has stacks, else a size)
    #[arg(long, value_enum)]
    by: Option<ByName>,

    /// Show this process of a trace, by its number in `loam trace info` (default: the process that
    /// requested most bytes)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// Show N rows; the JSON has all rows
    #[arg(long, value_name = "N", default_value_t = 8)]
    top: usize,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam record --stacks=16K --output t.trace -- ./server
  loam pins t.trace                    at the worst moment, by stack
  loam pins t.trace --at end --by age  at the end, by age of the blocks
  loam pins 1234                       a running process, by size
  loam map t.trace                     the same as a picture";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ByName {
    /// The stack that allocated the blocks
    Stack,
    /// The size of the blocks
    Size,
    /// How long the blocks have lived
    Age,
    /// The thread that allocated the blocks
    Thread,
}

/// Reads a moment.
pub fn when(text: &str) -> Result<When, String> {
    match text {
        "worst" => return Ok(When::Worst),
        "peak" => return Ok(When::Peak),
        "end" => return Ok(When::End),
        _ => {}
    }
    match text.parse::<f64>() {
        Ok(seconds) if seconds >= 0.0 && seconds.is_finite() => Ok(When::At(seconds)),
        _ => Err("it is `worst`, `peak`, `end`, or seconds since the trace began".to_owned()),
    }
}

/// What to look at.
#[derive(Debug)]
pub struct PinsOptions {
    /// A file, or a process.
    pub target: String,
    /// Which moment.
    pub at: When,
    /// By what.
    pub by: Option<By>,
    /// Which process of a trace.
    pub process: Option<u32>,
    /// Rows to show.
    pub top: usize,
    /// JSON instead of text.
    pub json: bool,
}

impl PinsArgs {
    /// Plain options.
    pub fn resolve(self) -> PinsOptions {
        PinsOptions {
            target: self.target,
            at: self.at,
            by: self.by.map(|by| match by {
                ByName::Stack => By::Stack,
                ByName::Size => By::Size,
                ByName::Age => By::Age,
                ByName::Thread => By::Thread,
            }),
            process: self.process,
            top: self.top,
            json: self.json,
        }
    }
}
