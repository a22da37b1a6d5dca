//! `loam trace import`: unpacks a recording, recognises its format by the first bytes, and writes
//! it as a trace.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, Read};
use std::path::Path;

use anyhow::{anyhow, bail, Context, Result};
use flate2::read::MultiGzDecoder;
use zip::ZipArchive;

use loam_format::foreign::{self, Imported, SNIFFED};
use loam_format::trace::MAGIC;
use loam_format::words;

use super::args::ImportOptions;
use crate::exit::Exit;
use crate::output;

/// Imports the recording.
pub fn run(options: &ImportOptions) -> Result<Exit> {
    let shown = output::path(&options.recording);
    let imported = unpacked(&options.recording, |input| write(options, input))?;
    let trace = output::path(&options.output);
    if let Some(error) = &imported.stopped {
        bail!(
            "{shown}: {error}\n{trace} has the {} events that come before",
            imported.events
        );
    }
    output::say(&format!(
        "{} events of {} and {} from {}: {trace}\nlost: {}\nA replay of it can not be checked \
         against the program. Next: loam replay {trace}{}",
        imported.events,
        words::count_of(imported.processes as usize, "process", "processes"),
        words::count(imported.threads as usize, "thread"),
        imported.about.format,
        words::list(&imported.about.lost),
        match imported.about.has_stacks {
            true => format!(", or for its stacks: loam pins {trace}"),
            false => String::new(),
        },
    ));
    Ok(Exit::Done)
}

/// Passes the recording to `read`, unpacked if necessary.
fn unpacked(
    recording: &Path,
    read: impl FnOnce(&mut dyn BufRead) -> Result<Imported>,
) -> Result<Imported> {
    let shown = output::path(recording);
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

fn write(options: &ImportOptions, input: &mut dyn BufRead) -> Result<Imported> {
    let shown = output::path(&options.recording);
    let mut start = Vec::new();
    let sniffed = input.take(SNIFFED as u64).read_to_end(&mut start);
    sniffed.with_context(|| format!("{shown} is damaged or cut; copy or record it again"))?;
    let told = foreign::Format::of_start(&start);
    let format = options.from.or(told).ok_or_else(|| {
        anyhow!(
            "{shown} begins like none of the formats that can be imported: {}. `loam record` \
             records a program; --from names the format of a recording whose beginning is damaged",
            words::list(&foreign::Format::ALL.map(foreign::Format::name))
        )
    })?;
    let begun = foreign::Begun::new(format.open(Cursor::new(start).chain(input)));
    let begun = begun.with_context(|| shown.clone())?;
    output::require_other_file(&options.recording, &options.output)?;
    let out = output::new_file(&options.output, options.overwrite)?;
    output::empty(&out)
        .with_context(|| format!("{} can not be written", output::path(&options.output)))?;
    let file = options.recording.display().to_string();
    let written = begun.write(
        loam_format::VERSION,
        &file,
        BufWriter::new(out),
        options.stack_bytes,
    );
    let (_, imported) = written.with_context(|| shown)?;
    Ok(imported)
}
