//! The places of a process's blocks, from its events: which pieces of its address space hold blocks
//! at all, which parts the program mapped itself, and which large blocks are live. The sampler asks
//! the system about these.

use std::collections::{BTreeSet, HashMap};

use nix::unistd::{sysconf, SysconfVar};
use rangemap::RangeSet;

use loam_format::trace::{AllocFamily, Event, FreeFamily};

use super::batch::{Batch, Take};
use super::unit::Own;

/// From this size on, the pages of a live block are looked at.
pub const LARGE: u64 = 64 * 1024;
/// Pieces of address space.
pub const GRANULE: u32 = 16;

const RECENT: usize = 1_024;
const FILTER_BITS: u32 = 12;
const FILTER_WORDS: usize = (1 << FILTER_BITS) / 64;
/// How many large blocks end before the filter is made again; until then it only gains bits.
const TIDY: u32 = 1 << FILTER_BITS;

/// Follows the events of one process image.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Pieces of 64 KiB of address space in which a block ever began.
    pub granules: BTreeSet<u64>,
    /// Memory that the program mapped itself and has not unmapped.
    pub own: RangeSet<u64>,
    /// Large blocks that are live, with their sizes.
    pub large: HashMap<u64, u64>,
    /// Pieces of the last events, so that most events cost one comparison.
    recent: Box<[u64; RECENT]>,
    /// A bit for each large block: most frees are of other blocks.
    filter: Box<[u64; FILTER_WORDS]>,
    ended: u32,
    resizing: HashMap<u32, (u64, u64)>,
    page_bytes: u64,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks {
            granules: BTreeSet::new(),
            own: RangeSet::new(),
            large: HashMap::new(),
            recent: Box::new([u64::MAX; RECENT]),
            filter: Box::new([0; FILTER_WORDS]),
            ended: 0,
            resizing: HashMap::new(),
            page_bytes: page_bytes(),
        }
    }
}

/// This uses nix, because Valgrind, which counts the cost of a recording, does not show the
/// auxiliary vector that rustix reads.
fn page_bytes() -> u64 {
    let bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    bytes.map_or(4_096, |bytes| bytes as u64)
}

fn filter_bit(address: u64) -> (usize, u64) {
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS);
    (hash as usize / 64, 1 << (hash % 64))
}

impl Blocks {
    /// Follows events, and the memory that the program mapped itself meanwhile.
    pub fn follow(&mut self, events: &Batch, own: &[Own]) {
        for one in own {
            self.map(one);
        }
        events.each(self);
    }

    fn map(&mut self, one: &Own) {
        let first = one.address & !(self.page_bytes - 1);
        let Some(end) = one.address.checked_add(one.bytes) else {
            return;
        };
        let end = end.next_multiple_of(self.page_bytes);
        match (first < end, one.is_mapped) {
            (false, _) => {}
            (true, true) => self.own.insert(first..end),
            (true, false) => self.own.remove(first..end),
        }
    }

    #[inline(always)]
    fn begin(&mut self, address: u64, size: u64) {
        if address == 0 {
            return;
        }
        let granule = address >> GRANULE;
        let place = &self.recent[granule as usize % RECENT];
        if *place != granule || size >= LARGE {
            self.begin_notable(address, size);
        }
    }

    /// An event of a piece that is not among the last ones, or of a large block.
    #[inline(never)]
    fn begin_notable(&mut self, address: u64, size: u64) {
        let granule = address >> GRANULE;
        self.recent[granule as usize % RECENT] = granule;
        self.granules.insert(granule);
        if size >= LARGE {
            self.large.insert(address, size);
            let (word, bit) = filter_bit(address);
            self.filter[word] |= bit;
        }
    }

    #[inline(always)]
    fn end(&mut self, address: u64) -> Option<u64> {
        let (word, bit) = filter_bit(address);
        match self.filter[word] & bit {
            0 => None,
            _ => self.end_large(address),
        }
    }

    #[inline(never)]
    fn end_large(&mut self, address: u64) -> Option<u64> {
        let size = self.large.remove(&address);
        self.ended += 1;
        if self.ended >= TIDY {
            self.ended = 0;
            self.tidy_filter();
        }
        size
    }

    fn tidy_filter(&mut self) {
        self.filter.fill(0);
        for address in self.large.keys() {
            let (word, bit) = filter_bit(*address);
            self.filter[word] |= bit;
        }
    }
}

impl Take for Blocks {
    #[inline(always)]
    fn allocated(&mut self, _family: AllocFamily, address: u64, size: u64) {
        self.begin(address, size);
    }

    #[inline(always)]
    fn freed(&mut self, _family: FreeFamily, address: u64, _size: u64) {
        self.end(address);
    }

    #[inline(never)]
    fn other(&mut self, thread: u32, event: &Event) {
        match *event {
            Event::Allocate { address, size, .. } | Event::Existing { address, size } => {
                self.begin(address, size);
            }
            Event::Free { address, .. } => {
                self.end(address);
            }
            Event::ResizeFrom { address, .. } => {
                if let Some(size) = self.end(address) {
                    self.resizing.insert(thread, (address, size));
                }
            }
            Event::ResizeTo { address, size } => {
                let old = match self.resizing.is_empty() {
                    true => None,
                    false => self.resizing.remove(&thread),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(address: u64, size: u64) -> Event {
        Event::Allocate {
            family: AllocFamily::Malloc,
            address,
            size,
            alignment: 0,
        }
    }

    #[test]
    fn large_blocks_are_known_while_they_live() {
        let mut blocks = Blocks::default();
        let events = [
            allocate(0x10_0000, LARGE),
            allocate(0x20_0000, 100),
            allocate(0x30_0000, 2 * LARGE),
            Event::ResizeFrom {
                address: 0x30_0000,
                touched: None,
            },
            Event::ResizeTo {
                address: 0,
                size: 5 * LARGE,
            },
            Event::Free {
                family: FreeFamily::Free,
                address: 0x10_0000,
                size: 0,
                touched: None,
            },
        ];
        blocks.follow(&Batch::of(3, &events), &[]);
        assert_eq!(blocks.large, HashMap::from([(0x30_0000, 2 * LARGE)]));
        assert_eq!(Vec::from_iter(blocks.granules.clone()), [0x10, 0x20, 0x30]);
    }

    #[test]
    fn the_programs_own_memory_comes_and_goes_by_pages() {
        let mut blocks = Blocks::default();
        let page = blocks.page_bytes;
        let own = |address, bytes, is_mapped| Own {
            stamp: 0,
            address,
            bytes,
            is_mapped,
        };
        blocks.follow(
            &Batch::default(),
            &[
                own(16 * page, 4 * page - 1, true),
                own(20 * page, 1, true),
                own(18 * page, page, false),
                own(0, 0, false),
                own(u64::MAX - 1, 2 * page, true),
            ],
        );
        let ranges: Vec<_> = blocks.own.iter().cloned().collect();
        assert_eq!(ranges, [16 * page..18 * page, 19 * page..21 * page]);
    }
}
