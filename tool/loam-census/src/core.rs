//! ELF cores: the kernel's, `gcore`'s and `coredumpctl`'s, compressed or not, whole or cut off.
//!
//! ```text
//!  PT_LOAD   address, length in memory, length in the file: what a filter left out is not there
//!  PT_NOTE   threads' registers, the process's number and name, which file lies where
//! ```
//!
//! What no core has is read from the files that were mapped, if they are still the same: the first
//! page of each is in the core.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use loam_format::bytes::{u32_at, u64_at};
use loam_format::memory::{Memory, ReadError};
use loam_format::units::bytes as of_bytes;
use loam_process::glibc::layout::{version_in, Version, NEWEST};
use loam_process::glibc::{self, Residency};
use loam_process::mappings::Mapping;
use object::elf;
use thiserror::Error;

use crate::names;
use crate::target::{Target, Thread, PAGE};

/// Why a core can not be read.
#[derive(Debug, Error)]
pub enum CoreError {
    /// It is none.
    #[error("it is no ELF core of a 64-bit little-endian machine")]
    None,
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A part of memory.
#[derive(Debug, Clone, Copy)]
struct Segment {
    start: u64,
    /// Behind what the core has.
    has: u64,
    end: u64,
    offset: u64,
    flags: u32,
}

/// A file that was mapped.
#[derive(Debug, Clone)]
struct Named {
    start: u64,
    end: u64,
    offset: u64,
    name: String,
}

/// A core.
pub struct Core {
    file: File,
    segments: Vec<Segment>,
    mappings: Vec<Mapping>,
    threads: Vec<Thread>,
    /// The number of the process.
    pub pid: Option<u32>,
    /// Its name.
    pub name: String,
    machine: u16,
    glibc: Option<Version>,
    /// Files whose mappings are missing from the core, opened once, by mapping.
    files: Vec<Option<File>>,
    is_cut: bool,
    problems: Vec<String>,
}

/// Bytes of an ELF header, a program header, a section header.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// More segments than the kernel allows mappings on any machine.
const MOST_SEGMENTS: usize = 1 << 22;
/// Notes are longer only in damaged files.
const MOST_NOTES: u64 = 256 << 20;

/// Whether a file is an ELF core, or a compressed file, which may be one.
pub fn looks_like_core(path: &Path) -> bool {
    let mut head = [0; 18];
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    if !file.metadata().is_ok_and(|about| about.is_file()) || file.read_exact(&mut head).is_err() {
        return false;
    }
    let is_core = head.starts_with(b"\x7fELF") && head[16] == 4;
    is_core || is_zstd(&head) || is_lz4(&head)
}

fn is_zstd(head: &[u8]) -> bool {
    head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
}

fn is_lz4(head: &[u8]) -> bool {
    head.starts_with(&[0x04, 0x22, 0x4d, 0x18])
}

/// The core's file; a compressed one is written out to a temporary file, with holes where it is
/// zero. The second part says that its end is missing.
fn opened(path: &Path) -> io::Result<(File, bool)> {
    let mut file = File::open(path)?;
    let mut head = [0; 4];
    if file.read_exact(&mut head).is_err() {
        return Ok((file, false));
    }
    file.rewind()?;
    let mut source: Box<dyn Read> = if is_zstd(&head) {
        Box::new(zstd::Decoder::new(file)?)
    } else if is_lz4(&head) {
        Box::new(lz4_flex::frame::FrameDecoder::new(file))
    } else {
        return Ok((file, false));
    };
    let mut target = tempfile::tempfile()?;
    let mut piece = vec![0; 1 << 20];
    let mut length = 0;
    let is_cut = loop {
        match source.read(&mut piece) {
            Ok(0) => break false,
            Ok(read) => {
                let part = &piece[..read];
                if part.iter().all(|byte| *byte == 0) {
                    target.seek(SeekFrom::Current(read as i64))?;
                } else {
                    target.write_all(part)?;
                }
                length += read as u64;
            }
            // What came before the damage can be read.
            Err(_) if length > 0 => break true,
            Err(error) => return Err(error),
        }
    };
    target.set_len(length)?;
    Ok((target, is_cut))
}

fn at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes
        .get(offset..offset + 2)
        .map_or(0, |two| u16::from_le_bytes([two[0], two[1]]))
}

impl Core {
    /// Opens a core.
    pub fn open(path: &Path) -> Result<Core, CoreError> {
        let (file, is_cut) = opened(path)?;
        let length = file.metadata()?.len();
        let header = at(&file, 0, HEADER).map_err(|_| CoreError::None)?;
        let is_core = header.starts_with(b"\x7fELF\x02\x01") && u16_at(&header, 16) == 4;
        if !is_core {
            return Err(CoreError::None);
        }
        let place = u64_at(&header, 32).unwrap_or(0);
        let mut count = usize::from(u16_at(&header, 56));
        if count == 0xffff {
            // There are more: the first section header has the number.
            let section = at(&file, u64_at(&header, 40).unwrap_or(0), 64)?;
            count = u32_at(&section, 44).unwrap_or(0) as usize;
        }
        let room = (length.saturating_sub(place) / PROGRAM_HEADER as u64) as usize;
        let count = count.min(room).min(MOST_SEGMENTS);
        let headers = at(&file, place, count * PROGRAM_HEADER)?;
        let mut core = Core {
            file,
            segments: Vec::new(),
            mappings: Vec::new(),
            threads: Vec::new(),
            pid: None,
            name: String::new(),
            machine: u16_at(&header, 18),
            glibc: None,
            files: Vec::new(),
            is_cut,
            problems: Vec::new(),
        };
        let mut named = Vec::new();
        let mut missing = 0;
        for header in headers.chunks_exact(PROGRAM_HEADER) {
            let word = |place| u64_at(header, place).unwrap_or(0);
            let (offset, start) = (word(8), word(16));
            let (in_file, in_memory) = (word(32), word(40));
            match u32_at(header, 0) {
                Some(1) => {
                    let behind = offset.saturating_add(in_file).min(length.max(offset));
                    let has = behind - offset;
                    missing += in_file - has;
                    core.segments.push(Segment {
                        start,
                        has: start.saturating_add(has),
                        end: start.saturating_add(in_memory.max(in_file)),
                        offset,
                        flags: u32_at(header, 4).unwrap_or(0),
                    });
                }
                Some(4) => core.notes(offset, in_file.min(MOST_NOTES), &mut named),
                _ => {}
            }
        }
        core.segments.retain(|one| one.end > one.start);
        core.segments.sort_by_key(|one| one.start);
        named.sort_by_key(|one| one.start);
        core.add_files(&named);
        core.is_cut |= missing > 0;
        if core.is_cut {
            core.problems.push(format!(
                "the core is cut off: {} of its memory are missing",
                of_bytes(missing as f64)
            ));
        }
        core.map(&named);
        core.find_glibc();
        Ok(core)
    }

    /// Adds mapped files that the core has no segment for: `gcore` leaves out code and other parts
    /// that are as in the file.
    fn add_files(&mut self, named: &[Named]) {
        let mut added = Vec::new();
        for one in named {
            let place = self
                .segments
                .partition_point(|segment| segment.end <= one.start);
            let next = self.segments.get(place);
            if next.is_none_or(|segment| segment.start >= one.end) && one.start < one.end {
                added.push(Segment {
                    start: one.start,
                    has: one.start,
                    end: one.end,
                    offset: 0,
                    flags: flags_of(&one.name, one.offset),
                });
            }
        }
        self.segments.extend(added);
        self.segments.sort_by_key(|one| one.start);
    }

    fn map(&mut self, named: &[Named]) {
        let mut left_out = 0;
        for segment in &self.segments {
            let place = named.partition_point(|one| one.end <= segment.start);
            let file = named.get(place).filter(|one| one.start <= segment.start);
            let mapping = Mapping {
                start: segment.start,
                end: segment.end,
                readable: segment.flags & 4 != 0,
                writable: segment.flags & 2 != 0,
                executable: segment.flags & 1 != 0,
                offset: file.map_or(0, |one| one.offset + (segment.start - one.start)),
                inode: file.map_or(0, |one| {
                    let first = named.iter().position(|other| other.name == one.name);
                    first.map_or(0, |place| place as u64 + 1)
                }),
                name: file.map_or_else(String::new, |one| one.name.clone()),
                ..Mapping::default()
            };
            if mapping.writable && mapping.name.is_empty() {
                left_out += segment.end - segment.has;
            }
            self.mappings.push(mapping);
        }
        if left_out > 0 {
            self.problems.push(format!(
                "{} of writable memory are not in the core (coredump_filter, or a limit of its \
                 size): what lies there, and what only it points to, was not seen",
                of_bytes(left_out as f64)
            ));
        }
        let mut known: Vec<(String, bool)> = Vec::new();
        for place in 0..self.mappings.len() {
            let mapping = &self.mappings[place];
            let file = if mapping.name.starts_with('/') {
                let name = mapping.name.clone();
                let is_same = match known.iter().find(|(other, _)| *other == name) {
                    Some((_, is_same)) => *is_same,
                    None => {
                        let is_same = self.is_same(&name);
                        known.push((name.clone(), is_same));
                        is_same
                    }
                };
                is_same.then(|| File::open(&name).ok()).flatten()
            } else {
                None
            };
            self.files.push(file);
        }
        let others: Vec<String> = known
            .iter()
            .filter(|(_, is_same)| !is_same)
            .map(|(name, _)| names::printable(name.rsplit('/').next().unwrap_or(name), 80))
            .collect();
        if !others.is_empty() {
            let shown = others
                .iter()
                .take(4)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            let more = others.len().saturating_sub(4);
            self.problems.push(format!(
                "{} files are missing here or are not those of the core, so names of types and \
                 variables are missing: {shown}{}",
                others.len(),
                if more > 0 {
                    format!(" and {more} others")
                } else {
                    String::new()
                }
            ));
        }
    }

    /// Whether the file of that name is the one that was mapped, by the first page of it that the
    /// core has.
    fn is_same(&self, name: &str) -> bool {
        let Ok(file) = File::open(name) else {
            return false;
        };
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return false;
        }
        let first = self
            .mappings
            .iter()
            .position(|one| one.name == name && one.offset == 0);
        let Some(place) = first else { return true };
        let segment = self.segments[place];
        if segment.has < segment.start + PAGE || segment.flags & 2 != 0 {
            return true;
        }
        let dumped = at(&self.file, segment.offset, PAGE as usize);
        let now = at(&file, 0, PAGE as usize);
        matches!((dumped, now), (Ok(dumped), Ok(now)) if dumped == now)
    }

    fn find_glibc(&mut self) {
        let Some(mapping) = glibc::file_of(&self.mappings) else {
            return;
        };
        let place = self.mappings.iter().position(|one| one == mapping);
        let file = place.and_then(|place| self.files[place].as_ref());
        let mut bytes = Vec::new();
        let read = file.and_then(|file| {
            let mut file = file.try_clone().ok()?.take(256 << 20);
            file.rewind_inner().ok()?;
            file.read_to_end(&mut bytes).ok()
        });
        let named = || {
            let name = mapping.file_name()?.strip_prefix("libc-2.")?;
            let minor = name.strip_suffix(".so")?.parse().ok()?;
            Some(Version { major: 2, minor })
        };
        let known = read.and_then(|_| version_in(&bytes)).or_else(named);
        if known.is_none() {
            self.problems.push(format!(
                "the C library's file is missing, so that its version is not known; it is read as \
                 {NEWEST}"
            ));
        }
        self.glibc = Some(known.unwrap_or(NEWEST));
    }

    fn notes(&mut self, offset: u64, length: u64, named: &mut Vec<Named>) {
        let Ok(bytes) = at(&self.file, offset, length as usize) else {
            self.problems.push(
                "the core's notes are missing: registers and names of files are not known"
                    .to_owned(),
            );
            return;
        };
        let mut place = 0;
        while let (Some(name), Some(size), Some(kind)) = (
            u32_at(&bytes, place),
            u32_at(&bytes, place + 4),
            u32_at(&bytes, place + 8),
        ) {
            let start = place + 12 + (name as usize).next_multiple_of(4);
            let Some(note) = bytes.get(start..start.saturating_add(size as usize)) else {
                return;
            };
            let is_core = bytes.get(place + 12..place + 16) == Some(b"CORE");
            match kind {
                1 if is_core => self.thread(note),
                3 if is_core => {
                    self.pid = u32_at(note, 24);
                    let name = note.get(40..56).unwrap_or(&[]);
                    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
                    self.name = names::printable(&String::from_utf8_lossy(name), 16);
                }
                0x4649_4c45 if is_core => files(note, named),
                _ => {}
            }
            place = start + (size as usize).next_multiple_of(4);
        }
    }

    fn thread(&mut self, note: &[u8]) {
        // Where the registers begin, how many there are, and which is the stack pointer.
        let (count, stack) = match elf::Machine(self.machine) {
            elf::EM_AARCH64 => (34, 31),
            _ => (27, 19),
        };
        let registers: Vec<u64> = (0..count)
            .filter_map(|place| u64_at(note, 112 + 8 * place))
            .collect();
        self.threads.push(Thread {
            id: u64::from(u32_at(note, 32).unwrap_or(0)),
            stack: registers.get(stack).copied(),
            is_whole: registers.len() == count,
            registers,
        });
    }

    fn segment(&self, address: u64) -> Option<usize> {
        let place = self
            .segments
            .partition_point(|one| one.start <= address)
            .checked_sub(1)?;
        (address < self.segments[place].end).then_some(place)
    }
}

trait RewindInner {
    fn rewind_inner(&mut self) -> io::Result<()>;
}

impl RewindInner for io::Take<File> {
    fn rewind_inner(&mut self) -> io::Result<()> {
        self.get_mut().rewind()
    }
}

/// The rights with which a part of a file is mapped, by the file itself; without it, those of code.
fn flags_of(name: &str, offset: u64) -> u32 {
    const CODE: u32 = 4 | 1;
    let Some(file) = File::open(name).ok().filter(|file| {
        let about = file.metadata();
        about.is_ok_and(|about| about.is_file())
    }) else {
        return CODE;
    };
    let Ok(header) = at(&file, 0, HEADER) else {
        return CODE;
    };
    let place = u64_at(&header, 32).unwrap_or(0);
    let count = usize::from(u16_at(&header, 56));
    let headers = at(&file, place, count * PROGRAM_HEADER).unwrap_or_default();
    let mut headers = headers.chunks_exact(PROGRAM_HEADER);
    let found = headers.find(|header| {
        let word = |place| u64_at(header, place).unwrap_or(0);
        let start = word(8) & !(PAGE - 1);
        u32_at(header, 0) == Some(1) && (start..word(8).saturating_add(word(32))).contains(&offset)
    });
    // What is written to is in the core.
    found
        .and_then(|header| u32_at(header, 4))
        .map_or(CODE, |flags| flags & CODE)
}

/// The note of mapped files: their number, the size of a page, the places, the names.
fn files(note: &[u8], named: &mut Vec<Named>) {
    let (Some(count), Some(page)) = (u64_at(note, 0), u64_at(note, 8)) else {
        return;
    };
    let count = (count as usize).min(note.len() / 24);
    let mut texts = note
        .get(16 + 24 * count..)
        .unwrap_or(&[])
        .split(|byte| *byte == 0);
    for place in 0..count {
        let word = |part: usize| u64_at(note, 16 + 24 * place + 8 * part);
        let (Some(start), Some(end), Some(offset), Some(text)) =
            (word(0), word(1), word(2), texts.next())
        else {
            return;
        };
        named.push(Named {
            start,
            end,
            offset: offset.saturating_mul(page),
            name: loam_format::plain::printable(&String::from_utf8_lossy(text)),
        });
    }
}

impl Memory for Core {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let unmapped = ReadError::Unmapped {
            address,
            length: buffer.len(),
        };
        let mut at = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let place = self.segment(at).ok_or_else(|| unmapped.clone())?;
            let segment = self.segments[place];
            let (file, offset, end) = if at < segment.has {
                (
                    &self.file,
                    segment.offset + (at - segment.start),
                    segment.has,
                )
            } else {
                let file = self.files.get(place).and_then(Option::as_ref);
                let file = file.ok_or_else(|| unmapped.clone())?;
                let offset = self.mappings[place].offset + (at - segment.start);
                (file, offset, segment.end)
            };
            let length = ((end - at) as usize).min(rest.len());
            let (part, behind) = rest.split_at_mut(length);
            file.read_exact_at(part, offset)
                .map_err(|_| unmapped.clone())?;
            rest = behind;
            at += length as u64;
        }
        Ok(())
    }
}

impl Target for Core {
    fn memory(&self) -> &(dyn Memory + Sync) {
        self
    }

    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let first = self.segments.partition_point(|one| one.end <= start);
        let segments = self.segments[first..]
            .iter()
            .take_while(|one| one.start < end);
        segments
            .map(|one| (one.start.max(start), one.has.min(end)))
            .filter(|(start, end)| start < end)
            .collect()
    }

    fn threads(&self) -> Vec<Thread> {
        self.threads.clone()
    }

    fn file(&self, mapping: &Mapping) -> Option<File> {
        let place = self.segment(mapping.start)?;
        let file = self.files.get(place)?.as_ref()?;
        let mut file = file.try_clone().ok()?;
        file.rewind().ok()?;
        Some(file)
    }

    fn glibc(&self) -> Option<Version> {
        self.glibc
    }

    fn residency(&self) -> Residency {
        Residency::unknown()
    }

    fn is_still(&self) -> bool {
        true
    }

    fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }
}
