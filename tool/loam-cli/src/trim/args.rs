//! `loam trim`: its arguments.

use std::time::Duration;

use clap::Args;

use loam_process::choose::Target;

/// Give the free pages of a running program's heap back to the system, now, from outside.
///
/// THIS CHANGES THE PROGRAM: it stops one of its threads for moments, and lets that thread make the system call
/// `madvise` for whole pages that lie inside of free chunks. No code of malloc runs, no block moves, and the program
/// needs no preparation and no restart. With `--dry-run` nothing is stopped and nothing is written: it says how many bytes
/// a trim would give back.
///
/// It works on programs on glibc's malloc, 2.28 to 2.41, on x86-64. Pages that other processes have as well, locked
/// pages, and pages with a live block on them stay.
///
/// Exit code 0 if all processes were trimmed, 2 if one of them could not be.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TrimArgs {
    /// The numbers or the full names of processes
    #[arg(value_name = "PID|NAME", required = true)]
    targets: Vec<Target>,

    /// Say what a trim would give back, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// How long a stop may take, in milliseconds
    #[arg(long, value_name = "MS", default_value = "2", value_parser = milliseconds)]
    max_stop: Duration,

    /// Believe that the program's seccomp filters allow madvise, futex and getpid
    ///
    /// Loam runs the filters itself to be sure, if it may read them (that needs CAP_SYS_ADMIN). A filter that does not
    /// allow these calls may end the program.
    #[arg(long)]
    trust_filters: bool,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam trim 1234 --dry-run      how many bytes it would give back
  loam trim 1234                do it
  loam trim 1234 --max-stop 1   with stops of at most a millisecond";

fn milliseconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.1..=1000.0).contains(&number) => {
            Ok(Duration::from_secs_f64(number / 1000.0))
        }
        _ => Err("it is a number of milliseconds from 0.1 to 1000".to_owned()),
    }
}

/// What is to be trimmed, and how.
#[derive(Debug)]
pub struct TrimOptions {
    /// Whom.
    pub targets: Vec<Target>,
    /// Only a prediction.
    pub dry_run: bool,
    /// The longest stop.
    pub max_stop: Duration,
    /// Whether filters that can not be read are believed to allow the calls.
    pub trust_filters: bool,
    /// JSON instead of text.
    pub json: bool,
}

impl TrimArgs {
    /// Plain options.
    pub fn resolve(self) -> TrimOptions {
        TrimOptions {
            targets: self.targets,
            dry_run: self.dry_run,
            max_stop: self.max_stop,
            trust_filters: self.trust_filters,
            json: self.json,
        }
    }
}
