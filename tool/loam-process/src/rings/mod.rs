//! The rings of recorded processes, drained from outside.
//!
//! ```text
//! Session (a folder, its page) -> Image (one file, one process image)
//!     pass: heads S1 -> units -> heads S2 -> units -> merge by stamp up to T -> Batch
//! Batch -> Blocks (where they lie), the trace's encoder
//! ```
//!
//! The interface is `native/recorder/ring.h`, which also proves the order: the events of a pass
//! lack no event on which they depend. Files are read with `pread`, so a process that writes
//! nonsense spoils only its own trace. The unread part of a ring is the only memory that its writer
//! can fill.

mod batch;
mod blocks;
mod clock;
mod image;
mod layout;
mod merge;
mod namespaces;
mod session;
mod unit;

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{clock_gettime, ClockId};

pub use batch::Batch;
pub use blocks::{Blocks, GRANULE, LARGE};
pub use clock::Clock;
pub use image::{Began, Image, ImageError, Named, Pass};
pub use layout::{MAGIC, VERSION};
pub use session::{is_drained, sweep, Session, SESSION_VARIABLE};
pub use unit::{CopiedStack, Own, Registers};

/// A file beside that of a process image: the mappings of the process, as it wrote them down
/// itself.
pub fn maps_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".maps");
    name.into()
}

/// `CLOCK_MONOTONIC` in nanoseconds, as the recorder reads it.
pub fn now() -> u64 {
    // This uses nix, because Valgrind, which counts the cost of a recording, knows nix's clock.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| Duration::from(time).as_nanos() as u64)
}
