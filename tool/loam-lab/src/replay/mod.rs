//! Makes a replayer's input from a trace, in passes over the file. No pass keeps more than the live
//! blocks:
//!
//! ```text
//! survey    which processes there are, how large, the samples of the one that is chosen, pages of
//!           live blocks
//! touched   how many pages of each large block were resident in its life; a side file, by number
//!           of the block
//! which     the process, the speed, and what the results say of them
//! prepare   operations, thread by thread, into the prepared file that native/replayer reads
//! ```
//!
//! `room` ends a pass whose live blocks do not fit into memory. `error` compares the resident
//! memory of a replay on the recorded allocator with that of the program.
//!
//! A child of `fork` that goes on as the same program has its ancestors' blocks. Its replay
//! therefore begins with its ancestors' events up to the fork, and then has its own (`lineage`).

mod error;
mod learn;
pub mod lineage;
pub mod lives;
mod points;
pub mod prepare;
mod program;
pub mod room;
mod slots;
mod streams;
pub mod survey;
mod touched;
mod which;

pub use error::{note as note_errors, of_run, RunError, LARGEST as LARGEST_ERROR};
pub use prepare::{prepare, Prepared, Wishes};
pub use survey::{survey, survey_of_all, ProcessSurvey, Survey};
pub use which::{Speed, Which};

use std::io;
use std::path::PathBuf;

use loam_format::results::Results;
use loam_format::trace::ReadError;
use thiserror::Error;

/// Notes the error of the replay; false if it is known and too large, or if the trace can not have
/// one.
pub fn judge(results: &mut Results) -> bool {
    note_errors(results);
    let mut traces = results
        .experiments
        .iter()
        .filter_map(|one| one.trace.as_ref());
    traces.all(|trace| trace.imported.is_none() && trace.error.is_none_or(|error| error.reproduces))
}

/// Why a trace can not be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The file is not a trace, or it can not be read.
    #[error("{path}: {source}")]
    Read {
        /// The trace.
        path: PathBuf,
        /// The reason.
        source: ReadError,
    },
    /// The name does not belong to a file that holds a trace.
    #[error("{path}: {what}; {remedy}")]
    NoFile {
        /// The name.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// What the user can do.
        remedy: &'static str,
    },
    /// The trace can not be opened, or a file of the replay can not be written.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The trace has a sample of the blocks only.
    #[error(
        "{path} has only a sample of the program's blocks ({sampled}), and this needs all of them: \
         record the program with `loam record -- COMMAND`; `loam trace info` and `loam trace \
         export` show what the sample says"
    )]
    Sampled {
        /// The trace.
        path: PathBuf,
        /// What its blocks are.
        sampled: String,
    },
    /// The trace has no events.
    #[error(
        "{0} has no events of a heap: the program called neither malloc nor free, or it has a \
         malloc of its own; `loam check` says which"
    )]
    NoEvents(PathBuf),
    /// The events of the trace can not be read.
    #[error("{path}: no event can be read: {why}; copy the file again, or record again")]
    Unreadable {
        /// The trace.
        path: PathBuf,
        /// The first damage.
        why: String,
    },
    /// The trace has no such process.
    #[error("{path} has no process {wanted}; it has {known} (`loam trace info` lists them)")]
    NoProcess {
        /// The trace.
        path: PathBuf,
        /// The process that the user asked for.
        wanted: u32,
        /// The processes of the trace.
        known: String,
    },
    /// It says that more blocks live at once than fit into memory.
    #[error(
        "{path}: more than {most} blocks and stacks would have to be held at once, and this \
         process may not have the memory for them; if the trace is honest, read it on a machine \
         with more"
    )]
    TooMuch {
        /// The trace.
        path: PathBuf,
        /// How many may be held.
        most: u64,
    },
    /// The user asked to stop.
    #[error("interrupted while the trace was prepared")]
    Interrupted(u8),
    /// The page sizes differ, and touched memory is counted in pages.
    #[error(
        "{path} was recorded with pages of {recorded} bytes and this machine has pages of {here}: \
         what its blocks touched can not be repeated; replay it on a machine of its kind \
         ({architecture})"
    )]
    PageSize {
        /// The trace.
        path: PathBuf,
        /// Page size of the recorded machine.
        recorded: u64,
        /// Page size of this machine.
        here: u64,
        /// The recorded machine's.
        architecture: String,
    },
}
