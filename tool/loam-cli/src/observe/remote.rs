//! Reading another process's memory without stopping it.
//!
//! `process_vm_readv` copies bytes; the process runs on and notices nothing. So what comes back may be
//! torn, and all of it may be garbage: whoever decodes it trusts nothing.

use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{process_vm_readv, RemoteIoVec};
use nix::unistd;
use thiserror::Error;

use super::process::{permission_remedy, Pid};

/// Why bytes could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// Nothing readable is there.
    #[error("address {address:#x} is not mapped ({length} bytes were wanted)")]
    Unmapped { address: u64, length: usize },
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

    /// Reads as many bytes at each of several addresses, one behind the other.
    fn pieces(&self, addresses: &[u64], length: usize) -> Result<Vec<u8>, ReadError> {
        let mut buffer = vec![0; addresses.len() * length];
        if length > 0 {
            for (address, piece) in addresses.iter().zip(buffer.chunks_exact_mut(length)) {
                self.read(*address, piece)?;
            }
        }
        Ok(buffer)
    }
}

/// Addresses that one call of the system takes (IOV_MAX).
const MOST_PIECES: usize = 1024;

/// A living process's memory.
#[derive(Debug, Clone, Copy)]
pub struct ProcessMemory(pub Pid);

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.gather(&[address], length, buffer)
    }

    fn pieces(&self, addresses: &[u64], length: usize) -> Result<Vec<u8>, ReadError> {
        let mut buffer = vec![0; addresses.len() * length];
        if length > 0 {
            let chunks = buffer.chunks_mut(MOST_PIECES * length);
            for (some, chunk) in addresses.chunks(MOST_PIECES).zip(chunks) {
                self.gather(some, length, chunk)?;
            }
        }
        Ok(buffer)
    }
}

impl ProcessMemory {
    /// One call of the system for all.
    fn gather(&self, addresses: &[u64], length: usize, buffer: &mut [u8]) -> Result<(), ReadError> {
        let wanted = buffer.len();
        if wanted == 0 {
            return Ok(());
        }
        let unmapped = || ReadError::Unmapped {
            address: addresses.first().copied().unwrap_or(0),
            length: wanted,
        };
        let piece = |address: &u64| {
            let base = usize::try_from(*address).ok()?;
            base.checked_add(length)?;
            Some(RemoteIoVec { base, len: length })
        };
        let remote: Option<Vec<RemoteIoVec>> = addresses.iter().map(piece).collect();
        let remote = remote.ok_or_else(unmapped)?;
        let mut local = [IoSliceMut::new(buffer)];
        match process_vm_readv(unistd::Pid::from_raw(self.0), &mut local, &remote) {
            Ok(read) if read == wanted => Ok(()),
            Ok(_) | Err(Errno::EFAULT) => Err(unmapped()),
            Err(Errno::ESRCH) => Err(ReadError::Ended),
            Err(Errno::EPERM | Errno::EACCES) => Err(ReadError::Denied(permission_remedy(self.0))),
            Err(error) => Err(ReadError::Failed(error.desc().to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_bytes_are_read_and_what_is_unmapped_is_said() {
        let me = ProcessMemory(std::process::id() as Pid);
        let text = *b"some bytes of our own";
        assert_eq!(me.bytes(text.as_ptr() as u64, text.len()).unwrap(), text);
        assert!(matches!(me.bytes(8, 8), Err(ReadError::Unmapped { .. })));
        assert!(matches!(
            me.bytes(u64::MAX - 3, 8),
            Err(ReadError::Unmapped { .. })
        ));
        assert_eq!(me.bytes(8, 0), Ok(Vec::new()));
    }

    #[test]
    fn a_process_that_is_not_there_has_ended() {
        assert_eq!(
            ProcessMemory(Pid::MAX).bytes(4096, 8),
            Err(ReadError::Ended)
        );
    }
}
