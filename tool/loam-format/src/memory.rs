//! Memory to read from by address: a process's, an image's, or a test's.

use thiserror::Error;

/// Why bytes could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// Nothing readable is there.
    #[error("address {address:#x} is not mapped ({length} bytes were wanted)")]
    Unmapped {
        /// Of the first byte that was wanted.
        address: u64,
        /// How many were.
        length: usize,
    },
    /// The process ended.
    #[error("the process ended while it was being read")]
    Ended,
    /// The system does not allow it.
    #[error("{0}")]
    Denied(String),
    /// Anything else.
    #[error("reading another process's memory failed: {0}")]
    Failed(String),
}

/// Somewhere to read bytes from by address: a process, or a file of bytes in tests.
pub trait Memory {
    /// Fills the buffer or fails.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError>;

    /// Reads that many bytes.
    fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut buffer = vec![0; length];
        self.read(address, &mut buffer)?;
        Ok(buffer)
    }

    /// Fills the buffer with pieces, one behind the other: read in their order, and as close
    /// together in time as can be. Fails with the first piece that can not be read. The buffer is
    /// as long as all pieces together.
    fn gather(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut rest = buffer;
        for piece in pieces {
            let (part, behind) = rest.split_at_mut(piece.length);
            self.read(piece.address, part)?;
            rest = behind;
        }
        Ok(())
    }
}

/// Bytes at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Of the first byte.
    pub address: u64,
    /// In bytes.
    pub length: usize,
}
