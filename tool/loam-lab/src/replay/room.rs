//! How many blocks and stacks of a trace a pass may hold at once.
//!
//! A file of some megabytes can say that its program has more live blocks than any machine has
//! memory for. Each pass holds the live blocks, so it asks here after each batch of events, and
//! ends with an error before memory does.

use std::path::Path;

use loam_process::container::Limits;
use loam_process::process::Pid;
use procfs::Current;

use super::ReplayError;

/// The most bytes that a held block or stack takes, in a table that has just grown and in its copy
/// from before.
const EACH: u64 = 256;

/// What the tool itself takes, its files and its stacks.
const OWN: u64 = 64 << 20;

/// How many may be held.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    most: u64,
}

impl Room {
    /// For half of the memory that this process may have: the pass keeps figures of its own beside
    /// the blocks.
    pub fn of_this_process() -> Room {
        let machine = procfs::Meminfo::current().map_or(u64::MAX, |info| info.mem_total);
        let group = Limits::of(std::process::id() as Pid)
            .memory
            .unwrap_or(u64::MAX);
        let addresses = rustix::process::getrlimit(rustix::process::Resource::As);
        let bytes = machine
            .min(group)
            .min(addresses.current.unwrap_or(u64::MAX));
        Room {
            most: bytes.saturating_sub(OWN) / 2 / EACH,
        }
    }

    /// Fails if more than that are held.
    pub fn holds(self, held: u64, path: &Path) -> Result<(), ReplayError> {
        match held <= self.most {
            true => Ok(()),
            false => Err(ReplayError::TooMuch {
                path: path.to_owned(),
                most: self.most,
            }),
        }
    }
}
