//! `loam record`: its arguments, resolved into `RecordOptions`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// Record what a program asks of its allocator.
///
/// The trace is one file. It has each allocation, free and resize of the program and of the
/// programs that it starts, in the order in which they happened, each with its thread and time. It
/// also has the memory of each process, ten times a second. `loam replay FILE` repeats the recorded
/// requests on any allocator.
///
/// The program keeps its allocator, unless --allocator names another one. Its input, output,
/// signals and exit code stay its own. If a program can not take a preload, the recorder refuses it
/// and says why, as `loam run` does. The recording ends with the last recorded process. A second
/// Ctrl-C ends it earlier, and the processes go on.
///
/// With --pid, a running process is recorded. Ctrl-C ends the recording, and the process goes on.
/// Programs that it starts are not recorded. Of a process on Loam every event is recorded, and the
/// trace begins with the blocks that are live at that moment.
///
/// Of a process on any other allocator, probes are set on the allocator's functions for short
/// times, again and again. The trace has the blocks that were handed out meanwhile, each with its
/// stack and with how many it stands for, and says which of them still live at the end. Probes are
/// breakpoints in the process's code. The kernel sets them, and takes them out when loam ends, also
/// if it is killed. They take at most --cost of the process's time, and 40 ms at the begin. They
/// need Linux 6.6, CAP_BPF and CAP_PERFMON.
///
/// Where probes are not allowed, and with --growth, the trace has the pages by which the heap
/// grows, each with its stack. The process is not changed for that, and nothing of it stops.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Record the program on this allocator, a name as for `loam lab` (default: the program's own)
    #[arg(long, value_name = "NAME")]
    allocator: Option<String>,

    /// Write the trace to this file (default: `loam-PROGRAM-PID.trace` in the current folder)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    overwrite: bool,

    /// What a thread of the program does when events come faster than they can be written
    #[arg(long, value_name = "WHAT", default_value = "block")]
    when_full: WhenFull,

    /// End the recording when the file reaches this size (500M, 2G); the program goes on
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,

    /// Record stacks: one for each BYTES requested bytes, on average (64K, 1M; without a number
    /// 512K)
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "512K",
        value_parser = size
    )]
    stacks: Option<u64>,

    /// Start the program even if it can not take a preload; the trace then lacks its events
    #[arg(long)]
    force: bool,

    /// Record this running process
    #[arg(long, value_name = "PID", conflicts_with_all = ["allocator", "force", "command"])]
    pid: Option<i32>,

    // Where `pid` conflicts with what is given, clap waives `requires = "pid"`.
    /// Of the running process, record under which stacks its heap grows, whatever its allocator
    #[arg(long, requires = "pid", conflicts_with_all = ["stacks", "when_full", "command"])]
    growth: bool,

    /// Take at most this part of the program's own processor time (10%). If the recording of all
    /// events takes more, it ends there, and the rest of the program is sampled into a second file,
    /// as of a running process. Of a running process: set probes on its allocator, whatever it is,
    /// that take this part (2%)
    #[arg(long, value_name = "PERCENT", conflicts_with = "growth", value_parser = percent)]
    cost: Option<f64>,

    /// Stop recording the running process after SECONDS (default: at Ctrl-C)
    #[arg(
        long = "for",
        value_name = "SECONDS",
        requires = "pid",
        conflicts_with = "command",
        value_parser = seconds
    )]
    seconds: Option<Duration>,

    /// The program and its arguments
    #[arg(
        required_unless_present = "pid",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// A distance that no program comes to the end of; the recorder multiplies it.
const MOST_STACK_BYTES: u64 = 1 << 31;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhenFull {
    /// The thread waits, and no event is lost
    Block,
    /// The thread goes on; events are lost, and the trace says how many
    Drop,
}

/// What of a running process is recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// The best that its allocator and the rights allow.
    Best,
    /// By what its heap grows.
    Growth,
    /// Blocks that stay, by probes that take this part of its time.
    Probes(f64),
}

/// The part of its time if the caller does not say one.
pub const COST: f64 = 0.02;

/// What is recorded.
#[derive(Debug, Clone)]
pub enum Subject {
    /// A program that is started.
    Command {
        /// As the caller wrote it.
        program: OsString,
        /// Its arguments.
        arguments: Vec<OsString>,
    },
    /// A process that runs already.
    Process {
        /// Its number.
        pid: i32,
        /// How.
        way: Way,
        /// For so long; none: until a signal.
        limit: Option<Duration>,
    },
}

/// What `record` is to do.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// The allocator to preload.
    pub allocator: Option<String>,
    /// The file that the caller named.
    pub output: Option<PathBuf>,
    /// Replace it.
    pub overwrite: bool,
    /// Lose events rather than wait.
    pub drops_when_full: bool,
    /// Bytes of the file at which the recording ends.
    pub max_size: Option<u64>,
    /// Requested bytes for each recorded stack, on average; 0: no stacks.
    pub stack_bytes: u64,
    /// The part of the program's own time that the recording of all its events may take.
    pub most: Option<f64>,
    /// Start even what can not take the preload.
    pub force: bool,
    /// What is recorded.
    pub subject: Subject,
}

impl RecordArgs {
    /// Separates the program from its arguments.
    pub fn resolve(self) -> RecordOptions {
        let mut command = self.command.into_iter();
        RecordOptions {
            allocator: self.allocator,
            output: self.output,
            overwrite: self.overwrite,
            drops_when_full: self.when_full == WhenFull::Drop,
            max_size: self.max_size,
            stack_bytes: self.stacks.unwrap_or(0).min(MOST_STACK_BYTES),
            most: self.cost.filter(|_| self.pid.is_none()),
            force: self.force,
            subject: match self.pid {
                Some(pid) => Subject::Process {
                    pid,
                    way: match (self.growth, self.cost) {
                        (true, _) => Way::Growth,
                        (false, Some(cost)) => Way::Probes(cost),
                        (false, None) => Way::Best,
                    },
                    limit: self.seconds,
                },
                None => Subject::Command {
                    program: command.next().expect("clap requires a command"),
                    arguments: command.collect(),
                },
            },
        }
    }
}

/// A year is longer than anybody waits for a recording.
const LONGEST: f64 = 31_536_000.0;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it is a number of seconds, at least 0.1".to_owned()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match number.parse::<f64>() {
        Ok(percent) if (0.1..=50.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("it is a part of the process's time from 0.1% to 50%, as in 2%".to_owned()),
    }
}

/// Bytes, with a unit of 1,024 or its powers if wanted.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        unit => return Err(format!("`{unit}` is no unit; write K, M, G or T")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("`{text}` is no size; write a number and a unit, as in 500M"))?;
    let bytes = number.checked_mul(1 << shift);
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("`{text}` is no size from 1 byte to 16 EiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_time_are_read_as_percents() {
        assert_eq!(percent("2%"), Ok(0.02));
        assert_eq!(percent("0.5"), Ok(0.005));
        for wrong in ["", "%", "0", "0.01%", "51%", "-2%", "nan", "2%%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("2k"), Ok(2048));
        assert_eq!(size("500M"), Ok(500 << 20));
        assert_eq!(size("3GiB"), Ok(3 << 30));
        for wrong in ["", "M", "0", "5X", "1.5G", "99999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
