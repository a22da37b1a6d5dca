//! Where the block `loam_counters` lies in a process.
//!
//! ```text
//! mapped files -> program headers -> dynamic symbols -> offset in the image (kept by file) -> address
//!              -> of a program without that symbol: search its variables for the magic number
//!              -> of a program or a library of Windows that Wine runs: the same (pe.rs)
//!              -> does it say that it lies there?
//! ```
//!
//! The image is read where it is mapped, in the process: so the file may have any name, be deleted, lie in
//! another mount namespace, or on a file system that does not answer any more. Only where the memory may
//! not be read does the file itself say whether the process is on Loam at all.
//!
//! The block names its own address, so a wrong guess is always found out.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use object::elf;

use loam_format::bytes::{number_at, text, u32_at, u64_at};
use loam_format::counters::directory::MAGIC;
use loam_format::counters::list::LIST;
use loam_format::memory::{Memory, ReadError};
use loam_process::apart::step_to_file;
use loam_process::layout::LIBRARY_NAME;
use loam_process::mappings::Mapping;
use loam_process::process::{face, Pid};
use loam_process::remote::ProcessMemory;

use crate::pe;

/// The block's address, or none: the process is not on Loam, or not yet.
pub fn find(pid: Pid, mappings: &[Mapping]) -> Result<Option<u64>, ReadError> {
    let memory = ProcessMemory(pid);
    let pid = face(pid);
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = program.map(|path| path.to_string_lossy().into_owned());
    let mut files: Vec<(bool, bool, usize)> = Vec::new();
    for (place, first) in mappings.iter().enumerate() {
        let is_first = first.offset == 0 && first.inode != 0 && first.name.starts_with('/');
        let name = first.file_name().unwrap_or_default();
        // Data that a program maps is no image, and may lie anywhere. Of Windows' files Wine maps the headers alone.
        let is_image = || parts_of(&mappings[place..]).any(|part| part.executable);
        if is_first && (is_image() || pe::may_be(name)) {
            let is_library = name.starts_with(LIBRARY_STEM);
            let is_program = program.as_deref() == Some(first.name.as_str());
            files.push((!is_library, !is_program, place));
        }
    }
    // The likely ones first.
    files.sort_unstable();
    let mut from_memory = true;
    for (is_no_library, is_no_program, place) in files {
        let is_likely = !is_no_library || !is_no_program;
        let file = &mappings[place];
        let offset = match offset_in(pid, &mappings[place..], is_likely, from_memory) {
            Ok(Some(offset)) => offset,
            Ok(None) | Err(ReadError::Unmapped { .. }) => continue,
            // What is denied once is denied always; the files still tell.
            Err(ReadError::Denied(_)) => {
                from_memory = false;
                match offset_in(pid, &mappings[place..], is_likely, false) {
                    Ok(Some(offset)) => offset,
                    _ => continue,
                }
            }
            Err(error) => return Err(error),
        };
        let address = file.start.wrapping_add(offset);
        match lies_at(&memory, address) {
            Ok(true) => return Ok(Some(address)),
            Ok(false) | Err(ReadError::Unmapped { .. }) => {}
            // It is on Loam, that much is known from the file.
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// `libloam`, as in `libloam.so.1` and `libloam-2.so`.
const LIBRARY_STEM: &str = match LIBRARY_NAME.as_bytes() {
    [stem @ .., b'.', b's', b'o'] => match std::str::from_utf8(stem) {
        Ok(stem) => stem,
        Err(_) => LIBRARY_NAME,
    },
    _ => LIBRARY_NAME,
};

fn lies_at(memory: &impl Memory, address: u64) -> Result<bool, ReadError> {
    let head = memory.bytes(address, 48)?;
    Ok(head.starts_with(MAGIC) && u64_at(&head, 40) == Some(address))
}

/// Files are looked into once, since a machine's processes share most of them: the block's offset from the
/// file's first byte, by the file (see `key_of`).
static KNOWN: LazyLock<Mutex<HashMap<u64, Option<u64>>>> = LazyLock::new(Mutex::default);
/// Files that are remembered, at 17 bytes each. Chosen: some times what a desktop maps; on a machine that
/// compiles all day everything is looked into anew now and then.
const MOST_KNOWN: usize = 1 << 15;

/// The mappings of the file of the first of these: they lie side by side.
fn parts_of(file: &[Mapping]) -> impl Iterator<Item = &Mapping> {
    let is_same = |part: &&Mapping| part.inode == file[0].inode && part.device == file[0].device;
    file.iter().take_while(is_same)
}

/// What tells a file from others. Its number in the file system is given again when it is deleted, so name
/// and length in memory have to agree too. The hash stands for them: if two ever met, one process would
/// not be found.
fn key_of(file: &[Mapping], is_likely: bool) -> u64 {
    let first = &file[0];
    let end = parts_of(file).map(|part| part.end).max().unwrap_or(0);
    let mut hasher = DefaultHasher::new();
    (&first.device, first.inode, &first.name).hash(&mut hasher);
    (end.saturating_sub(first.start), is_likely).hash(&mut hasher);
    hasher.finish()
}

/// Where the block is in a file that is mapped by the first of these mappings, if the file has one.
fn offset_in(
    pid: Pid,
    file: &[Mapping],
    is_likely: bool,
    from_memory: bool,
) -> Result<Option<u64>, ReadError> {
    let key = key_of(file, is_likely);
    let known = || {
        KNOWN
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    };
    if let Some(found) = known().get(&key) {
        return Ok(*found);
    }
    let found = if from_memory {
        look_up(&ProcessMemory(pid), file[0].start, is_likely)
    } else {
        match open(pid, &file[0]).and_then(FileImage::of) {
            Some(image) => look_up(&image, image.start, is_likely),
            None => return Ok(None),
        }
    };
    let found = match found {
        // A file whose parts are not mapped as its headers say has none.
        Err(ReadError::Unmapped { .. }) => None,
        found => found?,
    };
    let mut known = known();
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    known.insert(key, found);
    Ok(found)
}

/// The mapped file itself where the system lets us have it, else what now lies at its path.
pub fn open(pid: Pid, mapping: &Mapping) -> Option<File> {
    let range = format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    let path = mapping
        .name
        .strip_suffix(" (deleted)")
        .unwrap_or(&mapping.name);
    let rooted = PathBuf::from(format!("/proc/{pid}/root{path}"));
    step_to_file(Path::new(path));
    // A name may lead anywhere, to a pipe or a device too, and opening those can wait for ever.
    let open = |path: PathBuf| {
        let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
        is_file.then(|| File::open(path).ok()).flatten()
    };
    open(range.into())
        .or_else(|| open(rooted))
        .or_else(|| open(path.into()))
}

/// A part of an image that is loaded.
#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    /// Bytes that come from the file.
    length: u64,
}

/// `Elf64_Ehdr` and `Elf64_Phdr` of <elf.h>.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// More program headers has no file that the kernel executes.
const MOST_SEGMENTS: u64 = 1 << 10;

/// The program headers of an image whose header was read, from where they lie.
fn segments_of(
    header: &[u8],
    read: impl FnOnce(u64, usize) -> Result<Vec<u8>, ReadError>,
) -> Result<Option<Vec<Segment>>, ReadError> {
    // Loam runs on 64-bit little-endian machines only.
    let is_known =
        header.starts_with(b"\x7fELF\x02\x01") && number_at(header, 54, 2) == Some(SEGMENT as u64);
    let count = number_at(header, 56, 2).unwrap_or(0);
    if !is_known || count > MOST_SEGMENTS {
        return Ok(None);
    }
    let bytes = read(u64_at(header, 32).unwrap_or(0), count as usize * SEGMENT)?;
    let segment = |bytes: &[u8]| {
        Some(Segment {
            kind: u32_at(bytes, 0)?,
            flags: u32_at(bytes, 4)?,
            offset: u64_at(bytes, 8)?,
            address: u64_at(bytes, 16)?,
            length: u64_at(bytes, 32)?,
        })
    };
    Ok(Some(
        bytes.chunks_exact(SEGMENT).filter_map(segment).collect(),
    ))
}

/// Where the block is, from the image's first byte.
fn look_up(memory: &impl Memory, start: u64, searches: bool) -> Result<Option<u64>, ReadError> {
    let header = memory.bytes(start, HEADER)?;
    let read = |offset: u64, length| memory.bytes(start.wrapping_add(offset), length);
    let Some(segments) = segments_of(&header, read)? else {
        let variables = pe::variables(memory, start)?.unwrap_or_default();
        return search_each(memory, start, variables);
    };
    let is_loaded = |segment: &&Segment| segment.kind == elf::PT_LOAD.0;
    let Some(first) = segments
        .iter()
        .filter(is_loaded)
        .find(|segment| segment.offset == 0)
    else {
        return Ok(None);
    };
    let bias = start.wrapping_sub(first.address);
    let dynamic = segments
        .iter()
        .find(|segment| segment.kind == elf::PT_DYNAMIC.0);
    let symbol = dynamic.map(|dynamic| find_symbol(memory, bias, dynamic));
    match symbol {
        Some(Ok(Some(value))) => return Ok(Some(value.wrapping_sub(first.address))),
        // A table that leads nowhere is as good as none.
        None | Some(Ok(None) | Err(ReadError::Unmapped { .. })) => {}
        Some(Err(error)) => return Err(error),
    }
    if !searches {
        return Ok(None);
    }
    let variables = segments
        .iter()
        .filter(is_loaded)
        .filter(|one| one.flags & elf::PF_W.0 != 0)
        .map(|one| {
            let offset = one.address.wrapping_sub(first.address);
            (offset, one.length)
        });
    search_each(memory, start, variables)
}

/// Looks for the block among variables, each at an offset from `start`: its own offset.
fn search_each(
    memory: &impl Memory,
    start: u64,
    variables: impl IntoIterator<Item = (u64, u64)>,
) -> Result<Option<u64>, ReadError> {
    let mut left = MOST_SEARCHED;
    for (offset, length) in variables {
        left = left.saturating_sub(length);
        if left == 0 {
            break;
        }
        match search(memory, start.wrapping_add(offset), length) {
            Ok(Some(address)) => return Ok(Some(address.wrapping_sub(start))),
            Ok(None) | Err(ReadError::Unmapped { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Variables of one file that are searched; more belongs to no heap.
const MOST_SEARCHED: u64 = 64 << 20;
/// At a time.
const PART: u64 = 1 << 20;

/// Looks for the block among variables. Its own address in it may not be there yet: the program has just
/// been started.
fn search(memory: &impl Memory, start: u64, length: u64) -> Result<Option<u64>, ReadError> {
    let behind = start.saturating_add(length);
    let mut from = start & !7;
    while from < behind {
        let bytes = memory.bytes(from, PART.min(behind - from) as usize)?;
        let words = bytes.chunks_exact(8).enumerate();
        for (number, _) in words.filter(|(_, word)| word == MAGIC) {
            let address = from.wrapping_add(8 * number as u64);
            // A directory, and not the number that some reader compares with.
            let head = memory.bytes(address, 48)?;
            let is_directory = u32_at(&head, 8).is_some_and(|version| version > 0)
                && u32_at(&head, 16).is_some_and(|size| size > 48);
            let own = u64_at(&head, 40).unwrap_or(0);
            if is_directory && (own == 0 || own % 8 == 0) {
                return Ok(Some(address));
            }
        }
        from = from.saturating_add(PART);
    }
    Ok(None)
}

/// More symbols whose hashes agree has no table.
const MOST_ALIKE: u64 = 1 << 12;

/// The symbol's value, if it is among those that other files may use.
fn find_symbol(
    memory: &impl Memory,
    bias: u64,
    dynamic: &Segment,
) -> Result<Option<u64>, ReadError> {
    const LONGEST: u64 = 1 << 16;
    let start = bias.wrapping_add(dynamic.address);
    let table = memory.bytes(start, dynamic.length.min(LONGEST) as usize)?;
    let address = |tag: u64| {
        let mut entries = table.chunks_exact(16);
        let entry = entries.find(|entry| u64_at(entry, 0) == Some(tag))?;
        let value = u64_at(entry, 8)?;
        // glibc's dynamic linker puts run-time addresses there, others leave what was linked.
        Some(if value >= bias {
            value
        } else {
            bias.wrapping_add(value)
        })
    };
    let tag = |tag: elf::DynamicTag| address(tag.0 as u64);
    let (Some(symbols), Some(strings)) = (tag(elf::DT_SYMTAB), tag(elf::DT_STRTAB)) else {
        return Ok(None);
    };
    let name = LIST.symbol.as_bytes();
    // The value of the symbol of that number, if it is ours.
    let value = |number: u64| -> Result<Option<u64>, ReadError> {
        let symbol = memory.bytes(symbols.wrapping_add(24 * number), 24)?;
        let at = strings.wrapping_add(u32_at(&symbol, 0).unwrap_or(0).into());
        let is_defined = number_at(&symbol, 6, 2) != Some(0);
        let is_ours = is_defined && text(&memory.bytes(at, name.len() + 1)?).as_bytes() == name;
        Ok(u64_at(&symbol, 8).filter(|_| is_ours))
    };
    // What stands there is a stranger's, so sums wrap.
    let word = |base: u64, at: u64| -> Result<u64, ReadError> {
        let bytes = memory.bytes(base.wrapping_add(at), 4)?;
        Ok(u32_at(&bytes, 0).unwrap_or(0).into())
    };
    if let Some(table) = tag(elf::DT_GNU_HASH) {
        let hash = u64::from(elf::gnu_hash(name));
        let head = memory.bytes(table, 16)?;
        let field = |at| u64::from(u32_at(&head, at).unwrap_or(0));
        let (buckets, first, blooms, shift) = (field(0), field(4), field(8), field(12));
        if buckets == 0 || blooms == 0 {
            return Ok(None);
        }
        let bloom = memory.bytes(table.wrapping_add(16 + 8 * ((hash / 64) % blooms)), 8)?;
        let bits = 1u64 << (hash % 64) | 1u64 << ((hash >> shift.min(31)) % 64);
        if u64_at(&bloom, 0).unwrap_or(0) & bits != bits {
            return Ok(None);
        }
        let chains = table.wrapping_add(16 + 8 * blooms);
        let begin = word(chains, 4 * (hash % buckets))?;
        if begin < first {
            return Ok(None);
        }
        for number in begin..begin + MOST_ALIKE {
            let own = word(chains, 4 * (buckets + number - first))?;
            if own | 1 == hash | 1 {
                if let Some(value) = value(number)? {
                    return Ok(Some(value));
                }
            }
            if own & 1 != 0 {
                break;
            }
        }
        return Ok(None);
    }
    let Some(table) = tag(elf::DT_HASH) else {
        return Ok(None);
    };
    let buckets = word(table, 0)?.max(1);
    let mut number = word(table, 8 + 4 * (u64::from(elf::hash(name)) % buckets))?;
    for _ in 0..MOST_ALIKE {
        if number == 0 {
            break;
        }
        if let Some(value) = value(number)? {
            return Ok(Some(value));
        }
        number = word(table, 8 + 4 * (buckets + number))?;
    }
    Ok(None)
}

/// A file as an image at the addresses that it is linked for.
struct FileImage {
    file: File,
    segments: Vec<Segment>,
    /// Of the first byte.
    start: u64,
}

impl FileImage {
    fn of(file: File) -> Option<FileImage> {
        let read = |offset, length| {
            let mut bytes = vec![0; length];
            let read = file.read_exact_at(&mut bytes, offset);
            read.map(|()| bytes).map_err(|_| ReadError::Unmapped {
                address: offset,
                length,
            })
        };
        let header = read(0, HEADER).ok()?;
        let mut segments = segments_of(&header, read).ok()??;
        segments.retain(|segment| segment.kind == elf::PT_LOAD.0);
        let start = segments.iter().find(|segment| segment.offset == 0)?.address;
        Some(FileImage {
            file,
            segments,
            start,
        })
    }
}

impl Memory for FileImage {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        let holds = |segment: &&Segment| {
            let into = address.checked_sub(segment.address);
            into.is_some_and(|into| into.saturating_add(length as u64) <= segment.length)
        };
        let found = self.segments.iter().find(holds).and_then(|segment| {
            let offset = segment.offset.checked_add(address - segment.address)?;
            self.file.read_exact_at(buffer, offset).ok()
        });
        found.ok_or(ReadError::Unmapped { address, length })
    }
}
