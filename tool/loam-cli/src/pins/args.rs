//! `loam pins`: its arguments.

use clap::{Args, ValueEnum};

use loam_lab::pins::{By, When};

/// Say whose blocks keep sparse pages: pages that are less than half live and can not go back.
///
/// Memory goes back to the system page by page, so one live block keeps a page whose other blocks are freed.
/// For each stack the page's free bytes are divided among its blocks (blame); what no other stack's blocks keep
/// is its sole blame. Rows sum to the free bytes of all pages that blocks keep.
///
/// A trace that was recorded with `--stacks` names stacks; since they are known of a sample of blocks, blame has
/// an error. A smaller distance between samples (`loam record --stacks=16K`) makes it smaller. Without stacks,
/// blocks are told apart by size, age or thread, which is exact.
///
/// A running process is looked at without a trace: on glibc's malloc block by block, from outside, while it runs;
/// on Loam by its counters. Both tell blocks apart by size.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PinsArgs {
    /// A trace that `loam record` wrote, or a process: its number, or its name in full
    #[arg(value_name = "TRACE|PID|NAME")]
    target: String,

    /// Which moment of a trace: when sparse pages cost most, when most bytes lived, the end, or seconds after its begin
    #[arg(long, value_name = "worst|peak|end|SECONDS", default_value = "worst", value_parser = when)]
    at: When,

    /// By what to tell a trace's blocks apart (default: stacks if there are any, else sizes)
    #[arg(long, value_enum)]
    by: Option<ByName>,

    /// Which process of a trace, by the number that `loam trace info` shows (default: the busiest)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// How many rows to show; the JSON has all
    #[arg(long, value_name = "N", default_value_t = 8)]
    top: usize,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam record --stacks=16K --output t.trace -- ./server
  loam pins t.trace                    whose blocks kept sparse pages when that cost most
  loam pins t.trace --at end --by age  at the end, and how old those blocks are
  loam pins 1234                       of a running process, by size
  loam map t.trace                     the same as a picture";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ByName {
    /// Who allocated them
    Stack,
    /// Their size
    Size,
    /// How long they have lived
    Age,
    /// The thread that allocated them
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
