//! Finds glibc's arenas in a process, without symbols.
//!
//! All arenas are in a ring. The main arena is a variable of the C library: the library's data has
//! one record that looks like an arena (its empty lists point at themselves) and whose ring leads
//! back to it. Every other arena lies in the first of its own heaps, which start at multiples of 64
//! MiB and name their arena.

use std::collections::HashSet;

use super::layout::arena::{self, Record, RECORDS};
use super::layout::{heap_info, is_libc, ALIGNMENT, FLAGS, HEAP_ALIGNMENT};
use super::layout::{CONVINCING, FENCE, SHORTEST, TRIES};
use super::layout::{IN_OTHER_ARENA, IS_MAPPED, PREVIOUS_IN_USE};
use super::{joined, mapped, word};
use crate::mappings::Mapping;
use loam_format::memory::Memory;

/// One arena, and the places of its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arena {
    /// The address of its record.
    pub address: u64,
    /// The form of its record.
    pub record: Record,
    /// Whether it is the main one, which grows by `brk`.
    pub is_main: bool,
    /// The chunk at its end.
    pub top: u64,
    /// Bytes that it took from the system, by its own count.
    pub system_bytes: u64,
    /// Start and end of each stretch of its chunks.
    pub stretches: Vec<(u64, u64)>,
}

impl Arena {
    /// The heads of its lists of small freed chunks.
    pub fn fast_bins(&self) -> impl Iterator<Item = u64> {
        let first = self.address + arena::FAST_BINS as u64;
        (0..self.record.fast_bins as u64).map(move |bin| first + 8 * bin)
    }

    /// Bytes in its stretches.
    pub fn known(&self) -> u64 {
        let mut bytes = 0;
        for (start, end) in &self.stretches {
            bytes += end - start;
        }
        bytes
    }

    /// Whether an address lies in one of its stretches.
    pub fn holds(&self, address: u64) -> bool {
        self.stretches.iter().any(|part| holds(*part, address))
    }

    /// The present end of the stretch that holds the address.
    pub fn end_now(&self, memory: &impl Memory, address: u64) -> Option<u64> {
        if !self.is_main {
            let heap = address - address % HEAP_ALIGNMENT;
            return Some(heap + word(memory, heap + heap_info::SIZE as u64)?);
        }
        let top = word(memory, self.address + self.record.top as u64)?;
        let size = word(memory, top + 8)? & !FLAGS;
        let is_here = self
            .stretches
            .iter()
            .any(|(start, end)| *start == address && (*start..*end).contains(&self.top));
        (is_here && size % ALIGNMENT == 0).then(|| top.saturating_add(size))
    }
}

/// A ring of more arenas than this is no ring of arenas.
const MOST_ARENAS: usize = 1 << 16;
/// The most heaps of an arena; so many hold a TiB.
const MOST_HEAPS: usize = 1 << 14;

/// Finds all arenas, the main ones first. None: no record of a main arena was found. The second
/// part says in words what was left out. The parts of a main arena that are mappings are not among
/// its stretches yet.
pub fn find(memory: &impl Memory, mappings: &[Mapping]) -> Option<(Vec<Arena>, Vec<String>)> {
    let mains = find_mains(memory, mappings);
    let mut problems = Vec::new();
    let mut found: Vec<Arena> = mains
        .iter()
        .filter_map(|(main, record)| main_arena(memory, *main, *record))
        .collect();
    if found.is_empty() {
        return None;
    }
    give_break(memory, &mut found, mappings);
    let mut seen: HashSet<u64> = found.iter().map(|arena| arena.address).collect();
    let mut broken = Vec::new();
    for (main, record) in mains {
        let Some(mut next) = word(memory, main + record.next as u64) else {
            continue;
        };
        while next != main {
            if seen.len() >= MOST_ARENAS || !seen.insert(next) {
                problems.push("the ring of arenas changed while it was followed".to_owned());
                break;
            }
            match other_arena(memory, next, record) {
                Some(arena) => found.push(arena),
                None => broken.push(next),
            }
            match word(memory, next.wrapping_add(record.next as u64)) {
                Some(after) => next = after,
                None => break,
            }
        }
    }
    match broken.as_slice() {
        [] => {}
        [one] => problems.push(format!("the arena at {one:#x} does not add up")),
        [one, more @ ..] => problems.push(format!(
            "the arena at {one:#x} does not add up, and {} others",
            more.len()
        )),
    }
    Some((found, problems))
}

/// The break belongs to the arena whose end lies in it. If none does, it belongs to the first C
/// library, which lies highest: a second one never moves the break.
fn give_break(memory: &impl Memory, arenas: &mut [Arena], mappings: &[Mapping]) {
    let of_break = joined(mappings.iter().filter(|mapping| mapping.name == "[heap]"));
    let has_top = |arena: &Arena| of_break.iter().any(|part| holds(*part, arena.top));
    let owner = arenas.iter().position(has_top);
    let owner = owner.or_else(|| arenas.len().checked_sub(1));
    // The first main arena is the program's own.
    let owner = owner.unwrap_or(0);
    arenas.swap(0, owner);
    let Some(arena) = arenas.first_mut() else {
        return;
    };
    // The mappings of a core have no names.
    let is_nameless = of_break.is_empty();
    let ranges = match is_nameless {
        true => joined(mappings.iter().filter(|one| mapped::is_candidate(one))),
        false => of_break.clone(),
    };
    let around = ranges.iter().position(|part| holds(*part, arena.top));
    let whole = around.and_then(|around| whole(memory, arena, ranges[around].0));
    arena.stretches = of_break;
    match (around, whole) {
        (_, Some(part)) if is_nameless => arena.stretches.push(part),
        (Some(around), Some((first, _))) => arena.stretches[around].0 = first,
        _ => {}
    }
}

fn holds((start, end): (u64, u64), address: u64) -> bool {
    (start..end).contains(&address)
}

/// Where an arena without gaps begins and ends, if that is not before `start`. The break may begin
/// with what the program took from it before its first block: a static program puts its
/// thread-local variables there. The arena counts all bytes from its first chunk to its end, so
/// that its beginning follows from them, and the chunks there prove it. Without a proof it has
/// parts elsewhere, or changed meanwhile.
fn whole(memory: &impl Memory, arena: &Arena, start: u64) -> Option<(u64, u64)> {
    for _ in 0..TRIES {
        let ended = end_of(memory, arena.address, arena.record)?;
        let (top, end, system_bytes) = ended;
        let first = end.saturating_sub(system_bytes);
        let first = first.next_multiple_of(ALIGNMENT);
        if first >= start && is_chain(memory, first, top) {
            return Some((first, end));
        }
        if end_of(memory, arena.address, arena.record) == Some(ended) {
            return None;
        }
    }
    None
}

/// The chunk at the end of an arena, the address behind it, and the bytes that the arena counts.
fn end_of(memory: &impl Memory, address: u64, record: Record) -> Option<(u64, u64, u64)> {
    let top = word(memory, address + record.top as u64)?;
    let size = word(memory, top.checked_add(8)?)? & !FLAGS;
    let system_bytes = word(memory, address + record.system_bytes as u64)?;
    Some((top, top.checked_add(size)?, system_bytes))
}

/// Whether a chain of chunks begins at the first one, which has none before it, and leads on to the
/// top or as far as convinces.
fn is_chain(memory: &impl Memory, first: u64, top: u64) -> bool {
    let mut place = first;
    for count in 0..CONVINCING {
        if place == top {
            return true;
        }
        let Some(head) = word(memory, place + 8) else {
            return false;
        };
        let size = head & !FLAGS;
        // The program may have taken a part of the break for itself: fences lie before that.
        let is_sound = size % ALIGNMENT == 0
            && head & (IS_MAPPED | IN_OTHER_ARENA) == 0
            && (size >= SHORTEST || size == FENCE && count > 0)
            && size <= top.saturating_sub(place)
            && (count > 0 || head & PREVIOUS_IN_USE != 0);
        if !is_sound {
            return false;
        }
        place += size;
    }
    true
}

/// Looks into the writable data of each C library, and of the program if it has no C library beside
/// it, because then it may be linked statically.
fn find_mains(memory: &impl Memory, mappings: &[Mapping]) -> Vec<(u64, Record)> {
    let has_libc = mappings.iter().any(is_libc);
    let mut previous_is_ours = false;
    let mut found = Vec::new();
    for mapping in mappings {
        // Variables without a value lie after those of the file, in a mapping without a name.
        let is_ours = if mapping.name.is_empty() {
            previous_is_ours
        } else if has_libc {
            is_libc(mapping)
        } else {
            mapping.name.starts_with('/')
        };
        previous_is_ours = is_ours && !mapping.name.is_empty();
        if !is_ours || !mapping.writable || mapping.size() > MOST_DATA {
            continue;
        }
        let Ok(bytes) = memory.bytes(mapping.start, mapping.size() as usize) else {
            continue;
        };
        for record in RECORDS {
            if let Some(offset) = find_in_data(memory, mapping.start, &bytes, record) {
                found.push((mapping.start + offset as u64, record));
                break;
            }
        }
        if found.len() >= MOST_MAINS || !has_libc && !found.is_empty() {
            break;
        }
    }
    found
}

/// Nobody loads more C libraries than this into one process.
const MOST_MAINS: usize = 16;

/// The data of a static program may be large; that of the library is 24 KiB.
const MOST_DATA: u64 = 64 << 20;

/// The address of a main arena in data that begins at `start`.
fn find_in_data(memory: &impl Memory, start: u64, bytes: &[u8], record: Record) -> Option<usize> {
    let last = bytes.len().checked_sub(record.length)?;
    // Of all rings that are tried.
    let mut steps = MOST_ARENAS;
    (0..=last).step_by(8).find(|offset| {
        let at = |field: usize| read(bytes, offset + field);
        let address = start + *offset as u64;
        let next = at(record.next);
        let in_ring = next == address
            || heap_info::LENGTHS.contains(&(next % HEAP_ALIGNMENT)) && next > HEAP_ALIGNMENT;
        in_ring
            && at(record.top) != 0
            && looks_like_lists(bytes, *offset, address, record)
            && leads_back(memory, next, address, record, &mut steps)
    })
}

/// Whether the list ends are those of an arena: the ends of an empty list point at the list, as if
/// it were a chunk; no end is null.
fn looks_like_lists(bytes: &[u8], offset: usize, address: u64, record: Record) -> bool {
    let mut empty = 0;
    for bin in 0..arena::BIN_COUNT {
        let place = record.bins + 16 * bin;
        let ends = (read(bytes, offset + place), read(bytes, offset + place + 8));
        let itself = address + place as u64 - 16;
        match ends {
            (0, _) | (_, 0) => return false,
            ends if ends == (itself, itself) => empty += 1,
            _ => {}
        }
    }
    // No program fills all lists at once.
    empty > 0
}

fn leads_back(
    memory: &impl Memory,
    first: u64,
    main: u64,
    record: Record,
    steps: &mut usize,
) -> bool {
    let mut next = first;
    loop {
        if next == main {
            return true;
        }
        let Some(left) = steps.checked_sub(1) else {
            return false;
        };
        *steps = left;
        match word(memory, next.wrapping_add(record.next as u64)) {
            Some(after) => next = after,
            None => return false,
        }
    }
}

fn read(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..]
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

fn main_arena(memory: &impl Memory, address: u64, record: Record) -> Option<Arena> {
    let bytes = memory.bytes(address, record.length).ok()?;
    Some(Arena {
        address,
        record,
        is_main: true,
        top: read(&bytes, record.top),
        system_bytes: read(&bytes, record.system_bytes),
        stretches: Vec::new(),
    })
}

fn other_arena(memory: &impl Memory, address: u64, record: Record) -> Option<Arena> {
    let first_heap = address - address % HEAP_ALIGNMENT;
    let info_length = address - first_heap;
    if !heap_info::LENGTHS.contains(&info_length) {
        return None;
    }
    let bytes = memory.bytes(address, record.length).ok()?;
    let top = read(&bytes, record.top);
    let mut stretches = Vec::new();
    let mut heap = top - top % HEAP_ALIGNMENT;
    loop {
        let info = memory.bytes(heap, heap_info::LENGTH).ok()?;
        let size = read(&info, heap_info::SIZE);
        let is_sound = read(&info, heap_info::ARENA) == address
            && size <= HEAP_ALIGNMENT
            && size > info_length;
        if !is_sound || stretches.len() >= MOST_HEAPS {
            return None;
        }
        let behind = if heap == first_heap {
            address + record.length as u64
        } else {
            heap + info_length
        };
        stretches.push((behind.next_multiple_of(16), heap + size));
        heap = match read(&info, heap_info::PREVIOUS) {
            0 => break,
            previous => previous,
        };
    }
    stretches.reverse();
    Some(Arena {
        address,
        record,
        is_main: false,
        top,
        system_bytes: read(&bytes, record.system_bytes),
        stretches,
    })
}
