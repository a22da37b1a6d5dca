//! Brings many rings into one order: by stamp, with each ring in its own order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::batch::{Batch, Queue};
use super::unit::CopiedStack;

/// Events of a ring that are not given out yet.
#[derive(Debug, Default)]
pub struct Waiting {
    /// In the ring's order.
    pub queue: Queue,
    /// The few events with attached data, by their place in the queue.
    pub beside: VecDeque<(usize, Beside)>,
    /// Bytes of the stacks among them.
    pub stack_bytes: usize,
}

/// Data that is attached to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beside {
    /// The number of a fork, and its stamp.
    Fork(u32, u64),
    /// The block's stack.
    Stack(CopiedStack),
}

impl Beside {
    fn stack_bytes(&self) -> usize {
        match self {
            Beside::Fork(..) => 0,
            Beside::Stack(stack) => stack.bytes.len(),
        }
    }
}

impl Waiting {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Sets the data of the next event.
    pub fn belongs(&mut self, beside: Beside) {
        self.stack_bytes += beside.stack_bytes();
        self.beside.push_back((self.queue.units.len(), beside));
    }

    fn give(&mut self, limit: u64, out: &mut Batch, found: &mut impl FnMut(usize, Beside)) {
        let (begin, first) = (self.queue.given(), out.len());
        self.queue.give(limit, out);
        let end = self.queue.given();
        while self.beside.front().is_some_and(|(at, _)| *at < end) {
            if let Some((at, beside)) = self.beside.pop_front() {
                self.stack_bytes -= beside.stack_bytes();
                found(first + at - begin, beside);
            }
        }
    }

    fn tidy(&mut self) {
        let given = self.queue.given();
        for (at, _) in &mut self.beside {
            *at -= given;
        }
        self.queue.tidy();
    }
}

/// Gives out, in order, the events with a stamp of at most `until`, and the attached data, by the
/// event's place in `out`.
pub fn merge<'a>(
    waiting: impl Iterator<Item = &'a mut Waiting>,
    until: u64,
    out: &mut Batch,
    mut found: impl FnMut(usize, Beside),
) {
    let mut rings: Vec<&mut Waiting> = waiting.filter(|ring| ring.len() > 0).collect();
    let mut order: BinaryHeap<Reverse<(u64, usize)>> = rings
        .iter_mut()
        .enumerate()
        .filter_map(|(index, ring)| ring.queue.front().map(|stamp| Reverse((stamp, index))))
        .collect();
    while let Some(Reverse((stamp, index))) = order.pop() {
        if stamp > until {
            break;
        }
        // A run of one ring, up to the next ring's turn. Its first event is always given out,
        // because its turn has come, even if the ring's stamps go back.
        let limit = order
            .peek()
            .map_or(until, |Reverse((next, _))| (*next).min(until));
        let ring = &mut *rings[index];
        ring.give(limit, out, &mut found);
        if let Some(next) = ring.queue.front() {
            order.push(Reverse((next, index)));
        }
    }
    for ring in rings {
        ring.tidy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_format::trace::Event;

    /// Stamps of 2^32 and more begin another run.
    fn stack(instruction: u64) -> Beside {
        let registers = super::super::unit::Registers {
            instruction,
            ..Default::default()
        };
        Beside::Stack(CopiedStack {
            registers,
            ..CopiedStack::default()
        })
    }

    fn ring(thread: u32, stamps: &[u64]) -> Waiting {
        let mut ring = Waiting::default();
        let mut last = 0;
        for stamp in stamps {
            ring.queue.is_unsorted |= *stamp < last;
            last = *stamp;
            ring.queue.units.begin_run(thread, stamp >> 32 << 32);
            // Every third is rare.
            if stamp % 3 == 0 {
                let event = Event::Trim { keep: *stamp };
                ring.queue.units.push_rare(*stamp, event);
            } else {
                let free = 3 << 48 | stamp;
                ring.queue.units.extend([[free, stamp << 32]].into_iter());
            }
        }
        ring
    }

    fn told(out: &Batch) -> Vec<(u64, u32)> {
        let told = out.told().into_iter().map(|(stamp, thread, event)| {
            match event {
                Event::Trim { keep } => assert_eq!((stamp, stamp % 3), (keep, 0)),
                Event::Free { address, .. } => assert_eq!(stamp & 0xffff, address & 0xffff),
                other => panic!("{other:?}"),
            }
            (stamp, thread)
        });
        told.collect()
    }

    #[test]
    fn the_order_is_that_of_stamps_up_to_the_limit_and_the_rest_stays() {
        let mut rings = [
            ring(0, &[1, 4, 5, 9]),
            ring(1, &[2, 3, 8]),
            ring(2, &[]),
            ring(3, &[7]),
        ];
        rings[0].beside = [(2, stack(55)), (3, stack(99))].into();
        rings[1].beside = [(0, Beside::Fork(22, 2))].into();
        let (mut out, mut found) = (Batch::default(), Vec::new());
        merge(rings.iter_mut(), 7, &mut out, |at, beside| {
            found.push((at, beside));
        });
        let first = [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0), (7, 3)];
        assert_eq!(told(&out), first);
        assert_eq!(found, [(1, Beside::Fork(22, 2)), (4, stack(55))]);
        found.clear();
        merge(rings.iter_mut(), u64::MAX, &mut out, |at, beside| {
            found.push((at, beside));
        });
        assert_eq!(told(&out)[6..], [(8, 1), (9, 0)]);
        assert_eq!(found, [(7, stack(99))]);
        assert!(rings.iter().all(|ring| ring.len() == 0));
    }

    #[test]
    fn a_run_ends_where_the_high_half_of_the_stamps_changes() {
        let high = 1 << 32;
        let mut rings = [
            ring(0, &[3, high + 1, high + 2, 2 * high]),
            ring(1, &[high - 1, high + 2]),
        ];
        let mut out = Batch::default();
        merge(rings.iter_mut(), high + 1, &mut out, |_, _| {});
        assert_eq!(told(&out), [(3, 0), (high - 1, 1), (high + 1, 0)]);
        let mut out = Batch::default();
        merge(rings.iter_mut(), u64::MAX, &mut out, |_, _| {});
        assert_eq!(told(&out), [(high + 2, 0), (high + 2, 1), (2 * high, 0)]);
    }

    #[test]
    fn a_ring_keeps_its_own_order_where_its_stamps_go_back() {
        let mut rings = [ring(0, &[5, 3, 6]), ring(1, &[4])];
        let mut out = Batch::default();
        merge(rings.iter_mut(), u64::MAX, &mut out, |_, _| {});
        assert_eq!(told(&out), [(4, 1), (5, 0), (3, 0), (6, 0)]);
    }
}
