//! Which blocks keep sparse pages.
//!
//! ```text
//!  a trace -> timeline (moments) -> what lives at one of them --.
//!                                                               +--> pages -> blame -> rows
//!  a process on glibc's malloc, walked (loam_process::glibc) ---'
//! ```
//!
//! `cells` makes a map of the same pages, at many moments; `map` is its page.
//!
//! Rows sum to the free bytes of all pages that blocks keep, exactly: `Pins::total()`.

pub mod blame;
pub mod cells;
mod map;
pub mod pages;
mod process;
pub mod target;
pub mod timeline;
mod trace;

use std::path::PathBuf;

use loam_format::units::Unit;
use serde::Serialize;

use crate::traces::stacks::Key;
use crate::traces::summary::largest;
use timeline::{Moment, Sums};

pub use map::{looks_like_map, map_of_process, map_of_trace};
pub use process::{of_process, ProcessPins};
pub use trace::of_trace;

/// The property by which blocks are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The call stack that allocated them; known for a sample of blocks.
    Stack,
    /// Their size.
    Size,
    /// How long they have lived.
    Age,
    /// The thread that allocated them.
    Thread,
}

/// The moment to look at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// When sparse pages had most free bytes.
    Worst,
    /// When most bytes lived.
    Peak,
    /// Behind the last event.
    End,
    /// This many seconds after the first event.
    At(f64),
}

/// A group of blocks, and its blame.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What they have in common; empty for stacks.
    pub name: String,
    /// The functions of the program that led to them, the outermost first; none if blocks are not
    /// grouped by stacks.
    pub functions: Vec<String>,
    /// The stacks of the trace that have these functions.
    #[serde(skip)]
    pub(crate) keys: Vec<Key>,
    /// Free bytes of sparse pages. Those of a page are divided among its blocks.
    pub shared_bytes: u64,
    /// Twice the standard error of that; 0 where it is exact.
    pub error_bytes: u64,
    /// Free bytes of the sparse pages that only this group's blocks keep.
    pub sole_bytes: u64,
    /// Blocks on sparse pages.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub live_bytes: u64,
    /// Number of chosen blocks, if groups are estimated from a sample.
    pub samples: Option<u64>,
    /// Bytes of the smallest block.
    pub smallest: u64,
    /// Bytes of the largest block.
    pub largest: u64,
    /// Nanoseconds that they have lived, on average.
    pub age: Option<u64>,
}

/// The groups of blocks that keep pages.
#[derive(Debug, Serialize)]
pub struct Pins {
    /// The property by which blocks are grouped.
    pub by: By,
    /// The pages.
    pub sums: Sums,
    /// The groups, those with the most blame first.
    pub rows: Vec<Row>,
    /// Blame of blocks with an unknown group.
    pub unknown_bytes: u64,
    /// Free bytes of pages that are not sparse: headers, roundings, holes that will serve again.
    pub dense_bytes: u64,
    /// Free bytes of the sparse pages with several blocks, some of them with an unknown group. One
    /// group may be solely to blame for such a page.
    pub sole_unknown_bytes: u64,
}

impl Pins {
    /// The sum of all rows: the bytes of the pages that blocks keep, without the bytes of the
    /// blocks.
    pub fn total(&self) -> u64 {
        let rows: u64 = self.rows.iter().map(|row| row.shared_bytes).sum();
        rows + self.unknown_bytes + self.dense_bytes
    }
}

/// Why a moment of a trace can not be shown.
#[derive(Debug, thiserror::Error)]
pub enum PinsError {
    /// The trace's own reason.
    #[error(transparent)]
    Replay(#[from] crate::replay::ReplayError),
    /// The trace has no stacks.
    #[error(
        "{path} has no stacks: record the program with `loam record --stacks=16K`, or tell blocks \
         apart with `--by size`, `--by age` or `--by thread`"
    )]
    NoStacks {
        /// The trace.
        path: PathBuf,
    },
}

/// A moment of a trace, and the groups of blocks that kept its pages.
#[derive(Debug, Serialize)]
pub struct TracePins {
    /// Its stream.
    pub process: u32,
    /// The moment.
    pub moment: Moment,
    /// Nanoseconds of the first and the last event.
    pub span: (u64, u64),
    /// The groups of blocks that kept its pages.
    #[serde(flatten)]
    pub pins: Pins,
    /// Resident bytes of the heap at the nearest look from outside, and the time of that look; none
    /// without such a look.
    pub resident_heap: Option<(u64, u64)>,
    /// Average bytes between two blocks with a known stack.
    pub stack_bytes: Option<u64>,
}

/// The name of a class of sizes.
fn name_of_size(class: usize) -> String {
    let to = largest(class);
    match class.checked_sub(1).map(largest) {
        None => format!("up to {}", Unit::Bytes.show(to as f64)),
        Some(below) if to <= 1_024 => format!("{} to {to} B", below + 1),
        Some(below) => format!(
            "{} to {}",
            Unit::Bytes.show(below as f64),
            Unit::Bytes.show(to as f64)
        ),
    }
}

/// The class of an age: one for each decade, from 1 us on.
pub fn age_class(nanoseconds: u64) -> usize {
    (nanoseconds / 1_000)
        .checked_ilog10()
        .map_or(0, |decade| decade as usize + 1)
}

/// The name of a class of ages.
pub fn name_of_age(class: usize) -> String {
    let from = |class: usize| Unit::Nanoseconds.show(1_000.0 * 10f64.powi(class as i32 - 1));
    match class {
        0 => format!("younger than {}", from(1)),
        class => format!("{} to {}", from(class), from(class + 1)),
    }
}
