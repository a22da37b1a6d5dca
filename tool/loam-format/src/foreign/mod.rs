//! Reads recordings of other programs as traces.
//!
//! ```text
//! impl BufRead -> Source (one for each format: calls) -> Begun (streams, threads, times)
//!              -> trace::Writer
//! ```
//!
//! A `Source` reads from start to end. It keeps what its format requires: at most the live blocks
//! and the kinds of blocks that occurred. Data that a format lacks is not made up: `About::lost`
//! lists it. A format without times gets `STEP` nanoseconds for each call, so that events stay in
//! order.

mod calls;
mod heaptrack;
mod import;
mod lines;
mod logalloc;
mod memory_replay;
mod mtrace;
mod places;

#[cfg(test)]
mod tests;

use std::io::{self, BufRead};

use thiserror::Error;

use crate::trace::{AllocFamily, Frame, FreeFamily, Module, WriteError};

pub use import::{Begun, Imported, STEP};

/// This many bytes of a file suffice to recognise its format.
pub const SNIFFED: usize = 256;

/// A format that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// heaptrack's data file, as its recorder writes it (`--raw`) or interpreted.
    Heaptrack,
    /// The log of Firefox's logalloc, or what `logalloc_munge.py` makes of it.
    Logalloc,
    /// The text of Android's `record_allocs`, as `memory_replay` reads it.
    MemoryReplay,
    /// The binary trace of glibc-malloc-trace-utils.
    Mtrace,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] = [
        Format::Heaptrack,
        Format::Logalloc,
        Format::MemoryReplay,
        Format::Mtrace,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Heaptrack => "heaptrack",
            Format::Logalloc => "logalloc",
            Format::MemoryReplay => "memory-replay",
            Format::Mtrace => "mtrace",
        }
    }

    /// The format of a file that begins with these uncompressed bytes.
    pub fn of_start(start: &[u8]) -> Option<Format> {
        Format::ALL.into_iter().find(|format| match format {
            Format::Heaptrack => heaptrack::is_start(start),
            Format::Logalloc => logalloc::is_start(start),
            Format::MemoryReplay => memory_replay::is_start(start),
            Format::Mtrace => mtrace::is_start(start),
        })
    }

    /// A reader of the format.
    pub fn open<'a>(self, input: impl BufRead + 'a) -> Box<dyn Source + 'a> {
        match self {
            Format::Heaptrack => Box::new(heaptrack::Heaptrack::new(input)),
            Format::Logalloc => Box::new(logalloc::Logalloc::new(input)),
            Format::MemoryReplay => Box::new(memory_replay::MemoryReplay::new(input)),
            Format::Mtrace => Box::new(mtrace::Mtrace::new(input)),
        }
    }
}

/// A recording's description of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The format and its version, in words.
    pub format: String,
    /// The recorded command.
    pub command: Vec<String>,
    /// Bytes of a page; 0: not known.
    pub page_size: u64,
    /// Whether it has the stacks of the blocks.
    pub has_stacks: bool,
    /// The data that the recording lacks, as parts of a list.
    pub lost: Vec<&'static str>,
}

/// A call of the recorded program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The process, as the recording numbers it.
    pub process: u64,
    /// The thread, as the recording numbers it.
    pub thread: u64,
    /// Nanoseconds since the recording's own zero.
    pub time: Option<u64>,
    /// The innermost frame of the stack that allocated the block; none: not known.
    pub frame: Option<u64>,
    /// The function that was called.
    pub what: What,
}

/// The effect of a call. Addresses are those of the recording, or made up if it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A block was handed out; address 0: the request failed.
    Allocate {
        /// The function.
        family: AllocFamily,
        /// Its address.
        address: u64,
        /// Bytes.
        size: u64,
        /// The requested alignment; 0 unless the family is an aligned one.
        alignment: u64,
    },
    /// A block was freed.
    Free {
        /// The function.
        family: FreeFamily,
        /// The block.
        address: u64,
    },
    /// A block was resized; `to` 0: the request failed, or freed the block if `size` is 0.
    Resize {
        /// The block.
        from: u64,
        /// Its new address.
        to: u64,
        /// Bytes.
        size: u64,
    },
    /// The thread ended.
    ThreadEnds,
}

/// A reader of one format.
pub trait Source {
    /// The next call; none: the recording ends.
    fn next(&mut self) -> Result<Option<Call>, ForeignError>;

    /// The frames since the last call of this function. A caller comes before its callees.
    fn frames(&mut self) -> Vec<Frame> {
        Vec::new()
    }

    /// The modules that the frames lie in.
    fn modules(&self) -> Vec<Module> {
        Vec::new()
    }

    /// The recording's description of itself, from the lines up to the last call that was read.
    fn about(&self) -> About;
}

/// A place in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A line, counted from 1.
    Line(u64),
    /// A byte, counted from 0.
    Byte(u64),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Line(line) => write!(f, "line {line}"),
            At::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Why a recording can not be imported.
#[derive(Debug, Error)]
pub enum ForeignError {
    /// A part of it contradicts its format.
    #[error("{at}: {what}; {remedy}")]
    Malformed {
        /// The place.
        at: At,
        /// What is wrong.
        what: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// It can not be read, or not be decompressed.
    #[error("{at}: {source}; the file is damaged or cut, so copy or record it again")]
    Read {
        /// The place up to which it could be read.
        at: At,
        /// The reason.
        source: io::Error,
    },
    /// It has no calls.
    #[error(
        "it has no allocation: nothing was recorded, or the file was cut; record the program again"
    )]
    Empty,
    /// The trace can not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The call `free`, which is the only freeing function in some formats.
fn freed(address: u64) -> What {
    What::Free {
        family: FreeFamily::Free,
        address,
    }
}

/// A call of a family without alignment.
fn plain(family: AllocFamily, size: u64, address: u64) -> What {
    What::Allocate {
        family,
        address,
        size,
        alignment: 0,
    }
}
