//! Bounds the system calls of a look. The bytes of a process may be anything: rings, lists and
//! leads that never end, over memory that can not be read. Each part of a look has its own bound,
//! and this one holds for all parts together.

use std::sync::atomic::{AtomicU64, Ordering};

use loam_format::memory::{Memory, Piece, ReadError};

/// The most pieces that a look reads, since each may take a call. Chosen: some two seconds. A heap
/// of 4 GiB with a million chunks in fast bins needs half as many.
pub const MOST_CALLS: u64 = 2 << 20;

/// A memory that can be read so many times.
pub struct Metered<'a, M> {
    memory: &'a M,
    /// A count only: it orders nothing.
    left: AtomicU64,
}

impl<'a, M: Memory> Metered<'a, M> {
    /// With so many calls.
    pub fn new(memory: &'a M, calls: u64) -> Metered<'a, M> {
        let left = AtomicU64::new(calls);
        Metered { memory, left }
    }

    /// Whether no call is left.
    pub fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn take(&self, calls: u64) -> Result<(), ReadError> {
        let less = |left: u64| Some(left.saturating_sub(calls));
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        match before {
            Ok(before) if before >= calls => Ok(()),
            _ => Err(ReadError::Failed("too many calls".to_owned())),
        }
    }
}

impl<M: Memory> Memory for Metered<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.take(1)?;
        self.memory.read(address, buffer)
    }

    fn gather(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        self.take(pieces.len() as u64)?;
        self.memory.gather(pieces, buffer)
    }
}
