//! The file of a trace, and a file that is written: never what is read, never replaced unasked, and
//! not emptied before there is something to write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Context, Error, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::NamedTempFile;

use loam_format::plain::path;
use loam_format::trace::MAGIC;

use crate::store::beside;

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

/// Opens a file for writing. An existing file is replaced only with `overwrite`, and keeps its
/// contents until `empty()`.
pub fn new_file(file: &Path, overwrite: bool) -> Result<File> {
    let mut open = OpenOptions::new();
    open.write(true).create(overwrite).create_new(!overwrite);
    let shown = path(file);
    if file.is_dir() {
        bail!("{shown} is a folder; name a file in it with --output");
    }
    if fs::metadata(file).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return open_pipe(file);
    }
    match open.open(file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!(
                "{shown} can not be written: its folder does not exist; create it, or name \
                   another file with --output"
            )
        }
        opened => opened.with_context(|| format!("{shown} can not be written")),
    }
}

fn exists(file: &Path) -> Error {
    let shown = path(file);
    anyhow!("{shown} exists; --overwrite replaces it, or name another file with --output")
}

/// Removes the contents of a file that `new_file()` opened. Call it just before the first byte is
/// written.
pub fn empty(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => file.set_len(0),
        false => Ok(()),
    }
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
            false => To::Open(new_file(&path, true)?),
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
