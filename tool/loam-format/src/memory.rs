//! Memory that is read by address: a process's, an image's, or a test's.

use thiserror::Error;

/// Why bytes could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// No readable memory is there.
    #[error("address {address:#x} is not mapped ({length} bytes were wanted)")]
    Unmapped {
        /// Address of the first requested byte.
        address: u64,
        /// Number of requested bytes.
        length: usize,
    },
    /// The process ended.
    #[error("the process ended while it was being read")]
    Ended,
    /// The system does not allow it.
    #[error("{0}")]
    Denied(String),
    /// Any other error.
    #[error("reading another process's memory failed: {0}")]
    Failed(String),
}

/// Memory whose bytes can be read by address: a process's, or in tests a file's.
pub trait Memory {
    /// Fills the buffer or fails.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError>;

    /// Reads that many bytes.
    fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut buffer = vec![0; length];
        self.read(address, &mut buffer)?;
        Ok(buffer)
    }

    /// Fills the buffer with pieces, one after the other. They are read in this order, and as close
    /// together in time as possible. Fails at the first piece that can not be read. The buffer is
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
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: usize,
}
