//! Where the blocks of a process lie, from its events: which pieces of its address space hold blocks at all, and which
//! large blocks are live. The sampler asks the system about those.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use loam_format::trace::{Event, Record};

use super::board::Board;

/// From here on a live block's pages are looked at.
pub const LARGE: u64 = 64 * 1024;
/// Pieces of address space.
pub const GRANULE: u32 = 16;
/// How often the sampler is told which large blocks are live, and at most how many.
const TELL: Duration = Duration::from_secs(1);
const TELL_AT_MOST: usize = 16_384;

const RECENT: usize = 1_024;
const FILTER_BITS: u32 = 12;

/// Follows the events of one process image.
#[derive(Debug)]
pub struct Tracker {
    /// Pieces that were seen a moment ago, so that most events cost one comparison.
    recent: Vec<u64>,
    fresh: Vec<u64>,
    large: HashMap<u64, u64>,
    /// A bit for each large block: most frees are of others.
    filter: Vec<u64>,
    resizing: HashMap<u32, (u64, u64)>,
    told: Instant,
}

impl Default for Tracker {
    fn default() -> Tracker {
        Tracker {
            recent: vec![u64::MAX; RECENT],
            fresh: Vec::new(),
            large: HashMap::new(),
            filter: vec![0; (1 << FILTER_BITS) / 64],
            resizing: HashMap::new(),
            told: Instant::now(),
        }
    }
}

fn filter_bit(address: u64) -> (usize, u64) {
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS);
    (hash as usize / 64, 1 << (hash % 64))
}

impl Tracker {
    /// A child that forked has what its parent had.
    pub fn of_child(board: &Board, parent: u32, child: u32) -> Tracker {
        let mut all = board.blocks();
        let granules = all.get(&parent).map(|blocks| blocks.granules.clone());
        all.entry(child).or_default().granules = granules.unwrap_or_default();
        Tracker::default()
    }

    /// Follows events, and tells the sampler.
    pub fn follow(&mut self, records: &[Record], board: &Board, stream: u32) {
        for record in records {
            self.event(record);
        }
        let is_time = self.told.elapsed() >= TELL;
        if self.fresh.is_empty() && !is_time {
            return;
        }
        let mut all = board.blocks();
        let blocks = all.entry(stream).or_default();
        blocks.granules.extend(self.fresh.drain(..));
        if is_time {
            self.told = Instant::now();
            let step = self.large.len().div_ceil(TELL_AT_MOST).max(1);
            let some = self.large.iter().step_by(step);
            blocks.large = some.map(|(address, size)| (*address, *size)).collect();
            self.tidy_filter();
        }
    }

    fn tidy_filter(&mut self) {
        self.filter.fill(0);
        for address in self.large.keys() {
            let (word, bit) = filter_bit(*address);
            self.filter[word] |= bit;
        }
    }

    fn event(&mut self, record: &Record) {
        match record.event {
            Event::Allocate { address, size, .. } | Event::Existing { address, size } => {
                self.begin(address, size);
            }
            Event::Free { address, .. } => {
                self.end(address);
            }
            Event::ResizeFrom { address, .. } => {
                if let Some(size) = self.end(address) {
                    self.resizing.insert(record.thread, (address, size));
                }
            }
            Event::ResizeTo { address, size } => {
                let old = match self.resizing.is_empty() {
                    true => None,
                    false => self.resizing.remove(&record.thread),
                };
                match (address, old) {
                    (0, Some((address, size))) => self.begin(address, size),
                    (0, None) => {}
                    _ => self.begin(address, size),
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, address: u64, size: u64) {
        if address == 0 {
            return;
        }
        let granule = address >> GRANULE;
        let place = &mut self.recent[granule as usize % RECENT];
        if *place != granule {
            *place = granule;
            self.fresh.push(granule);
        }
        if size >= LARGE {
            self.large.insert(address, size);
            let (word, bit) = filter_bit(address);
            self.filter[word] |= bit;
        }
    }

    fn end(&mut self, address: u64) -> Option<u64> {
        let (word, bit) = filter_bit(address);
        match self.filter[word] & bit {
            0 => None,
            _ => self.large.remove(&address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_format::trace::{AllocFamily, FreeFamily};

    fn at(event: Event) -> Record {
        Record {
            time: 0,
            thread: 3,
            event,
        }
    }

    fn allocate(address: u64, size: u64) -> Record {
        at(Event::Allocate {
            family: AllocFamily::Malloc,
            address,
            size,
            alignment: 0,
        })
    }

    #[test]
    fn large_blocks_are_known_while_they_live() {
        let mut tracker = Tracker::default();
        let board = Board::default();
        let events = [
            allocate(0x10_0000, LARGE),
            allocate(0x20_0000, 100),
            allocate(0x30_0000, 2 * LARGE),
            at(Event::ResizeFrom {
                address: 0x30_0000,
                touched: None,
            }),
            at(Event::ResizeTo {
                address: 0,
                size: 5 * LARGE,
            }),
            at(Event::Free {
                family: FreeFamily::Free,
                address: 0x10_0000,
                size: 0,
                touched: None,
            }),
        ];
        tracker.follow(&events, &board, 7);
        assert_eq!(tracker.large, HashMap::from([(0x30_0000, 2 * LARGE)]));
        let granules = board.blocks()[&7].granules.clone();
        assert_eq!(Vec::from_iter(granules), [0x10, 0x20, 0x30]);
        let child = Tracker::of_child(&board, 7, 8);
        assert!(child.large.is_empty() && board.blocks()[&8].granules.len() == 3);
    }
}
