//! Reads another process's memory without stopping it, and writes to the places that a heap offers for this.
//!
//! `process_vm_readv` copies bytes while the process runs on and notices nothing. So the bytes may be torn, and all
//! of them may be garbage: code that decodes them trusts nothing.

use std::io::{IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::uio::{process_vm_readv, process_vm_writev, RemoteIoVec};
use nix::unistd;

use loam_format::memory::{Memory, Piece, ReadError};

use crate::apart::{step, Doing};
use crate::process::{face, permission_remedy, Pid};

/// How many pieces one system call takes (IOV_MAX).
pub(crate) const MOST_PIECES: usize = 1024;

/// A living process's memory.
#[derive(Debug, Clone, Copy)]
pub struct ProcessMemory(pub Pid);

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.call(&[Piece { address, length }], buffer)
    }

    fn gather(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut rest = buffer;
        for some in pieces.chunks(MOST_PIECES) {
            let length = some.iter().map(|piece| piece.length).sum();
            let (part, behind) = rest.split_at_mut(length);
            self.call(some, part)?;
            rest = behind;
        }
        Ok(())
    }
}

impl ProcessMemory {
    /// Writes bytes where the process is known to wait for them. The process may see them one by one.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), ReadError> {
        let remote = RemoteIoVec {
            base: usize::try_from(address).unwrap_or(usize::MAX),
            len: bytes.len(),
        };
        step(Doing::Memory(self.0));
        let pid = unistd::Pid::from_raw(face(self.0));
        match process_vm_writev(pid, &[IoSlice::new(bytes)], &[remote]) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) | Err(Errno::EFAULT) => Err(ReadError::Unmapped {
                address,
                length: bytes.len(),
            }),
            Err(Errno::ESRCH) => Err(ReadError::Ended),
            Err(Errno::EPERM | Errno::EACCES) => Err(ReadError::Denied(permission_remedy(self.0))),
            Err(error) => Err(ReadError::Failed(error.desc().to_owned())),
        }
    }

    /// One system call for all pieces. It copies them one by one, in their order.
    fn call(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        let wanted = buffer.len();
        if wanted == 0 {
            return Ok(());
        }
        let unmapped = |piece: &Piece| ReadError::Unmapped {
            address: piece.address,
            length: piece.length,
        };
        let mut remote = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let base = usize::try_from(piece.address).ok();
            let base = base.filter(|base| base.checked_add(piece.length).is_some());
            remote.push(RemoteIoVec {
                base: base.ok_or_else(|| unmapped(piece))?,
                len: piece.length,
            });
        }
        let mut local = [IoSliceMut::new(buffer)];
        step(Doing::Memory(self.0));
        let mut read_as =
            |number| process_vm_readv(unistd::Pid::from_raw(number), &mut local, &remote);
        let mut answer = read_as(self.0);
        if answer == Err(Errno::ESRCH) {
            // Its main thread may have ended while another thread lives.
            let face = face(self.0);
            if face != self.0 {
                answer = read_as(face);
            }
        }
        let read = match answer {
            Ok(read) if read == wanted => return Ok(()),
            Ok(read) => read,
            Err(Errno::EFAULT) => 0,
            Err(Errno::ESRCH) => return Err(ReadError::Ended),
            Err(Errno::EPERM | Errno::EACCES) => {
                return Err(ReadError::Denied(permission_remedy(self.0)))
            }
            Err(error) => return Err(ReadError::Failed(error.desc().to_owned())),
        };
        // The pieces before the first unreadable one were copied.
        let mut end = 0;
        let missing = pieces.iter().find(|piece| {
            end += piece.length;
            end > read
        });
        Err(missing.map_or(ReadError::Ended, unmapped))
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
        let piece = |address: u64, length| Piece { address, length };
        let start = text.as_ptr() as u64;
        let mut found = [0; 9];
        me.gather(&[piece(start + 5, 5), piece(start, 4)], &mut found)
            .unwrap();
        assert_eq!(&found, b"bytessome");
        let to = [0_u8; 4];
        me.write(to.as_ptr() as u64, b"loam").unwrap();
        assert_eq!(me.bytes(to.as_ptr() as u64, 4).unwrap(), b"loam");
        assert!(matches!(me.write(8, b"x"), Err(ReadError::Unmapped { .. })));
        let missing = me.gather(&[piece(start, 4), piece(8, 5)], &mut found);
        let unmapped = ReadError::Unmapped {
            address: 8,
            length: 5,
        };
        assert_eq!(missing, Err(unmapped));
    }

    #[test]
    fn a_process_that_is_not_there_has_ended() {
        assert_eq!(
            ProcessMemory(Pid::MAX).bytes(4096, 8),
            Err(ReadError::Ended)
        );
    }
}
