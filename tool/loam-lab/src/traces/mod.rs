//! What is in a trace: figures of a process (`summary`), what is wrong with the file (`findings`), its blocks as rows
//! (`blocks`), live bytes over time (`live`) and at each look (`samples`), the program's own marks (`marks`), whose memory
//! it is (`stacks`), how long they live (`lives`), what of their sizes stands out (`shapes`). Each is one walk; memory is
//! that of the live blocks.

pub mod blocks;
pub mod findings;
pub mod live;
pub mod lives;
pub mod marks;
pub mod samples;
pub mod shapes;
pub mod stacks;
pub mod summary;

use crate::measure::Stop;

/// Nobody asks to stop: signals end the process at once.
#[derive(Debug, Clone, Copy)]
pub struct Never;

impl Stop for Never {
    fn signal(&self) -> Option<u8> {
        None
    }
}
