//! CPython's objects and the pools of its own allocator, 3.8 to 3.14, without symbols.
//!
//! ```text
//!  pool     | count | free block | next | previous | arena, class | next offset, last offset |
//!           | blocks ... |
//!  object   | count of references | type | ...
//!           before it: two words of the collector's, two of attributes'
//!  type     | count | its type | size | tp_name | tp_basicsize | ...
//! ```
//!
//! A pool's header has seven fields that depend on each other, so that nothing else looks like one.
//! A type is known by its own type, which leads in at most four steps to the type that is its own.

use std::collections::HashMap;
use std::sync::RwLock;

use loam_format::bytes::{u32_at, u64_at};
use serde::{Deserialize, Serialize};

use crate::modules::Modules;
use crate::names;
use crate::table::{Stretch, Table};
use crate::target::{Target, PAGE};

/// Bytes of a pool's header.
const HEADER: u64 = 48;
/// Lengths of pools until 3.9, and since 3.10.
const POOLS: [u64; 2] = [4096, 16384];
/// Lengths of arenas with such pools.
const ARENAS: [u64; 2] = [256 << 10, 1 << 20];
/// Blocks are multiples of this.
const ALIGNMENT: u64 = 16;
/// Longer blocks are not in pools.
const CLASSES: u64 = 32;
/// A type's record is at least so long.
const TYPE: u64 = 400;
/// More candidates for types than this are not looked at.
const MOST_TYPES: usize = 1 << 18;
/// How much memory is searched at once.
const WINDOW: usize = 1 << 20;

/// What is known of pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// Bytes of the arenas that these pools need at least.
    pub arena_bytes: u64,
    /// Bytes of all pools that were ever used.
    pub pool_bytes: u64,
    /// Pools with a live block.
    pub used_pools: u64,
    /// Bytes of these pools.
    pub used_pool_bytes: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Bytes of live blocks.
    pub block_bytes: u64,
    /// Arenas with a pool that was ever used.
    #[serde(default)]
    pub arenas: u64,
    /// Of these, those whose live blocks are less than a quarter of their pools that were ever
    /// used.
    #[serde(default)]
    pub sparse_arenas: u64,
    /// Bytes of all pools of these.
    #[serde(default)]
    pub sparse_bytes: u64,
    /// Bytes of the pages in pools that no live block touches.
    #[serde(default)]
    pub free_page_bytes: u64,
}

/// The pools of a target.
pub struct Found {
    /// Live blocks.
    pub stretches: Vec<Stretch>,
    /// What they add up to.
    pub pools: Pools,
    /// Ranges that are not roots, because they are heap.
    pub ranges: Vec<(u64, u64)>,
}

/// The pools of a process, wherever they lie; none if it is no CPython program.
pub fn of_process(target: &dyn Target) -> Option<Pools> {
    let modules = Modules::of(target);
    Python::is_in(&modules)
        .then(|| pools(target, |_| false))?
        .map(|found| found.pools)
}

/// Whether a header is that of a pool: its class and where its unused blocks begin.
fn header(bytes: &[u8], address: u64, length: u64) -> Option<(u64, u64)> {
    let class = u64::from(u32_at(bytes, 36)?);
    if class >= CLASSES {
        return None;
    }
    let size = (class + 1) * ALIGNMENT;
    let (next, last) = (u64::from(u32_at(bytes, 40)?), u64::from(u32_at(bytes, 44)?));
    let count = u64::from(u32_at(bytes, 0)?);
    let free = u64_at(bytes, 8)?;
    let is_sound = last == length - size
        && (HEADER..=length).contains(&next)
        && (next - HEADER) % size == 0
        && count <= (next - HEADER) / size
        && u32_at(bytes, 32)? < 1 << 24
        && (free == 0
            || (address + HEADER..address + length).contains(&free)
                && (free - address - HEADER) % size == 0);
    is_sound.then_some((size, next))
}

/// Finds the pools in mappings that no heap has. None: there are none.
pub fn pools(target: &dyn Target, is_heap: impl Fn(u64) -> bool) -> Option<Found> {
    let mut found = Found {
        stretches: Vec::new(),
        pools: Pools::default(),
        ranges: Vec::new(),
    };
    let mut arenas = Arenas::default();
    let mut length = None;
    let mut bytes = vec![0; WINDOW];
    for mapping in target.mappings() {
        let is_candidate = mapping.writable
            && !mapping.shared
            && (mapping.name.is_empty() || mapping.name.starts_with("[anon"))
            && mapping.size() >= POOLS[0];
        if !is_candidate {
            continue;
        }
        let mut of_mapping = 0;
        let before = found.ranges.len();
        let mut stretch = Stretch::default();
        let first = mapping.start;
        let mut at = first;
        while at < mapping.end {
            // Windows end at multiples of their length, so that no pool lies across two.
            let whole = (at + 1).next_multiple_of(WINDOW as u64) - at;
            let size = whole.min(mapping.end - at);
            let window = &mut bytes[..size as usize];
            let present = target.present(at, at + size);
            if present.is_empty() {
                at += size;
                continue;
            }
            target.fill(at, window);
            let mut place = 0;
            while place < size {
                let address = at + place;
                let rest = &window[place as usize..];
                let tried = |length: u64| {
                    (address % length == 0 && rest.len() as u64 >= length && !is_heap(address))
                        .then(|| header(rest, address, length))?
                };
                let pool = match length {
                    Some(length) => tried(length).map(|pool| (pool, length)),
                    None => POOLS
                        .into_iter()
                        .find_map(|length| Some((tried(length)?, length))),
                };
                let Some(((block, next), of_pool)) = pool else {
                    place += PAGE;
                    continue;
                };
                length = Some(of_pool);
                of_mapping += of_pool;
                let follows = found.ranges[before..]
                    .last()
                    .is_some_and(|(_, end)| *end == address);
                if !follows {
                    // Between two stretches of pools lies other memory, such as blocks of malloc.
                    found.stretches.push(std::mem::take(&mut stretch));
                }
                let before_it = found.pools.block_bytes;
                pool_blocks(
                    &rest[..of_pool as usize],
                    address,
                    block,
                    next,
                    &mut stretch,
                    &mut found.pools,
                );
                let arena = u32_at(rest, 32).unwrap_or(0);
                arenas.add(arena, of_pool, found.pools.block_bytes - before_it);
                match found.ranges[before..].last_mut() {
                    Some((_, end)) if *end == address => *end += of_pool,
                    _ => found.ranges.push((address, address + of_pool)),
                }
                place += of_pool;
            }
            at += size;
        }
        if of_mapping == 0 {
            continue;
        }
        // Arenas lie side by side with other memory in one mapping. Pools that were never used are
        // at an arena's end.
        let arena = ARENAS[usize::from(length != Some(POOLS[0]))];
        found.pools.arena_bytes += of_mapping.next_multiple_of(arena).min(mapping.size());
        found.pools.pool_bytes += of_mapping;
        found.stretches.push(stretch);
    }
    arenas.tell(&mut found.pools);
    (found.pools.used_pools > 0).then_some(found)
}

/// Pools and live bytes of each arena, by the number that pools have of it.
#[derive(Default)]
struct Arenas(HashMap<u32, (u64, u64)>);

impl Arenas {
    fn add(&mut self, arena: u32, pool: u64, live: u64) {
        let (pools, bytes) = self.0.entry(arena).or_default();
        *pools += pool;
        *bytes += live;
    }

    fn tell(&self, pools: &mut Pools) {
        pools.arenas = self.0.len() as u64;
        for (all, live) in self.0.values() {
            if live * 4 < *all {
                pools.sparse_arenas += 1;
                pools.sparse_bytes += all;
            }
        }
    }
}

fn pool_blocks(
    bytes: &[u8],
    address: u64,
    size: u64,
    next: u64,
    stretch: &mut Stretch,
    pools: &mut Pools,
) {
    let all = ((next - HEADER) / size) as usize;
    let mut is_free = vec![false; all];
    let mut free = u64_at(bytes, 8).unwrap_or(0);
    // The list ends with zero; what the process changed meanwhile may lead anywhere.
    while free >= address + HEADER && free < address + next && (free - address - HEADER) % size == 0
    {
        let place = ((free - address - HEADER) / size) as usize;
        if std::mem::replace(&mut is_free[place], true) {
            break;
        }
        free = u64_at(bytes, (free - address) as usize).unwrap_or(0);
    }
    let mut live = 0;
    let mut is_touched = vec![false; bytes.len() / PAGE as usize];
    for (place, _) in is_free.iter().enumerate().filter(|(_, free)| !**free) {
        let first = HEADER + place as u64 * size;
        let pages = first / PAGE..=(first + size - 1) / PAGE;
        pages.for_each(|page| is_touched[page as usize] = true);
        stretch.push(address + first, size);
        live += 1;
    }
    let free_pages = is_touched.iter().filter(|touched| !**touched).count() as u64;
    pools.free_page_bytes += free_pages * PAGE;
    if live == 0 {
        return;
    }
    pools.used_pools += 1;
    pools.used_pool_bytes += bytes.len() as u64;
    pools.blocks += live;
    pools.block_bytes += live * size;
}

/// The types of CPython's objects.
pub struct Python<'a> {
    target: &'a dyn Target,
    modules: &'a Modules<'a>,
    types: RwLock<HashMap<u64, Option<String>>>,
}

impl<'a> Python<'a> {
    /// No type is known yet.
    pub fn of(target: &'a dyn Target, modules: &'a Modules<'a>) -> Python<'a> {
        Python {
            target,
            modules,
            types: RwLock::default(),
        }
    }

    /// Whether a module of the target is an interpreter, by its name.
    pub fn is_in(modules: &Modules) -> bool {
        let mut all = modules.all().iter();
        all.any(|one| one.name.starts_with("python") || one.name.starts_with("libpython"))
    }

    /// The name of the type of an object with these first two words.
    pub fn of_object(
        &self,
        count: u64,
        kind: u64,
        blocks: &Table,
        hint: &mut usize,
    ) -> Option<String> {
        // The upper half of the count has flags since 3.14, and is zero before.
        let is_count = count as u32 != 0 && (count >> 32) & 0xffff == 0;
        if !is_count || kind % 8 != 0 || kind < PAGE {
            return None;
        }
        let of_block = |block| blocks.address(block) + blocks.size(block) >= kind + TYPE;
        let may_be = match self.modules.at(kind) {
            Some(_) => !self.modules.is_code(kind),
            None => blocks.find(kind, hint).is_some_and(of_block),
        };
        if !may_be {
            return None;
        }
        let known = self
            .types
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(known) = known.get(&kind) {
            return known.clone();
        }
        let is_full = known.len() >= MOST_TYPES;
        drop(known);
        let name = self.name(kind);
        if !is_full {
            let mut types = self
                .types
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            types.insert(kind, name.clone());
        }
        name
    }

    fn name(&self, kind: u64) -> Option<String> {
        let record = self.target.memory().bytes(kind, 48).ok()?;
        let (size, items) = (u64_at(&record, 32)?, u64_at(&record, 40)?);
        let is_sound = (16..1 << 20).contains(&size) && items < 1 << 20;
        if !is_sound || !self.is_of_types(kind) {
            return None;
        }
        let name = self.target.text(u64_at(&record, 24)?, 512)?;
        let is_name = !name.is_empty()
            && name
                .chars()
                .all(|one| one.is_alphanumeric() || "._-<>".contains(one));
        is_name.then(|| names::printable(&name, names::LONGEST))
    }

    /// Whether the type of a type, and so on, leads to the one that is its own type.
    fn is_of_types(&self, mut kind: u64) -> bool {
        (0..4).any(|_| match self.target.word(kind + 8) {
            Some(above) if above == kind => true,
            Some(above) if above % 8 == 0 && above > PAGE => {
                kind = above;
                false
            }
            _ => {
                kind = PAGE;
                false
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_known_by_its_header_and_its_free_blocks_are_not_live() {
        for length in POOLS {
            let address = 0x7f00_0010_0000;
            let mut bytes = vec![0_u8; length as usize];
            // Six blocks of 64 bytes, of which the second and the fifth are free.
            bytes[0..4].copy_from_slice(&4_u32.to_le_bytes());
            bytes[8..16].copy_from_slice(&(address + HEADER + 64).to_le_bytes());
            bytes[36..40].copy_from_slice(&3_u32.to_le_bytes());
            bytes[40..44].copy_from_slice(&(48_u32 + 6 * 64).to_le_bytes());
            bytes[44..48].copy_from_slice(&(length as u32 - 64).to_le_bytes());
            let second = (HEADER + 64) as usize;
            bytes[second..second + 8].copy_from_slice(&(address + HEADER + 4 * 64).to_le_bytes());
            assert_eq!(header(&bytes, address, length), Some((64, 48 + 6 * 64)));
            let mut stretch = Stretch::default();
            let mut pools = Pools::default();
            pool_blocks(&bytes, address, 64, 48 + 6 * 64, &mut stretch, &mut pools);
            assert_eq!((pools.blocks, pools.used_pools), (4, 1));
            assert_eq!(pools.free_page_bytes, length - PAGE);
            let (table, _) = Table::of(vec![stretch], Vec::new());
            assert_eq!(table.find(address + HEADER + 64, &mut 0), None);
            assert_eq!(table.find(address + HEADER, &mut 0), Some(0));
            // Any other value of a field that depends on others is refused.
            for place in [36, 40, 44] {
                let mut other = bytes.clone();
                other[place] ^= 4;
                assert_eq!(header(&other, address, length), None, "{place}");
            }
        }
    }
}
