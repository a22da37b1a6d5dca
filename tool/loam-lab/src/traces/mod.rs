//! The contents of a trace.
//!
//! ```text
//! summary    figures of a process
//! findings   what is wrong with the file
//! blocks     the blocks as rows
//! live       live bytes over time
//! samples    live bytes at each look
//! marks      the program's own marks
//! stacks     the call stacks of sampled blocks
//! lives      how long blocks live
//! shapes     what is unusual in the sizes of blocks
//! ```
//!
//! Each of them is one walk and needs memory for the live blocks only.

pub mod blocks;
pub mod findings;
pub mod live;
pub mod lives;
pub mod marks;
pub mod paths;
pub mod samples;
pub mod shapes;
pub mod stacks;
pub mod summary;

use crate::measure::Stop;

/// Never asks to stop: signals end the process at once.
#[derive(Debug, Clone, Copy)]
pub struct Never;

impl Stop for Never {
    fn signal(&self) -> Option<u8> {
        None
    }
}
