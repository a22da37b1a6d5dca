//! What a recording does beside its command line.
//!
//! ```text
//! rings -> drain -+-> board: notes, figures -> write (trace)
//! /proc -> sample -'     |
//!                        +-> stacks (unwound), describe (processes, modules), unrecorded
//! probes, growth -> paths, stays -> written (trace)
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
pub mod paths;
pub mod sample;
mod stacks;
pub mod stays;
pub mod unrecorded;
pub mod write;
pub mod written;
