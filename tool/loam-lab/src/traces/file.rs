//! The file of a trace, and a file that is written: never what is read, never replaced unasked, not
//! emptied before there is something to write, and not written by two at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Context, Error, Result};
use rustix::fs::{flock, FlockOperation, OFlags};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

use loam_format::plain::path;
use loam_format::trace::MAGIC;

use crate::store::{beside, is_at};

/// Whether a file is a trace.
pub fn is_trace(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && head == *MAGIC
}

/// Opens a pipe that a program reads. Without a reader it fails, because opening would wait,
/// perhaps for ever.
fn open_pipe(file: &Path) -> Result<File> {
    let shown = path(file);
    let mut open = OpenOptions::new();
    let open = open.write(true);
    let at_once = open
        .clone()
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(file);
    // This end is held while the pipe is opened again: the reader would end when the last writer
    // closes the pipe.
    let _held = match at_once {
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            bail!(
                "{shown} is a pipe that no program reads; start its reader first, or name a file \
                   with --output"
            )
        }
        opened => opened.with_context(|| format!("{shown} can not be written"))?,
    };
    open.open(file)
        .with_context(|| format!("{shown} can not be written"))
}

/// A file that is open for writing, and locked. Until `begin()` an existing file keeps its
/// contents, and a new one is removed if it is dropped.
#[derive(Debug)]
pub struct NewFile {
    /// Removed if it is dropped, which is before `file` gives the lock back.
    made: Option<TempPath>,
    file: File,
}

impl NewFile {
    /// Opens the file. An existing one is taken only with `overwrite`.
    pub fn open(file: &Path, overwrite: bool) -> Result<NewFile> {
        let shown = path(file);
        if file.is_dir() {
            bail!("{shown} is a folder; name a file in it with --output");
        }
        if fs::metadata(file).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            let file = open_pipe(file)?;
            return Ok(NewFile { made: None, file });
        }
        let mut open = OpenOptions::new();
        let open = open.write(true);
        let (opened, is_new) = match open.clone().create_new(true).open(file) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && overwrite => {
                (open.create(true).truncate(false).open(file), false)
            }
            opened => (opened, true),
        };
        let opened = match opened {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(exists(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!(
                    "{shown} can not be written: its folder does not exist; create it, or name \
                     another file with --output"
                )
            }
            opened => opened.with_context(|| format!("{shown} can not be written"))?,
        };
        // Another loam may have removed the file that it made, after this one opened it.
        if !lock(&opened) || !is_at(&opened, file)? {
            bail!(
                "{shown} is being written by another loam; wait for its end, or name another file \
                 with --output"
            );
        }
        let made = is_new.then(|| TempPath::try_from_path(file)).transpose();
        Ok(NewFile {
            made: made.with_context(|| format!("{shown} can not be written"))?,
            file: opened,
        })
    }

    /// Gives a new file its name, which no other file may have.
    pub fn name(made: NamedTempFile, name: &Path) -> io::Result<NewFile> {
        // Before another loam can know it.
        lock(made.as_file());
        let file = made.persist_noclobber(name).map_err(|error| error.error)?;
        let made = Some(TempPath::try_from_path(name)?);
        Ok(NewFile { made, file })
    }

    /// Removes the contents. Call it just before the first byte is written.
    pub fn begin(self) -> io::Result<File> {
        if let Some(made) = self.made {
            made.keep().map_err(|error| error.error)?;
        }
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        Ok(self.file)
    }
}

fn exists(file: &Path) -> Error {
    let shown = path(file);
    anyhow!("{shown} exists; --overwrite replaces it, or name another file with --output")
}

/// Locks a file until it is closed. False: another loam writes it. Several may write a device, and
/// some file systems have no locks.
fn lock(file: &File) -> bool {
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    !is_file || flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// A file that has its name only when all of it is written: a failure leaves no new file and no
/// loss. A pipe or a device is written at once.
#[derive(Debug)]
pub struct LateFile {
    path: PathBuf,
    to: To,
}

#[derive(Debug)]
enum To {
    Beside(NamedTempFile),
    Open(File),
}

impl LateFile {
    /// A file with this path. A file with contents is replaced only with `overwrite`.
    pub fn new(file: &Path, overwrite: bool) -> Result<LateFile> {
        // A symbolic link stays a link: its target is replaced.
        let path = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
        let is_file = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() && metadata.len() > 0 && !overwrite => {
                return Err(exists(file))
            }
            Ok(metadata) => metadata.is_file(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let to = match is_file {
            true => To::Beside(beside(&path).map_err(|error| unwritable(&path, &error))?),
            false => To::Open(NewFile::open(&path, true)?.begin()?),
        };
        Ok(LateFile { path, to })
    }

    /// Gives the file its name.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        match self.to {
            To::Open(_) => Ok(()),
            To::Beside(file) => match file.persist(&self.path) {
                Ok(_) => Ok(()),
                Err(error) => Err(unwritable(&self.path, &error.error)),
            },
        }
    }
}

impl Write for LateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.to {
            To::Beside(file) => file.write(bytes),
            To::Open(file) => file.write(bytes),
        };
        written.map_err(|error| unwritable(&self.path, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Beside(file) => file.flush(),
            To::Open(file) => file.flush(),
        }
    }
}

fn unwritable(file: &Path, error: &io::Error) -> io::Error {
    let message = format!("{} can not be written: {error}", path(file));
    io::Error::new(error.kind(), message)
}

/// Fails if the output is the same file as the input, because writing it would destroy the input.
pub fn require_other_file(input: &Path, output: &Path) -> Result<()> {
    let of = |file: &Path| fs::metadata(file).map(|metadata| (metadata.dev(), metadata.ino()));
    match (of(input), of(output)) {
        (Ok(read), Ok(written)) if read == written => {
            bail!(
                "{} is what is read; name another file with --output",
                path(output)
            )
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_writer_and_is_changed_only_by_what_begins() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("t.trace");
        let first = NewFile::open(&trace, false).unwrap();
        let error = NewFile::open(&trace, true).unwrap_err().to_string();
        assert!(
            error.contains("is being written by another loam"),
            "{error}"
        );
        assert!(trace.exists());
        drop(first);
        assert!(!trace.exists());

        fs::write(&trace, "precious").unwrap();
        let error = NewFile::open(&trace, false).unwrap_err().to_string();
        assert!(error.contains("--overwrite"), "{error}");
        drop(NewFile::open(&trace, true).unwrap());
        assert_eq!(fs::read(&trace).unwrap(), b"precious");
        drop(NewFile::open(&trace, true).unwrap().begin().unwrap());
        assert_eq!(fs::read(&trace).unwrap(), b"");
        // Two may write a device.
        let null = || NewFile::open(Path::new("/dev/null"), true).unwrap();
        assert!(null().made.is_none() && (null(), null()).1.begin().is_ok());
    }

    #[test]
    fn a_file_that_gets_its_name_replaces_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("t.trace");
        let made = || NamedTempFile::new_in(folder.path()).unwrap();
        let first = NewFile::name(made(), &trace).unwrap();
        assert!(NewFile::name(made(), &trace).is_err());
        assert!(NewFile::open(&trace, true).is_err());
        drop(first.begin().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
