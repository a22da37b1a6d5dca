//! The contents of a trace.
//!
//! ```text
//! contents   all of a process, as `loam trace info` has it
//! summary    figures of a process
//! findings   what is wrong with the file
//! blocks     the blocks as rows
//! live       live bytes over time
//! samples    live bytes at each look
//! marks      the program's own marks
//! stacks     the call stacks of sampled blocks; of: which of their bytes count
//! lives      how long blocks live
//! paths      the stacks without allocators and libraries, by functions
//! diff       by how much the paths of two traces differ
//! shapes     what is unusual in the sizes of blocks
//! ```
//!
//! Each of them is one walk and needs memory for the live blocks only. `import` makes a trace of
//! another tool's recording; `file` is what is written.

pub mod blocks;
pub mod contents;
pub mod diff;
pub mod file;
pub mod findings;
pub mod import;
pub mod live;
pub mod lives;
pub mod marks;
pub mod of;
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
