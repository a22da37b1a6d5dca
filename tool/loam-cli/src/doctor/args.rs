//! `loam doctor`: its arguments.

use std::time::Duration;

use clap::Args;

use loam_process::choose::Target;

/// Say what is wrong with a running program's memory, and what would help.
///
/// The doctor prints what it finds in plain words, with the figures, the remedy, and how many bytes
/// the remedy would save. Then it lists what it looked for and did not find.
///
/// The program needs no preparation and no restart, and is neither stopped nor changed. A heap of
/// glibc's malloc is read from outside, block by block. A heap of Loam is read by its counters.
///
/// Growth needs time to show. With `--watch 30` the doctor looks again and again for half a minute,
/// and names the sizes of blocks that grow, their types, and how they are reached or that they are
/// lost. With `--stacks` it also says under which stacks memory came to the heap, by the process's
/// page faults (`loam record --growth`), on any allocator.
///
/// Exit code 0 if the program is healthy, 1 if something was found, 2 if too much of its memory was
/// not seen to tell, if there is no such process, if the process may not be read, or if it ended
/// meanwhile.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// The number or the full name of a process
    #[arg(value_name = "PID|NAME")]
    target: Target,

    /// Keep looking for this many SECONDS, to find growth
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watch: Option<Duration>,

    /// Say under which stacks the heap grew meanwhile, on any allocator
    #[arg(long, requires = "watch")]
    stacks: bool,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam doctor 1234                    one look
  loam doctor postgres --watch 60     a minute, to find growth too
  loam doctor 1234 --watch 60 --stacks   and who makes it grow
  loam doctor 1234 --json             the same as JSON";

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
    /// Whether stacks are wanted under which the heap grows.
    pub stacks: bool,
    /// JSON instead of text.
    pub json: bool,
}

impl DoctorArgs {
    /// Plain options.
    pub fn resolve(self) -> DoctorOptions {
        DoctorOptions {
            target: self.target,
            watch: self.watch,
            stacks: self.stacks,
            json: self.json,
        }
    }
}
