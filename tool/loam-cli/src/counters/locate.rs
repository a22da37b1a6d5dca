//! Where the block `loam_counters` lies in a process.
//!
//! ```text
//! mapped files -> symbol in the file (kept by file) -> + load bias -> does it say that it lies there?
//!              -> no file, or a stripped one: search its variables for the magic number
//! ```
//!
//! The block names its own address, so a wrong guess is always found out.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};

use object::read::elf::{FileHeader, ProgramHeader};
use object::read::ReadRef;
use object::{elf, Endianness, FileKind, ReadCache};

use super::bytes::u64_at;
use super::directory::MAGIC;
use super::list::LIST;
use crate::layout::LIBRARY_NAME;
use crate::observe::mappings::Mapping;
use crate::observe::process::{face, Pid};
use crate::observe::remote::{Memory, ProcessMemory, ReadError};

/// How hard to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// In libraries of the heap's name and in the program: for looking at every process there is.
    Quick,
    /// In every mapped file, and for stripped ones in their variables.
    Thorough,
}

/// The block's address, or none: the process is not on Loam, or not yet.
pub fn find(pid: Pid, mappings: &[Mapping], effort: Effort) -> Result<Option<u64>, ReadError> {
    let memory = ProcessMemory(pid);
    let pid = face(pid);
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = program.map(|path| path.to_string_lossy().into_owned());
    let mut files: Vec<&Mapping> = mappings
        .iter()
        .filter(|mapping| {
            mapping.offset == 0 && mapping.inode != 0 && mapping.name.starts_with('/')
        })
        .collect();
    let is_library = |mapping: &Mapping| {
        mapping
            .file_name()
            .is_some_and(|name| name.starts_with(LIBRARY_STEM))
    };
    let is_program = |mapping: &Mapping| program.as_deref() == Some(mapping.name.as_str());
    let rank = |mapping: &Mapping| (!is_library(mapping), !is_program(mapping));
    files.sort_by_key(|mapping| rank(mapping));
    let mut denied = None;
    for file in files {
        let is_likely = is_library(file) || is_program(file);
        if effort == Effort::Quick && !is_likely {
            break;
        }
        if let Some((value, base)) = symbol(pid, file) {
            let address = value.wrapping_add(file.start.wrapping_sub(base));
            match lies_at(&memory, address) {
                Ok(true) => return Ok(Some(address)),
                Ok(false) | Err(ReadError::Unmapped { .. }) => {}
                // It is on Loam, that much is known from the file.
                Err(error) => denied = Some(error),
            }
        }
        let is_worth_searching = is_library(file) || (effort == Effort::Thorough && is_likely);
        if is_worth_searching {
            match search(&memory, mappings, file) {
                Ok(Some(address)) => return Ok(Some(address)),
                Ok(None) | Err(ReadError::Unmapped { .. }) => {}
                Err(error) if is_library(file) => denied = Some(error),
                Err(_) => {}
            }
        }
    }
    denied.map_or(Ok(None), Err)
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

/// Variables of one file that are searched; more belongs to no heap.
const MOST_SEARCHED: u64 = 64 << 20;

/// Looks for the block among a file's variables, which are its mappings that may hold relocations.
fn search(
    memory: &impl Memory,
    mappings: &[Mapping],
    file: &Mapping,
) -> Result<Option<u64>, ReadError> {
    let same = |mapping: &&Mapping| mapping.inode == file.inode && mapping.device == file.device;
    let variables = mappings
        .iter()
        .filter(same)
        .filter(|mapping| mapping.readable && !mapping.executable && mapping.offset != 0);
    let mut left = MOST_SEARCHED;
    for mapping in variables {
        if mapping.size() > left {
            break;
        }
        left -= mapping.size();
        let bytes = memory.bytes(mapping.start, mapping.size() as usize)?;
        for (number, word) in bytes.chunks_exact(8).enumerate() {
            let address = mapping.start + 8 * number as u64;
            if word == MAGIC && u64_at(&bytes, 8 * number + 40) == Some(address) {
                return Ok(Some(address));
            }
        }
    }
    Ok(None)
}

/// What a file says: the symbol's value, and the address that its first byte is linked for.
type Symbol = Option<(u64, u64)>;

/// Files are looked into once: a machine's processes share most of them.
static KNOWN: LazyLock<Mutex<HashMap<(String, u64), Symbol>>> = LazyLock::new(Mutex::default);

fn symbol(pid: Pid, file: &Mapping) -> Symbol {
    let key = (file.device.clone(), file.inode);
    if let Some(found) = KNOWN.lock().ok()?.get(&key) {
        return *found;
    }
    let found = open(pid, file).and_then(|file| look_up(&ReadCache::new(file)));
    KNOWN.lock().ok()?.insert(key, found);
    found
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
    // A name may lead anywhere, to a pipe or a device too, and opening those can wait for ever.
    let open = |path: PathBuf| {
        let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
        is_file.then(|| File::open(path).ok()).flatten()
    };
    open(range.into())
        .or_else(|| open(rooted))
        .or_else(|| open(path.into()))
}

fn look_up<'data, R: ReadRef<'data>>(data: R) -> Symbol {
    match FileKind::parse(data).ok()? {
        FileKind::Elf64 => find_symbol::<elf::FileHeader64<Endianness>, R>(data),
        FileKind::Elf32 => find_symbol::<elf::FileHeader32<Endianness>, R>(data),
        _ => None,
    }
}

fn find_symbol<'data, H, R>(data: R) -> Symbol
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    use object::read::elf::Sym;
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let first = segments.iter().find(|segment| {
        segment.p_type(endian) == elf::PT_LOAD && segment.p_offset(endian).into() == 0
    })?;
    let base: u64 = first.p_vaddr(endian).into();
    let sections = header.sections(endian, data).ok()?;
    for table in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        let Ok(symbols) = sections.symbols(endian, data, table) else {
            continue;
        };
        let found = symbols.iter().find(|symbol| {
            symbol.st_shndx(endian) != elf::SHN_UNDEF
                && symbol.name(endian, symbols.strings()) == Ok(LIST.symbol.as_bytes())
        });
        if let Some(symbol) = found {
            return Some((symbol.st_value(endian).into(), base));
        }
    }
    None
}
