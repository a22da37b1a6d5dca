//! Which block points to which: found by looking at every word of the live blocks, by several
//! threads.
//!
//! A word that leads into a block, to its beginning or not, is an edge. So a number that happens to
//! look like an address is one as well. A block has at most one edge to another.
//!
//! Where blocks lie side by side, the pointer behind a full buffer's end is the next block's
//! address. Such words are told apart ([`Ends`]): they say that the next block may be held, and
//! nothing of who holds it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use loam_format::bytes::u64_at;
use loam_process::apart;

use crate::table::Table;
use crate::target::Target;
use crate::types::{Lately, Types, NO_TYPE};

/// Blocks of a unit of work.
const UNIT: usize = 1 << 13;
/// How much memory is read at once.
pub const WINDOW: usize = 1 << 20;

/// Edges between blocks.
#[derive(Debug, Default)]
pub struct Graph {
    /// The edges of each unit's blocks, one block after the other.
    units: Vec<Vec<u32>>,
    /// For each block, where its edges begin within its unit.
    offsets: Vec<u32>,
    /// The type of each block.
    pub types: Vec<u32>,
    /// A block and the one that begins where a buffer of it ends; sorted.
    pub ends: Vec<(u32, u32)>,
    /// Bytes that could not be read.
    pub unread: u64,
}

/// Tells pointers behind a buffer's end from others, word by word.
///
/// ```text
///  | begin | end | capacity |     begin is a block's address; capacity, or both, its end
///  | current | first | last |     a queue's iterator: first is a block's address; last its end
/// ```
#[derive(Debug, Default)]
pub struct Ends {
    /// Where the last two words lay that led to blocks, the words, and the blocks.
    last: [(u64, u64, u32); 2],
    is_repeated: bool,
}

impl Ends {
    /// Whether this word, which leads to that block, is where a buffer ends. `next`: the word
    /// behind it.
    pub fn is_one(
        &mut self,
        address: u64,
        word: u64,
        found: u32,
        next: Option<u64>,
        blocks: &Table,
    ) -> bool {
        let [(_, first, of_first), (at, second, of_second)] = self.last;
        let follows = at.wrapping_add(8) == address;
        let is_repeated = follows && self.is_repeated && second == word;
        let is_candidate = follows && found > 0 && of_second == found - 1;
        let is_third =
            is_candidate && self.last[0].0.wrapping_add(16) == address && of_first == of_second;
        let is_end = is_repeated
            || (is_third || is_candidate && next == Some(word)) && {
                let start = blocks.address(of_second);
                let begins = second == start || is_third && first == start;
                begins && start + blocks.size(of_second) == word && blocks.address(found) == word
            };
        self.last = [self.last[1], (address, word, found)];
        self.is_repeated = is_end;
        is_end
    }
}

impl Graph {
    /// Those that a block points to.
    pub fn edges(&self, block: u32) -> &[u32] {
        let block = block as usize;
        let Some(unit) = self.units.get(block / UNIT) else {
            return &[];
        };
        let start = self.offsets[block] as usize;
        let is_last = (block + 1) % UNIT == 0 || block + 1 == self.offsets.len();
        let end = match is_last {
            true => unit.len(),
            false => self.offsets[block + 1] as usize,
        };
        unit.get(start..end).unwrap_or(&[])
    }

    /// Gives back the edges of the units before a block.
    pub fn forget_before(&mut self, block: u32) {
        let block = block as usize + 1;
        if block % UNIT == 0 {
            self.units[block / UNIT - 1] = Vec::new();
        }
    }

    /// The number of edges.
    pub fn count(&self) -> usize {
        self.units.iter().map(Vec::len).sum()
    }

    /// A graph of known edges.
    #[cfg(test)]
    pub fn of_edges(edges: &[&[u32]]) -> Graph {
        let mut graph = Graph::default();
        for some in edges.chunks(UNIT) {
            let mut unit = Vec::new();
            for edges in some {
                graph.offsets.push(unit.len() as u32);
                unit.extend_from_slice(edges);
            }
            graph.units.push(unit);
        }
        graph
    }
}

/// How many threads look.
fn workers() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .clamp(1, 4)
}

/// Does each number below `count`, on some threads. A thread does them with a state of its own; the
/// states are the answer, in no order.
pub fn share<State: Send>(
    count: usize,
    begin: impl Fn() -> State + Sync,
    work: impl Fn(&mut State, usize) + Sync,
) -> Vec<State> {
    let next = AtomicUsize::new(0);
    let desk = apart::Desk::here();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers().min(count))
            .map(|_| {
                scope.spawn(|| {
                    desk.help();
                    let mut state = begin();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return state;
                        }
                        work(&mut state, number);
                    }
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|state| state.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

struct Unit {
    number: usize,
    ends: Vec<(u32, u32)>,
    edges: Vec<u32>,
    offsets: Vec<u32>,
    types: Vec<u32>,
}

/// Looks at all blocks.
pub fn scan(target: &dyn Target, blocks: &Table, types: &Types) -> Graph {
    let count = blocks.count();
    let units = count.div_ceil(UNIT);
    let mut graph = Graph {
        units: vec![Vec::new(); units],
        offsets: vec![0; count],
        types: vec![NO_TYPE; count],
        ends: Vec::new(),
        unread: 0,
    };
    let done = Mutex::new(&mut graph);
    let scanners = share(
        units,
        || Scanner::new(target, blocks, types),
        |scanner, number| {
            let unit = scanner.unit(number, count);
            let mut graph = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let first = unit.number * UNIT;
            graph.offsets[first..first + unit.offsets.len()].copy_from_slice(&unit.offsets);
            graph.types[first..first + unit.types.len()].copy_from_slice(&unit.types);
            graph.units[unit.number] = unit.edges;
            graph.ends.extend(unit.ends);
        },
    );
    graph.unread = scanners.iter().map(|scanner| scanner.unread).sum();
    graph.ends.sort_unstable();
    graph.ends.dedup();
    graph
}

struct Scanner<'a> {
    target: &'a dyn Target,
    blocks: &'a Table,
    types: &'a Types<'a>,
    span: (u64, u64),
    window: Vec<u8>,
    at: u64,
    length: usize,
    hint: usize,
    lately: Lately,
    ends: Ends,
    behind: Vec<(u32, u32)>,
    unread: u64,
}

impl<'a> Scanner<'a> {
    fn new(target: &'a dyn Target, blocks: &'a Table, types: &'a Types<'a>) -> Self {
        Scanner {
            target,
            blocks,
            types,
            span: blocks.span(),
            window: vec![0; WINDOW],
            at: 0,
            length: 0,
            hint: 0,
            lately: Lately::default(),
            ends: Ends::default(),
            behind: Vec::new(),
            unread: 0,
        }
    }

    fn unit(&mut self, number: usize, count: usize) -> Unit {
        let first = (number * UNIT) as u32;
        let behind = ((number + 1) * UNIT).min(count) as u32;
        let mut unit = Unit {
            number,
            ends: Vec::new(),
            edges: Vec::new(),
            offsets: Vec::with_capacity((behind - first) as usize),
            types: Vec::new(),
        };
        let mut block = first;
        while block < behind {
            let (region, end) = self.blocks.region_of(block);
            let end = end.min(behind);
            // The last byte of the unit that lies in the region.
            let last = end - 1;
            let limit = self.blocks.address_in(region, last) + self.blocks.size(last);
            while block < end {
                let address = self.blocks.address_in(region, block);
                unit.offsets.push(unit.edges.len() as u32);
                let kind = self.block(block, address, limit, &mut unit.edges);
                unit.types.push(kind);
                block += 1;
            }
        }
        unit.edges.shrink_to_fit();
        unit.ends = std::mem::take(&mut self.behind);
        unit
    }

    fn block(&mut self, block: u32, address: u64, limit: u64, edges: &mut Vec<u32>) -> u32 {
        let size = self.blocks.size(block);
        let start = edges.len();
        let mut kind = NO_TYPE;
        let end = address + size;
        let mut at = address;
        while at < end {
            let is_here = at >= self.at && at + 8 <= self.at + self.length as u64;
            let has_all = is_here && end.min(at + WINDOW as u64) <= self.at + self.length as u64;
            if !has_all {
                if !self.load(at, end.max(limit)) {
                    break;
                }
                if at > address && self.length == 0 {
                    break;
                }
            }
            let from = (at - self.at) as usize;
            let to = ((end - self.at) as usize).min(self.length);
            if to <= from {
                break;
            }
            if at == address {
                let bytes = &self.window[from..to];
                let (types, lately) = (self.types, &mut self.lately);
                kind = types.of_block(bytes, size, self.blocks, &mut self.hint, lately);
            }
            let words = &self.window[from..to];
            for (place, word) in words.chunks_exact(8).enumerate() {
                let word = u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8]));
                if word < self.span.0 || word >= self.span.1 {
                    continue;
                }
                if let Some(found) = self.blocks.find(word, &mut self.hint) {
                    let address = at + 8 * place as u64;
                    let next = u64_at(words, 8 * place + 8);
                    if self.ends.is_one(address, word, found, next, self.blocks) {
                        self.behind.push((block, found));
                    } else if found != block {
                        add(edges, start, found);
                    }
                }
            }
            at = self.at + to as u64;
            // A word must not be cut in two: windows end at words, but for a block's last bytes.
        }
        let own = &mut edges[start..];
        if own.len() > FEW {
            own.sort_unstable();
            let mut kept = 0;
            for place in 0..own.len() {
                if kept == 0 || own[place] != own[kept - 1] {
                    own[kept] = own[place];
                    kept += 1;
                }
            }
            edges.truncate(start + kept);
        }
        kind
    }

    /// Reads from an address on. What holds nothing at all far away is skipped by the caller's next
    /// read.
    fn load(&mut self, at: u64, limit: u64) -> bool {
        let length = (limit - at).min(WINDOW as u64) as usize;
        self.at = at;
        self.length = length;
        self.unread += self.target.fill(at, &mut self.window[..length]);
        length > 0
    }
}

/// So many edges of a block are compared one by one.
const FEW: usize = 24;
/// More of them are sorted each time that they have become so many.
const MANY: usize = 1 << 20;

fn add(edges: &mut Vec<u32>, start: usize, found: u32) {
    let own = &edges[start..];
    if own.last() == Some(&found) || own.len() <= FEW && own.contains(&found) {
        return;
    }
    edges.push(found);
    if (edges.len() - start) % MANY == 0 {
        let mut own = edges.split_off(start);
        own.sort_unstable();
        own.dedup();
        edges.extend(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Stretch;

    /// Blocks of 64 bytes side by side; which of these words are ends.
    fn ends(words: &[u64]) -> Vec<bool> {
        let mut stretch = Stretch::default();
        for place in 0..8 {
            stretch.push(0x1000 + 64 * place, 64);
        }
        let (table, _) = Table::of(vec![stretch], Vec::new());
        let mut ends = Ends::default();
        let mut told = Vec::new();
        for (place, word) in words.iter().enumerate() {
            let next = words.get(place + 1).copied();
            let found = table.find(*word, &mut 0);
            let is_end = |found| ends.is_one(8 * place as u64, *word, found, next, &table);
            told.push(found.is_some_and(is_end));
        }
        told
    }

    #[test]
    fn the_end_of_a_full_buffer_is_no_pointer_to_the_next_block() {
        let (no, yes) = (false, true);
        assert_eq!(ends(&[0x1000, 0x1040, 0x1040]), [no, yes, yes], "full");
        assert_eq!(ends(&[0x1000, 0x1018, 0x1040]), [no, no, yes], "not full");
        assert_eq!(ends(&[0x1028, 0x1000, 0x1040]), [no, no, yes], "a queue");
        assert_eq!(ends(&[0x1000, 0x1040, 0x1080]), [no, no, no], "pointers");
        assert_eq!(ends(&[0x1000, 7, 0x1040, 0x1040]), [no, no, no, no]);
        assert_eq!(ends(&[0x1000, 0x1080, 0x1080]), [no, no, no]);
        assert_eq!(
            ends(&[0x1008, 0x1010, 0x1040]),
            [no, no, no],
            "no beginning"
        );
    }
}
