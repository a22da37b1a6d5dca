//! `loam map`: its arguments.

use std::path::PathBuf;

use clap::Args;

/// Draw a heap: its pages as cells, coloured by live share, block size, age or stack, over the time
/// of a trace.
///
/// One HTML file that needs nothing else: open it in a browser. Of a trace it has fifty moments and
/// a slider; of a running process on glibc's malloc it has the pages as they are now. Where there
/// are more than four million cells in all, a cell stands for several pages side by side, so that
/// the page of a heap of any size stays usable.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MapArgs {
    /// A trace that `loam record` wrote, or a process: its number, or its name in full
    #[arg(value_name = "TRACE|PID|NAME")]
    target: String,

    /// Where the map goes (default: NAME-map.html here)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Which process of a trace, by the number that `loam trace info` shows (default: the busiest)
    #[arg(long, value_name = "N")]
    process: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  loam record --stacks=16K --output t.trace -- ./server
  loam map t.trace                     t-map.html: the heap over the program's life
  loam map 1234 --output now.html      a running process, as it is now";

/// What to draw.
#[derive(Debug)]
pub struct MapOptions {
    /// A file, or a process.
    pub target: String,
    /// Where it goes.
    pub output: Option<PathBuf>,
    /// Which process of a trace.
    pub process: Option<u32>,
}

impl MapArgs {
    /// Plain options.
    pub fn resolve(self) -> MapOptions {
        MapOptions {
            target: self.target,
            output: self.output,
            process: self.process,
        }
    }
}
