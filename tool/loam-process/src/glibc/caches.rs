//! Freed blocks that glibc keeps for the next request of their size: threads' caches (tcache) and
//! fast bins. A walk of the chunks sees them as in use.

use std::collections::HashSet;

use super::layout::{arena, CacheMark, Layout, ALIGNMENT, CACHE_LISTS, SHORTEST};
use super::walk::Chunk;
use loam_format::memory::{Memory, Piece};

/// Freed blocks of one size that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// One of them.
    pub address: u64,
    /// Their number.
    pub count: u64,
    /// Their bytes, with headers.
    pub bytes: u64,
}

/// A list is no longer than this. It is 7 unless a setting says otherwise, and a pointer's four
/// halves are mostly larger numbers.
const MOST_COUNTED: u64 = 1 << 12;

/// So many lists may have a head and no count, or a count and no head: the thread uses them while
/// they are copied. In an array of pointers at least every fourth is such a list.
const MOST_TORN: u32 = 4;

/// The blocks of a thread's cache record, if the bytes are such a record: it has a list for each
/// size, and the head of a list is null exactly if its counter is zero. `is_chunk` says whether an
/// address lies in an arena.
pub fn cache(layout: &Layout, bytes: &[u8], is_chunk: impl Fn(u64) -> bool) -> Option<Vec<Kept>> {
    let heads = layout.cache_lists * layout.counter_bytes;
    let counter = |list: usize| {
        let counter = bytes.get(list * layout.counter_bytes..)?;
        Some(match layout.counter_bytes {
            1 => u64::from(*counter.first()?),
            _ => u64::from(u16::from_le_bytes(*counter.first_chunk()?)),
        })
    };
    // Of a list that counts its room, an empty list tells how much there is in all.
    let room = (0..CACHE_LISTS).map(counter).max().flatten()?;
    let mut kept = Vec::new();
    let mut torn = 0;
    for list in 0..layout.cache_lists {
        let count = match layout.counts_room {
            // A list of long blocks has room only if a setting says so, and then its lengths are
            // not told apart.
            true if list >= CACHE_LISTS => 0,
            true => room - counter(list)?,
            false => counter(list)?,
        };
        let head = u64::from_le_bytes(*bytes.get(heads + 8 * list..)?.first_chunk()?);
        if count == 0 && (head == 0 || list >= CACHE_LISTS) {
            continue;
        }
        // The process may be between the two stores, so one entry may be missing or too many.
        torn += u32::from((count == 0) != (head == 0));
        let is_sound = if head == 0 {
            count <= 1
        } else {
            head % ALIGNMENT == 0 && is_chunk(head)
        };
        if !is_sound || torn > MOST_TORN || count > MOST_COUNTED {
            return None;
        }
        let size = SHORTEST + ALIGNMENT * list as u64;
        kept.push(Kept {
            address: head,
            count,
            bytes: count * size,
        });
    }
    Some(kept)
}

/// How many records of caches are read. Chosen: copies of 0.1 s. A record is known only by the
/// length of its chunk, and a program may have millions of blocks of that length.
const MOST_RECORDS: usize = 1 << 20;
/// How many of them are read in one call.
const RECORDS_AT_ONCE: usize = 1024;
/// How many records are read to learn the mark of all caches.
const MOST_LESSONS: u32 = 64;

/// The chunks that may be records of threads' caches, and the marks of what these keep. glibc
/// writes a mark into the second word of a block in a cache, to find a block that is freed twice.
/// Without it the block would look like one of a fast bin: both have links.
pub struct Records<'a, IsChunk> {
    layout: &'a Layout,
    is_chunk: IsChunk,
    chunks: Vec<u64>,
    marks: HashSet<u64>,
    lessons: u32,
}

impl<'a, IsChunk: Fn(u64) -> bool> Records<'a, IsChunk> {
    /// None is known yet. `is_chunk` says whether an address lies in an arena.
    pub fn new(layout: &'a Layout, is_chunk: IsChunk) -> Self {
        Records {
            layout,
            is_chunk,
            chunks: Vec::new(),
            marks: HashSet::new(),
            lessons: MOST_LESSONS,
        }
    }

    /// Adds a chunk in use if it is as long as a record. A random mark is learned from records: the
    /// main thread's is the first chunk of all, so the mark is known before other chunks that have
    /// it. A mark that is a record's address is known with its record, and chunks that have it may
    /// come before.
    pub fn add(&mut self, memory: &impl Memory, chunk: &Chunk) {
        if chunk.size != self.layout.cache_chunk() {
            return;
        }
        self.chunks.push(chunk.address);
        match self.layout.cache_mark {
            CacheMark::None => {}
            CacheMark::Record => {
                self.marks.insert(chunk.address + 16);
            }
            CacheMark::Random if self.lessons > 0 && self.marks.is_empty() => {
                self.lessons -= 1;
                let mark = self.learn(memory, chunk.address);
                self.marks.extend(mark);
            }
            CacheMark::Random => {}
        }
    }

    fn learn(&self, memory: &impl Memory, chunk: u64) -> Option<u64> {
        let record = self.place(chunk);
        let bytes = memory.bytes(record.address, record.length).ok()?;
        let kept = cache(self.layout, &bytes, &self.is_chunk)?;
        let first = kept.iter().find(|kept| kept.address != 0)?;
        // A chunk that was taken out of its cache meanwhile has none.
        let mark = words(memory, &[first.address + 8])?;
        mark.first().copied().filter(|mark| *mark != 0)
    }

    /// Whether the chunk has the mark of a cache.
    pub fn marks(&self, chunk: &Chunk) -> bool {
        self.marks.contains(&chunk.mark)
    }

    fn place(&self, chunk: u64) -> Piece {
        Piece {
            address: chunk + 16,
            length: self.layout.cache_record(),
        }
    }

    /// Tells what each cache keeps. The answer is how many of the chunks were too many to be read.
    pub fn each_cache(&self, memory: &impl Memory, mut tell: impl FnMut(Vec<Kept>)) -> usize {
        let length = self.layout.cache_record();
        let read = &self.chunks[..self.chunks.len().min(MOST_RECORDS)];
        let mut bytes = vec![0; length * RECORDS_AT_ONCE.min(read.len())];
        let mut take = |bytes: &[u8]| {
            let kept = cache(self.layout, bytes, &self.is_chunk);
            kept.into_iter().for_each(&mut tell);
        };
        for some in read.chunks(RECORDS_AT_ONCE) {
            let pieces: Vec<Piece> = some.iter().map(|chunk| self.place(*chunk)).collect();
            let bytes = &mut bytes[..length * pieces.len()];
            if memory.gather(&pieces, bytes).is_ok() {
                bytes.chunks_exact(length).for_each(&mut take);
                continue;
            }
            // One of them is gone.
            for piece in pieces {
                let bytes = &mut bytes[..length];
                if memory.read(piece.address, bytes).is_ok() {
                    take(bytes);
                }
            }
        }
        self.chunks.len() - read.len()
    }
}

/// How many chunks of fast bins are followed, in all arenas and tries together, where links tell
/// the others ([`FastChunks::is_linked`]). Chosen: each is a system call of one to two
/// microseconds.
const MOST_FOLLOWED: usize = 1 << 17;
/// The same before 2.32, where links tell nothing. Chosen: one to two seconds of work.
const MOST_FOLLOWED_UNMANGLED: usize = 1 << 20;

/// The freed chunks in the arenas' fast bins.
#[derive(Debug, Default)]
pub struct FastChunks {
    /// Their addresses, sorted.
    addresses: Vec<u64>,
    /// Whether some were left out because there are too many.
    pub is_cut: bool,
}

/// How often a list that changes while it is followed is followed again.
const TRIES: usize = 4;

impl FastChunks {
    /// Follows the lists whose heads are at these addresses.
    pub fn follow(
        memory: &impl Memory,
        layout: &Layout,
        heads: &[u64],
        is_chunk: impl Fn(u64) -> bool,
    ) -> FastChunks {
        let mut longest: Vec<Vec<u64>> = vec![Vec::new(); heads.len()];
        let mut again: Vec<usize> = (0..heads.len()).collect();
        let mut found = FastChunks::default();
        let mut left = match layout.is_mangled {
            true => MOST_FOLLOWED,
            false => MOST_FOLLOWED_UNMANGLED,
        };
        for _ in 0..TRIES {
            let some: Vec<u64> = again.iter().map(|list| heads[*list]).collect();
            let Some(before) = words(memory, &some) else {
                found.is_cut = true;
                break;
            };
            let (lists, is_whole) = followed(memory, layout, &before, &is_chunk, &mut left);
            found.is_cut |= !is_whole;
            for (number, list) in again.iter().zip(lists) {
                if list.len() > longest[*number].len() {
                    longest[*number] = list;
                }
            }
            let Some(after) = words(memory, &some) else {
                break;
            };
            let changes = before
                .iter()
                .zip(&after)
                .map(|(before, after)| before != after);
            again = again
                .iter()
                .zip(changes)
                .filter(|(_, changed)| *changed)
                .map(|(list, _)| *list)
                .collect();
            if again.is_empty() {
                break;
            }
        }
        found.addresses = longest.concat();
        found.addresses.sort_unstable();
        // A list that changed meanwhile may lead into another one.
        found.addresses.dedup();
        found
    }

    /// Whether a chunk in use looks like one of a fast bin that was not followed: its first word
    /// leads to an arena's chunk, or ends a list. Since 2.32 links are mixed with their own
    /// address, so that hardly any word of a program looks like a link. A block that was handed out
    /// again and never written to still has its old link, so only lists that were cut are completed
    /// in this way.
    pub fn is_linked(
        &self,
        layout: &Layout,
        chunk: &Chunk,
        is_chunk: impl Fn(u64) -> bool,
    ) -> bool {
        const LONGEST: u64 = SHORTEST + ALIGNMENT * (arena::FAST_BIN_COUNT as u64 - 1);
        if !self.is_cut || !layout.is_mangled || chunk.size > LONGEST || chunk.link == 0 {
            return false;
        }
        let next = layout.follow(chunk.address + 16, chunk.link);
        next == 0 || next % ALIGNMENT == 0 && is_chunk(next)
    }

    /// Says for one address after the other, each higher than the last one, whether it is one of
    /// the chunks.
    pub fn ascending(&self, start: u64) -> impl FnMut(u64) -> bool + '_ {
        let mut next = self.addresses.partition_point(|known| *known < start);
        move |address| {
            while self
                .addresses
                .get(next)
                .is_some_and(|known| *known < address)
            {
                next += 1;
            }
            self.addresses.get(next) == Some(&address)
        }
    }
}

/// Follows the lists that begin with these chunks side by side: one system call takes a step in
/// each. `left`: how many chunks may still be followed. The second part of the answer says whether
/// the lists were followed to their ends.
fn followed(
    memory: &impl Memory,
    layout: &Layout,
    heads: &[u64],
    is_chunk: impl Fn(u64) -> bool,
    left: &mut usize,
) -> (Vec<Vec<u64>>, bool) {
    let is_sound = |place: u64| place != 0 && place % ALIGNMENT == 0 && is_chunk(place);
    let mut lists = vec![Vec::new(); heads.len()];
    let mut places: Vec<(usize, u64)> = heads.iter().copied().enumerate().collect();
    loop {
        places.retain(|(_, place)| is_sound(*place));
        if places.is_empty() {
            return (lists, true);
        }
        let Some(rest) = left.checked_sub(places.len()) else {
            return (lists, false);
        };
        *left = rest;
        // The first word of a freed block leads to the next one.
        let addresses: Vec<u64> = places.iter().map(|(_, place)| place + 16).collect();
        for (list, place) in &places {
            lists[*list].push(*place);
        }
        let Some(pointers) = words(memory, &addresses) else {
            // An arena shrank meanwhile, or a chunk can not be read.
            return (lists, false);
        };
        for ((_, place), (address, pointer)) in
            places.iter_mut().zip(addresses.iter().zip(pointers))
        {
            *place = layout.follow(*address, pointer);
        }
    }
}

/// Tells the freed blocks of threads' caches. A list is given by its first block and its length.
/// The lists are followed side by side, because one call takes a step in each.
pub fn each_cached(
    memory: &impl Memory,
    layout: &Layout,
    mut lists: Vec<(u64, u64)>,
    is_chunk: impl Fn(u64) -> bool,
    mut tell: impl FnMut(u64),
) {
    let mut left = MOST_FOLLOWED_UNMANGLED;
    loop {
        lists.retain(|(place, count)| *count > 0 && *place % ALIGNMENT == 0 && is_chunk(*place));
        let Some(rest) = left.checked_sub(lists.len()) else {
            return;
        };
        left = rest;
        if lists.is_empty() {
            return;
        }
        lists.iter().for_each(|(place, _)| tell(*place));
        let places: Vec<u64> = lists.iter().map(|(place, _)| *place).collect();
        let Some(pointers) = words(memory, &places) else {
            return;
        };
        for ((place, count), pointer) in lists.iter_mut().zip(pointers) {
            *place = layout.follow(*place, pointer);
            *count -= 1;
        }
    }
}

/// Words of the process, read one after the other.
fn words(memory: &impl Memory, addresses: &[u64]) -> Option<Vec<u64>> {
    let pieces: Vec<Piece> = addresses
        .iter()
        .map(|address| Piece {
            address: *address,
            length: 8,
        })
        .collect();
    let mut bytes = vec![0; 8 * pieces.len()];
    memory.gather(&pieces, &mut bytes).ok()?;
    let words = bytes.chunks_exact(8);
    Some(
        words
            .map(|word| u64::from_le_bytes(*word.first_chunk().expect("eight bytes")))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::layout::Version;
    use super::super::walk::State;
    use super::*;

    fn record(counts: &[(usize, u16, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; 64 * 10];
        for (list, count, head) in counts {
            bytes[2 * list..2 * list + 2].copy_from_slice(&count.to_le_bytes());
            bytes[128 + 8 * list..136 + 8 * list].copy_from_slice(&head.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn beyond_a_cut_list_a_chunk_is_known_by_its_link() {
        let layout = |minor| Layout::of(Version { major: 2, minor }).unwrap();
        let fast = |is_cut| FastChunks {
            addresses: Vec::new(),
            is_cut,
        };
        let address = 0x5555_5000_1000;
        let chunk = |size, link| Chunk {
            address,
            size,
            state: State::InUse,
            link,
            mark: 0,
        };
        let linked = |next: u64| next ^ ((address + 16) >> 12);
        let is_linked = |minor, is_cut, chunk: Chunk| {
            let holds = |place: u64| (0x5555_5000_0000..0x5555_6000_0000).contains(&place);
            fast(is_cut).is_linked(&layout(minor), &chunk, holds)
        };
        let next = 0x5555_5000_8020;
        assert!(is_linked(36, true, chunk(80, linked(next))));
        assert!(is_linked(36, true, chunk(80, linked(0))), "the last one");
        assert!(!is_linked(36, false, chunk(80, linked(next))), "not cut");
        assert!(!is_linked(31, true, chunk(80, next)), "not mangled");
        assert!(!is_linked(36, true, chunk(4096, linked(next))), "too long");
        // A program's own words: nothing, a text, a pointer into the heap, a link that is not
        // aligned.
        for word in [0, 1, 0x6f66_206f_6c6c_6548, next, linked(next + 8)] {
            assert!(!is_linked(36, true, chunk(80, word)), "{word:#x}");
        }
    }

    #[test]
    fn a_cache_is_known_by_its_counters_and_heads() {
        let layout = Layout::of(Version {
            major: 2,
            minor: 36,
        })
        .unwrap();
        let read = |counts: &[_]| cache(&layout, &record(counts), |address| address < 1 << 20);
        let kept = read(&[(0, 7, 0x1000), (3, 2, 0x2000)]).unwrap();
        assert_eq!(
            kept.iter()
                .map(|kept| (kept.count, kept.bytes))
                .collect::<Vec<_>>(),
            [(7, 224), (2, 160)]
        );
        assert_eq!(read(&[]), Some(Vec::new()));
        for wrong in [(0, 7, 0), (0, 1, 8), (5, 1, 1 << 30), (5, 57_315, 0x1000)] {
            assert_eq!(read(&[wrong]), None, "{wrong:?}");
        }
        // Few lists may be torn: an array of pointers has heads without counts.
        let torn = |lists: usize| {
            let lists: Vec<_> = (0..lists).map(|list| (list, 0, 0x1000)).collect();
            read(&lists)
        };
        assert!(torn(4).is_some());
        assert_eq!(torn(5), None);
        let pointers: Vec<u8> = (0..80_u64)
            .flat_map(|place| (0x5555_5000_0000 + 0x1940 * place / 16 * 16).to_le_bytes())
            .collect();
        assert_eq!(cache(&layout, &pointers, |address| address % 16 == 0), None);
        assert_eq!(cache(&layout, &[0; 100], |_| true), None);
    }

    #[test]
    fn since_2_42_a_cache_counts_its_room() {
        let version = Version {
            major: 2,
            minor: 42,
        };
        let layout = Layout::of(version).unwrap();
        let mut bytes = vec![0; layout.cache_record()];
        for list in 0..64_usize {
            let room: u16 = if list == 3 { 2 } else { 7 };
            bytes[2 * list..2 * list + 2].copy_from_slice(&room.to_le_bytes());
        }
        bytes[152 + 8 * 3..160 + 8 * 3].copy_from_slice(&0x2000_u64.to_le_bytes());
        let kept = cache(&layout, &bytes, |address| address < 1 << 20).unwrap();
        let kept: Vec<_> = kept.iter().map(|kept| (kept.count, kept.bytes)).collect();
        assert_eq!(kept, [(5, 400)]);
        bytes[152..160].copy_from_slice(&(1_u64 << 30).to_le_bytes());
        assert_eq!(cache(&layout, &bytes, |address| address < 1 << 20), None);
    }
}
