//! The program's code as a trim needs it: where malloc's functions lie, the instructions that the
//! program's own code lends, and whether its C library takes locks.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use loam_format::memory::Memory;

use super::inject::{Gadgets, CALL, RESTORER};
use super::TrimError;
use crate::glibc::layout::{is_libc, Version};
use crate::mappings::Mapping;
use crate::named_places::NamedPlaces;
use crate::process::Pid;

/// Functions of the file `malloc.c`, whose code is one stretch.
const MALLOC: [&str; 15] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_usable_size",
    "mallinfo",
    "malloc_stats",
    "mallopt",
    "malloc_info",
];
/// How long that stretch is at most. It has 19 KiB in 2.36.
const LONGEST: u64 = 128 << 10;

/// What is known of the program's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The addresses of malloc's functions, with what lies between them and their named neighbours.
    pub malloc: Range<u64>,
    /// Instructions.
    pub gadgets: Gadgets,
    /// The byte that is zero while locks are taken; none before 2.32.
    single: Option<u64>,
}

impl Program {
    /// Reads it.
    pub fn read(
        pid: Pid,
        mappings: &[Mapping],
        version: Version,
        memory: &impl Memory,
    ) -> Result<Program, TrimError> {
        let unknown = |what: &str| TrimError::Code(what.to_owned());
        let mut libraries = mappings.iter().filter(|one| one.executable && is_libc(one));
        let mapping = libraries.next();
        if libraries.any(|other| Some(other.inode) != mapping.map(|one| one.inode)) {
            return Err(unknown("it has two C libraries"));
        }
        // A static program has malloc in its own file.
        let is_own = |one: &&Mapping| one.executable && one.name.starts_with('/');
        let mapping = mapping
            .or_else(|| mappings.iter().find(is_own))
            .ok_or_else(|| unknown("its code was not found"))?;
        let places = NamedPlaces::read(pid, mapping)
            .ok_or_else(|| unknown("the names of its C library's functions can not be read"))?;
        let malloc = malloc(&places).ok_or_else(|| {
            unknown("its C library names no functions, so nothing says where malloc's code lies")
        })?;
        let code = mappings
            .iter()
            .filter(|one| one.executable && (one.inode == mapping.inode || one.name == "[vdso]"));
        let (mut call, mut restorer) = (None, None);
        for one in code {
            let Ok(bytes) = memory.bytes(one.start, one.size() as usize) else {
                continue;
            };
            let find = |wanted: &[u8]| {
                let place = bytes
                    .windows(wanted.len())
                    .position(|some| some == wanted)?;
                Some(one.start + place as u64)
            };
            call = call.or_else(|| find(CALL));
            restorer = restorer.or_else(|| find(RESTORER));
        }
        let (Some(call), Some(restorer)) = (call, restorer) else {
            return Err(unknown("its code has no system call that could be used"));
        };
        let single = places.address("__libc_single_threaded");
        Ok(Program {
            malloc,
            gadgets: Gadgets {
                call,
                restorer,
                lock: places.address("__lll_lock_wait_private"),
            },
            single: single.filter(|_| version.minor >= 32),
        })
    }

    /// Whether the C library takes locks, because it knows of several threads. `header`: what the
    /// thread's own record says of it, in versions before 2.32.
    pub fn takes_locks(&self, memory: &impl Memory, header: u64) -> bool {
        match self.single {
            Some(single) => memory.bytes(single, 1).is_ok_and(|byte| byte == [0]),
            None => {
                const MULTIPLE_THREADS: u64 = 0x18;
                let word = memory.bytes(header + MULTIPLE_THREADS, 4);
                word.is_ok_and(|bytes| bytes == 1_u32.to_le_bytes())
            }
        }
    }
}

/// From the end of the named function before malloc's to the begin of the next one behind them.
fn malloc(places: &NamedPlaces) -> Option<Range<u64>> {
    places.address("malloc").and(places.address("free"))?;
    let is_malloc = |name: &str| MALLOC.contains(&name);
    let of_malloc = || places.iter().filter(|(.., name)| is_malloc(name));
    let first = of_malloc().map(|(address, ..)| *address).min()?;
    let last = of_malloc().map(|(address, size, _)| address + size).max()?;
    let before = places
        .iter()
        .filter(|(address, size, _)| address + size <= first);
    let start = before.map(|(address, size, _)| address + size).max();
    let behind = places.iter().filter(|(address, ..)| *address >= last);
    let end = behind.map(|(address, ..)| *address).min();
    let found = start.unwrap_or(first)..end.unwrap_or(last);
    (found.end - found.start <= LONGEST).then_some(found)
}

/// Reads the memory of a process by a file that stays open: if the process becomes another program,
/// it reads nothing.
pub struct Bytes<'a>(pub &'a File);

impl Memory for Bytes<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), loam_format::memory::ReadError> {
        self.0.read_exact_at(buffer, address).map_err(|_| {
            loam_format::memory::ReadError::Unmapped {
                address,
                length: buffer.len(),
            }
        })
    }
}
