//! `loam census`: its arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Say what the live blocks of a program are: their types, who holds them, and which are lost.
///
/// The program needs no preparation and no restart, and is neither stopped nor changed. Blocks are
/// those of glibc's malloc or of Loam, and within it and beside it those of CPython's own
/// allocator. Types are C++ classes with virtual functions (stripped programs too), C objects with
/// a table of functions, and CPython's objects. A block without a type belongs to the nearest
/// object through which all pointers to it lead.
///
/// A block is lost if no pointer leads to it, in two looks. Every word that looks like a pointer
/// counts as one.
///
/// A core file is read in the same way: one of the kernel, of gcore or of coredumpctl, also
/// compressed or cut off.
///
/// Exit code 0; 1 if `--leaks` finds lost blocks; 2 if there is no such process or core, or it may
/// not be read.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CensusArgs {
    /// The number or the full name of a process, or the file of a core
    #[arg(value_name = "PID|NAME|CORE", required_unless_present = "diff")]
    target: Option<String>,

    /// Take two censuses, SECONDS apart, and show what grew
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watch: Option<Duration>,

    /// Show lost blocks only; exit code 1 if there are some
    #[arg(long, conflicts_with = "watch")]
    leaks: bool,

    /// Compare two censuses that `--json` wrote, the older one first
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    #[arg(conflicts_with_all = ["target", "watch", "leaks"])]
    diff: Vec<PathBuf>,

    /// Show at most N rows; the JSON has all of them
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,

    /// Show how the bytes of examples begin, as text or hexadecimal words. They may be secrets
    #[arg(long, conflicts_with = "diff")]
    show_content: bool,

    /// Print JSON, for programs and for `--diff`
    #[arg(long)]
    json: bool,

    /// Write a page for a browser: a treemap of who holds what, and what is lost; of two censuses
    /// what grew
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  loam census 1234                      types, holders, lost blocks
  loam census 1234 --watch 60           what grows within a minute
  loam census 1234 --leaks              lost blocks alone
  loam census core.1234                 the same of a core
  loam census 1234 --html page.html     a treemap for a browser
  loam census 1234 --json > a.json      for later: loam census --diff a.json b.json";

/// A day is longer than anybody waits for an answer.
const LONGEST: f64 = 86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("it is a number of seconds from 1 to {LONGEST}")),
    }
}

/// What to look at.
#[derive(Debug)]
pub struct CensusOptions {
    /// A process or a core.
    pub target: Option<String>,
    /// How long to watch.
    pub watch: Option<Duration>,
    /// Lost blocks alone.
    pub leaks: bool,
    /// Two files to compare.
    pub diff: Option<[PathBuf; 2]>,
    /// Rows to show.
    pub top: usize,
    /// Bytes of examples.
    pub show_content: bool,
    /// JSON instead of text.
    pub json: bool,
    /// A page instead of text.
    pub html: Option<PathBuf>,
}

impl CensusArgs {
    /// Plain options.
    pub fn resolve(self) -> CensusOptions {
        CensusOptions {
            target: self.target,
            watch: self.watch,
            leaks: self.leaks,
            diff: <[PathBuf; 2]>::try_from(self.diff).ok(),
            top: self.top,
            show_content: self.show_content,
            json: self.json,
            html: self.html,
        }
    }
}
