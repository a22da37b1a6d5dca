//! What could be dropped: the pages inside of free chunks that are in memory and belong to this
//! process alone. Found without a stop.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::verify::{Hole, KEPT};
use crate::glibc::layout::is_in_heap;
use crate::glibc::{Blocks, Residency, RESERVE};
use crate::process::{face, Pid};

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
        // A second C library's functions are not known, so its chunks are left alone.
        if arena != main && !is_in_heap(arena) {
            return;
        }
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
        let pages = (end.saturating_sub(start) / PAGE).min(AT_ONCE as u64);
        let mut bytes = vec![0; 8 * pages as usize];
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
