//! The file of a trace, and a file that is written: never what is read, never replaced unasked, and
//! not emptied before there is something to write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{bail, Context, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use loam_format::plain::path;
use loam_format::trace::MAGIC;

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
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{shown} exists; --overwrite replaces it, or name another file with --output")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!(
                "{shown} can not be written: its folder does not exist; create it, or name \
                   another file with --output"
            )
        }
        opened => opened.with_context(|| format!("{shown} can not be written")),
    }
}

/// Removes the contents of a file that `new_file()` opened. Call it just before the first byte is
/// written.
pub fn empty(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => file.set_len(0),
        false => Ok(()),
    }
}

/// A file that is created, or emptied, when its first byte is written. An earlier failure leaves no
/// new file and no loss.
#[derive(Debug)]
pub struct LateFile<'a> {
    path: &'a Path,
    file: Option<File>,
}

impl LateFile<'_> {
    /// A file with this path.
    pub fn new(path: &Path) -> LateFile<'_> {
        LateFile { path, file: None }
    }

    /// Creates the file if nothing was written to it.
    pub fn finish(mut self) -> io::Result<()> {
        self.named(|file| file.flush())
    }

    /// Adds the file's name to an error.
    fn named<T>(&mut self, act: impl Fn(&mut File) -> io::Result<T>) -> io::Result<T> {
        let done = match &mut self.file {
            Some(file) => act(file),
            none => File::create(self.path).and_then(|file| act(none.insert(file))),
        };
        let told = |error: io::Error| {
            let message = format!("{} can not be written: {error}", path(self.path));
            io::Error::new(error.kind(), message)
        };
        done.map_err(told)
    }
}

impl Write for LateFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.named(|file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.flush(),
            None => Ok(()),
        }
    }
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
