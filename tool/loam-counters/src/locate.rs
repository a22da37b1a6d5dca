//! Finds the block `loam_counters` in a process.
//!
//! ```text
//! mapped files -> program headers -> dynamic symbols -> offset in the image (kept by file)
//!              -> address
//!              -> of a program without that symbol: search its variables for the magic number
//!              -> of a program or a library of Windows that Wine runs: the same (pe.rs)
//!              -> does it say that it lies there?
//! ```
//!
//! The image is read where it is mapped in the process. So the file may have any name, may be
//! deleted, or may lie in another mount namespace or on a file system that no longer answers. Only
//! if the memory may not be read is the file itself used. It shows whether the process is on Loam
//! at all.
//!
//! The block names its own address, so a wrong guess is always detected.

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

/// The block's address. None: the process is not on Loam, or not yet.
pub fn find(pid: Pid, mappings: &[Mapping]) -> Result<Option<u64>, ReadError> {
    let memory = ProcessMemory::of(pid);
    let pid = face(pid);
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = program.map(|path| path.to_string_lossy().into_owned());
    let mut files: Vec<(bool, bool, usize)> = Vec::new();
    for (place, first) in mappings.iter().enumerate() {
        let is_first = first.offset == 0 && first.inode != 0 && first.name.starts_with('/');
        let name = first.file_name().unwrap_or_default();
        // Data that a program maps is no image, and may lie anywhere. Wine maps only the headers of
        // Windows' files.
        let is_image = || parts_of(&mappings[place..]).any(|part| part.executable);
        if is_first && (is_image() || pe::may_be(name)) {
            let is_library = name.starts_with(LIBRARY_STEM);
            let is_program = program.as_deref() == Some(first.name.as_str());
            files.push((!is_library, !is_program, place));
        }
    }
    // The likely files come first.
    files.sort_unstable();
    let mut from_memory = true;
    for (is_no_library, is_no_program, place) in files {
        let is_likely = !is_no_library || !is_no_program;
        let file = &mappings[place];
        let offset = match offset_in(pid, &mappings[place..], is_likely, from_memory) {
            Ok(Some(offset)) => offset,
            Ok(None) | Err(ReadError::Unmapped { .. }) => continue,
            // If reading is denied once, it is always denied. The files can still be read.
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
            // The file shows that the process is on Loam.
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The same in any memory: a core's, for instance. Nothing is kept for the next process.
pub fn find_in(memory: &impl Memory, mappings: &[Mapping]) -> Option<u64> {
    let mut files: Vec<(bool, usize)> = Vec::new();
    for (place, first) in mappings.iter().enumerate() {
        let is_first = first.offset == 0 && first.inode != 0 && first.name.starts_with('/');
        if is_first && parts_of(&mappings[place..]).any(|part| part.executable) {
            let name = first.file_name().unwrap_or_default();
            files.push((!name.starts_with(LIBRARY_STEM), place));
        }
    }
    files.sort_unstable();
    files.into_iter().find_map(|(_, place)| {
        let start = mappings[place].start;
        let offset = look_up(memory, start, true).ok().flatten()?;
        let address = start.wrapping_add(offset);
        lies_at(memory, address).ok()?.then_some(address)
    })
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

/// A cache of the files that were examined, since most processes of a machine share files. It has
/// the block's offset from the file's first byte, by the file's key (see `key_of`).
static KNOWN: LazyLock<Mutex<HashMap<u64, Option<u64>>>> = LazyLock::new(Mutex::default);
/// The most files in the cache, at 17 bytes each. Chosen: several times what a desktop maps. On a
/// machine that compiles all day, all files are examined again now and then.
const MOST_KNOWN: usize = 1 << 15;

/// The mappings of the first one's file, which lie side by side.
fn parts_of(file: &[Mapping]) -> impl Iterator<Item = &Mapping> {
    let is_same = |part: &&Mapping| part.inode == file[0].inode && part.device == file[0].device;
    file.iter().take_while(is_same)
}

/// The identity of a file. The file system reuses the number of a deleted file, so the name and the
/// length in memory are part of the key. The key is a hash: if two files ever had the same hash,
/// one process would not be found.
fn key_of(file: &[Mapping], is_likely: bool) -> u64 {
    let first = &file[0];
    let end = parts_of(file).map(|part| part.end).max().unwrap_or(0);
    let mut hasher = DefaultHasher::new();
    (&first.device, first.inode, &first.name).hash(&mut hasher);
    (end.saturating_sub(first.start), is_likely).hash(&mut hasher);
    hasher.finish()
}

/// The block's offset in the file that the first of these mappings maps, if the file has the block.
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
        look_up(&ProcessMemory::of(pid), file[0].start, is_likely)
    } else {
        match open(pid, &file[0]).and_then(FileImage::of) {
            Some(image) => look_up(&image, image.start, is_likely),
            None => return Ok(None),
        }
    };
    let found = match found {
        // A file without parts mapped as its headers describe has no block.
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

/// The mapped file itself if the system allows it, else the file that now has its path.
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
    // The path may now name a pipe or a device, and opening those can wait for ever.
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
    /// Bytes that are mapped from the file.
    length: u64,
}

/// `Elf64_Ehdr` and `Elf64_Phdr` of <elf.h>.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// The kernel executes no file with more program headers.
const MOST_SEGMENTS: u64 = 1 << 10;

/// Reads the program headers of an image. The image's header was read before and says where they
/// lie.
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

/// The block's offset from the image's first byte.
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
        // A hash table that leads nowhere is treated as absent.
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

/// Searches variables for the block. The variables are at offsets from `start`, and so is the
/// result.
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

/// The most bytes of variables that are searched in a file. No heap's file has more.
const MOST_SEARCHED: u64 = 64 << 20;
/// Bytes that are read at once.
const PART: u64 = 1 << 20;

/// Searches variables for the block. A program that has just started may not have written the
/// block's own address yet.
fn search(memory: &impl Memory, start: u64, length: u64) -> Result<Option<u64>, ReadError> {
    let behind = start.saturating_add(length);
    let mut from = start & !7;
    while from < behind {
        let bytes = memory.bytes(from, PART.min(behind - from) as usize)?;
        let words = bytes.chunks_exact(8).enumerate();
        for (number, _) in words.filter(|(_, word)| word == MAGIC) {
            let address = from.wrapping_add(8 * number as u64);
            // Checks that this is a directory: a reader's copy of the magic number is not one.
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

/// The most symbols with the same hash that are tried. No real table has more.
const MOST_ALIKE: u64 = 1 << 12;

/// The symbol's value, if the symbol is exported.
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
        // glibc's dynamic linker stores run-time addresses here; other linkers leave the addresses
        // of the file.
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
    // The value of the symbol with that number, if it is the wanted symbol.
    let value = |number: u64| -> Result<Option<u64>, ReadError> {
        let symbol = memory.bytes(symbols.wrapping_add(24 * number), 24)?;
        let at = strings.wrapping_add(u32_at(&symbol, 0).unwrap_or(0).into());
        let is_defined = number_at(&symbol, 6, 2) != Some(0);
        let is_ours = is_defined && text(&memory.bytes(at, name.len() + 1)?).as_bytes() == name;
        Ok(u64_at(&symbol, 8).filter(|_| is_ours))
    };
    // The table is not trusted, so sums wrap.
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

/// A file, read as an image at its link-time addresses.
struct FileImage {
    file: File,
    segments: Vec<Segment>,
    /// Address of the first byte.
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
