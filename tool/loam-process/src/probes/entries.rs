//! The functions of a process's allocator: which file has them, at which places of it, and what
//! their arguments are.
//!
//! The program's own functions come first, then those of a library that is not the C library, then
//! the C library's: that is the order in which the linker finds them. A program whose `malloc` is
//! not exported has its own for itself, while libraries use another one; then both count.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

use crate::code::as_mapped;
use crate::mappings::Mapping;
use crate::process::Pid;
use crate::untrusted::{self, Pieces};

/// What a function's arguments mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Call {
    /// The size comes first.
    Malloc,
    /// A number and a size.
    Calloc,
    /// A block and its new size.
    Realloc,
    /// An alignment and the size.
    Aligned,
    /// Where the block's address goes, an alignment, and the size.
    PosixMemalign,
    /// A block comes first.
    Free,
}

impl Call {
    /// All, by their numbers.
    pub const ALL: [Call; 6] = [
        Call::Malloc,
        Call::Calloc,
        Call::Realloc,
        Call::Aligned,
        Call::PosixMemalign,
        Call::Free,
    ];
}

/// Names that a file with a `malloc` has.
const NAMES: [(&str, Call); 38] = [
    ("malloc", Call::Malloc),
    ("free", Call::Free),
    ("calloc", Call::Calloc),
    ("realloc", Call::Realloc),
    ("memalign", Call::Aligned),
    ("aligned_alloc", Call::Aligned),
    ("posix_memalign", Call::PosixMemalign),
    ("valloc", Call::Malloc),
    ("pvalloc", Call::Malloc),
    ("cfree", Call::Free),
    ("free_sized", Call::Free),
    ("free_aligned_sized", Call::Free),
    // operator new and new[]: plain, without throwing, aligned, both.
    ("_Znwm", Call::Malloc),
    ("_Znam", Call::Malloc),
    ("_ZnwmRKSt9nothrow_t", Call::Malloc),
    ("_ZnamRKSt9nothrow_t", Call::Malloc),
    ("_ZnwmSt11align_val_t", Call::Malloc),
    ("_ZnamSt11align_val_t", Call::Malloc),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", Call::Malloc),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", Call::Malloc),
    // operator delete and delete[], also with the size.
    ("_ZdlPv", Call::Free),
    ("_ZdaPv", Call::Free),
    ("_ZdlPvm", Call::Free),
    ("_ZdaPvm", Call::Free),
    ("_ZdlPvRKSt9nothrow_t", Call::Free),
    ("_ZdaPvRKSt9nothrow_t", Call::Free),
    ("_ZdlPvSt11align_val_t", Call::Free),
    ("_ZdaPvSt11align_val_t", Call::Free),
    ("_ZdlPvmSt11align_val_t", Call::Free),
    ("_ZdaPvmSt11align_val_t", Call::Free),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", Call::Free),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", Call::Free),
    // jemalloc's own.
    ("mallocx", Call::Malloc),
    ("rallocx", Call::Realloc),
    ("dallocx", Call::Free),
    ("sdallocx", Call::Free),
    // mimalloc's own, where they are functions of their own.
    ("mi_malloc", Call::Malloc),
    ("mi_free", Call::Free),
];

/// What stands before these names in a file whose allocator does not take the place of the C
/// library's.
const PREFIXES: [&str; 4] = ["je_", "_rjem_", "mi_", "tc_"];

/// A function of the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its arguments.
    pub call: Call,
    /// Where the probe goes: an offset in the file.
    pub offset: u64,
    /// Whether the kernel executes the instruction there itself, which is cheap.
    pub is_emulated: bool,
}

/// The functions of a file.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file, as this process can open it.
    pub path: CString,
    /// The name for people.
    pub name: String,
    /// Its functions.
    pub entries: Vec<Entry>,
}

/// What a file has.
struct Read {
    source: Source,
    has_malloc: bool,
    is_exported: bool,
}

/// The functions of a process's allocator, by the files that have them.
pub fn find(pid: Pid, mappings: &[Mapping]) -> Vec<Source> {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut seen = HashSet::new();
    let mut own = None;
    let mut library = None;
    let mut c_library = None;
    for mapping in mappings {
        if !mapping.executable || mapping.inode == 0 || !mapping.name.starts_with('/') {
            continue;
        }
        if !seen.insert((mapping.device.clone(), mapping.inode)) {
            continue;
        }
        let file = mapping.file_name().unwrap_or_default();
        // The dynamic linker has a malloc for the time before the C library is there; the recorder
        // only passes on.
        if file.starts_with("ld-linux") || file.starts_with("libloam-record") {
            continue;
        }
        let Some(read) = read(pid, mapping) else {
            continue;
        };
        let is_c_library = file.starts_with("libc.so")
            || file.starts_with("libc-2.")
            || file.starts_with("ld-musl");
        let place = match () {
            () if Path::new(&mapping.name) == program => &mut own,
            () if is_c_library => &mut c_library,
            // A library that uses an allocator of its own under other names is not this process's
            // allocator.
            () if !read.has_malloc => continue,
            () => &mut library,
        };
        place.get_or_insert(read);
    }
    let is_alone = own
        .as_ref()
        .is_some_and(|own| own.has_malloc && own.is_exported);
    let shared = library.or(c_library).filter(|_| !is_alone);
    [own, shared]
        .into_iter()
        .flatten()
        .map(|read| read.source)
        .filter(|source| !source.entries.is_empty())
        .collect()
}

fn read(pid: Pid, mapping: &Mapping) -> Option<Read> {
    let paths = as_mapped(pid, &mapping.name, mapping.start, mapping.end);
    let (path, cache) = paths.iter().find_map(|path| {
        let file = untrusted::open(path).ok()?;
        Some((path, Pieces::of(file)))
    })?;
    let file = object::File::parse(&cache).ok()?;
    let mut found: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    let exported = file.dynamic_symbols().map(|symbol| (symbol, true));
    let all = exported.chain(file.symbols().map(|symbol| (symbol, false)));
    for (symbol, is_exported) in all {
        if symbol.is_undefined() || symbol.kind() != SymbolKind::Text || symbol.address() == 0 {
            continue;
        }
        if let Ok(name) = symbol.name() {
            // Versions of a symbol: the first is the default's or the only one.
            found.entry(name).or_insert((symbol.address(), is_exported));
        }
    }
    let has = |name: &str| found.get(name).copied();
    let malloc = has("malloc");
    let prefixes: &[&str] = match malloc {
        Some(_) => &[""],
        None => &PREFIXES,
    };
    let mut entries: Vec<Entry> = Vec::new();
    for prefix in prefixes {
        for (name, call) in NAMES {
            let Some((address, _)) = has(&format!("{prefix}{name}")) else {
                continue;
            };
            let Some(entry) = entry(&file, address, call) else {
                continue;
            };
            if !entries.iter().any(|known| known.offset == entry.offset) {
                entries.push(entry);
            }
        }
    }
    Some(Read {
        source: Source {
            path: CString::new(path.as_os_str().as_bytes()).ok()?,
            name: mapping.name.clone(),
            entries,
        },
        has_malloc: malloc.is_some(),
        is_exported: malloc.is_some_and(|(_, is_exported)| is_exported),
    })
}

fn entry<'a>(
    file: &object::File<'a, &'a ReadCache<Pieces>>,
    address: u64,
    call: Call,
) -> Option<Entry> {
    const LOOK: u64 = 64;
    let segment = file.segments().find(|segment| {
        let from = segment.address();
        segment.permissions().executable()
            && (from..from.saturating_add(segment.size())).contains(&address)
    })?;
    let (offset, bytes) = segment.file_range();
    let within = address - segment.address();
    if within >= bytes {
        return None;
    }
    let code = segment
        .data_range(address, LOOK.min(bytes - within))
        .ok()
        .flatten()?;
    let (skip, is_emulated) = place(code, call);
    Some(Entry {
        call,
        offset: offset + within + skip,
        is_emulated,
    })
}

/// Where in a function's first instructions a probe is cheap: how many bytes behind its begin, and
/// whether it is. The kernel executes a push, a jump and a nop itself. Any other instruction it
/// lets the processor step over, which takes another trap, of several microseconds in a virtual
/// machine. Instructions that change neither the arguments nor the stack may come before the probe:
/// both are there as at the function's begin.
#[cfg(target_arch = "x86_64")]
fn place(code: &[u8], call: Call) -> (u64, bool) {
    // rdi, rsi, rdx by their numbers, and the stack pointer.
    let needed: &[u8] = match call {
        Call::Malloc | Call::Free => &[7, 4],
        Call::Calloc | Call::Realloc | Call::Aligned => &[7, 6, 4],
        Call::PosixMemalign => &[7, 6, 2, 4],
    };
    let mut at = 0;
    loop {
        let rest = &code[at..];
        match rest {
            // push, with and without a prefix.
            [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..]
            // jumps, conditional ones too; a nop.
            | [0xe9 | 0xeb | 0x70..=0x7f | 0x90, ..] | [0x0f, 0x80..=0x8f, ..] => {
                return (at as u64, true);
            }
            // endbr64.
            [0xf3, 0x0f, 0x1e, 0xfa, ..] => at += 4,
            _ => match harmless(rest) {
                Some((length, changed)) if changed.is_none_or(|one| !needed.contains(&one)) => {
                    at += length;
                }
                _ => return (0, false),
            },
        }
        if at > code.len() {
            return (0, false);
        }
    }
}

/// An instruction that changes one register or only flags, and nothing else: its length, and the
/// register. None: not known.
#[cfg(target_arch = "x86_64")]
fn harmless(code: &[u8]) -> Option<(usize, Option<u8>)> {
    let mut at = 0;
    // A load from the thread's own variables.
    if code.first() == Some(&0x64) {
        at += 1;
    }
    let rex = match code.get(at)? {
        rex @ 0x40..=0x4f => {
            at += 1;
            *rex
        }
        _ => 0,
    };
    let opcode = *code.get(at)?;
    at += 1;
    // and, cmp of the accumulator and a constant.
    if matches!(opcode, 0x25 | 0x3d) {
        return Some((at + 4, (opcode == 0x25).then_some(0)));
    }
    let constant = match opcode {
        // mov, lea, test, cmp.
        0x89 | 0x8b | 0x8d | 0x85 | 0x39 | 0x3b => 0,
        // With a constant of four bytes or one; shifts.
        0x81 => 4,
        0x83 | 0xc1 => 1,
        _ => return None,
    };
    let modes = *code.get(at)?;
    at += 1;
    let (mode, middle, low) = (modes >> 6, modes >> 3 & 7, modes & 7);
    let register = middle | (rex & 4) << 1;
    let other = low | (rex & 1) << 3;
    if mode != 3 && low == 4 {
        // An index; without a base it has four more bytes.
        let index = *code.get(at)?;
        at += 1;
        if mode == 0 && index & 7 == 5 {
            at += 4;
        }
    }
    at += match (mode, low) {
        (0, 5) | (2, _) => 4,
        (1, _) => 1,
        _ => 0,
    };
    at += constant;
    let changed = match (opcode, middle) {
        (0x85 | 0x39 | 0x3b, _) | (0x81 | 0x83, 7) => None,
        (0x8b | 0x8d, _) => Some(register),
        // What is written to must be a register.
        _ if mode == 3 => Some(other),
        _ => return None,
    };
    Some((at, changed))
}

/// A nop, or the first instruction as it is: most are simulated, or cost little to step over.
#[cfg(target_arch = "aarch64")]
fn place(_: &[u8], _: Call) -> (u64, bool) {
    (0, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_probe_goes_where_the_kernel_executes_the_instruction_itself() {
        let of = |bytes: &[u8], call| place(bytes, call);
        assert_eq!(of(&[0x41, 0x55, 0x48], Call::Malloc), (0, true));
        assert_eq!(of(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55], Call::Malloc), (4, true));
        // free() of glibc 2.36: test rdi, rdi; je.
        assert_eq!(
            of(&[0x48, 0x85, 0xff, 0x0f, 0x84, 0, 0], Call::Free),
            (3, true)
        );
        // malloc() of jemalloc: cmp rdi, 4096; ja.
        let compares = [0x48, 0x81, 0xff, 0, 0x10, 0, 0, 0x0f, 0x87];
        assert_eq!(of(&compares, Call::Malloc), (7, true));
        // free() of mimalloc: mov rcx, rdi; test rdi, rdi; je.
        let moves = [0x48, 0x89, 0xf9, 0x48, 0x85, 0xff, 0x74, 0x5d];
        assert_eq!(of(&moves, Call::Free), (6, true));
        // free() of tcmalloc: mov rax, [rip + ...]; test rax, rax; jne.
        let loads = [0x48, 0x8b, 5, 1, 2, 3, 4, 0x48, 0x85, 0xc0, 0x0f, 0x85];
        assert_eq!(of(&loads, Call::Free), (10, true));
        // malloc() of mimalloc overwrites its argument: mov rax, [...]; mov rsi, rdi; mov rdi,
        // fs:[rax].
        let overwrites = [
            0x48, 0x8b, 5, 1, 2, 3, 4, 0x48, 0x89, 0xfe, 0x64, 0x48, 0x8b, 0x38, 0x77,
        ];
        assert_eq!(of(&overwrites, Call::Malloc), (0, false));
        // A store, the stack, an unknown instruction, and the end of what is there.
        assert_eq!(of(&[0x48, 0x89, 0x38, 0x55], Call::Malloc), (0, false));
        assert_eq!(of(&[0x48, 0x83, 0xec, 8, 0x55], Call::Malloc), (0, false));
        assert_eq!(of(&[0x0f, 0x10, 0x55], Call::Malloc), (0, false));
        for length in 0..compares.len() - 1 {
            assert_eq!(
                of(&compares[..length], Call::Malloc),
                (0, false),
                "{length}"
            );
        }
        assert_eq!(of(&[], Call::Malloc), (0, false));
    }

    #[test]
    fn names_are_told_once() {
        let names: HashSet<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), NAMES.len());
    }

    #[test]
    fn this_process_has_a_malloc_and_a_free() {
        let pid = std::process::id() as Pid;
        let found = find(pid, &mappings::read_names(pid).unwrap());
        let calls: HashSet<u8> = found
            .iter()
            .flat_map(|source| &source.entries)
            .map(|entry| entry.call as u8)
            .collect();
        for call in Call::ALL {
            assert!(calls.contains(&(call as u8)), "{call:?} {found:?}");
        }
    }
}
