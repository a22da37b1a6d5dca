//! Reads another process's memory without stopping it, and writes to the places that a heap offers
//! for this.
//!
//! Every byte of a foreign memory is read here, from `/proc/PID/mem`. `process_vm_readv` would read
//! many pieces by one call, but it pins the pages, and since Linux 5.19 the kernel gives a process
//! its own copy of a shared page before it pins it: a look at one process of a forked group would
//! double the group's memory.
//!
//! The open file belongs to the address space, and not to the number: after the process has ended,
//! or has become another program, it gives nothing. Bytes are copied while the process runs on. So
//! they may be torn, and all of them may be garbage: code that decodes them trusts nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::io::Errno;

use loam_format::memory::{Memory, Piece, ReadError};

use crate::apart::{step, Doing};
use crate::process::{
    face, is_being_killed, permission_remedy, Pid, ProcessError, ProcessKey, Stat,
};

/// Bytes of the smallest page of any system.
const PAGE: u64 = 4096;

/// The most bytes that are read by one call for several pieces. Chosen: 16 pages cost about as much
/// as a call.
const MOST_TOGETHER: u64 = 64 << 10;

/// How many pieces a search asks for at a time.
pub(crate) const MOST_PIECES: usize = 1024;

/// A living process's memory, from the first read on the same address space.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: Pid,
    file: OnceLock<Result<File, ReadError>>,
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.gather(&[Piece { address, length }], buffer)
    }

    /// Pieces that lie on the same page, or on pages side by side, are read by one call, if they
    /// ascend: the system copies ascending bytes, so that the order stays, and no page is read that
    /// has no piece.
    fn gather(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut rest = buffer;
        let mut pieces = pieces;
        let mut room = Vec::new();
        while !pieces.is_empty() {
            let (together, behind) = pieces.split_at(together(pieces));
            let length = together.iter().map(|piece| piece.length).sum();
            let (part, after) = rest.split_at_mut(length);
            self.fill(together, part, &mut room)?;
            (pieces, rest) = (behind, after);
        }
        Ok(())
    }
}

/// How many of the first pieces are read by one call.
fn together(pieces: &[Piece]) -> usize {
    let end_of = |piece: &Piece| piece.address.saturating_add(piece.length as u64);
    let is_near = |one: &Piece, next: &Piece| {
        let end = end_of(one);
        let last = end.saturating_sub(1) / PAGE;
        one.length > 0
            && next.length > 0
            && next.address >= end
            && next.address / PAGE <= last + 1
            && end_of(next) - pieces[0].address <= MOST_TOGETHER
    };
    let pairs = pieces.iter().zip(&pieces[1..]);
    1 + pairs.take_while(|(one, next)| is_near(one, next)).count()
}

impl ProcessMemory {
    /// The memory of whichever process has this number at the first read.
    pub fn of(pid: Pid) -> ProcessMemory {
        ProcessMemory {
            pid,
            file: OnceLock::new(),
        }
    }

    /// Opens it now, so that [`ProcessMemory::confirm`] tells of the time from here on.
    pub fn hold(&self) {
        // Where it may not be read, only the process's end will be seen.
        let _ = self.file();
    }

    /// Writes bytes where the process is known to wait for them. The process may see them one by
    /// one.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), ReadError> {
        self.file()?;
        let mut options = OpenOptions::new();
        let file = options.write(true).open(self.path());
        let file = file.map_err(|error| self.failure(&error))?;
        // The number is still that of the process which is read, so the file that was opened just
        // now is its own.
        self.require_alive()?;
        step(Doing::Memory(self.pid));
        match write_at(&file, bytes, address) {
            Ok(0) if !bytes.is_empty() => Err(ReadError::Ended),
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(unmapped(address, bytes.len())),
            Err(error) if is_unmapped(&error) => Err(unmapped(address, bytes.len())),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Fails if the process has ended or has become another program since the first read.
    pub fn require_alive(&self) -> Result<(), ReadError> {
        let mut byte = [0];
        match read_at(self.file()?, &mut byte, 0) {
            Ok(0) => Err(ReadError::Ended),
            _ if is_being_killed(self.pid) => Err(ReadError::Ended),
            _ => Ok(()),
        }
    }

    /// Fails if what was read from the first read until now may not all be of the process with this
    /// key: if it has ended, is being killed, or has become another program. Where its memory may
    /// not be read, only its end is seen.
    pub fn confirm(&self, key: ProcessKey) -> Result<(), ProcessError> {
        let ended = Err(ProcessError::Ended(key.pid));
        match Stat::read(key.pid) {
            Ok(stat) if stat.is_dead() || stat.key(key.pid) != key => return ended,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        match self.require_alive() {
            Err(ReadError::Ended) => ended,
            _ => Ok(()),
        }
    }

    fn path(&self) -> PathBuf {
        // Its main thread may have ended while another thread lives.
        PathBuf::from(format!("/proc/{}/mem", face(self.pid)))
    }

    fn file(&self) -> Result<&File, ReadError> {
        let open = || {
            step(Doing::Memory(self.pid));
            File::open(self.path()).map_err(|error| self.failure(&error))
        };
        self.file.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// Reads pieces that lie near to each other, by one call.
    fn fill(
        &self,
        pieces: &[Piece],
        buffer: &mut [u8],
        room: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let [.., last] = pieces else { return Ok(()) };
        let start = pieces[0].address;
        let length = (last.address - start) as usize + last.length;
        if length == 0 {
            return Ok(());
        }
        let file = self.file()?;
        let is_dense = length == buffer.len();
        if !is_dense {
            room.resize(length, 0);
        }
        let into = if is_dense {
            &mut *buffer
        } else {
            &mut room[..]
        };
        step(Doing::Memory(self.pid));
        let read = match read_at(file, into, start) {
            Ok(0) => return Err(ReadError::Ended),
            Ok(read) => read,
            Err(error) if is_unmapped(&error) => 0,
            Err(error) => return Err(self.failure(&error)),
        };
        let place = |piece: &Piece| (piece.address - start) as usize;
        if let Some(piece) = pieces.iter().find(|one| place(one) + one.length > read) {
            return Err(unmapped(piece.address, piece.length));
        }
        if !is_dense {
            let mut rest = buffer;
            for piece in pieces {
                let (part, behind) = rest.split_at_mut(piece.length);
                part.copy_from_slice(&room[place(piece)..][..piece.length]);
                rest = behind;
            }
        }
        Ok(())
    }

    fn failure(&self, error: &io::Error) -> ReadError {
        match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::SRCH) => ReadError::Ended,
            Some(Errno::PERM | Errno::ACCESS) => ReadError::Denied(permission_remedy(self.pid)),
            _ => ReadError::Failed(error.to_string()),
        }
    }
}

fn unmapped(address: u64, length: usize) -> ReadError {
    ReadError::Unmapped { address, length }
}

/// No page of a process lies in the upper half of the addresses, and the call takes such a place
/// for a negative one.
fn is_unmapped(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::IO | Errno::FAULT | Errno::INVAL)
    )
}

fn read_at(file: &File, buffer: &mut [u8], address: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, address) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn write_at(file: &File, bytes: &[u8], address: u64) -> io::Result<usize> {
    loop {
        match file.write_at(bytes, address) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_bytes_are_read_and_what_is_unmapped_is_said() {
        let me = ProcessMemory::of(std::process::id() as Pid);
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
            ProcessMemory::of(Pid::MAX).bytes(4096, 8),
            Err(ReadError::Ended)
        );
    }
}
