//! The results file: everything that a run measured and everything needed to draw it again.
//!
//! JSON, versioned. Readers ignore keys that they do not know, so keys may be added; a change that
//! old readers would misunderstand raises `VERSION`. The lines that a workload printed are kept
//! word for word: what a later version of the tool wants to draw from them is still there.
//!
//! ```text
//! Results
//!   machine, tool, options        who measured, where, how
//!   experiments[] -> cases[]      what was planned: arguments and allocators of each case
//!   allocators[]                  identity of each library; the absent ones with their reason
//!   trials[] -> lines[]           one process each: how it ended and what it printed
//! ```

pub mod lines;
pub mod machine;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use machine::Machine;

/// Which of its two sizes an experiment runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Small, for a first look.
    Quick,
    /// As the articles had it, or larger.
    Full,
}

impl Form {
    /// As the workloads' command line and the reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Form::Quick => "quick",
            Form::Full => "full",
        }
    }
}

/// What the first key of a results file says.
pub const FORMAT: &str = "loam-lab-results";
/// Raised when old readers would misunderstand what new writers write.
pub const VERSION: u32 = 1;

/// A results file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// Always [`FORMAT`].
    pub format: String,
    /// At most [`VERSION`].
    pub version: u32,
    /// How far the run came.
    pub state: State,
    /// When it began, UTC.
    pub created: String,
    /// When this file was written, UTC.
    pub updated: String,
    /// What measured.
    pub tool: Tool,
    /// What it measured on.
    pub machine: Machine,
    /// How it measured.
    pub options: Options,
    /// What was planned.
    pub experiments: Vec<ExperimentRecord>,
    /// Under which allocators; those that were not there too.
    pub allocators: Vec<AllocatorRecord>,
    /// What was measured, in the order in which it was.
    pub trials: Vec<Trial>,
}

/// How far a run came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Under way, or ended without a chance to say so.
    Running,
    /// Every planned trial was run, successfully or not.
    Complete,
    /// Stopped by the user.
    Interrupted,
    /// Stopped by an error, a full disk for instance.
    Stopped,
}

/// The version of the tool and of the source that it was built from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tool {
    /// Version of `loam`.
    pub version: String,
    /// Commit of the source tree that it runs from, if it runs from one.
    pub commit: Option<String>,
    /// Whether that tree had changes.
    #[serde(default)]
    pub modified: bool,
}

/// How the run was to be done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Options {
    /// Size of the experiments.
    pub form: Form,
    /// Seed of the experiments.
    pub seed: u64,
    /// Trials of each allocator.
    pub rounds: u32,
    /// Longest time for one trial.
    pub timeout_seconds: u64,
}

/// One experiment as it was planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentRecord {
    /// Its name.
    pub name: String,
    /// The program.
    pub workload: PathBuf,
    /// Which program exactly.
    pub sha256: String,
    /// The ways in which it was to be run.
    pub cases: Vec<Case>,
    /// What is replayed, if it is a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceRecord>,
    /// Whence it is, in a file that was merged of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

/// An experiment of a merged file: of one machine, with its own allocators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The experiment's name where it was measured.
    pub of: String,
    /// The machine that measured.
    pub machine: Machine,
    /// The allocators there.
    pub allocators: Vec<AllocatorRecord>,
    /// The results files.
    pub files: Vec<PathBuf>,
}

/// A trace that is replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// The file.
    pub path: PathBuf,
    /// Which file exactly.
    pub sha256: String,
    /// The command that was recorded.
    pub command: Vec<String>,
    /// The process of it, by its number in the trace.
    pub process: u32,
    /// That process's program.
    pub program: String,
    /// The label of the allocator that it ran on.
    pub recorded_allocator: String,
    /// The measured allocator that is the same, with the same settings; none: it is not here.
    pub same_allocator: Option<String>,
    /// Events that were replayed.
    pub events: u64,
    /// Blocks handed out, and resizes.
    pub allocations: u64,
    /// Threads in all.
    pub threads: u64,
    /// Seconds of the recording.
    pub seconds: f64,
    /// Bytes that lived at most.
    pub peak_live_bytes: u64,
    /// Percent of the recording's time at which it is replayed; 0: without pauses.
    pub speed_percent: u64,
    /// What a reader must know before believing figures, in sentences.
    pub remarks: Vec<String>,
    /// How far the replay's memory is from the program's, once it was measured.
    #[serde(default)]
    pub error: Option<ReplayErrorRecord>,
    /// The format of another program's recording that the trace was imported from. Such a recording has no touched
    /// pages, so its replay can not be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
    /// Moments that the program named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<MarkRecord>,
}

/// A moment that a recorded program named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MarkRecord {
    /// Since the program's first event.
    pub seconds: f64,
    /// Its name.
    pub name: String,
}

/// How far a replay on the recorded allocator is from what was recorded: resident bytes of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReplayErrorRecord {
    /// Share of the recorded peak by which the replay's differs; negative: the replay has less.
    pub at_peak: f64,
    /// Mean distance of the curves, as a share of the recorded mean.
    pub on_average: f64,
    /// Points that were compared, in each trial.
    pub points: usize,
    /// Trials.
    pub trials: usize,
    /// Whether both are small enough to believe the replay.
    pub reproduces: bool,
}

/// One way of running an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Tells the cases of an experiment apart.
    pub name: String,
    /// Arguments beside the form and the seed.
    pub arguments: Vec<String>,
    /// Labels of the allocators under which it was to run.
    pub allocators: Vec<String>,
    /// In how many rounds.
    pub rounds: u32,
}

/// One allocator of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocatorRecord {
    /// What tables call it.
    pub label: String,
    /// Its name in the catalogue.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// Whether it was measured.
    pub measured: bool,
    /// Its version, as far as it could be told.
    pub version: Option<String>,
    /// The shared object that was preloaded.
    pub path: Option<PathBuf>,
    /// Where it comes from.
    pub source: String,
    /// The settings under which it ran.
    pub environment: BTreeMap<String, String>,
    /// Which library exactly.
    pub sha256: Option<String>,
    /// The linker's identity of it.
    pub build_id: Option<String>,
    /// Why it was not measured.
    pub reason: Option<String>,
    /// What would bring it.
    pub remedy: Option<String>,
}

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It did its work and said so.
    Ok,
    /// A signal ended it.
    Crashed,
    /// It took too long and was stopped.
    TimedOut,
    /// It ended with an exit code other than 0.
    Failed,
    /// What it printed is not what a workload prints.
    Garbage,
    /// It ran, but not on the allocator that it should have run on.
    NotPreloaded,
    /// It computed something else than under the other allocators.
    WrongResult,
    /// It could not be started.
    NotStarted,
    /// It had nothing to measure here and said why: a variant that this allocator does not offer.
    Unavailable,
}

/// One process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trial {
    /// The experiment's name.
    pub experiment: String,
    /// The case's name.
    pub case: String,
    /// The allocator's label.
    pub allocator: String,
    /// Counted from 0.
    pub round: u32,
    /// Its place among all trials, from 0.
    pub position: u32,
    /// Run first to fill the page cache, and not counted.
    #[serde(default)]
    pub warm_up: bool,
    /// How it ended.
    pub status: Status,
    /// Why, unless it is ok.
    pub reason: Option<String>,
    /// When it began, UTC.
    pub started: String,
    /// From start to end as seen from outside.
    pub seconds: f64,
    /// How the preload was checked: `mapped`, `traced`, or `none` for the system's.
    pub preload: String,
    /// Share of processor time that other virtual machines took.
    pub steal: f64,
    /// Share of the machine that other processes used.
    pub other_load: f64,
    /// Whether either was too high.
    pub noisy: bool,
    /// Length of the padding in its environment; moves the stack.
    pub padding: u32,
    /// The last of what it wrote to standard error.
    pub stderr_tail: String,
    /// What it printed, line by line, word for word.
    pub lines: Vec<Box<RawValue>>,
}

impl Trial {
    /// Whether its figures count.
    pub fn is_measured(&self) -> bool {
        self.status == Status::Ok && !self.warm_up
    }

    /// Whether it belongs to that place in the plan.
    pub fn is_at(&self, experiment: &str, case: &str, allocator: &str, round: u32) -> bool {
        !self.warm_up
            && self.round == round
            && self.experiment == experiment
            && self.case == case
            && self.allocator == allocator
    }

    /// `lfh under jemalloc, round 2`
    pub fn describe(&self) -> String {
        let case = if self.case == "malloc" {
            String::new()
        } else {
            format!(" {}", self.case)
        };
        let round = if self.warm_up {
            "warm-up".to_owned()
        } else {
            format!("round {}", self.round + 1)
        };
        format!(
            "{}{case} under {}, {round}",
            self.experiment, self.allocator
        )
    }
}

/// Why a text is no results file that this reader knows.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// It is something else, or damaged.
    #[error("it is no results file of `loam lab`: {0}")]
    NotResults(String),
    /// It is from the future.
    #[error("it has format version {0}, and this reader understands up to {VERSION}")]
    TooNew(u64),
}

impl Results {
    /// Reads the text of a results file.
    pub fn parse(text: &str) -> Result<Results, Unfit> {
        #[derive(Deserialize)]
        struct Head {
            format: Option<String>,
            version: Option<u64>,
        }
        let not_results = |error: serde_json::Error| Unfit::NotResults(error.to_string());
        let head: Head = serde_json::from_str(text).map_err(not_results)?;
        if head.format.as_deref() != Some(FORMAT) {
            let reason = format!("its \"format\" is not \"{FORMAT}\"");
            return Err(Unfit::NotResults(reason));
        }
        match head.version {
            Some(version) if version > u64::from(VERSION) => Err(Unfit::TooNew(version)),
            Some(_) => serde_json::from_str(text).map_err(not_results),
            None => Err(Unfit::NotResults("it has no \"version\"".to_owned())),
        }
    }

    /// Trials that were planned and are not there.
    pub fn missing(&self) -> usize {
        let planned: usize = self
            .experiments
            .iter()
            .flat_map(|experiment| &experiment.cases)
            .map(|case| case.allocators.len() * case.rounds as usize)
            .sum();
        planned.saturating_sub(self.trials.iter().filter(|trial| !trial.warm_up).count())
    }

    /// Trials whose figures do not count because they went wrong.
    pub fn failed(&self) -> impl Iterator<Item = &Trial> {
        let is_good = |status| matches!(status, Status::Ok | Status::Unavailable);
        self.trials
            .iter()
            .filter(move |trial| !is_good(trial.status))
    }
}
