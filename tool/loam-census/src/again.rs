//! The second look at a process that runs: which of the blocks that the first one did not reach are
//! still there, and still not reached.
//!
//! ```text
//!  what the first look did not reach  -> those that live at the same place, of the same size
//!  roots, and every word of the heap  -> a pointer to one of them:
//!                                        from a root or a live block: reached
//!                                        from another one of them: an edge
//!                                        from free memory: nothing
//!  a pointer to just before one of them                            : it is in doubt
//!  what is reached                    -> along the edges
//! ```
//!
//! The first look knows the whole graph. So this one needs only the pointers to a few blocks: it
//! reads the heap once more, and keeps next to nothing.

use std::collections::HashSet;

use loam_process::apart;

use crate::graph::{share, WINDOW};
use crate::heap::{self, HeapError};
use crate::modules::Modules;
use crate::roots;
use crate::table::Table;
use crate::target::Target;

/// The work of one turn.
const PIECE: u64 = 4 << 20;
/// More pointers from lost blocks to lost blocks are not kept: then the block counts as reached.
const MOST_EDGES: usize = 16 << 20;

/// Pages of [`Pages`]: as many as 16 GiB have.
const PAGES: u64 = 4 << 20;
const PAGE: u64 = 4096;

/// Addresses and sizes of blocks.
pub type Places = HashSet<(u64, u64)>;

/// What a second look says.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Blocks that still live and that still nothing reaches.
    pub lost: Places,
    /// Such to which a pointer may lead all the same.
    pub doubtful: Places,
}

/// Some programs keep no pointer to an array, but one to where its element 0 would be, though the
/// array begins with its element 1. So far from an array, at most, such a pointer leads; and so
/// long is the shortest array for which that counts. Chosen: short blocks lie so close to each
/// other that a pointer to one is a pointer to just before another.
const BEFORE: u64 = 64;
const ARRAY: u64 = 256;

/// Looks at the target again; `before`: the blocks that it did not reach before, sorted.
pub fn look(target: &dyn Target, before: &[(u64, u64)]) -> Result<Verdict, HeapError> {
    let modules = Modules::of(target);
    let heap = heap::read(target, &modules)?;
    let mut hint = 0;
    let is_there = |(address, size): &(u64, u64)| {
        let block = heap.blocks.find(*address, &mut hint);
        block.is_some_and(|block| {
            heap.blocks.address(block) == *address && heap.blocks.size(block) == *size
        })
    };
    let there: Vec<(u64, u64)> = before.iter().copied().filter(is_there).collect();
    let lost = Table::of_blocks(&there);
    let roots = roots::find(target, &modules, None, &lost, &heap.ranges);
    let Found {
        mut edges,
        mut reached,
        before,
    } = pointers(target, &heap.ranges, &heap.blocks, &lost);
    let of_roots = roots.edges.iter().chain(&roots.ends);
    reached.extend(of_roots.map(|(_, block)| *block));
    Ok(apart::compute(|| {
        edges.sort_unstable();
        edges.dedup();
        let mut told = vec![Told::Lost; lost.count()];
        for (mut work, as_what) in [(reached, Told::Reached), (before, Told::Doubtful)] {
            while let Some(block) = work.pop() {
                if told[block as usize] != Told::Lost {
                    continue;
                }
                told[block as usize] = as_what;
                let first = edges.partition_point(|(from, _)| *from < block);
                let own = edges[first..].iter().take_while(|(from, _)| *from == block);
                work.extend(own.map(|(_, to)| *to));
            }
        }
        let of = |what: Told| {
            let numbers = (0..lost.count() as u32).filter(|block| told[*block as usize] == what);
            let places = numbers.map(|block| (lost.address(block), lost.size(block)));
            places.collect()
        };
        Verdict {
            lost: of(Told::Lost),
            doubtful: of(Told::Doubtful),
        }
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Lost,
    Doubtful,
    Reached,
}

#[derive(Default)]
struct Found {
    /// From a lost block to another.
    edges: Vec<(u32, u32)>,
    /// Blocks to which others lead.
    reached: Vec<u32>,
    /// Blocks to just before which a pointer leads.
    before: Vec<u32>,
}

/// Pointers to the lost blocks in the heap.
fn pointers(target: &dyn Target, ranges: &[(u64, u64)], blocks: &Table, lost: &Table) -> Found {
    let mut pieces = Vec::new();
    for (start, end) in ranges {
        let mut at = *start;
        while at < *end {
            // A piece ends at a page, and no word is cut in two.
            let next = ((at / PIECE + 1) * PIECE).min(*end);
            pieces.push((at, next));
            at = next;
        }
    }
    let pages = Pages::of(lost);
    let looks = share(
        pieces.len(),
        || Look {
            target,
            blocks,
            lost,
            pages: &pages,
            window: vec![0; WINDOW],
            hints: (0, 0, 0),
            edges: Vec::new(),
            reached: vec![0; lost.count().div_ceil(64)],
            before: Vec::new(),
        },
        |look, number| look.piece(pieces[number]),
    );
    let mut found = Found::default();
    for mut look in looks {
        found.edges.append(&mut look.edges);
        found.before.append(&mut look.before);
        let reached = (0..lost.count() as u32).filter(|block| look.has(*block));
        found.reached.extend(reached);
    }
    found
}

/// On which pages blocks lie. Pages that are 16 GiB apart share a bit, so it only says where none
/// is.
struct Pages(Vec<u64>);

impl Pages {
    fn of(blocks: &Table) -> Pages {
        let mut pages = Pages(vec![0; PAGES as usize / 64]);
        for block in 0..blocks.count() as u32 {
            let first = blocks.address(block) / PAGE;
            // Words are moved on before they are looked for.
            let last = (blocks.address(block) + blocks.size(block) + BEFORE) / PAGE;
            for page in first..=last.min(first + PAGES) {
                pages.0[(page % PAGES) as usize / 64] |= 1 << (page % 64);
            }
        }
        pages
    }

    fn may_have(&self, address: u64) -> bool {
        let page = address / PAGE;
        self.0[(page % PAGES) as usize / 64] >> (page % 64) & 1 == 1
    }
}

struct Look<'a> {
    target: &'a dyn Target,
    blocks: &'a Table,
    lost: &'a Table,
    pages: &'a Pages,
    window: Vec<u8>,
    hints: (usize, usize, usize),
    edges: Vec<(u32, u32)>,
    /// A bit for each lost block.
    reached: Vec<u64>,
    before: Vec<u32>,
}

impl Look<'_> {
    fn has(&self, block: u32) -> bool {
        self.reached[block as usize / 64] >> (block % 64) & 1 == 1
    }

    fn piece(&mut self, (start, end): (u64, u64)) {
        let (low, high) = self.lost.span();
        let low = low.saturating_sub(BEFORE);
        for (from, to) in self.target.present(start, end) {
            let (mut at, to) = (from.max(start), to.min(end));
            while at < to {
                let length = (to - at).min(WINDOW as u64) as usize;
                let mut window = std::mem::take(&mut self.window);
                self.target.fill(at, &mut window[..length]);
                let mut last = 0;
                for (place, word) in window[..length].chunks_exact(8).enumerate() {
                    let word = u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8]));
                    let last = std::mem::replace(&mut last, word);
                    if word < low || word >= high || !self.pages.may_have(word + BEFORE) {
                        continue;
                    }
                    let address = at + 8 * place as u64;
                    match self.lost.find(word, &mut self.hints.0) {
                        Some(to) => self.pointer(address, to),
                        None => self.just_before(address, word, last),
                    }
                }
                self.window = window;
                at += length as u64;
            }
        }
    }

    /// A word that leads to no lost block, perhaps to just before one. `last`: the word before it.
    fn just_before(&mut self, address: u64, word: u64, last: u64) {
        let Some(to) = self.lost.find(word + BEFORE, &mut self.hints.0) else {
            return;
        };
        let start = self.lost.address(to);
        let is_array = self.lost.size(to) >= ARRAY && start > word && (start - word) % 4 == 0;
        if !is_array || self.blocks.find(address, &mut self.hints.1).is_none() {
            return;
        }
        // The beginning of a block is a pointer to that block, and the end of a buffer stands
        // beside its beginning.
        let hint = &mut self.hints.1;
        let blocks = self.blocks;
        let begins = |block| blocks.address(block) == word;
        let ends = |block| blocks.address(block) + blocks.size(block) + BEFORE > word;
        let is_other = blocks.find(word, hint).is_some_and(begins)
            || last < word && blocks.find(last, hint).is_some_and(ends);
        let is_own = self.lost.find(address, &mut self.hints.2).is_some();
        if !is_other && !is_own {
            self.before.push(to);
        }
    }

    fn pointer(&mut self, address: u64, to: u32) {
        if self.has(to) || self.blocks.find(address, &mut self.hints.1).is_none() {
            return;
        }
        let from = self.lost.find(address, &mut self.hints.2);
        match from {
            Some(from) if from == to => {}
            Some(from) if self.edges.len() < MOST_EDGES => {
                if self.edges.last() != Some(&(from, to)) {
                    self.edges.push((from, to));
                }
            }
            _ => self.reached[to as usize / 64] |= 1 << (to % 64),
        }
    }
}
