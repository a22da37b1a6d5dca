//! The results file: everything that a run measured and everything needed to draw it again.
//!
//! The file is JSON with a version. Readers ignore unknown keys, so keys may be added. A change
//! that older readers would misunderstand raises `VERSION`. The lines that a workload printed are
//! kept word for word, so that a later version of the tool can draw more from them.
//!
//! ```text
//! Results
//!   machine, tool, options        the measuring tool, its machine and its options
//!   experiments[] -> cases[]      what was planned: arguments and allocators of each case
//!   allocators[]                  identity of each library; the absent ones with their reason
//!   trials[] -> lines[]           one process each: how it ended and what it printed
//! ```

pub mod lines;
pub mod machine;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

use machine::Machine;

/// The size in which an experiment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A small size, for a first look.
    Quick,
    /// The articles' size, or larger.
    Full,
}

impl Form {
    /// The name on the workloads' command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Form::Quick => "quick",
            Form::Full => "full",
        }
    }
}

/// The value of the first key of a results file.
pub const FORMAT: &str = "loam-lab-results";
/// Raised when an older reader would misunderstand the file.
pub const VERSION: u32 = 1;

/// A results file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// Always [`FORMAT`].
    pub format: String,
    /// At most [`VERSION`].
    pub version: u32,
    /// How far the run got.
    pub state: State,
    /// When it began, UTC.
    pub created: String,
    /// When this file was written, UTC.
    pub updated: String,
    /// The tool that measured.
    pub tool: Tool,
    /// The machine of the measurement.
    pub machine: Machine,
    /// The options of the measurement.
    pub options: Options,
    /// The planned experiments.
    pub experiments: Vec<ExperimentRecord>,
    /// The allocators of the plan, including the absent ones.
    pub allocators: Vec<AllocatorRecord>,
    /// The trials, in the order in which they ran.
    pub trials: Vec<Trial>,
}

/// How far a run got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The run goes on, or it was killed.
    Running,
    /// Every planned trial was run, successfully or not.
    Complete,
    /// Stopped by the user.
    Interrupted,
    /// An error stopped it, for instance a full disk.
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

/// The options of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Options {
    /// Size of the experiments.
    pub form: Form,
    /// Seed of the experiments.
    pub seed: u64,
    /// Trials of each allocator.
    pub rounds: u32,
    /// The longest time of a trial.
    pub timeout_seconds: u64,
}

/// An experiment of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentRecord {
    /// Its name.
    pub name: String,
    /// The program.
    pub workload: PathBuf,
    /// The program's digest, which identifies it.
    pub sha256: String,
    /// The ways in which it is run.
    pub cases: Vec<Case>,
    /// The trace that is replayed, if the experiment is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceRecord>,
    /// The experiment's origin, in a file that was merged from several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

/// The origin of an experiment in a merged file: one machine with its own allocators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The experiment's name in the original file.
    pub of: String,
    /// The machine that measured.
    pub machine: Machine,
    /// The allocators of that machine.
    pub allocators: Vec<AllocatorRecord>,
    /// The results files.
    pub files: Vec<PathBuf>,
}

/// A trace that is replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// The file.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// The file's digest, which identifies it.
    pub sha256: String,
    /// The command that was recorded.
    pub command: Vec<String>,
    /// The process, by its number in the trace.
    pub process: u32,
    /// That process's program.
    pub program: String,
    /// The label of the allocator that the process ran on.
    pub recorded_allocator: String,
    /// The measured allocator that is the same and has the same settings; none: it was not
    /// measured.
    pub same_allocator: Option<String>,
    /// Events that were replayed.
    pub events: u64,
    /// Blocks handed out, and resizes.
    pub allocations: u64,
    /// Threads in all.
    pub threads: u64,
    /// Seconds of the recording.
    pub seconds: f64,
    /// The most bytes that lived at once.
    pub peak_live_bytes: u64,
    /// Processor time of the program when it was recorded, in seconds; none if no sample has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_seconds: Option<f64>,
    /// The speed of the replay, in percent of the recording's time; 0: without pauses.
    pub speed_percent: u64,
    /// Cautions for readers of the figures, in sentences.
    pub remarks: Vec<String>,
    /// The error of the replay's memory, once it was measured.
    #[serde(default)]
    pub error: Option<ReplayErrorRecord>,
    /// The format of another program's recording that the trace was imported from. Such a recording
    /// has no touched pages, so its replay can not be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
    /// Moments that the program marked with a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<MarkRecord>,
}

/// JSON has no other bytes than text. The digest identifies the file.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// A moment that a recorded program marked with a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MarkRecord {
    /// Seconds since the program's first event.
    pub seconds: f64,
    /// Its name.
    pub name: String,
}

/// The error of a replay on the recorded allocator, measured in resident bytes of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReplayErrorRecord {
    /// Share of the recorded peak by which the replay's differs; negative: the replay has less.
    pub at_peak: f64,
    /// Mean distance of the curves, as a share of the recorded mean.
    pub on_average: f64,
    /// Points that were compared, in each trial.
    pub points: usize,
    /// Number of trials.
    pub trials: usize,
    /// Whether both errors are small enough to trust the replay.
    pub reproduces: bool,
}

/// One way of running an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The name, unique in the experiment.
    pub name: String,
    /// Arguments beside the form and the seed.
    pub arguments: Vec<String>,
    /// Labels of the allocators under which it is planned.
    pub allocators: Vec<String>,
    /// Number of rounds.
    pub rounds: u32,
}

/// One allocator of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocatorRecord {
    /// Its label in tables.
    pub label: String,
    /// Its name in the catalogue.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// Whether it was measured.
    pub measured: bool,
    /// Its version, if it is known.
    pub version: Option<String>,
    /// The shared object that was preloaded.
    pub path: Option<PathBuf>,
    /// Where it comes from.
    pub source: String,
    /// The settings under which it ran.
    pub environment: BTreeMap<String, String>,
    /// The library's digest, which identifies it.
    pub sha256: Option<String>,
    /// The library's build-id from the linker.
    pub build_id: Option<String>,
    /// Why it was not measured.
    pub reason: Option<String>,
    /// The command that would install it.
    pub remedy: Option<String>,
}

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It did its work and reported so.
    Ok,
    /// A signal ended it.
    Crashed,
    /// It took too long and was stopped.
    TimedOut,
    /// It ended with an exit code other than 0.
    Failed,
    /// Its output is not that of a workload.
    Garbage,
    /// It ran, but not on the allocator that it should have run on.
    NotPreloaded,
    /// Its result differs from that under the other allocators.
    WrongResult,
    /// It could not be started.
    NotStarted,
    /// It had nothing to measure here and gave the reason: this allocator does not offer the
    /// variant.
    Unavailable,
}

/// A trial, which is one process.
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
    /// Whether it ran first, only to fill the page cache, and is not counted.
    #[serde(default)]
    pub warm_up: bool,
    /// How it ended.
    pub status: Status,
    /// The reason, unless the status is ok.
    pub reason: Option<String>,
    /// When it began, UTC.
    pub started: String,
    /// Seconds from its start to its end, measured from outside.
    pub seconds: f64,
    /// How the preload was checked: `mapped`, `traced`, or `none` for the system's.
    pub preload: String,
    /// Share of processor time that other virtual machines took.
    pub steal: f64,
    /// Share of the machine that other processes used.
    pub other_load: f64,
    /// What touching memory took before it began; none where nothing was touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touch: Option<Touch>,
    /// Whether `steal` or `other_load` was too high, or memory was cold.
    pub noisy: bool,
    /// Length of the padding in its environment, which moves the stack.
    pub padding: u32,
    /// The end of its standard error.
    pub stderr_tail: String,
    /// Its output, line by line, word for word.
    pub lines: Vec<Box<RawValue>>,
}

/// What it took to touch as much memory as a trial needs, twice in a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Touch {
    /// The first time, in nanoseconds a page.
    pub first_ns: f64,
    /// Directly after, in nanoseconds a page.
    pub again_ns: f64,
}

impl Trial {
    /// Whether its figures count.
    pub fn is_measured(&self) -> bool {
        self.status == Status::Ok && !self.warm_up
    }

    /// Whether it is the trial of that place in the plan.
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

/// Why a text is not a results file for this reader.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// The text is something else, or damaged.
    #[error("it is no results file of `loam lab`: {0}")]
    NotResults(String),
    /// The file comes from a newer version.
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

    /// Whether `--resume` can run the trials that are missing. A replay is measured as a whole.
    pub fn can_go_on(&self) -> bool {
        self.experiments.iter().all(|one| one.trace.is_none())
    }

    /// Number of planned trials that are missing.
    pub fn missing(&self) -> usize {
        let planned: usize = self
            .experiments
            .iter()
            .flat_map(|experiment| &experiment.cases)
            .map(|case| case.allocators.len() * case.rounds as usize)
            .sum();
        planned.saturating_sub(self.trials.iter().filter(|trial| !trial.warm_up).count())
    }

    /// Trials that failed, so that their figures do not count.
    pub fn failed(&self) -> impl Iterator<Item = &Trial> {
        let is_good = |status| matches!(status, Status::Ok | Status::Unavailable);
        self.trials
            .iter()
            .filter(move |trial| !is_good(trial.status))
    }
}
