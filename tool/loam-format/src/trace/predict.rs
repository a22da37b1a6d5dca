//! Guesses where the next block will lie, and numbers the blocks of a chunk. The encoder and the
//! decoder make the same guesses from the same events, so that a right guess costs only a small
//! number.
//!
//! The next block of a size is most likely the one that the same thread freed last (the *lane's*
//! stack). Otherwise it is the next slot of a span (the lane's last address plus its step), or lies
//! behind the last block (glibc's top). A lane is a hash of a thread and a rounded size. If two
//! lanes share a place, the guesses are only worse.
//!
//! An address is stored as a code and, for `ABSOLUTE`, a second number:
//!
//! ```text
//!   0      the top of the lane's stack of freed blocks
//!   1      the lane's last address, one step on
//!   2      behind the thread's last block: that address + (its bytes + 8, rounded up to 16, >= 32)
//!   3      the top of the thread's stack of freed blocks whose size is not known
//!   4..6   the second, third, fourth of the lane's stack
//!   7      absolute: the address follows
//!   8..    8 + zigzag((address - the lane's last address) / 8)
//! ```

use super::decode::DecodeError;
use super::varint::{unzigzag, zigzag};

/// Number of lanes; a power of two. More lanes need more cache, but fewer collide.
const LANES: usize = 1 << 12;
/// Places for threads; a power of two.
const THREADS: usize = 1 << 8;
/// Depth of a stack of freed blocks.
const DEPTH: usize = 16;
/// How many freed blocks of a stack have a code: the first, and codes 4 to 6.
const CODED: usize = 4;

const TOP: u64 = 0;
const STEP: u64 = 1;
const BEHIND: u64 = 2;
const MISSED: u64 = 3;
const SECOND: u64 = 4;
const ABSOLUTE: u64 = 7;
const DELTA: u64 = 8;

/// The names of the codes in the declared list.
#[cfg(test)]
pub const CODES: [(&str, u64); 7] = [
    ("top", TOP),
    ("step", STEP),
    ("behind", BEHIND),
    ("missed", MISSED),
    ("second", SECOND),
    ("absolute", ABSOLUTE),
    ("delta", DELTA),
];

/// The last `DEPTH` addresses that were pushed.
#[derive(Debug, Clone, Copy, Default)]
struct Stack {
    addresses: [u64; DEPTH],
    next: u32,
    length: u32,
}

impl Stack {
    #[inline(always)]
    fn push(&mut self, address: u64) {
        self.addresses[self.next as usize % DEPTH] = address;
        self.next = self.next.wrapping_add(1);
        self.length = (self.length + 1).min(DEPTH as u32);
    }

    #[inline(always)]
    fn place(&self, depth: usize) -> usize {
        (self.next as usize).wrapping_sub(1 + depth) % DEPTH
    }

    #[inline(always)]
    fn get(&self, depth: usize) -> Option<u64> {
        (depth < self.length as usize).then(|| self.addresses[self.place(depth)])
    }

    /// How deep an address lies below the top, among the places with a code.
    #[inline(always)]
    fn depth_of(&self, address: u64) -> Option<usize> {
        (1..CODED).find(|depth| self.get(*depth) == Some(address))
    }

    /// Removes an address; those above it move down.
    #[inline(always)]
    fn remove(&mut self, depth: usize) {
        for above in (0..depth).rev() {
            self.addresses[self.place(above + 1)] = self.addresses[self.place(above)];
        }
        self.next = self.next.wrapping_sub(1);
        self.length -= 1;
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    chunk: u32,
    freed: Stack,
    last: u64,
    step: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    chunk: u32,
    missed: Stack,
    behind: u64,
}

/// An address as the file stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coded {
    /// The code.
    pub code: u64,
    /// The address, if the code is absolute.
    pub absolute: Option<u64>,
}

/// The guesses of one chunk.
#[derive(Debug)]
pub struct Predictor {
    lanes: Box<[Lane; LANES]>,
    places: Box<[Place; THREADS]>,
    chunk: u32,
}

impl Default for Predictor {
    fn default() -> Predictor {
        Predictor {
            lanes: table(),
            places: table(),
            chunk: 1,
        }
    }
}

/// A table on the heap with a length that the compiler knows.
pub fn table<T: Copy + Default, const N: usize>() -> Box<[T; N]> {
    let table = vec![T::default(); N].into_boxed_slice();
    table
        .try_into()
        .unwrap_or_else(|_| unreachable!("it has N places"))
}

/// The class of a size. Allocators treat the sizes of a class alike: steps of 16 bytes up to 1 KiB,
/// then eight steps for each doubling.
#[inline(always)]
fn rounded(size: u64) -> u64 {
    if size <= 1_024 {
        return size.saturating_sub(1) / 16;
    }
    let doublings = u64::from(63 - (size - 1).leading_zeros());
    (doublings << 3) + (((size - 1) >> (doublings - 3)) & 7)
}

#[inline(always)]
fn lane_of(thread: u32, size: u64) -> usize {
    let key = (u64::from(thread) << 32 | rounded(size)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (key >> (64 - LANES.trailing_zeros())) as usize
}

impl Predictor {
    /// Forgets everything, because the next chunk begins.
    pub fn begin_chunk(&mut self) {
        self.chunk = self.chunk.wrapping_add(1);
        if self.chunk == 0 {
            *self = Predictor::default();
        }
    }

    /// The state of a thread and of one of its lanes. Each is looked up once for each event.
    #[inline(always)]
    fn look(&mut self, thread: u32, size: u64) -> (&mut Place, &mut Lane) {
        let chunk = self.chunk;
        let place = place_in(&mut self.places, chunk, thread);
        let lane = &mut self.lanes[lane_of(thread, size)];
        if lane.chunk != chunk {
            *lane = Lane {
                chunk,
                last: place.behind, // a new lane's first block is likely near the thread's last one
                ..Lane::default()
            };
        }
        (place, lane)
    }

    /// The code of `address`.
    #[inline(always)]
    pub fn encode(&mut self, thread: u32, size: u64, address: u64) -> Coded {
        let (place, lane) = self.look(thread, size);
        let plain = |code| Coded {
            code,
            absolute: None,
        };
        let delta = address.wrapping_sub(lane.last);
        let coded = if lane.freed.get(0) == Some(address) {
            plain(TOP)
        } else if lane.step == delta {
            plain(STEP)
        } else if place.behind == address {
            plain(BEHIND)
        } else if place.missed.get(0) == Some(address) {
            plain(MISSED)
        } else if let Some(depth) = lane.freed.depth_of(address) {
            plain(SECOND + depth as u64 - 1)
        } else if delta % 8 == 0 && lane.last != 0 {
            plain(DELTA + zigzag(delta as i64 / 8))
        } else {
            Coded {
                code: ABSOLUTE,
                absolute: Some(address),
            }
        };
        allocated(place, lane, size, address, coded.code);
        coded
    }

    /// The address of `code`; `absolute` reads the number that follows an absolute code.
    #[inline]
    pub fn decode(
        &mut self,
        thread: u32,
        size: u64,
        code: u64,
        absolute: impl FnOnce() -> Result<u64, DecodeError>,
    ) -> Result<u64, DecodeError> {
        let (place, lane) = self.look(thread, size);
        let freed = |depth| lane.freed.get(depth).ok_or(DecodeError::NoSuchBlock);
        let address = match code {
            TOP => freed(0)?,
            STEP => lane.last.wrapping_add(lane.step),
            BEHIND => place.behind,
            MISSED => place.missed.get(0).ok_or(DecodeError::NoSuchBlock)?,
            SECOND..ABSOLUTE => freed((code - SECOND) as usize + 1)?,
            ABSOLUTE => absolute()?,
            _ => lane
                .last
                .wrapping_add((unzigzag(code - DELTA) as u64).wrapping_mul(8)),
        };
        allocated(place, lane, size, address, code);
        Ok(address)
    }

    /// A block of known size was freed.
    #[inline(always)]
    pub fn freed(&mut self, thread: u32, size: u64, address: u64) {
        let lane = &mut self.lanes[lane_of(thread, size)];
        if lane.chunk == self.chunk {
            lane.freed.push(address);
        } else {
            self.look(thread, size).1.freed.push(address);
        }
    }

    /// A block from before this chunk was freed.
    pub fn freed_unknown(&mut self, thread: u32, address: u64) {
        place_in(&mut self.places, self.chunk, thread)
            .missed
            .push(address);
    }
}

#[inline(always)]
fn place_in(places: &mut [Place; THREADS], chunk: u32, thread: u32) -> &mut Place {
    let place = &mut places[thread as usize % THREADS];
    if place.chunk != chunk {
        *place = Place {
            chunk,
            ..Place::default()
        };
    }
    place
}

#[inline(always)]
fn allocated(place: &mut Place, lane: &mut Lane, size: u64, address: u64, code: u64) {
    place.behind = address.wrapping_add((size.wrapping_add(8 + 15) & !15).max(32));
    match code {
        TOP => lane.freed.remove(0),
        SECOND..ABSOLUTE => lane.freed.remove((code - SECOND) as usize + 1),
        // A block that comes back from a stack says nothing about the next slot of a span.
        MISSED => place.missed.remove(0),
        _ => {
            lane.step = address.wrapping_sub(lane.last);
            lane.last = address;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_gives_back_what_it_was_given_last() {
        let mut stack = Stack::default();
        (1..=20).for_each(|address| stack.push(address));
        assert_eq!(stack.get(0), Some(20));
        assert_eq!(stack.get(15), Some(5));
        assert_eq!(stack.get(16), None);
        stack.remove(1);
        assert_eq!((stack.get(0), stack.get(1)), (Some(20), Some(18)));
        stack.remove(0);
        assert_eq!((stack.get(0), stack.get(13)), (Some(18), Some(5)));
        assert_eq!(stack.get(14), None);
        (0..14).for_each(|_| stack.remove(0));
        assert_eq!((stack.get(0), stack.length), (None, 0));
    }

    #[test]
    fn sizes_above_a_kibibyte_have_eight_steps_a_doubling() {
        assert_eq!(rounded(0), rounded(16));
        assert_ne!(rounded(16), rounded(17));
        assert_eq!(rounded(1_025), rounded(1_152));
        assert_ne!(rounded(1_152), rounded(1_153));
        assert_ne!(rounded(1_024), rounded(1_025));
    }
}
