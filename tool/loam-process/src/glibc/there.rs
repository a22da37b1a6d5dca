//! Reads only those pages of a memory that hold something.
//!
//! If a page was never touched, or was given back, a read leaves the system's page of zeros mapped
//! there. The process would not have more memory, but the next look would see the page as resident.
//! So such pages are not read; they are zero.
//!
//! The look at the stretch told which pages hold something. The process may have touched others
//! since. A walk that does not get on says so ([`There::doubt`]), and for a while all pages are
//! read.

use std::sync::atomic::{AtomicU32, Ordering};

use loam_format::memory::{Memory, Piece, ReadError};

use super::pages::{Residency, PAGE};

/// How many reads are whole after a doubt. Chosen: a walk goes back by a window at most.
const DOUBTFUL: u32 = 8;

/// A stretch of a process's memory.
pub struct There<'a, M> {
    memory: &'a M,
    residency: &'a Residency,
    /// Reads that still have to be whole.
    doubtful: AtomicU32,
}

impl<'a, M: Memory> There<'a, M> {
    /// The pages of the stretch that `residency` looked at last.
    pub fn new(memory: &'a M, residency: &'a Residency) -> There<'a, M> {
        There {
            memory,
            residency,
            doubtful: AtomicU32::new(0),
        }
    }

    /// The known pages may be out of date. This store orders nothing: it is a hint.
    pub fn doubt(&self) {
        self.doubtful.store(DOUBTFUL, Ordering::Relaxed);
    }

    fn is_whole(&self) -> bool {
        let left = self.doubtful.load(Ordering::Relaxed);
        if left > 0 {
            self.doubtful.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// The parts of a piece that hold something.
    fn parts(&self, piece: &Piece) -> Vec<Piece> {
        let end = piece.address.saturating_add(piece.length as u64);
        let mut parts: Vec<Piece> = Vec::new();
        let mut place = piece.address;
        while place < end {
            let behind = (place / PAGE + 1).saturating_mul(PAGE).min(end);
            let length = (behind - place) as usize;
            if self.residency.holds_something(place) {
                match parts.last_mut() {
                    Some(last) if last.address + last.length as u64 == place => {
                        last.length += length;
                    }
                    _ => parts.push(Piece {
                        address: place,
                        length,
                    }),
                }
            }
            place = behind;
        }
        parts
    }
}

impl<M: Memory> Memory for There<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        self.gather(&[Piece { address, length }], buffer)
    }

    fn gather(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        if self.is_whole() {
            return self.memory.gather(pieces, buffer);
        }
        let parts: Vec<Vec<Piece>> = pieces.iter().map(|piece| self.parts(piece)).collect();
        let there: Vec<Piece> = parts.concat();
        let length = there.iter().map(|part| part.length).sum();
        if length == buffer.len() {
            return self.memory.gather(pieces, buffer);
        }
        // The parts are read one after the other, and then each is moved to its place, the last one
        // first: none moves to the left.
        self.memory.gather(&there, &mut buffer[..length])?;
        let (mut from, mut to) = (length, buffer.len());
        for (piece, parts) in pieces.iter().zip(&parts).rev() {
            let start = to - piece.length;
            for part in parts.iter().rev() {
                let place = start + (part.address - piece.address) as usize;
                buffer[place + part.length..to].fill(0);
                from -= part.length;
                buffer.copy_within(from..from + part.length, place);
                to = place;
            }
            buffer[start..to].fill(0);
            to = start;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte is the number of its page.
    struct Pages;

    impl Memory for Pages {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            for (byte, place) in buffer.iter_mut().zip(address..) {
                assert_ne!(place / PAGE % 3, 1, "page {} is not there", place / PAGE);
                *byte = (place / PAGE) as u8;
            }
            Ok(())
        }
    }

    #[test]
    fn pages_that_hold_nothing_are_zero_and_not_read() {
        let residency = Residency::of_pages(0, (0..100).map(|page| page % 3 != 1));
        let there = There::new(&Pages, &residency);
        let expected = |address: u64, length: usize| -> Vec<u8> {
            let places = address..address + length as u64;
            let pages = places.map(|place| place / PAGE);
            pages
                .map(|page| if page % 3 == 1 { 0 } else { page as u8 })
                .collect()
        };
        for (address, length) in [
            (10, 20),
            (PAGE, 100),
            (100, 50_000),
            (3 * PAGE - 1, 2),
            (0, 0),
        ] {
            let bytes = there.bytes(address, length).unwrap();
            assert_eq!(bytes, expected(address, length), "{address}");
            let pieces = [(5 * PAGE + 8, 8), (address, length), (4 * PAGE - 5, 10)];
            let wanted = pieces
                .map(|(address, length)| expected(address, length))
                .concat();
            let mut found = vec![0xee; wanted.len()];
            let pieces = pieces.map(|(address, length)| Piece { address, length });
            there.gather(&pieces, &mut found).unwrap();
            assert_eq!(found, wanted, "{address}");
        }
    }

    #[test]
    #[should_panic(expected = "page 1 is not there")]
    fn in_doubt_everything_is_read() {
        let residency = Residency::of_pages(0, (0..100).map(|page| page % 3 != 1));
        let there = There::new(&Pages, &residency);
        there.doubt();
        let _ = there.bytes(0, 2 * PAGE as usize);
    }
}
