//! Reads the heap's counters from another process, and interprets them. `formats/counters.md` is
//! the contract; `loam_format::counters` knows the layout.
//!
//! ```text
//! locate (where is the directory?) -> reader (its tables' records, copied until they settle)
//!     -> derive -> snapshot -> account (every resident byte by name)
//!                           -> view (the whole process), verdict (in a sentence),
//!                              document (all figures, for programs)
//! watch: many processes, tick by tick; live: the same for a user who looks at them
//! diagnosis: what is wrong with a process's memory; trim: its free pages go back
//! ```
//!
//! A process is not trusted: its memory determines figures, and determines control flow only within
//! bounds.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod account;
pub mod blocks;
mod derive;
pub mod diagnosis;
pub mod document;
pub mod image;
pub mod kept;
pub mod live;
pub mod locate;
mod pe;
mod published;
mod reader;
pub mod request;
mod settle;
pub mod snapshot;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
pub mod trim;
pub mod verdict;
pub mod view;
pub mod watch;

use std::sync::Arc;

use thiserror::Error;

use loam_format::counters::directory::{Directory, DirectoryError};
use loam_format::memory::{Memory, ReadError};
use loam_process::apart::Doing;
use loam_process::mappings::Mapping;
use loam_process::process::Pid;
use loam_process::remote::ProcessMemory;

pub use published::published;
pub use snapshot::Snapshot;

/// Why a heap's counters can not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CountersError {
    /// The process ended meanwhile.
    #[error("the process ended while it was being read")]
    Ended,
    /// The process holds up the look.
    #[error("it can not be read: {0}")]
    Silent(Doing),
    /// The system does not allow it.
    #[error("its memory may not be read: {0}")]
    Denied(String),
    /// The library is older than the tables of its blocks.
    #[error("its Loam, version {0}, does not show single blocks: a newer library does")]
    Blocks(String),
    /// The data is not in a form that this reader knows.
    #[error(transparent)]
    Directory(DirectoryError),
}

impl From<ReadError> for CountersError {
    fn from(error: ReadError) -> CountersError {
        match error {
            ReadError::Ended => CountersError::Ended,
            ReadError::Denied(remedy) => CountersError::Denied(remedy),
            other => CountersError::Directory(DirectoryError::Read(other)),
        }
    }
}

impl From<DirectoryError> for CountersError {
    fn from(error: DirectoryError) -> CountersError {
        match error {
            DirectoryError::Read(error @ (ReadError::Ended | ReadError::Denied(_))) => error.into(),
            other => CountersError::Directory(other),
        }
    }
}

/// Reads the counters of a process; none if it is not on Loam. If its memory may not be read, the
/// image that it publishes is used.
pub fn read(pid: Pid, mappings: &[Mapping]) -> Result<Option<Snapshot>, CountersError> {
    let found = match locate::find(pid, mappings) {
        Ok(Some(address)) => {
            read_memory(&ProcessMemory::of(pid), address, Passes::Compared).map(Some)
        }
        Ok(None) => return Ok(None),
        Err(error) => Err(error.into()),
    };
    match found {
        Err(CountersError::Denied(remedy)) => match published(pid) {
            Some(snapshot) => Ok(Some(snapshot)),
            None => Err(CountersError::Denied(format!(
                "{remedy}; or start the program with LOAM_PUBLISH=1"
            ))),
        },
        found => found,
    }
}

/// Whether the directory at the address is that of another allocator, whose figures a helper
/// publishes (`loam run --allocator`).
pub fn is_of_peer(memory: &impl Memory, address: u64) -> bool {
    Directory::read(memory, address).is_ok_and(|found| found.find(derive::PEER_TABLE).is_some())
}

/// How often all tables are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Once: this costs half as much, and consistency is not known.
    One,
    /// Up to three times, until two readings agree.
    Compared,
}

/// Reads the counters. Their directory is at the address.
pub fn read_memory(
    memory: &impl Memory,
    address: u64,
    passes: Passes,
) -> Result<Snapshot, CountersError> {
    let directory = Arc::new(Directory::read(memory, address)?);
    let mut whole = derive::Memory::default();
    let mut raw = reader::read(memory, &directory)?;
    if passes == Passes::One {
        return Ok(derive::snapshot(&raw, false, &mut whole));
    }
    for _ in 0..2 {
        let again = reader::read(memory, &directory)?;
        let is_same = again.is_same(&raw);
        raw = again;
        if is_same {
            return Ok(derive::snapshot(&raw, true, &mut whole));
        }
    }
    Ok(derive::snapshot(&raw, false, &mut whole))
}

/// Reads the same process repeatedly, at little cost: unchanged data is not read, and costly data
/// is read only as often as it is worth (`loam_process::budget`).
#[derive(Debug, Default)]
pub struct Watch {
    /// The directory, and the bytes that it was read from. They change if the process calls `exec`.
    directory: Option<(Vec<u8>, Arc<Directory>)>,
    kept: reader::Kept,
    derived: derive::Memory,
}

impl Watch {
    /// Sets whether the figures of single classes and locks are left out, for callers that show
    /// none.
    pub fn set_brief(&mut self, is_brief: bool) {
        self.derived.is_brief = is_brief;
    }

    /// Looks once at the counters. Their directory is at the address.
    pub fn look(&mut self, memory: &impl Memory, address: u64) -> Result<Snapshot, CountersError> {
        let is_known = |(known, _): &&(Vec<u8>, _)| {
            memory
                .bytes(address, known.len())
                .is_ok_and(|block| block == *known)
        };
        let directory = match self.directory.as_ref().filter(is_known) {
            Some((_, directory)) => Arc::clone(directory),
            None => {
                let block = Directory::block(memory, address)?;
                let directory = Arc::new(Directory::decode(&block)?);
                self.directory = Some((block, Arc::clone(&directory)));
                directory
            }
        };
        let raw = reader::read_again(memory, &directory, &mut self.kept)?;
        let mut snapshot = derive::snapshot(&raw, false, &mut self.derived);
        snapshot.age = self.kept.age();
        if let Some(age) = snapshot.age {
            snapshot.notes.push(format!(
                "free runs and records were read {:.1} s ago: in so large a heap that costs much, \
                 and is done more rarely",
                age.as_secs_f64()
            ));
        }
        Ok(snapshot)
    }
}
