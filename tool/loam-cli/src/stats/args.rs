//! `loam stats`: its arguments.

use clap::Args;

use loam_process::choose::Target;

/// Say where the memory of a running program is, and what its heap does.
///
/// The first line is the verdict: what most of the resident memory is. Below it every resident byte
/// has a name, and the lines add up. For programs on Loam the heap's own counters say what is live,
/// cached, free between live blocks or kept; the program needs no preparation and is neither
/// stopped nor slowed. For any other program the account is the system's, and the last lines say
/// what Loam would add.
///
/// Exit code 2 if there is no such process, or it may not be read, or it ended meanwhile.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatsArgs {
    /// The process: its number, or its name in full
    #[arg(value_name = "PID|NAME", required_unless_present = "all")]
    target: Option<Target>,

    /// Show every process of that name, or every process there is, a line each
    #[arg(long)]
    all: bool,

    /// Show this heap with all its size classes: its number or name (`default` is the one of
    /// malloc)
    #[arg(long, value_name = "HEAP")]
    heap: Option<String>,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam stats 1234                     one process
  loam stats --all                    every process, a line each, the largest first
  loam stats redis-server --json      everything that is known, for programs
  loam stats server --heap sessions   one private heap of it, class by class";

/// The resolved arguments of `stats`.
#[derive(Debug)]
pub struct StatsOptions {
    /// The process to show; none means every process.
    pub target: Option<Target>,
    /// Whether to show every process of that name.
    pub all: bool,
    /// The only heap to show; none means every heap.
    pub heap: Option<String>,
    /// Whether to print JSON instead of text.
    pub json: bool,
}

impl StatsArgs {
    /// Resolves the arguments into plain options.
    pub fn resolve(self) -> StatsOptions {
        StatsOptions {
            target: self.target,
            all: self.all,
            heap: self.heap,
            json: self.json,
        }
    }
}
