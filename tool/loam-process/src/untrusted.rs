//! Files at paths that strangers name: a trace names its modules, a process the files that it maps.
//!
//! Such a path may be a pipe that nobody writes, a device without end, or a file of a terabyte of
//! holes. So only regular files are opened, without waiting, and only up to a length. What is read
//! as a whole has a bound for all files together.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use object::ReadCache;
use rustix::fs::OFlags;

use crate::apart;

/// The longest file of code that is opened. Chosen: the largest programs with all their debug
/// information have a quarter.
const LONGEST: u64 = 16 << 30;
/// The most bytes that this process reads for checksums. Chosen: some seconds of work.
const MOST_SUMMED: u64 = 4 << 30;

/// Opens a regular file for reading.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let about = file.metadata()?;
    match about.len() {
        _ if !about.is_file() => Err(io::Error::other("it is not a regular file")),
        LONGEST.. => Err(io::Error::other("it is too long for a file of code")),
        _ => Ok(file),
    }
}

/// How many bytes of a program are read at once, and how many of these pieces are kept. Chosen:
/// node's 97,000 names lie in 80 pieces, in no order.
const PIECE: u64 = 1 << 16;
const KEPT: usize = 256;

/// A file that is read in pieces. Symbols have many short names, and each would be a call or two.
#[derive(Debug)]
pub struct Pieces {
    file: File,
    at: u64,
    kept: HashMap<u64, Vec<u8>>,
}

impl Pieces {
    /// What the crate `object` reads a program by. Only what is asked for is read: there are
    /// programs of several hundred megabytes.
    pub fn of(file: File) -> ReadCache<Pieces> {
        ReadCache::new(Pieces {
            file,
            at: 0,
            kept: HashMap::new(),
        })
    }

    fn load(&self, begins: u64) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; PIECE as usize];
        let mut filled = 0;
        while filled < piece.len() {
            apart::step_again();
            let at = begins.saturating_add(filled as u64);
            match self.file.read_at(&mut piece[filled..], at) {
                Ok(0) => break,
                Ok(size) => filled += size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        piece.truncate(filled);
        Ok(piece)
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let within = self.at % PIECE;
        let begins = self.at - within;
        if !self.kept.contains_key(&begins) {
            let piece = self.load(begins)?;
            if self.kept.len() == KEPT {
                self.kept.clear();
            }
            self.kept.insert(begins, piece);
        }
        let rest = self.kept[&begins].get(within as usize..);
        let size = rest.unwrap_or_default().read(buffer)?;
        self.at += size as u64;
        Ok(size)
    }
}

impl Seek for Pieces {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at, by),
            SeekFrom::End(by) => (self.file.metadata()?.len(), by),
        };
        let at = from.checked_add_signed(by);
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

/// The CRC-32 of a file's bytes and their number.
pub fn checksum(file: &File) -> io::Result<String> {
    static SUMMED: AtomicU64 = AtomicU64::new(0);
    let length = file.metadata()?.len();
    // A count only: it orders nothing.
    let before = SUMMED.fetch_add(length, Ordering::Relaxed);
    if before.saturating_add(length) > MOST_SUMMED {
        SUMMED.fetch_sub(length, Ordering::Relaxed);
        return Err(io::Error::other("too many bytes for checksums"));
    }
    let mut crc = crc32fast::Hasher::new();
    let (mut piece, mut bytes) = (vec![0; 1 << 16], 0);
    // The file may grow meanwhile.
    while bytes <= length {
        match file.read_at(&mut piece, bytes)? {
            0 => break,
            size => {
                crc.update(&piece[..size]);
                bytes += size as u64;
            }
        }
    }
    Ok(format!("{:08x}-{bytes}", crc.finalize()))
}

#[cfg(test)]
mod tests {
    use object::ReadRef;
    use rustix::fs::{FileType, Mode, CWD};

    use super::*;

    #[test]
    fn pieces_are_the_files_bytes_wherever_they_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..3 * PIECE + 100).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let cache = Pieces::of(open(&path).unwrap());
        let length = bytes.len() as u64;
        assert_eq!((&cache).len(), Ok(length));
        let parts = [
            (0, 10),
            (PIECE - 3, 7),
            (5, 2 * PIECE),
            (length - 8, 8),
            (0, length),
        ];
        for (from, size) in parts {
            let wanted = &bytes[from as usize..(from + size) as usize];
            assert_eq!((&cache).read_bytes_at(from, size), Ok(wanted));
        }
        for (from, size) in [(length - 7, 8), (length, 1), (u64::MAX, 1)] {
            assert!((&cache).read_bytes_at(from, size).is_err());
        }
    }

    #[test]
    fn only_a_file_of_a_sensible_length_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        let long = folder.path().join("long");
        File::create(&long).unwrap().set_len(LONGEST).unwrap();
        for path in [&pipe, &long, Path::new("/dev/zero"), folder.path()] {
            assert!(open(path).is_err(), "{}", path.display());
        }
        let sparse = folder.path().join("sparse");
        File::create(&sparse)
            .unwrap()
            .set_len(MOST_SUMMED + 1)
            .unwrap();
        assert!(checksum(&open(&sparse).unwrap()).is_err());
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "123456789").unwrap();
        let sum = checksum(&open(&plain).unwrap()).unwrap();
        assert_eq!(sum, "cbf43926-9");
    }
}
