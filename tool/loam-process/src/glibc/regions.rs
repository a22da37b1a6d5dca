//! The parts of a main arena that are mappings. glibc takes them where `brk` is refused, where the
//! arena is to have huge pages, and in a second C library of a process.
//!
//! ```text
//!  mapping   [chunk, chunk ... hole, fence, fence][chunk ... top][an own block][the program's]
//!            '-- an older part, ended by fences --''- the last --'
//! ```
//!
//! Nothing lists these parts. Each begins at a page with a chunk whose earlier neighbour counts as
//! in use, and its chain ends at two fences at the end of a page, or at the arena's top. The kernel
//! joins them with each other and with other mappings, so all pages that hold something are tried.

use super::arenas::Arena;
use super::layout::{ALIGNMENT, FLAGS, PREVIOUS_IN_USE, SHORTEST};
use super::layout::{CONVINCING, FENCE, TRIES};
use super::mapped;
use super::pages::{Residency, PAGE};
use super::{joined, Places};
use crate::mappings::Mapping;
use crate::remote::MOST_PIECES;
use loam_format::bytes::u64_at;
use loam_format::memory::{Memory, Piece};

/// An arena of which less is missing is whole: the first page of `[heap]` may be the program's.
const MISSING: u64 = 64 << 10;
/// So many pages are tried as the start of a part, and so much is read. Chosen as for mapped
/// blocks.
const MOST_PAGES: usize = 1 << 18;
/// How much of a chain is read at a time, at first and at most. A wrong start costs little.
const FIRST: u64 = PAGE;
const MOST: u64 = 1 << 20;
const HEADER: usize = 16;

/// Adds the parts that lie in mappings to the main arenas that lack some of their bytes.
pub fn complete(
    memory: &impl Memory,
    mappings: &[Mapping],
    arenas: &mut [Arena],
    residency: &Residency,
) {
    let missing = |arena: &Arena| match arena.is_main {
        true => arena.system_bytes.saturating_sub(arena.known()),
        false => 0,
    };
    let all: u64 = arenas.iter().map(missing).fold(0, u64::saturating_add);
    if arenas.iter().all(|arena| missing(arena) < MISSING) {
        return;
    }
    let tops: Vec<(u64, usize)> = arenas
        .iter()
        .enumerate()
        .filter(|(_, arena)| arena.is_main)
        .map(|(number, arena)| (arena.top, number))
        .collect();
    let places = Places::of(arenas);
    let mut budget = 4 * all.saturating_add(MOST);
    for (start, end) in joined(mappings.iter().filter(|one| mapped::is_candidate(one))) {
        for (start, end) in places.gaps(start, end) {
            let pages = residency.pages_that_hold(start, end);
            let search = Search {
                memory,
                pages: &pages[..pages.len().min(MOST_PAGES)],
                end,
                tops: &tops,
            };
            search.each(&mut budget, |part, owner| {
                // A part without the top belongs to the arena that lacks most.
                let most = || {
                    let numbers = 0..arenas.len();
                    numbers.max_by_key(|number| missing(&arenas[*number]))
                };
                let Some(owner) = owner.or_else(most) else {
                    return;
                };
                if missing(&arenas[owner]) > 0 {
                    arenas[owner].stretches.push(part);
                }
            });
        }
    }
    for arena in arenas {
        arena.stretches.sort_unstable();
    }
}

/// A range of mappings, with its pages that hold something.
struct Search<'a, M> {
    memory: &'a M,
    pages: &'a [u64],
    end: u64,
    tops: &'a [(u64, usize)],
}

/// How following a chain ended.
enum Chain {
    /// It ends here. The number of the arena whose top it ends with.
    Ends(u64, Option<usize>),
    /// After so many sound headers there was none.
    Broken(u32),
}

impl<M: Memory> Search<'_, M> {
    /// Tells each part, with its arena if it has the top.
    fn each(&self, budget: &mut u64, mut tell: impl FnMut((u64, u64), Option<usize>)) {
        let mut behind = 0;
        for some in self.pages.chunks(MOST_PIECES) {
            let pieces: Vec<Piece> = some
                .iter()
                .map(|place| Piece {
                    address: *place,
                    length: HEADER,
                })
                .collect();
            let mut bytes = vec![0; HEADER * pieces.len()];
            // What lies behind a page that can not be read stays zero.
            let _ = self.memory.gather(&pieces, &mut bytes);
            for (place, bytes) in some.iter().zip(bytes.chunks_exact(HEADER)) {
                if *place < behind {
                    continue;
                }
                if let Some(size) = mapped::sound(bytes, 0, self.end - place) {
                    behind = place + size;
                } else if self.may_begin(*place, bytes) {
                    let Some((end, owner)) = self.part(*place, budget) else {
                        continue;
                    };
                    tell((*place, end), owner);
                    behind = end;
                }
            }
        }
    }

    fn may_begin(&self, place: u64, bytes: &[u8]) -> bool {
        let (before, head) = (u64_at(bytes, 0), u64_at(bytes, 8).unwrap_or(0));
        before == Some(0) && head & FLAGS == PREVIOUS_IN_USE && self.is_sound(place, head)
    }

    fn is_sound(&self, place: u64, head: u64) -> bool {
        let size = head & !FLAGS;
        head & FLAGS & !PREVIOUS_IN_USE == 0
            && size >= SHORTEST
            && size % ALIGNMENT == 0
            && size <= self.end - place
    }

    /// The end of the part that begins here.
    fn part(&self, start: u64, budget: &mut u64) -> Option<(u64, Option<usize>)> {
        for _ in 0..TRIES {
            match self.follow(start, budget) {
                Chain::Ends(end, owner) => return Some((end, owner)),
                Chain::Broken(count) if count < CONVINCING => return None,
                Chain::Broken(_) => {}
            }
        }
        // The walk says what it could not follow.
        let is_held = |pair: &[u64]| pair[1] == pair[0] + PAGE;
        let first = self.pages.partition_point(|page| *page < start);
        let rest = &self.pages[first..];
        let count = rest.windows(2).take_while(|pair| is_held(pair)).count() + 1;
        Some((start + count as u64 * PAGE, None))
    }

    fn follow(&self, start: u64, budget: &mut u64) -> Chain {
        let mut window = (0, Vec::new());
        let mut length = FIRST;
        let mut place = start;
        let mut count = 0;
        loop {
            let Some(head) = self.head(place, &mut window, &mut length, budget) else {
                return Chain::Broken(count);
            };
            let size = head & !FLAGS;
            if size == FENCE {
                // Two fences, and before them what was left of the top, if that was as short.
                let mut behind = place + FENCE;
                for _ in 0..2 {
                    let next = self.head(behind, &mut window, &mut length, budget);
                    if next.is_none_or(|head| head & !FLAGS != FENCE) {
                        break;
                    }
                    behind += FENCE;
                    if behind % PAGE == 0 {
                        return Chain::Ends(behind, None);
                    }
                }
                return Chain::Broken(count);
            }
            if !self.is_sound(place, head) {
                return Chain::Broken(count);
            }
            if let Some((_, owner)) = self.tops.iter().find(|(top, _)| *top == place) {
                return Chain::Ends(place + size, Some(*owner));
            }
            (place, count) = (place + size, count + 1);
            if place >= self.end {
                return Chain::Broken(count);
            }
        }
    }

    /// The second word of the header at a place. Only pages that hold something are read.
    fn head(
        &self,
        place: u64,
        (address, bytes): &mut (u64, Vec<u8>),
        length: &mut u64,
        budget: &mut u64,
    ) -> Option<u64> {
        let offset = |address: u64| usize::try_from(place.checked_sub(address)? + 8).ok();
        if let Some(head) = offset(*address).and_then(|offset| u64_at(bytes, offset)) {
            return Some(head);
        }
        let page = place - place % PAGE;
        let first = self.pages.binary_search(&page).ok()?;
        let most = usize::try_from(*length / PAGE).ok()?.max(1);
        let run = self.pages[first..].iter().zip(0..most as u64);
        let count = run
            .take_while(|(held, number)| **held == page + number * PAGE)
            .count();
        let size = count as u64 * PAGE;
        *budget = budget.checked_sub(size)?;
        *length = (2 * *length).min(MOST);
        *bytes = self.memory.bytes(page, size as usize).ok()?;
        *address = page;
        u64_at(bytes, offset(page)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::arena::RECORDS;
    use super::*;
    use loam_format::memory::ReadError;

    const START: u64 = 0x7f00_0000_0000;

    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            let length = buffer.len();
            let place = address.checked_sub(START).map(|offset| offset as usize);
            let found = place.and_then(|place| self.0.get(place..place + length));
            let found = found.ok_or(ReadError::Unmapped { address, length })?;
            buffer.copy_from_slice(found);
            Ok(())
        }
    }

    /// Chunks in use up to the end of a whole number of pages.
    fn part(pages: u64, rest: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; (pages * PAGE) as usize];
        let last: u64 = rest.iter().sum();
        let (mut place, mut sizes) = (0, Vec::new());
        while place + 304 + 32 <= pages * PAGE - last {
            sizes.push(304);
            place += 304;
        }
        sizes.push(pages * PAGE - last - place);
        sizes.extend(rest);
        place = 0;
        for size in sizes {
            bytes[place as usize + 8..][..8].copy_from_slice(&(size | 1).to_le_bytes());
            place += size;
        }
        bytes
    }

    /// A block that is a mapping of its own.
    fn block(pages: u64) -> Vec<u8> {
        let mut bytes = vec![0xa5; (pages * PAGE) as usize];
        bytes[..8].fill(0);
        bytes[8..16].copy_from_slice(&((pages * PAGE) | 2).to_le_bytes());
        bytes
    }

    fn found(bytes: Vec<u8>, top: u64, system_bytes: u64) -> Vec<(u64, u64)> {
        let mapping = Mapping {
            start: START,
            end: START + bytes.len() as u64,
            writable: true,
            ..Mapping::default()
        };
        let mut arenas = [Arena {
            address: 0x1000,
            record: RECORDS[0],
            is_main: true,
            top,
            system_bytes,
            stretches: Vec::new(),
        }];
        let residency = Residency::unknown();
        complete(&Bytes(bytes), &[mapping], &mut arenas, &residency);
        let [arena] = arenas;
        let places = arena.stretches.into_iter();
        places
            .map(|(start, end)| (start - START, end - START))
            .collect()
    }

    #[test]
    fn parts_that_the_kernel_joined_with_other_mappings_are_found() {
        let older = part(40, &[FENCE, FENCE]);
        let last = part(60, &[7 * 4096]);
        let programs = vec![0x5a; 20 * PAGE as usize];
        let all = [
            programs.clone(),
            older,
            block(33),
            last,
            // Of the top there was left what is as long as a fence.
            part(40, &[FENCE, FENCE, FENCE]),
            programs,
        ]
        .concat();
        let page = |pages: u64| pages * PAGE;
        let top = START + page(20 + 40 + 33 + 60 - 7);
        let wanted = vec![
            (page(20), page(60)),
            (page(93), page(153)),
            (page(153), page(193)),
        ];
        assert_eq!(found(all.clone(), top, page(140)), wanted);
        // An arena whose bytes are all known takes no other memory.
        assert_eq!(found(all, top, 0), []);
    }

    #[test]
    fn a_program_s_bytes_are_no_part() {
        let mut few = vec![0; 64 * PAGE as usize];
        for page in 0..64 {
            // Some sound headers, and then none.
            for chunk in 0..10 {
                let place = page * PAGE as usize + chunk * 64;
                few[place + 8] = 64 | 1;
            }
        }
        assert_eq!(found(few, 0, 1 << 20), []);
        let mut state = 7u64;
        for _ in 0..200 {
            let random = (0..16 * PAGE / 8).flat_map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                // Many words are zero or small, as in the memory of programs.
                (if state >> 62 == 0 {
                    state
                } else {
                    state >> 52 & 0x3f1
                })
                .to_le_bytes()
            });
            for (start, end) in found(random.collect(), START + 64, u64::MAX) {
                assert!(start < end && end <= 16 * PAGE);
            }
        }
    }
}
