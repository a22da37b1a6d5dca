//! The data that Loam, its recorder and its tool exchange, and the way in which figures are
//! written.
//!
//! ```text
//! counters   what the heap shows in memory and in images       formats/counters.md
//! results    the lab's file and the lines that workloads print
//! trace      what a program asked of its heap               formats/trace.md
//! foreign    recordings of other programs, which become traces
//! memory     where bytes come from, as far as a format cares
//! plain, units, words   texts that may meet a terminal, figures, small pieces of English
//! ```
//!
//! Nothing here reads a file, asks the system or prints: functions take bytes and return their
//! meaning. So each format can be read on any host, and be tested with hostile bytes without a
//! process or a file.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// The version of Loam, as in "0.1.0": that of `include/loam/loam.h`.
pub const VERSION: &str = env!("LOAM_VERSION");

pub mod bytes;
pub mod counters;
pub mod foreign;
pub mod memory;
pub mod plain;
pub mod results;
pub mod trace;
pub mod units;
pub mod words;
