//! The live blocks of a heap, in eight bytes a block, and the block at an address.
//!
//! ```text
//!  regions, by address   [start .. end)  first block, first page
//!  starts                a block's distance from its region's start, in granules of 16 bytes
//!  sizes                 bytes; longer ones than 4 GiB are in a table of their own
//!  pages                 the first block that starts at or behind each page of the regions
//! ```

use std::collections::HashMap;

/// The distance of starts.
pub const GRANULE: u64 = 16;
const PAGE: u64 = 4096;
/// A region is no longer than this, so that a start has 32 bits.
const LONGEST: u64 = GRANULE << 32;

/// Of blocks without their heap, those farther from each other than this are in regions of their
/// own.
const FAR: u64 = 1 << 20;

/// A number that no block has.
pub const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    first: u32,
    /// Of `pages`; `usize::MAX` if the region has one block.
    page: usize,
}

/// Blocks side by side, in the order of their addresses, before they are in a table.
#[derive(Debug, Default)]
pub struct Stretch {
    start: u64,
    end: u64,
    starts: Vec<u32>,
    sizes: Vec<u32>,
    long: Vec<(u32, u64)>,
}

impl Stretch {
    /// Adds a block behind the others. False: it is not behind them, or too far from the first one.
    pub fn push(&mut self, address: u64, size: u64) -> bool {
        if self.starts.is_empty() {
            self.start = address;
            self.end = self.start;
        }
        let Some(end) = address.checked_add(size) else {
            return false;
        };
        let is_sound = address >= self.end
            && address % GRANULE == 0
            && size > 0
            && (address - self.start < LONGEST)
            && end < 1 << 56;
        if !is_sound {
            return false;
        }
        let place = self.starts.len() as u32;
        self.starts.push(((address - self.start) / GRANULE) as u32);
        self.sizes.push(u32::try_from(size).unwrap_or_else(|_| {
            self.long.push((place, size));
            u32::MAX
        }));
        self.end = end;
        true
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Removes the blocks with these addresses, which are sorted.
    fn remove(&mut self, addresses: &[u64]) {
        let first = addresses.partition_point(|address| *address < self.start);
        let mut rest = addresses[first..].iter().peekable();
        if rest.peek().is_none_or(|address| **address >= self.end) {
            return;
        }
        let long: HashMap<u32, u64> = self.long.drain(..).collect();
        let mut kept = 0;
        for place in 0..self.starts.len() {
            let address = self.start + u64::from(self.starts[place]) * GRANULE;
            while rest.peek().is_some_and(|other| **other < address) {
                rest.next();
            }
            if rest.peek().is_some_and(|other| **other == address) {
                continue;
            }
            self.starts[kept] = self.starts[place];
            self.sizes[kept] = self.sizes[place];
            if let Some(size) = long.get(&(place as u32)) {
                self.long.push((kept as u32, *size));
            }
            kept += 1;
        }
        self.starts.truncate(kept);
        self.sizes.truncate(kept);
        // The region ends with its last block.
        if let (Some(start), Some(size)) = (self.starts.last(), self.sizes.last()) {
            let long = self.long.last().filter(|_| *size == u32::MAX);
            let size = long.map_or(u64::from(*size), |(_, size)| *size);
            self.end = self.start + u64::from(*start) * GRANULE + size;
        }
    }
}

/// All live blocks.
#[derive(Debug, Default)]
pub struct Table {
    regions: Vec<Region>,
    starts: Vec<u32>,
    sizes: Vec<u32>,
    long: HashMap<u32, u64>,
    pages: Vec<u32>,
}

impl Table {
    /// A table of some blocks of a heap, by address and size in the order of addresses.
    pub fn of_blocks(blocks: &[(u64, u64)]) -> Table {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut end = 0u64;
        for (address, size) in blocks {
            let last = stretches
                .last_mut()
                .filter(|_| *address < FAR.saturating_add(end));
            if !last.is_some_and(|last| last.push(*address, *size)) {
                let mut next = Stretch::default();
                next.push(*address, *size);
                stretches.push(next);
            }
            end = address.saturating_add(*size);
        }
        Table::of(stretches, Vec::new()).0
    }

    /// A table of these blocks without those at `freed`. Stretches that overlap an earlier one are
    /// left out; the second part of the answer counts them.
    pub fn of(mut stretches: Vec<Stretch>, mut freed: Vec<u64>) -> (Table, usize) {
        freed.sort_unstable();
        stretches.retain(|stretch| !stretch.is_empty());
        for stretch in &mut stretches {
            stretch.remove(&freed);
        }
        stretches.retain(|stretch| !stretch.is_empty());
        let first = |stretch: &Stretch| stretch.start + u64::from(stretch.starts[0]) * GRANULE;
        stretches.sort_unstable_by_key(first);
        let mut table = Table::default();
        let mut left_out = 0;
        let mut behind = 0;
        for stretch in stretches {
            let too_many = table.starts.len() + stretch.starts.len() >= (u32::MAX >> 1) as usize;
            if first(&stretch) < behind || too_many {
                left_out += 1;
                continue;
            }
            behind = stretch.end;
            table.add(stretch);
        }
        (table, left_out)
    }

    fn add(&mut self, stretch: Stretch) {
        let first = self.starts.len() as u32;
        let count = stretch.starts.len() as u32;
        // Blocks before the first one may have been removed.
        let own = u64::from(stretch.starts[0]) * GRANULE;
        let page = if count == 1 {
            usize::MAX
        } else {
            self.pages.len()
        };
        if count > 1 {
            let pages = (stretch.end - stretch.start).div_ceil(PAGE);
            let mut block = 0;
            for page in 0..=pages {
                while block < count
                    && u64::from(stretch.starts[block as usize]) * GRANULE < page * PAGE
                {
                    block += 1;
                }
                self.pages.push(first + block);
            }
        }
        self.regions.push(Region {
            start: stretch.start + if count == 1 { own } else { 0 },
            end: stretch.end,
            first,
            page,
        });
        self.starts.extend(match count {
            1 => vec![0],
            _ => stretch.starts,
        });
        self.sizes.extend(stretch.sizes);
        let long = stretch.long.into_iter();
        self.long
            .extend(long.map(|(place, size)| (first + place, size)));
    }

    /// The number of blocks.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Bytes of a block.
    pub fn size(&self, block: u32) -> u64 {
        match self.sizes[block as usize] {
            u32::MAX => self.long.get(&block).copied().unwrap_or(u64::MAX >> 1),
            size => u64::from(size),
        }
    }

    /// The address of a block.
    pub fn address(&self, block: u32) -> u64 {
        let place = self.regions.partition_point(|one| one.first <= block) - 1;
        self.regions[place].start + u64::from(self.starts[block as usize]) * GRANULE
    }

    /// The region of a block: its number, and the number of the block behind its last one.
    pub fn region_of(&self, block: u32) -> (usize, u32) {
        let place = self.regions.partition_point(|one| one.first <= block) - 1;
        let behind = self.regions.get(place + 1);
        (
            place,
            behind.map_or(self.starts.len() as u32, |one| one.first),
        )
    }

    /// The address of a block of a region.
    pub fn address_in(&self, region: usize, block: u32) -> u64 {
        self.regions[region].start + u64::from(self.starts[block as usize]) * GRANULE
    }

    /// The lowest and the highest address of all regions.
    pub fn span(&self) -> (u64, u64) {
        let start = self.regions.first().map_or(0, |one| one.start);
        (start, self.regions.last().map_or(0, |one| one.end))
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        (0..self.count() as u32).map(|block| self.size(block)).sum()
    }

    /// The block that contains an address. `hint`: a region that was the answer's before.
    pub fn find(&self, address: u64, hint: &mut usize) -> Option<u32> {
        let is_here = |one: &Region| (one.start..one.end).contains(&address);
        if !self.regions.get(*hint).is_some_and(is_here) {
            let place = self.regions.partition_point(|one| one.start <= address);
            let place = place.checked_sub(1)?;
            *hint = match self.regions[place] {
                region if is_here(&region) => place,
                _ => return None,
            };
        }
        self.find_in(*hint, address)
    }

    fn find_in(&self, number: usize, address: u64) -> Option<u32> {
        let region = &self.regions[number];
        if region.page == usize::MAX {
            return Some(region.first);
        }
        let offset = address - region.start;
        let page = region.page + (offset / PAGE) as usize;
        let (low, high) = (self.pages[page] as usize, self.pages[page + 1] as usize);
        let granule = (offset / GRANULE) as u32;
        let behind = low + self.starts[low..high].partition_point(|start| *start <= granule);
        let block = behind.checked_sub(1)? as u32;
        let is_inside = block >= region.first
            && offset - u64::from(self.starts[block as usize]) * GRANULE < self.size(block);
        is_inside.then_some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_block_is_one_region() {
        let mut stretch = Stretch::default();
        assert!(stretch.push(0x7f00_0000_0010, 8 << 30));
        let mut small = Stretch::default();
        assert!(small.push(0x5000_0010, 24) && small.push(0x5000_0030, 40));
        assert!(!small.push(0x5000_0040, 8), "not behind the last one");
        let (table, left_out) = Table::of(vec![stretch, small], vec![0x5000_0010]);
        assert_eq!((table.count(), left_out), (2, 0));
        let mut hint = 0;
        assert_eq!(table.find(0x5000_0010, &mut hint), None);
        assert_eq!(table.find(0x5000_0057, &mut hint), Some(0));
        assert_eq!(table.find(0x5000_0058, &mut hint), None);
        assert_eq!(table.find(0x7f01_0000_0000, &mut hint), Some(1));
        assert_eq!(
            (table.size(1), table.address(1)),
            (8 << 30, 0x7f00_0000_0010)
        );
    }

    #[test]
    fn some_blocks_of_a_heap_are_found_however_far_apart_they_lie() {
        let blocks = [
            (0x1000, 16),
            (0x1010, 64),
            (0x1000 + FAR, 32),
            (0x1000 + 2 * LONGEST, 48),
        ];
        let table = Table::of_blocks(&blocks);
        assert_eq!(table.count(), blocks.len());
        for (number, (address, size)) in blocks.iter().enumerate() {
            let last = address + size - 1;
            assert_eq!(table.find(last, &mut 0), Some(number as u32));
        }
        assert_eq!(table.find(0x1000 + 2 * LONGEST + 48, &mut 0), None);
        assert_eq!(Table::of_blocks(&[]).count(), 0);
    }

    proptest! {
        #[test]
        fn the_table_finds_what_a_search_finds(
            sizes in proptest::collection::vec((1_u64..3_000, 0_u64..2_000), 1..200),
            cuts in proptest::collection::vec(any::<bool>(), 200),
            freed in proptest::collection::vec(any::<bool>(), 200),
        ) {
            let mut at = 0x7000_0000_0000_u64;
            let (mut all, mut gone) = (Vec::new(), Vec::new());
            let mut stretches = vec![Stretch::default()];
            for (place, (size, gap)) in sizes.iter().enumerate() {
                at = (at + gap).next_multiple_of(16);
                if cuts[place] {
                    stretches.push(Stretch::default());
                }
                prop_assert!(stretches.last_mut().unwrap().push(at, *size));
                if freed[place] { gone.push(at) } else { all.push((at, *size)) }
                at += size;
            }
            stretches.reverse();
            let (table, left_out) = Table::of(stretches, gone);
            prop_assert_eq!(left_out, 0);
            prop_assert_eq!(table.count(), all.len());
            let mut hint = 0;
            for (number, (address, size)) in all.iter().enumerate() {
                prop_assert_eq!(table.address(number as u32), *address);
                for place in [*address, address + size / 2, address + size - 1] {
                    prop_assert_eq!(table.find(place, &mut hint), Some(number as u32));
                }
                for place in [address.wrapping_sub(1), address + size] {
                    let expected = all
                        .iter()
                        .position(|(from, size)| (*from..from + size).contains(&place));
                    prop_assert_eq!(table.find(place, &mut hint), expected.map(|one| one as u32));
                }
            }
        }
    }
}
