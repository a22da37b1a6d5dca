//! Blocks that are mappings of their own in glibc. They have a header in front, whose second word has the length of
//! the mapping and a flag. The kernel joins neighbours into one mapping, so a mapping is either a chain of such
//! blocks or no block.

use super::layout::{FLAGS, IS_MAPPED};
use super::pages::{Residency, PAGE};
use super::{joined, Places, Sum};
use crate::mappings::Mapping;
use loam_format::bytes::u64_at;
use loam_format::memory::{Memory, Piece};

/// The mapped blocks of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mapped {
    /// Number of blocks, and bytes of address space.
    pub sum: Sum,
    /// Resident bytes.
    pub resident: u64,
}

pub(super) fn read(
    memory: &impl Memory,
    mappings: &[Mapping],
    arenas: &Places,
    residency: &mut Residency,
) -> Mapped {
    let mut found = Mapped::default();
    // A block may lie below an arena's heap, in one mapping with it. The start of the heap is not the start of a
    // block.
    let is_candidate = |mapping: &&Mapping| {
        mapping.name.is_empty()
            && mapping.writable
            && !mapping.shared
            && arenas.arena(mapping.start).is_none()
    };
    let stretches = joined(mappings.iter().filter(is_candidate));
    let mut behind_last = 0;
    for mapping in mappings.iter().filter(is_candidate) {
        // If advice divided a block, it continues in the next mappings.
        let stretch = stretches.get(stretches.partition_point(|(_, end)| *end <= mapping.start));
        let (Some((_, end)), true) = (stretch, mapping.start >= behind_last) else {
            continue;
        };
        let behind = chain(memory, mapping.start, *end, &mut found.sum);
        if behind > mapping.start {
            residency.look_at(mapping.start, behind);
            found.resident += residency.resident(mapping.start, behind);
            behind_last = behind;
        }
    }
    found
}

/// Adds the mapped blocks at the beginning of a mapping, and returns their end.
fn chain(memory: &impl Memory, start: u64, end: u64, sum: &mut Sum) -> u64 {
    let mut place = start;
    while place < end {
        let Some(size) = block(memory, place, end) else {
            break;
        };
        sum.add(size);
        place += size;
    }
    place
}

/// Headers of blocks with greater alignments than this are not searched.
const MOST_ALIGNED: u32 = 30;

/// Bytes of a header.
const HEADER: usize = 16;

/// The length of the mapped block whose mapping begins here, if there is one. An aligned block skips the start: its
/// header lies directly before a multiple of its alignment, and has the skipped length.
fn block(memory: &impl Memory, start: u64, end: u64) -> Option<u64> {
    // The size of a block whose header has these bytes and lies so far behind the start.
    let sound = |bytes: &[u8], skipped: u64| {
        let (said, head) = (u64_at(bytes, 0)?, u64_at(bytes, 8)?);
        let size = (head & !FLAGS).checked_add(skipped)?;
        let is_block = head & FLAGS == IS_MAPPED
            && said == skipped
            && size >= PAGE
            && size % PAGE == 0
            && size <= end - start;
        is_block.then_some(size)
    };
    let first = memory.bytes(start, HEADER).ok()?;
    // A quick look saves the search in most mappings: the skipped start of a fresh mapping is zero.
    if first.iter().any(|byte| *byte != 0) {
        return sound(&first, 0);
    }
    let mut places: Vec<u64> = (5..=MOST_ALIGNED)
        .map(|bits| (start + 16).next_multiple_of(1 << bits) - 16)
        .filter(|place| (start + 1..end).contains(place))
        .collect();
    places.dedup();
    let pieces = places.iter().map(|place| Piece {
        address: *place,
        length: HEADER,
    });
    let pieces: Vec<Piece> = pieces.collect();
    let mut bytes = vec![0; HEADER * pieces.len()];
    // What lies behind a page that can not be read stays zero.
    let _ = memory.gather(&pieces, &mut bytes);
    let mut headers = places.iter().zip(bytes.chunks_exact(HEADER));
    headers.find_map(|(place, bytes)| sound(bytes, place - start))
}
