//! `loam top`: its arguments.

use std::time::Duration;

use clap::{Args, ValueEnum};
use regex_lite::Regex;

use loam_counters::live::state;
use loam_format::plain;
use loam_process::choose::Target;

/// Watch the heaps of running programs.
///
/// Without a PID or NAME every process on Loam that you may look into is shown; with some, those
/// are, on Loam or not. Enter goes deeper: from a process to where its memory is, its heaps, their
/// size classes and locks; Esc goes back; `?` lists the keys. Nothing is stopped or slowed down.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Processes to show, by number or by name in full
    #[arg(value_name = "PID|NAME")]
    targets: Vec<Target>,

    /// Seconds between two looks, from 0.1
    ///
    /// Watching takes little of one core at any interval: in a large heap the records of free pages
    /// are looked at as rarely as keeps that under 0.1 %, but every 10 seconds, and where that
    /// shows, it says how old they are. Who runs, and under which name, is looked up once a second.
    #[arg(short = 'd', long, value_name = "S", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// The column to sort by
    #[arg(short, long, value_enum, default_value_t = SortKey::Resident)]
    sort: SortKey,

    /// The smallest first; names and numbers from the end
    #[arg(short, long)]
    reverse: bool,

    /// Only processes whose name this regular expression matches somewhere, in any case
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<Regex>,

    /// Print plain text, one table a look, and take no keys: for files and pipes
    #[arg(short, long)]
    batch: bool,

    /// A batch of JSON, one line a process and look, with plain bytes and seconds
    #[arg(long)]
    json: bool,

    /// A batch of comma-separated values, the same fields; their names are the first line
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Stop after N looks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    looks: Option<u64>,
}

/// Columns of processes that can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SortKey {
    /// Resident memory
    Resident,
    /// Live bytes
    Live,
    /// Free bytes of what is backed: fragmentation
    Free,
    /// Growth of live bytes
    Growth,
    /// Lock acquisitions that had to wait
    Waits,
    /// Number
    Pid,
    /// Name
    Name,
}

impl From<SortKey> for state::SortKey {
    fn from(key: SortKey) -> state::SortKey {
        match key {
            SortKey::Resident => state::SortKey::Resident,
            SortKey::Live => state::SortKey::Live,
            SortKey::Free => state::SortKey::Free,
            SortKey::Growth => state::SortKey::Growth,
            SortKey::Waits => state::SortKey::Waits,
            SortKey::Pid => state::SortKey::Pid,
            SortKey::Name => state::SortKey::Name,
        }
    }
}

/// The form of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Tables for people.
    Table,
    /// A JSON document in each line.
    Json,
    /// Comma-separated values.
    Csv,
}

/// The resolved arguments of `top`.
#[derive(Debug)]
pub struct TopOptions {
    /// The processes to show; empty: all processes on Loam.
    pub targets: Vec<Target>,
    /// Time between two looks.
    pub interval: Duration,
    /// The order at first.
    pub sort: state::SortKey,
    /// Whether the order is reversed.
    pub reverse: bool,
    /// A pattern for the names that are shown; empty: all.
    pub pattern: String,
    /// The form of the batch; none: the view on a terminal.
    pub batch: Option<Form>,
    /// The number of looks.
    pub looks: Option<u64>,
}

impl TopArgs {
    /// Resolves the arguments into plain options.
    pub fn resolve(self) -> TopOptions {
        TopOptions {
            targets: self.targets,
            interval: self.interval,
            sort: self.sort.into(),
            reverse: self.reverse,
            pattern: self
                .pattern
                .map_or_else(String::new, |pattern| pattern.as_str().to_owned()),
            batch: match (self.json, self.csv, self.batch) {
                (true, ..) => Some(Form::Json),
                (_, true, _) => Some(Form::Csv),
                (.., true) => Some(Form::Table),
                _ => None,
            },
            looks: self.looks,
        }
    }
}

/// Seconds from a tenth, so that looking costs little, to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text
        .parse()
        .map_err(|_| format!("{} is not a number of seconds", plain::line(text)))?;
    if (0.1..=86400.0).contains(&value) {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err("from 0.1 to 86400 seconds".to_owned())
    }
}
