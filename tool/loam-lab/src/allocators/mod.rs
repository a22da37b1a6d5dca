//! The allocators that can be measured: their names, files and versions.
//!
//! ```text
//! catalogue (names we know) -> discover (what is on this machine) -> spec (what the user picked)
//! ```
//!
//! An allocator is a shared object that is preloaded, with environment settings if wanted; `system`
//! preloads nothing. An absent allocator is listed with the reason and the remedy, never left out.

pub mod catalogue;
pub mod discover;
mod peers;
pub mod spec;
mod version;
pub mod wine;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

/// Whether an allocator can be used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Present and usable.
    Found,
    /// Not on this machine.
    Absent,
    /// Present but not usable, for instance built for another architecture.
    Unusable,
}

/// One allocator, present or not.
#[derive(Debug, Clone, Serialize)]
pub struct Allocator {
    /// What `--allocators` calls it.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// Whether it can be used.
    pub status: Status,
    /// Its version, if it is known.
    pub version: Option<String>,
    /// The shared object; none for the system's.
    pub path: Option<PathBuf>,
    /// Where it comes from.
    pub source: String,
    /// Settings that it needs to work at all as a preload.
    pub environment: BTreeMap<String, String>,
    /// Settings that trade speed for memory, for `NAME:memory`.
    pub memory_environment: BTreeMap<String, String>,
    /// Why it is absent or unusable.
    pub reason: Option<String>,
    /// The command that would install it.
    pub remedy: Option<String>,
}
