//! Makes a trace of another tool's recording: unpacks it, and recognises its format by the first
//! bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, Read};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Context, Result};
use flate2::read::MultiGzDecoder;
use zip::ZipArchive;

use loam_format::foreign::{Begun, Format, Imported, SNIFFED};
use loam_format::trace::MAGIC;
use loam_format::{plain, words};

use super::file::{self, NewFile};

/// What is to be imported.
#[derive(Debug)]
pub struct Import {
    /// The recording.
    pub recording: PathBuf,
    /// The trace.
    pub output: PathBuf,
    /// Whether the trace may be replaced.
    pub overwrite: bool,
    /// Average requested bytes between two blocks whose stacks are taken.
    pub stack_bytes: u64,
    /// The format; none: the first bytes show it.
    pub from: Option<Format>,
}

impl Import {
    /// Writes the recording as a trace. Nothing is written before its beginning has been read.
    pub fn run(&self) -> Result<Imported> {
        unpacked(&self.recording, |input| self.write(input))
    }

    fn write(&self, input: &mut dyn BufRead) -> Result<Imported> {
        let shown = plain::path(&self.recording);
        let mut start = Vec::new();
        let sniffed = input.take(SNIFFED as u64).read_to_end(&mut start);
        sniffed.with_context(|| format!("{shown} is damaged or cut; copy or record it again"))?;
        let format = self.from.or(Format::of_start(&start)).ok_or_else(|| {
            anyhow!(
                "{shown} begins like none of the formats that can be imported: {}. `loam record` \
                 records a program; --from names the format of a recording whose beginning is \
                 damaged",
                words::list(&Format::ALL.map(Format::name))
            )
        })?;
        let begun = Begun::new(format.open(Cursor::new(start).chain(input)));
        let begun = begun.with_context(|| shown.clone())?;
        file::require_other_file(&self.recording, &self.output)?;
        let out = NewFile::open(&self.output, self.overwrite)?.begin();
        let out =
            out.with_context(|| format!("{} can not be written", plain::path(&self.output)))?;
        let name = self.recording.display().to_string();
        let out = BufWriter::new(out);
        let written = begun.write(loam_format::VERSION, &name, out, self.stack_bytes);
        let (_, imported) = written.with_context(|| shown)?;
        Ok(imported)
    }
}

/// Passes the recording to `read`, unpacked if necessary.
fn unpacked(
    recording: &Path,
    read: impl FnOnce(&mut dyn BufRead) -> Result<Imported>,
) -> Result<Imported> {
    let shown = plain::path(recording);
    let told = || format!("{shown} can not be read");
    if recording.is_dir() {
        bail!("{shown} is a folder; name a recording in it");
    }
    let file = File::open(recording).with_context(told)?;
    let packed = file.metadata().with_context(told)?.len();
    let mut file = BufReader::with_capacity(1 << 18, file);
    match file.fill_buf().with_context(told)? {
        [] => bail!("{shown} is empty; copy or record it again"),
        start if start.starts_with(MAGIC) => {
            bail!(
                "{shown} is a trace already: `loam trace info`, `loam replay` and the like read \
                   it as it is"
            )
        }
        [0x1f, 0x8b, ..] => read(&mut BufReader::new(Bounded::new(
            MultiGzDecoder::new(file),
            packed,
        ))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = zstd::stream::read::Decoder::with_buffer(file);
            let decoder = Bounded::new(decoder.with_context(told)?, packed);
            read(&mut BufReader::new(decoder))
        }
        [b'P', b'K', 3, 4, ..] => {
            let damaged = || format!("{shown} is a damaged zip file; copy it again");
            let mut archive = ZipArchive::new(file).with_context(damaged)?;
            if archive.len() != 1 {
                bail!(
                    "{shown} has {} files, and a recording is one; unpack it and import one after \
                     the other",
                    archive.len()
                );
            }
            let file = archive.by_index(0).with_context(damaged)?;
            let mut file = BufReader::new(Bounded::new(file, packed));
            read(&mut file)
        }
        _ => read(&mut file),
    }
}

/// A packed recording that unpacks to more than so many times its length is refused. Chosen:
/// recordings have 5 to 30. What an import keeps in memory is some fifty times as long as a text
/// that is made for it.
const MOST_TIMES: u64 = 100;
/// Short ones may have more.
const ALWAYS: u64 = 1 << 20;

/// The bytes of a packed recording, up to a bound.
struct Bounded<R> {
    packed: R,
    left: u64,
}

impl<R: Read> Bounded<R> {
    fn new(packed: R, length: u64) -> Bounded<R> {
        // A pipe has no length; its bytes are not bounded in any case.
        let left = match length {
            0 => u64::MAX,
            length => length.saturating_mul(MOST_TIMES).saturating_add(ALWAYS),
        };
        Bounded { packed, left }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.packed.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other(format!(
                "it unpacks to more than {MOST_TIMES} times its length; if it is honest, unpack it \
                 and import what comes out"
            ))
        })?;
        Ok(read)
    }
}
