//! The glibc version of a process, and the places of its records.
//!
//! The offsets are those of glibc's malloc/malloc.c and malloc/arena.c on 64-bit little-endian
//! machines. They are the same from 2.28 to 2.43, with these exceptions: the width of a cache's
//! counters, the mark of its blocks, whether list pointers are mangled, and the length of
//! `heap_info`, which follows from the arena's own address. Since 2.42 a cache has 76 lists, and
//! counts the free places of each. The newest sources have no fast bins: their arena's record is
//! shorter, and which of the two it is follows from its own lists. A walk checks every header that
//! it meets, so a version that keeps its records elsewhere is refused and not misread.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

use crate::mappings::Mapping;
use crate::process::{face, Pid};
use crate::untrusted;

/// `struct malloc_state`, by offset in bytes.
pub mod arena {
    /// The first of ten lists of small freed chunks, if there are such lists.
    pub const FAST_BINS: usize = 16;
    /// The number of these lists.
    pub const FAST_BIN_COUNT: usize = 10;
    /// The number of pairs of list ends.
    pub const BIN_COUNT: usize = 127;

    /// Where the fields are that have moved.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Record {
        /// The number of fast bins.
        pub fast_bins: usize,
        /// The chunk at the arena's end.
        pub top: usize,
        /// The first pair of list ends.
        pub bins: usize,
        /// The next arena in the ring of all.
        pub next: usize,
        /// Bytes that the arena took from the system.
        pub system_bytes: usize,
        /// The length of the whole record.
        pub length: usize,
    }

    /// With fast bins, and without.
    pub const RECORDS: [Record; 2] = [
        Record {
            fast_bins: FAST_BIN_COUNT,
            top: 96,
            bins: 112,
            next: 2160,
            system_bytes: 2184,
            length: 2200,
        },
        Record {
            fast_bins: 0,
            top: 8,
            bins: 24,
            next: 2072,
            system_bytes: 2096,
            length: 2112,
        },
    ];
}

/// `struct heap_info`, by offset in bytes.
pub mod heap_info {
    /// The arena that the heap belongs to.
    pub const ARENA: usize = 0;
    /// The heap that the arena used before this one; null for its first.
    pub const PREVIOUS: usize = 8;
    /// Bytes in use from the heap's start.
    pub const SIZE: usize = 16;
    /// How much of it is read.
    pub const LENGTH: usize = 24;
    /// Its length until 2.34, and since 2.35.
    pub const LENGTHS: [u64; 2] = [0x20, 0x30];
}

/// Heaps of arenas but the main one lie at multiples of this (`HEAP_MAX_SIZE`).
pub const HEAP_ALIGNMENT: u64 = 64 << 20;
/// Whether an arena's record lies in the first of its own heaps, as that of every arena but a main
/// one does.
pub fn is_in_heap(arena: u64) -> bool {
    heap_info::LENGTHS.contains(&(arena % HEAP_ALIGNMENT))
}
/// Addresses and lengths of chunks are multiples of this.
pub const ALIGNMENT: u64 = 16;
/// The least length of a chunk.
pub const SHORTEST: u64 = 32;
/// The length of a chunk that ends a part of an arena: the arena continues in another heap, or the
/// program itself moved the break.
pub const FENCE: u64 = 16;
/// So many sound headers in a row are a chain. Chosen: a user's data rarely looks like one header,
/// and each further header makes it 2^32 times as rare.
pub const CONVINCING: u32 = 16;
/// How often a chain is followed that changes meanwhile.
pub const TRIES: u32 = 4;
/// The meaning of the lowest bits of a chunk's length.
pub const PREVIOUS_IN_USE: u64 = 1;
/// The chunk is a mapping of its own.
pub const IS_MAPPED: u64 = 2;
/// The chunk belongs to another arena than the main one.
pub const IN_OTHER_ARENA: u64 = 4;
/// All of them.
pub const FLAGS: u64 = 7;

/// A version of glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 2.
    pub major: u32,
    /// 28 and up.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

/// The oldest and the newest version with known records.
pub const OLDEST: Version = Version {
    major: 2,
    minor: 28,
};
/// See [`OLDEST`].
pub const NEWEST: Version = Version {
    major: 2,
    minor: 43,
};

/// The differences between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The version with this layout.
    pub version: Version,
    /// Bytes of each of a thread cache's counters.
    pub counter_bytes: usize,
    /// Lists of a thread's cache.
    pub cache_lists: usize,
    /// Whether the counters of a cache say how many blocks may still be added.
    pub counts_room: bool,
    /// Whether list pointers are mixed with their own address.
    pub is_mangled: bool,
    /// The second word of a block in a thread's cache.
    pub cache_mark: CacheMark,
}

/// The second word of a block in a thread's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMark {
    /// The program's.
    None,
    /// The address of the cache's record.
    Record,
    /// A random word, the same in the whole process.
    Random,
}

/// Lists of a thread's cache for one size each, the multiples of 16 bytes from 32 to 1,040. Since
/// 2.42 others follow, for a doubling each; they are in use only if a setting says so.
pub const CACHE_LISTS: usize = 64;
const LONG_CACHE_LISTS: usize = 12;

impl Layout {
    /// The layout of a version, if it is known.
    pub fn of(version: Version) -> Option<Layout> {
        (OLDEST..=NEWEST).contains(&version).then_some(Layout {
            version,
            counter_bytes: if version.minor < 30 { 1 } else { 2 },
            cache_lists: match version.minor {
                ..42 => CACHE_LISTS,
                42.. => CACHE_LISTS + LONG_CACHE_LISTS,
            },
            counts_room: version.minor >= 42,
            is_mangled: version.minor >= 32,
            cache_mark: match version.minor {
                ..32 => CacheMark::None,
                32..34 => CacheMark::Record,
                34.. => CacheMark::Random,
            },
        })
    }

    /// The length of a thread's cache record as a chunk.
    pub fn cache_chunk(&self) -> u64 {
        (self.cache_record() as u64 + 8).next_multiple_of(ALIGNMENT)
    }

    /// Bytes of a cache's counters and list heads.
    pub fn cache_record(&self) -> usize {
        self.cache_lists * (self.counter_bytes + 8)
    }

    /// The address to which the list pointer at `place` leads.
    pub fn follow(&self, place: u64, pointer: u64) -> u64 {
        if self.is_mangled {
            (place >> 12) ^ pointer
        } else {
            pointer
        }
    }
}

/// Whether the mapping's file is a C library, by its name.
pub fn is_libc(mapping: &Mapping) -> bool {
    mapping.file_name().is_some_and(|name| {
        name == "libc.so.6" || (name.starts_with("libc-2.") && name.ends_with(".so"))
    })
}

/// What glibc calls itself, in its own file.
const BANNER: &[u8] = b"GNU C Library (";
const VERSION: &[u8] = b"version ";
/// The most bytes that are read: a C library has 2 MiB, and a static program a hundred at most.
const MOST_READ: u64 = 256 << 20;

/// The version in the file behind the mapping. Reads the file as the process sees it, because the
/// process may be in a container.
pub fn version_of(pid: Pid, mapping: &Mapping) -> Option<Version> {
    let path = mapping
        .name
        .strip_suffix(" (deleted)")
        .unwrap_or(&mapping.name);
    let pid = face(pid);
    let exact = format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    let seen = format!("/proc/{pid}/root{path}");
    let file = untrusted::open(Path::new(&exact)).or_else(|_| untrusted::open(Path::new(&seen)));
    let file = file.ok()?;
    let mut bytes = Vec::new();
    file.take(MOST_READ).read_to_end(&mut bytes).ok()?;
    version_in(&bytes).or_else(|| linked_version_in(&bytes))
}

/// A message of glibc's malloc, which is in each program that contains it.
const MESSAGE: &[u8] = b"\0malloc(): corrupted top size\0";

/// The version of a static program. The linker leaves out the banner, and keeps the version as a
/// separate text. If a program has several such texts, none is believed.
fn linked_version_in(bytes: &[u8]) -> Option<Version> {
    find(bytes, MESSAGE)?;
    // All texts with a zero before and after them.
    let end = bytes.iter().rposition(|byte| *byte == 0)?;
    let texts = bytes[..end].split(|byte| *byte == 0).skip(1);
    let texts: HashSet<&[u8]> = texts.filter(|text| text.starts_with(b"2.")).collect();
    let known = (OLDEST.minor..=NEWEST.minor).map(|minor| Version { minor, ..OLDEST });
    let mut found = known.filter(|version| texts.contains(version.to_string().as_bytes()));
    let only = found.next()?;
    found.next().is_none().then_some(only)
}

/// The version text in the bytes of a C library.
pub fn version_in(bytes: &[u8]) -> Option<Version> {
    let mut rest = bytes;
    while let Some(place) = find(rest, BANNER) {
        rest = &rest[place + BANNER.len()..];
        let line = &rest[..rest.len().min(200)];
        let Some(place) = find(line, VERSION) else {
            continue;
        };
        let mut numbers = line[place + VERSION.len()..]
            .split(|byte| !byte.is_ascii_digit())
            .map(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok());
        if let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) {
            return Some(Version { major, minor });
        }
    }
    None
}

/// The first place of the needle in the bytes.
fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut start = 0;
    while let Some(step) = bytes[start..].iter().position(|byte| *byte == first) {
        start += step;
        if bytes[start..].starts_with(needle) {
            return Some(start);
        }
        start += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_programs_version_is_a_text_of_its_own_beside_mallocs_message() {
        let version = |bytes: &[u8]| linked_version_in(bytes).map(|version| version.to_string());
        let message = b"x\0malloc(): corrupted top size\0".as_slice();
        let with = |rest: &[u8]| version(&[message, rest].concat());
        assert_eq!(with(b"..\x002.36\0").as_deref(), Some("2.36"));
        assert_eq!(with(b"..\x002.36\0 \x002.36\0").as_deref(), Some("2.36"));
        assert_eq!(with(b"..\x002.36\0 \x002.31\0"), None);
        assert_eq!(with(b"..\x002.99\0 GLIBC_2.36\0"), None);
        assert_eq!(version(b"..\x002.36\0"), None);
    }

    #[test]
    fn the_version_is_read_from_the_banner() {
        for (text, expected) in [
            (
                "..GNU C Library (Debian GLIBC 2.36-9+deb12u13) stable release version 2.36.\n",
                Some((2, 36)),
            ),
            (
                "GNU C Library (Ubuntu GLIBC 2.31-0ubuntu9.9) stable release version 2.31.\n",
                Some((2, 31)),
            ),
            (
                "GNU C Library (GNU libc) stable release version 2.28.\nCopyright",
                Some((2, 28)),
            ),
            (
                "GNU C Library (GNU libc) development release version 2.40.9000.\n",
                Some((2, 40)),
            ),
            ("GNU C Library (", None),
            ("", None),
        ] {
            let found = version_in(text.as_bytes()).map(|found| (found.major, found.minor));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_cache_record_is_as_long_as_in_the_sources() {
        let chunk =
            |minor| Layout::of(Version { major: 2, minor }).map(|layout| layout.cache_chunk());
        assert_eq!(chunk(28), Some(0x250));
        assert_eq!(chunk(30), Some(0x290));
        assert_eq!(chunk(41), Some(0x290));
        assert_eq!((chunk(42), chunk(43)), (Some(0x300), Some(0x300)));
        assert_eq!((chunk(27), chunk(44)), (None, None));
    }
}
