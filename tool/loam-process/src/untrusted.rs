//! Files at paths that strangers name: a trace names its modules, a process the files that it maps.
//!
//! Such a path may be a pipe that nobody writes, a device without end, or a file of a terabyte of holes. So only regular
//! files are opened, without waiting, and only up to a length. What is read as a whole has a bound for all files together.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;

/// The longest file of code that is opened. Chosen: the largest programs with all their debug information have a quarter.
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
    use rustix::fs::{FileType, Mode, CWD};

    use super::*;

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
