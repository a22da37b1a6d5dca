//! `loam doctor`: its arguments.

use std::time::Duration;

use clap::Args;

use loam_process::choose::Target;

/// Say what is wrong with a running program's memory, and what would help.
///
/// One verdict in plain words, the figures behind it, what to do, and how many bytes that would bring; then
/// what was looked for and not found. It needs no preparation and no restart: the heap of glibc's malloc is
/// read from outside, block by block, and that of Loam by its counters. The program is neither stopped nor
/// changed.
///
/// Growth shows only in time: `--watch 30` looks again and again for half a minute, and names the sizes of
/// blocks that grow.
///
/// Exit code 0 if the program is healthy, 1 if something was found, 2 if there is no such process, or it may
/// not be read, or it ended meanwhile.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// The process: its number, or its name in full
    #[arg(value_name = "PID|NAME")]
    target: Target,

    /// Look again and again for so many seconds, to see what grows
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watch: Option<Duration>,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam doctor 1234                    what is wrong, and what would help
  loam doctor postgres --watch 60     and whether something grows
  loam doctor 1234 --json             the same for programs";

/// A day is longer than anybody waits for an answer.
const LONGEST: f64 = 86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("it is a number of seconds from 1 to {LONGEST}")),
    }
}

/// What the doctor is to do.
#[derive(Debug)]
pub struct DoctorOptions {
    /// Whom to examine.
    pub target: Target,
    /// How long to look for growth.
    pub watch: Option<Duration>,
    /// JSON instead of text.
    pub json: bool,
}

impl DoctorArgs {
    /// Plain options.
    pub fn resolve(self) -> DoctorOptions {
        DoctorOptions {
            target: self.target,
            watch: self.watch,
            json: self.json,
        }
    }
}
