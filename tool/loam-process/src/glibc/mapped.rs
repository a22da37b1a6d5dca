//! Blocks that are mappings of their own in glibc. They have a header in front, whose second word
//! has the length of the mapping and a flag. The kernel joins neighbours into one mapping: blocks
//! with each other, and blocks with memory that the program mapped itself. So blocks are looked for
//! at the start of a mapping, one behind the other, and then at the start of each page of the rest.
//!
//! Since 2.43 the length leaves out the header, and the lowest bit of the first word says that the
//! pages are huge. The length of a mapping is a multiple of a page, so each header tells which of
//! the two it is.

use super::layout::{FLAGS, IS_MAPPED};
use super::lengths::Lengths;
use super::pages::{Residency, PAGE};
use super::{joined, Places, Sum};
use crate::mappings::Mapping;
use crate::remote::MOST_PIECES;
use loam_format::bytes::u64_at;
use loam_format::memory::{Memory, Piece};

/// The mapped blocks of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapped {
    /// Number of blocks, and bytes of address space.
    pub sum: Sum,
    /// Resident bytes.
    pub resident: u64,
    /// Those of them that other processes have too.
    pub common: u64,
    /// The blocks by length.
    pub lengths: Lengths,
    /// Start and length of each.
    pub blocks: Vec<(u64, u64)>,
}

impl Mapped {
    /// Adds a block.
    fn add(&mut self, start: u64, size: u64, residency: &Residency) {
        self.sum.add(size);
        self.blocks.push((start, size));
        self.lengths.add(size);
        self.resident += residency.resident(start, start + size);
        self.common += residency.common(start, start + size);
    }
}

pub(super) fn read(
    memory: &impl Memory,
    mappings: &[Mapping],
    arenas: &Places,
    residency: &mut Residency,
) -> Mapped {
    let mut found = Mapped::default();
    let stretches = joined(mappings.iter().filter(|one| is_candidate(one)));
    let mut behind_last = 0;
    for mapping in mappings.iter().filter(|one| is_candidate(one)) {
        // The kernel may have joined a block with an arena's heap as well.
        for (start, stop) in arenas.gaps(mapping.start, mapping.end) {
            let start = start.max(behind_last);
            if start >= stop {
                continue;
            }
            // If advice divided a block, it continues in the next mappings.
            let stretch = stretches.get(stretches.partition_point(|(_, end)| *end <= start));
            let end = stretch.map_or(stop, |(_, end)| *end);
            let end = arenas.gaps(start, end).first().map_or(stop, |gap| gap.1);
            behind_last = chain(memory, start, end, residency, &mut found);
            if behind_last < stop {
                behind_last = within(memory, (behind_last, stop, end), residency, &mut found);
            }
        }
    }
    found
}

/// Whether malloc may have made the mapping, or a part of it.
pub(super) fn is_candidate(mapping: &Mapping) -> bool {
    mapping.name.is_empty() && mapping.writable && !mapping.shared
}

/// Whether it is memory of huge pages that were set aside (`MAP_HUGETLB`): the kernel names it so.
pub(super) fn is_of_hugetlbfs(mapping: &Mapping) -> bool {
    mapping.name.starts_with("/anon_hugepage")
}

/// Adds the mapped blocks at the beginning of a mapping, and returns their end.
fn chain(
    memory: &impl Memory,
    start: u64,
    end: u64,
    residency: &mut Residency,
    found: &mut Mapped,
) -> u64 {
    let mut place = start;
    while place < end {
        let Some(size) = block(memory, place, end) else {
            break;
        };
        residency.look_at(place, place + size);
        found.add(place, size, residency);
        place += size;
    }
    place
}

/// Shorter blocks are not looked for within a mapping: by default the shortest that malloc maps has
/// this length, and a program's own bytes look like a header the more often, the shorter the block
/// would be.
const SHORTEST_WITHIN: u64 = 128 << 10;
/// So many pages of one mapping are looked at: a GiB. Chosen: an eighth of the calls of a look, if
/// each takes one.
const MOST_PAGES: usize = 1 << 18;

/// Adds the mapped blocks that begin at a page of a range, and returns where the search ended. A
/// block may continue behind the range, up to `end`.
fn within(
    memory: &impl Memory,
    (start, stop, end): (u64, u64, u64),
    residency: &mut Residency,
    found: &mut Mapped,
) -> u64 {
    // A block's header has been written to.
    let mut places = residency.pages_that_hold(start, stop);
    places.truncate(MOST_PAGES);
    let mut behind = start;
    for some in places.chunks(MOST_PIECES) {
        let pieces = some.iter().map(|place| Piece {
            address: *place,
            length: HEADER,
        });
        let pieces: Vec<Piece> = pieces.collect();
        let mut bytes = vec![0; HEADER * pieces.len()];
        // What lies behind a page that can not be read stays zero.
        let _ = memory.gather(&pieces, &mut bytes);
        for (place, bytes) in some.iter().zip(bytes.chunks_exact(HEADER)) {
            // The bytes of a block may look like a header.
            let size = sound(bytes, 0, end - place).filter(|_| *place >= behind);
            let Some(size) = size.filter(|size| *size >= SHORTEST_WITHIN) else {
                continue;
            };
            residency.look_at(*place, place + size);
            found.add(*place, size, residency);
            behind = place + size;
        }
    }
    behind.max(stop)
}

/// Headers of blocks with greater alignments than this are not searched.
const MOST_ALIGNED: u32 = 30;

/// Bytes of a header.
const HEADER: usize = 16;

/// The length of the block whose header has these bytes and lies so far behind the start of its
/// mapping, of which so much is left.
pub(super) fn sound(bytes: &[u8], skipped: u64, most: u64) -> Option<u64> {
    const IN_HUGE_PAGES: u64 = 1;
    let (said, head) = (u64_at(bytes, 0)?, u64_at(bytes, 8)?);
    let size = (head & !FLAGS).checked_add(skipped)?;
    let (size, said) = match size % PAGE {
        0 => (size, said),
        _ => (size.checked_add(HEADER as u64)?, said & !IN_HUGE_PAGES),
    };
    let is_block = head & FLAGS == IS_MAPPED
        && said == skipped
        && size >= PAGE
        && size % PAGE == 0
        && size <= most;
    is_block.then_some(size)
}

/// The length of the mapped block whose mapping begins here, if there is one. An aligned block
/// skips the start: its header lies directly before a multiple of its alignment, and has the
/// skipped length.
fn block(memory: &impl Memory, start: u64, end: u64) -> Option<u64> {
    let first = memory.bytes(start, HEADER).ok()?;
    // A quick look saves the search in most mappings: the skipped start of a fresh mapping is zero.
    if first.iter().any(|byte| *byte != 0) {
        return sound(&first, 0, end - start);
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
    headers.find_map(|(place, bytes)| sound(bytes, place - start, end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(said: u64, head: u64) -> Vec<u8> {
        [said.to_le_bytes(), head.to_le_bytes()].concat()
    }

    #[test]
    fn the_lengths_of_both_kinds_of_headers_are_read() {
        let most = 1 << 20;
        let length = |said, head, skipped| sound(&header(said, head), skipped, most);
        assert_eq!(length(0, 0x2_1000 | 2, 0), Some(0x2_1000), "until 2.42");
        assert_eq!(length(0, 0x2_0ff0 | 2, 0), Some(0x2_1000), "since 2.43");
        assert_eq!(length(1, 0x2_0ff0 | 2, 0), Some(0x2_1000), "in huge pages");
        assert_eq!(
            length(0xff0, 0x2_0010 | 2, 0xff0),
            Some(0x2_1000),
            "aligned"
        );
        assert_eq!(length(0xff0, 0x2_0000 | 2, 0xff0), Some(0x2_1000), "both");
        // Other flags, an odd length, a length beyond the mapping, another place.
        for (said, head) in [(0, 0x2_1001), (0, 0x2_1232), (0, 0x20_0002), (16, 0x2_1002)] {
            assert_eq!(length(said, head, 0), None, "{said:#x} {head:#x}");
        }
    }
}
