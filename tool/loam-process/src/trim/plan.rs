//! What could be dropped: the pages inside of free chunks that are in memory and belong to this
//! process alone. Found without a stop.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::verify::{Hole, KEPT};
use crate::glibc::{Blocks, Residency, RESERVE};
use crate::process::{face, Pid};
use loam_format::memory::Memory;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// How long a piece is at most, so that a stop can end. Chosen: 128 KiB take some 10 us, and 2 ms
/// on a system that is a hundred times as slow.
const LONGEST: u64 = 128 << 10;
/// Bits of an entry of `/proc/PID/pagemap`.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const ALONE: u64 = 1 << 56;
/// How many entries are read at a time.
const AT_ONCE: usize = 8192;

/// A piece of memory inside of a free chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The chunk.
    pub hole: Hole,
    /// The first address; pages are whole.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// Bytes of it in memory.
    pub resident: u64,
    /// Bytes of it that are swapped out.
    pub swapped: u64,
}

/// What the pages of free chunks hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Resident bytes of the pieces.
    pub resident: u64,
    /// Swapped out bytes of the pieces.
    pub swapped: u64,
    /// Resident bytes in pages that other processes have as well.
    pub shared: u64,
}

/// Free chunks with whole resident pages, in the order of arenas and addresses.
#[derive(Debug, Default)]
pub struct Holes {
    /// The chunks.
    pub found: Vec<Hole>,
    /// The main arena.
    main: Option<u64>,
}

impl Blocks for Holes {
    fn block(&mut self, _: u64, _: u64, _: &Residency) {}
    fn stretch_ends(&mut self, _: &Residency) {}

    fn hole(&mut self, arena: u64, address: u64, size: u64, is_top: bool, residency: &Residency) {
        // The walk tells the main arena first.
        let main = *self.main.get_or_insert(arena);
        let hole = Hole {
            arena,
            is_main: arena == main,
            address,
            size,
            is_top,
        };
        let (start, end) = whole_pages(&hole);
        if start < end && residency.holds(start, end) {
            self.found.push(hole);
        }
    }
}

/// The whole pages of a chunk behind its links, and for the last chunk behind the reserve.
pub fn whole_pages(hole: &Hole) -> (u64, u64) {
    let kept = if hole.is_top { RESERVE } else { KEPT };
    let first = hole.address.saturating_add(kept).next_multiple_of(PAGE);
    (first, (hole.address + hole.size) & !(PAGE - 1))
}

/// The pages of a process, with those that it shares told apart.
pub struct Pages(File);

impl Pages {
    /// Opens them.
    pub fn open(pid: Pid) -> std::io::Result<Pages> {
        File::open(format!("/proc/{}/pagemap", face(pid))).map(Pages)
    }

    /// The pieces of a chunk that would be dropped.
    pub fn pieces(&self, hole: &Hole, pieces: &mut Vec<Piece>, sums: &mut Sums) {
        let (start, end) = whole_pages(hole);
        let mut bytes = vec![0; 8 * AT_ONCE];
        let mut current: Option<Piece> = None;
        let mut at = start;
        while at < end {
            let count = ((end - at) / PAGE).min(AT_ONCE as u64) as usize;
            let part = &mut bytes[..8 * count];
            if self.0.read_exact_at(part, at / PAGE * 8).is_err() {
                break;
            }
            for entry in part.chunks_exact(8) {
                let entry = entry
                    .first_chunk()
                    .map_or(0, |word| u64::from_le_bytes(*word));
                let is_own = entry & PRESENT != 0 && entry & ALONE != 0 && entry & OF_FILE == 0;
                let is_swapped = entry & SWAPPED != 0;
                let is_there = entry & PRESENT != 0;
                if is_own || is_swapped {
                    let piece = current.get_or_insert(Piece {
                        hole: *hole,
                        start: at,
                        end: at,
                        resident: 0,
                        swapped: 0,
                    });
                    piece.end = at + PAGE;
                    piece.resident += if is_own { PAGE } else { 0 };
                    piece.swapped += if is_own { 0 } else { PAGE };
                    if piece.end - piece.start >= LONGEST {
                        pieces.extend(current.take());
                    }
                } else if is_there {
                    // The page of zeros is nobody's, and counts as nobody's memory.
                    sums.shared += if entry & OF_FILE == 0 { PAGE } else { 0 };
                    pieces.extend(current.take());
                } else if current.is_some_and(|piece| at - piece.end >= LONGEST) {
                    // Nothing is there for a long time.
                    pieces.extend(current.take());
                }
                at += PAGE;
            }
        }
        pieces.extend(current.take());
    }
}

/// Sums of pieces.
pub fn sums(pieces: &[Piece], sums: &mut Sums) {
    sums.resident = pieces.iter().map(|piece| piece.resident).sum();
    sums.swapped = pieces.iter().map(|piece| piece.swapped).sum();
}

/// The same pieces, in the order in which their arenas' lists link their chunks. A check of a chunk
/// reads its neighbours in the list: in this order these are the chunks before and behind it, and a
/// stop reads each line of memory once.
pub fn in_order_of_lists(pieces: &[Piece], memory: &impl Memory) -> Vec<Piece> {
    /// Where a chunk names the next one of its list.
    const FORWARD: u64 = 16;
    let mut chunks: Vec<Option<&[Piece]>> =
        pieces.chunk_by(|a, b| a.hole == b.hole).map(Some).collect();
    let places: HashMap<(u64, u64), usize> = chunks
        .iter()
        .enumerate()
        .filter_map(|(at, chunk)| {
            let hole = chunk.as_ref()?.first()?.hole;
            Some(((hole.arena, hole.address), at))
        })
        .collect();
    let mut ordered = Vec::with_capacity(pieces.len());
    for first in 0..chunks.len() {
        let mut next = Some(first);
        while let Some(chunk) = next.and_then(|at| chunks[at].take()) {
            ordered.extend_from_slice(chunk);
            let hole = chunk[0].hole;
            // Links may be garbage: then the chain ends.
            let link = memory.bytes(hole.address + FORWARD, 8).ok();
            let link = link.and_then(|bytes| bytes.first_chunk().copied().map(u64::from_le_bytes));
            next = link.and_then(|link| places.get(&(hole.arena, link)).copied());
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_format::memory::ReadError;

    /// Words at addresses.
    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            let length = buffer.len();
            let word = self.0.get(&address);
            let word = word.ok_or(ReadError::Unmapped { address, length })?;
            buffer.copy_from_slice(&word.to_le_bytes()[..length]);
            Ok(())
        }
    }

    #[test]
    fn pieces_come_in_the_order_of_their_lists_and_none_is_lost() {
        let piece = |arena, address, start| Piece {
            hole: Hole {
                arena,
                is_main: false,
                address,
                size: 0x9000,
                is_top: false,
            },
            start,
            end: start + PAGE,
            resident: PAGE,
            swapped: 0,
        };
        // A list of an arena: 3, 1 (of two pieces), 5. A chunk that leads nowhere, one that leads to
        // itself, and one of another arena to which a link of the first leads.
        let pieces: Vec<Piece> = [
            (7, 0x1_0000, 0x1_1000),
            (7, 0x1_0000, 0x1_3000),
            (7, 0x2_0000, 0x2_1000),
            (7, 0x3_0000, 0x3_1000),
            (7, 0x4_0000, 0x4_1000),
            (7, 0x5_0000, 0x5_1000),
            (9, 0x6_0000, 0x6_1000),
        ]
        .map(|(arena, address, start)| piece(arena, address, start))
        .to_vec();
        let links = [
            (0x3_0010, 0x1_0000),
            (0x1_0010, 0x5_0000),
            (0x5_0010, 0x6_0000),
            (0x4_0010, 0x4_0000),
        ];
        let ordered = in_order_of_lists(&pieces, &Words(links.into()));
        let starts: Vec<u64> = ordered.iter().map(|piece| piece.start).collect();
        let wanted = [
            0x1_1000, 0x1_3000, 0x5_1000, 0x2_1000, 0x3_1000, 0x4_1000, 0x6_1000,
        ];
        assert_eq!(starts, wanted);
    }
}
