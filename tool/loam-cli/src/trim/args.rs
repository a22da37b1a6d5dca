//! `loam trim`: its arguments.

use std::time::Duration;

use clap::Args;

use loam_counters::trim::Wish;
use loam_export::listen::Listen;
use loam_process::choose::Target;
use loam_process::container::Group;

use crate::export::args::pause;

/// Give the free pages of running programs' heaps back to the system, now, from outside.
///
/// THIS CHANGES THE PROGRAM: it stops one of its threads for moments, and lets that thread make the
/// system call `madvise` for whole pages that lie inside of free chunks. No code of malloc runs, no
/// block moves, and the program needs no preparation and no restart. With `--dry-run` nothing is
/// stopped and nothing is written: it says how many bytes a trim would give back.
///
/// It works on programs on glibc's malloc, 2.28 to 2.41, on x86-64. Pages that other processes have
/// as well, locked pages, and pages with a live block on them stay. A program on Loam is asked in
/// its memory, and a thread of its own heap trims.
///
/// With `--every` it keeps processes thin until a signal ends it. It never trims a process that is
/// traced, and leaves processes alone for longer and longer whose pages come back within a minute,
/// unless `--when-limit` says that a limit is near.
///
/// Exit code 0 if all processes were trimmed, 2 if one of them could not be.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TrimArgs {
    /// The numbers or the full names of processes
    #[arg(value_name = "PID|NAME", required_unless_present = "all")]
    targets: Vec<Target>,

    /// All processes that you may look into
    #[arg(long, conflicts_with = "targets")]
    all: bool,

    /// Only processes from which at least so much could go back [default: 16M with --all or
    /// --every]
    #[arg(long, value_name = "SIZE", value_parser = crate::record::args::size)]
    above: Option<u64>,

    /// Only processes in this control group, or in groups inside of it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<Group>,

    /// Only processes whose control group uses at least this part of its memory limit
    ///
    /// Files' pages, which the kernel takes back by itself, do not count. Processes without a limit
    /// are left alone.
    #[arg(long, value_name = "PART", value_parser = part)]
    when_limit: Option<f64>,

    /// Do it again and again, with this pause: 60, 60s, 5m, 2h
    #[arg(long, value_name = "TIME", value_parser = pause, conflicts_with = "dry_run")]
    every: Option<Duration>,

    /// With --every: offer what was done to Prometheus at this address, HOST:PORT or :PORT
    // Beside --dry-run, with which --every conflicts, clap waives `requires`.
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "every",
        conflicts_with = "dry_run"
    )]
    listen: Option<Listen>,

    /// Allow an address that other machines can reach
    #[arg(long, requires = "listen")]
    allow_remote: bool,

    /// Say what a trim would give back, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// How long a stop may take, in milliseconds
    ///
    /// Waits of the stopped thread for a busy processor are not counted.
    #[arg(long, value_name = "MS", default_value = "2", value_parser = milliseconds)]
    max_stop: Duration,

    /// Believe that the program's seccomp filters allow madvise, futex and getpid
    ///
    /// Loam runs the filters itself to be sure, if it may read them (that needs CAP_SYS_ADMIN). A
    /// filter that does not allow these calls may end the program.
    #[arg(long)]
    trust_filters: bool,

    /// Print JSON, for programs; with --every one line for each trim
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam trim 1234 --dry-run                   how many bytes it would give back
  loam trim 1234                             do it
  loam trim 1234 --max-stop 1                with stops of at most a millisecond
  loam trim --all --above 64M --every 60s    keep everything thin
  loam trim --all --cgroup /kubepods --when-limit 0.9 --every 10s --listen :9465
                                             only where a limit is near, with metrics";

fn milliseconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.1..=1000.0).contains(&number) => {
            Ok(Duration::from_secs_f64(number / 1000.0))
        }
        _ => Err("it is a number of milliseconds from 0.1 to 1000".to_owned()),
    }
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= 1.0 => Ok(number),
        _ => Err("it is a part of the limit, above 0 and at most 1".to_owned()),
    }
}

/// What is to be trimmed, and how.
#[derive(Debug)]
pub struct TrimOptions {
    /// Whom; none: all.
    pub targets: Vec<Target>,
    /// What is wanted of each trim.
    pub wish: Wish,
    /// Only in this group.
    pub cgroup: Option<Group>,
    /// Only in groups that use this part of their limit.
    pub when_limit: Option<f64>,
    /// Again after this pause.
    pub every: Option<Duration>,
    /// Where metrics are offered.
    pub listen: Option<Listen>,
    /// Whether other machines may connect.
    pub allow_remote: bool,
    /// JSON instead of text.
    pub json: bool,
}

impl TrimArgs {
    /// Whether it goes on until a signal ends it.
    pub fn is_keeper(&self) -> bool {
        self.every.is_some()
    }

    /// Plain options.
    pub fn resolve(self) -> TrimOptions {
        /// What one trim of many should be worth. Chosen: less is not seen on a machine.
        const ABOVE: u64 = 16 << 20;
        let is_keeper = self.all || self.every.is_some();
        TrimOptions {
            targets: self.targets,
            wish: Wish {
                above: self.above.unwrap_or(if is_keeper { ABOVE } else { 0 }),
                dry_run: self.dry_run,
                max_stop: self.max_stop,
                trusts_filters: self.trust_filters,
            },
            cgroup: self.cgroup,
            when_limit: self.when_limit,
            every: self.every,
            listen: self.listen,
            allow_remote: self.allow_remote,
            json: self.json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_and_parts_are_read_with_their_bounds() {
        assert_eq!(pause("60"), Ok(Duration::from_secs(60)));
        assert_eq!(pause("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(pause("5m"), Ok(Duration::from_secs(300)));
        for wrong in ["", "s", "0", "-1", "5x", "25h", "nan"] {
            assert!(pause(wrong).is_err(), "{wrong}");
        }
        assert_eq!(part("0.9"), Ok(0.9));
        for wrong in ["0", "90", "1.1", "nan", ""] {
            assert!(part(wrong).is_err(), "{wrong}");
        }
    }
    /// The words behind `loam` in a file of examples/keeper.
    fn words_of(file: &str) -> Vec<String> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/keeper");
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let command = match text.split_once("ExecStart=/usr/bin/loam ") {
            Some((_, rest)) => rest.lines().next().unwrap().to_owned(),
            None => {
                let (_, rest) = text.split_once("args: [").unwrap();
                rest.split_once(']').unwrap().0.replace(',', " ")
            }
        };
        let words = command.split_whitespace();
        words
            .map(|word| word.trim_matches('"').to_owned())
            .collect()
    }

    #[test]
    fn the_commands_of_the_examples_are_keepers() {
        use clap::Parser;
        for file in ["loam-trim.service", "daemonset.yaml", "sidecar.yaml"] {
            let mut words = words_of(file);
            // That group is not here.
            for word in &mut words {
                if word == "/kubepods.slice" {
                    "/".clone_into(word);
                }
            }
            let words = std::iter::once("loam".to_owned()).chain(words);
            let parsed = crate::cli::Cli::try_parse_from(words);
            let parsed = parsed.unwrap_or_else(|error| panic!("{file}: {error}"));
            let crate::cli::Verb::Trim(args) = parsed.verb else {
                panic!("{file}")
            };
            let options = args.resolve();
            assert!(
                options.every.is_some() && options.targets.is_empty(),
                "{file}"
            );
        }
    }
}
