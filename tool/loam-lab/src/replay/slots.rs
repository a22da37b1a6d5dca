//! Numbers for live blocks: each is a place in the replayer's table. The thread that had a place
//! uses it again, but only after many other places. A reuse therefore seldom makes a thread wait
//! for the free of another thread.

use std::collections::{HashMap, VecDeque};

/// The number of free places that a thread keeps before it uses the first of them again. Chosen:
/// more blocks than a thread hands to another one at a time; each place costs eight bytes of the
/// replayer's table.
const RESTING: usize = 256;

/// A place, and how often it was used before, modulo 2^16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The place.
    pub number: u32,
    /// How often it was used before.
    pub generation: u16,
}

impl Slot {
    /// The same place, used once more.
    pub fn next(self) -> Slot {
        Slot {
            generation: self.generation.wrapping_add(1),
            ..self
        }
    }
}

/// Hands out places.
#[derive(Debug, Default)]
pub struct Slots {
    resting: HashMap<u32, VecDeque<Slot>>,
    /// Places of threads that have ended.
    left: VecDeque<Slot>,
    count: u32,
}

impl Slots {
    /// A place for a block of `thread`; none if 2^32 blocks live.
    pub fn take(&mut self, thread: u32) -> Option<Slot> {
        let own = self.resting.entry(thread).or_default();
        if own.len() > RESTING {
            return own.pop_front();
        }
        if self.left.len() > RESTING {
            return self.left.pop_front();
        }
        let number = self.count;
        self.count = self.count.checked_add(1)?;
        Some(Slot {
            number,
            generation: 0,
        })
    }

    /// Returns the place of a block of `thread` that has ended.
    pub fn give(&mut self, thread: u32, slot: Slot) {
        let next = slot.next();
        match self.resting.get_mut(&thread) {
            Some(own) => own.push_back(next),
            None => self.left.push_back(next),
        }
    }

    /// The thread has ended: any thread may take its places.
    pub fn end_thread(&mut self, thread: u32) {
        self.left
            .extend(self.resting.remove(&thread).into_iter().flatten());
    }

    /// The number of all places.
    pub fn count(&self) -> u64 {
        self.count.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_rests_and_then_has_another_generation() {
        let mut slots = Slots::default();
        let first = slots.take(7).unwrap();
        slots.give(7, first);
        for _ in 0..RESTING {
            let other = slots.take(7).unwrap();
            assert_ne!(other.number, first.number);
            slots.give(7, other);
        }
        let again = slots.take(7).unwrap();
        assert_eq!((again.number, again.generation), (first.number, 1));
        assert_eq!(slots.count(), RESTING as u64 + 1);
    }

    #[test]
    fn a_thousand_threads_one_after_the_other_use_the_same_places() {
        let mut slots = Slots::default();
        for thread in 0..1_000 {
            let mine: Vec<Slot> = (0..10).map(|_| slots.take(thread).unwrap()).collect();
            mine.into_iter().for_each(|slot| slots.give(thread, slot));
            slots.end_thread(thread);
        }
        assert!(slots.count() < 2 * RESTING as u64, "{}", slots.count());
    }
}
