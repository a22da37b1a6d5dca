//! What a recording does beside its command line.
//!
//! ```text
//! rings -> drain -+-> board: notes, figures -> write (trace)
//! /proc -> sample -'     |
//!                        +-> stacks (unwound), describe (processes, modules), unrecorded
//! start, attach, target: how it begins; recording, ends: until it ends
//!
//! probed, growth -> paths, stays -> written (trace); grower: growth without a trace
//! ```
//!
//! Whatever goes wrong here, the recorded program goes on: its recorder switches itself off.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod attach;
pub mod board;
pub mod cost;
pub mod describe;
pub mod drain;
pub mod ends;
pub mod grower;
pub mod growth;
pub mod paths;
pub mod probed;
pub mod recording;
pub mod sample;
mod stacks;
pub mod start;
pub mod stays;
pub mod target;
pub mod unrecorded;
pub mod write;
pub mod written;
