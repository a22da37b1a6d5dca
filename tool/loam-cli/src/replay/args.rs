//! `loam replay`: its arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use loam_format::results::Form;
use loam_lab::options::{Earlier, MeasureOptions};
use loam_lab::replay::{Speed, Which};

/// Repeat a recorded program's requests on other allocators, and measure memory and time.
///
/// The replay has as many threads as the program had. They make the same calls in the same order
/// and touch the same pages. A thread that frees a block waits until the block is allocated.
///
/// Each trial is a new process with one allocator. The order of allocators changes from round to
/// round. The table, the results file and the report are those of `loam lab`.
///
/// The recorded allocator is always measured too. The table says how far the memory of its replay
/// is from the recorded memory. Above 5 % the trace does not reproduce the program, and its figures
/// should not be used.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// A trace, which `loam record` or `loam trace import` wrote
    trace: PathBuf,

    /// Replay this process, by its number in `loam trace info` (default: the process that requested
    /// most bytes)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// Measure these allocators: NAME, PATH or LABEL=NAME, each with settings as :VARIABLE=VALUE
    ///
    /// The list is written as for `loam lab`. Without it, every allocator that `loam allocators`
    /// finds is measured.
    #[arg(long, value_name = "LIST")]
    allocators: Vec<String>,

    /// `auto` keeps the program's pauses; `max` leaves them out; a number N keeps them and makes
    /// them N times shorter
    ///
    /// Some allocators give memory back as time passes. That shows only with pauses. `auto` makes
    /// the pauses of a recording longer than ten seconds shorter, so that a trial takes about ten
    /// seconds. The table says by how much.
    #[arg(long, value_name = "auto|max|N", default_value = "auto", value_parser = parse_speed)]
    speed: Speed,

    /// Measure each allocator N times
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: u32,

    /// Write the results to this file (default: loam-lab-DATE.json in the current folder)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the report to this file (default: beside the results)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Replace the results of an earlier run
    #[arg(long, requires = "json")]
    overwrite: bool,

    /// Stop a trial after S seconds
    #[arg(long, value_name = "S", default_value_t = 3_600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: u64,
}

const EXAMPLES: &str = "\
Examples:
  loam record -- ./server --port 80     write the trace
  loam replay loam-server-1234.trace    measure every allocator found
  loam replay t.trace --allocators system,loam,jemalloc:MALLOC_CONF=dirty_decay_ms:0
  loam replay t.trace --speed max --trials 1
                                        leave the pauses out: quick, and no heap gives memory \
back by the clock

Exit code 0 if all trials succeeded, 1 if a trial failed or the replay is not close enough to the \
program, 2 if the trace
can not be replayed.";

/// Reads `auto`, `max` or a number.
pub fn parse_speed(text: &str) -> Result<Speed, String> {
    match text {
        "auto" => Ok(Speed::Auto),
        _ => parse_fixed_speed(text)
            .map_err(|reason| reason.replacen("it is `max`", "it is `auto`, `max`", 1)),
    }
}

/// Reads `max` or a number.
pub fn parse_fixed_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Percent(0));
    }
    let number: f64 = text
        .parse()
        .map_err(|_unreadable| "it is `max` or a number".to_owned())?;
    if !(0.01..=10_000.0).contains(&number) {
        return Err("it is `max`, or a number from 0.01 to 10000".to_owned());
    }
    Ok(Speed::Percent((number * 100.0).round() as u64))
}

/// What `replay` is to do.
#[derive(Debug)]
pub struct ReplayOptions {
    /// What is replayed.
    pub which: Which,
    /// Where and how to measure.
    pub measure: MeasureOptions,
}

impl ReplayArgs {
    /// Plain options.
    pub fn resolve(self) -> ReplayOptions {
        ReplayOptions {
            which: Which {
                trace: self.trace,
                process: self.process,
                speed: self.speed,
            },
            measure: MeasureOptions {
                json: self.json,
                html: self.html,
                earlier: if self.overwrite {
                    Earlier::Overwrite
                } else {
                    Earlier::Keep
                },
                ..measured(self.allocators, self.trials, self.timeout)
            },
        }
    }
}

/// What is the same for all that replays.
pub fn measured(allocators: Vec<String>, trials: u32, timeout: u64) -> MeasureOptions {
    MeasureOptions {
        names: Vec::new(),
        form: Form::Quick,
        allocators,
        json: None,
        html: None,
        seed: 1,
        rounds: trials,
        earlier: Earlier::Overwrite,
        timeout: Duration::from_secs(timeout),
        workloads_dir: None,
        windows: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_auto_or_max_or_a_number() {
        let second = 1_000_000_000;
        let percent =
            |text: &str, seconds: u64| parse_speed(text).unwrap().percent(seconds * second);
        assert_eq!(percent("max", 100), 0);
        assert_eq!(percent("1", 100), 100);
        assert_eq!(percent("0.5", 100), 50);
        assert_eq!((percent("auto", 0), percent("auto", 9)), (100, 100));
        assert_eq!(percent("auto", 600), 6_000);
        assert_eq!(percent("auto", 10_000_000), 1_000_000);
        for wrong in ["fast", "0", "-1", "nan", "1e9"] {
            assert!(parse_speed(wrong).is_err(), "{wrong}");
        }
        assert!(parse_fixed_speed("auto").is_err());
    }
}
