//! The conditions under which the pages inside of a free chunk are dropped, checked while nothing
//! can change the chunk.
//!
//! `docs/trust.md` says why they suffice.

use loam_format::memory::Memory;

use crate::glibc::layout::{arena, ALIGNMENT, FLAGS, IN_OTHER_ARENA, IS_MAPPED, PREVIOUS_IN_USE};
use crate::glibc::layout::{heap_info, HEAP_ALIGNMENT, SHORTEST};

/// Where an arena of a trimmed version names the chunk behind its last block: those versions have
/// fast bins.
const TOP: u64 = arena::RECORDS[0].top as u64;

/// The header of a chunk, the links of its list, and those of a long chunk's second list. They are
/// never dropped.
pub const KEPT: u64 = 48;

/// A free chunk, as the walk saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The record of its arena.
    pub arena: u64,
    /// Whether that is the main one.
    pub is_main: bool,
    /// The address of its header.
    pub address: u64,
    /// Its length, with the header.
    pub size: u64,
    /// Whether it is the chunk behind the last block.
    pub is_top: bool,
}

/// What is checked. A test leaves conditions out, one at a time.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// The length is the same in front of the chunk and behind it.
    pub foot: bool,
    /// The next chunk says that this one is free.
    pub next: bool,
    /// Both neighbours are in use.
    pub neighbours: bool,
    /// Both neighbours in its list point back at it.
    pub links: bool,
    /// The arena's lock is free, or the trim has it.
    pub lock: bool,
    /// The thread is outside of malloc.
    pub outside: bool,
}

impl Conditions {
    /// All of them.
    pub const ALL: Conditions = Conditions {
        foot: true,
        next: true,
        neighbours: true,
        links: true,
        lock: true,
        outside: true,
    };
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the same free chunk.
    Free,
    /// It is not, or not for certain: old headers stay where chunks were joined or handed out.
    Changed,
}

/// Checks a chunk.
pub fn check(memory: &impl Memory, hole: &Hole, conditions: &Conditions) -> Verdict {
    let found = if hole.is_top {
        top(memory, hole)
    } else {
        hole_in_list(memory, hole, conditions)
    };
    // What can not be read is not there any more.
    found.unwrap_or(Verdict::Changed)
}

fn words<const COUNT: usize>(memory: &impl Memory, address: u64) -> Option<[u64; COUNT]> {
    let bytes = memory.bytes(address, 8 * COUNT).ok()?;
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(*bytes.first_chunk()?);
    }
    Some(words)
}

fn word(memory: &impl Memory, address: u64) -> Option<u64> {
    words::<1>(memory, address).map(|[word]| word)
}

/// Whether a free chunk can belong to that arena. glibc marks chunks of other arenas when it hands
/// them out, and not all free ones.
fn belongs(head: u64, hole: &Hole) -> bool {
    head & IS_MAPPED == 0 && !(hole.is_main && head & IN_OTHER_ARENA != 0)
}

fn hole_in_list(memory: &impl Memory, hole: &Hole, conditions: &Conditions) -> Option<Verdict> {
    let Hole { address, size, .. } = *hole;
    let [_, head, forward, backward] = words::<4>(memory, address)?;
    if head & !FLAGS != size || !belongs(head, hole) {
        return Some(Verdict::Changed);
    }
    let next = address.checked_add(size)?;
    let [foot, next_head] = words::<2>(memory, next)?;
    if conditions.next && next_head & PREVIOUS_IN_USE != 0 {
        return Some(Verdict::Changed);
    }
    if conditions.foot && foot != size {
        return Some(Verdict::Changed);
    }
    if conditions.neighbours {
        if head & PREVIOUS_IN_USE == 0 {
            return Some(Verdict::Changed);
        }
        let length = next_head & !FLAGS;
        let behind = next.checked_add(length)?;
        let is_top = word(memory, hole.arena + TOP)? == next;
        if length < ALIGNMENT || is_top || word(memory, behind + 8)? & PREVIOUS_IN_USE == 0 {
            return Some(Verdict::Changed);
        }
    }
    if conditions.links {
        let back = |place: u64, offset: u64| {
            place % 8 == 0 && word(memory, place.wrapping_add(offset)) == Some(address)
        };
        if !back(forward, 24) || !back(backward, 16) {
            return Some(Verdict::Changed);
        }
    }
    Some(Verdict::Free)
}

/// The chunk behind the last block is in no list: its arena names it, and it ends where the arena
/// ends.
fn top(memory: &impl Memory, hole: &Hole) -> Option<Verdict> {
    if word(memory, hole.arena + TOP)? != hole.address {
        return Some(Verdict::Changed);
    }
    let head = word(memory, hole.address + 8)?;
    if head & !FLAGS != hole.size || head & PREVIOUS_IN_USE == 0 || hole.size < SHORTEST {
        return Some(Verdict::Changed);
    }
    if !hole.is_main {
        let heap = hole.address - hole.address % HEAP_ALIGNMENT;
        let [owner, _, size] = words::<3>(memory, heap + heap_info::ARENA as u64)?;
        if owner != hole.arena || heap + size != hole.address + hole.size {
            return Some(Verdict::Changed);
        }
    }
    Some(Verdict::Free)
}
