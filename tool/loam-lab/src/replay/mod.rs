//! From a trace to what the replayer runs. Passes over the file, none of which keeps more than the live blocks:
//!
//! ```text
//! survey    which processes there are, how large, the samples of the one that is chosen, pages of live blocks
//! touched   how many pages of each large block were resident in its life; a side file, by number of the block
//! prepare   operations, thread by thread, into the prepared file that native/replayer reads
//! ```
//!
//! `error` compares what a replay on the recorded allocator has resident with what the program had.
//!
//! A child of `fork` that goes on as the same program has its ancestors' blocks: its replay is theirs up to the fork,
//! and then its own (`lineage`).

mod error;
mod learn;
pub mod lineage;
pub mod lives;
mod points;
pub mod prepare;
mod program;
mod slots;
mod streams;
pub mod survey;
mod touched;

pub use error::{note as note_errors, of_run, RunError, LARGEST as LARGEST_ERROR};
pub use prepare::{prepare, Prepared, Wishes};
pub use survey::{survey, ProcessSurvey, Survey};

use std::io;
use std::path::PathBuf;

use loam_format::trace::ReadError;
use thiserror::Error;

/// Why a trace can not be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// Not a trace that can be read.
    #[error("{path}: {source}")]
    Read {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
    /// What has the name is no file that holds a trace.
    #[error("{path}: {what}; {remedy}")]
    NoFile {
        /// The name.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The file can not be opened, or a file of the replay not be written.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing happened in it.
    #[error(
        "{0} has no events of a heap: the program called neither malloc nor free, or it has a malloc of its own; \
         `loam check` says which"
    )]
    NoEvents(PathBuf),
    /// What happened in it can not be read.
    #[error("{path}: no event can be read: {why}; copy the file again, or record again")]
    Unreadable {
        /// The trace.
        path: PathBuf,
        /// What is damaged first.
        why: String,
    },
    /// No such process.
    #[error("{path} has no process {wanted}; it has {known} (`loam trace info` lists them)")]
    NoProcess {
        /// The trace.
        path: PathBuf,
        /// What was asked for.
        wanted: u32,
        /// What there is.
        known: String,
    },
    /// The user asked to stop.
    #[error("interrupted while the trace was prepared")]
    Interrupted(u8),
    /// Touched pages are counted in pages.
    #[error(
        "{path} was recorded with pages of {recorded} bytes and this machine has pages of {here}: what its blocks \
         touched can not be repeated; replay it on a machine of its kind ({architecture})"
    )]
    PageSize {
        /// The trace.
        path: PathBuf,
        /// Of the recorded machine.
        recorded: u64,
        /// Of this one.
        here: u64,
        /// The recorded machine's.
        architecture: String,
    },
}
