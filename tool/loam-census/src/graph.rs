//! Which block points to which: found by looking at every word of the live blocks, by several threads.
//!
//! A word that leads into a block, to its beginning or not, is an edge. So a number that happens to look like an address
//! is one as well. A block has at most one edge to another.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;

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
    /// The type of each block, if types were looked for.
    pub types: Vec<u32>,
    /// Bytes that could not be read.
    pub unread: u64,
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
pub fn workers() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .clamp(1, 4)
}

struct Unit {
    number: usize,
    edges: Vec<u32>,
    offsets: Vec<u32>,
    types: Vec<u32>,
}

/// Looks at all blocks.
pub fn scan(target: &dyn Target, blocks: &Table, types: Option<&Types>) -> Graph {
    let count = blocks.count();
    let units = count.div_ceil(UNIT);
    let next = AtomicUsize::new(0);
    let unread = AtomicU64::new(0);
    let mut graph = Graph {
        units: vec![Vec::new(); units],
        offsets: vec![0; count],
        types: vec![NO_TYPE; if types.is_some() { count } else { 0 }],
        unread: 0,
    };
    let done = Mutex::new(&mut graph);
    std::thread::scope(|scope| {
        for _ in 0..workers().min(units) {
            scope.spawn(|| {
                let mut scanner = Scanner::new(target, blocks, types);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= units {
                        break;
                    }
                    let unit = scanner.unit(number, count);
                    let mut graph = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    let first = unit.number * UNIT;
                    graph.offsets[first..first + unit.offsets.len()].copy_from_slice(&unit.offsets);
                    if types.is_some() {
                        graph.types[first..first + unit.types.len()].copy_from_slice(&unit.types);
                    }
                    graph.units[unit.number] = unit.edges;
                }
                unread.fetch_add(scanner.unread, Ordering::Relaxed);
            });
        }
    });
    graph.unread = unread.into_inner();
    graph
}

struct Scanner<'a> {
    target: &'a dyn Target,
    blocks: &'a Table,
    types: Option<&'a Types<'a>>,
    span: (u64, u64),
    window: Vec<u8>,
    at: u64,
    length: usize,
    hint: usize,
    lately: Lately,
    unread: u64,
}

impl<'a> Scanner<'a> {
    fn new(target: &'a dyn Target, blocks: &'a Table, types: Option<&'a Types<'a>>) -> Self {
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
            unread: 0,
        }
    }

    fn unit(&mut self, number: usize, count: usize) -> Unit {
        let first = (number * UNIT) as u32;
        let behind = ((number + 1) * UNIT).min(count) as u32;
        let mut unit = Unit {
            number,
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
                if self.types.is_some() {
                    unit.types.push(kind);
                }
                block += 1;
            }
        }
        unit.edges.shrink_to_fit();
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
                if let Some(types) = self.types {
                    let bytes = &self.window[from..to];
                    kind =
                        types.of_block(bytes, size, self.blocks, &mut self.hint, &mut self.lately);
                }
            }
            for word in self.window[from..to].chunks_exact(8) {
                let word = u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8]));
                if word < self.span.0 || word >= self.span.1 {
                    continue;
                }
                if let Some(found) = self.blocks.find(word, &mut self.hint) {
                    if found != block {
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

    /// Reads from an address on. What holds nothing at all far away is skipped by the caller's next read.
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
