//! Many rings into one order: by stamp, and each ring in its own order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use loam_format::trace::Record;

/// Events of a ring that are not given out yet.
#[derive(Debug, Default)]
pub struct Queue {
    /// In the ring's order. Their times are stamps.
    pub events: Vec<Record>,
    /// The few events that have a number, by their place: of a fork its own, of a block with a stack the stack's.
    pub numbers: VecDeque<(usize, u32)>,
    next: usize,
}

impl Queue {
    fn front(&self) -> Option<u64> {
        self.events.get(self.next).map(|event| event.time)
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.events.len() - self.next
    }

    /// Gives out the next event and those behind it up to the first one that is later than `limit`.
    fn give(&mut self, limit: u64, out: &mut Vec<Record>, numbered: &mut impl FnMut(usize, u32)) {
        let (begin, first) = (self.next, out.len());
        let behind = &self.events[begin + 1..];
        let more = behind.iter().position(|event| event.time > limit);
        let end = begin + 1 + more.unwrap_or(behind.len());
        if first == 0 && end - begin == self.events.len() {
            // All of the only ring that has some.
            std::mem::swap(out, &mut self.events);
            self.next = 0;
        } else {
            out.extend_from_slice(&self.events[begin..end]);
            self.next = end;
        }
        while self.numbers.front().is_some_and(|(at, _)| *at < end) {
            if let Some((at, number)) = self.numbers.pop_front() {
                numbered(first + at - begin, number);
            }
        }
    }

    fn tidy(&mut self) {
        for (at, _) in &mut self.numbers {
            *at -= self.next;
        }
        self.events.drain(..self.next);
        self.next = 0;
    }
}

/// Gives out, in order, what has a stamp of at most `until`; and the place in `out` of each event with a number.
pub fn merge<'a>(
    queues: impl Iterator<Item = &'a mut Queue>,
    until: u64,
    out: &mut Vec<Record>,
    mut numbered: impl FnMut(usize, u32),
) {
    let mut queues: Vec<&mut Queue> = queues.filter(|queue| queue.len() > 0).collect();
    let mut order: BinaryHeap<Reverse<(u64, usize)>> = queues
        .iter()
        .enumerate()
        .filter_map(|(index, queue)| queue.front().map(|stamp| Reverse((stamp, index))))
        .collect();
    while let Some(Reverse((stamp, index))) = order.pop() {
        if stamp > until {
            break;
        }
        // A run of one ring, up to the next ring's turn. Its first event always: its turn has come, even where a
        // ring's stamps go back.
        let limit = order
            .peek()
            .map_or(until, |Reverse((next, _))| (*next).min(until));
        let queue = &mut *queues[index];
        queue.give(limit, out, &mut numbered);
        if let Some(next) = queue.front() {
            order.push(Reverse((next, index)));
        }
    }
    for queue in queues {
        queue.tidy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_format::trace::Event;

    fn queue(thread: u32, stamps: &[u64]) -> Queue {
        let event = |stamp: &u64| Record {
            time: *stamp,
            thread,
            event: Event::ThreadBegins,
        };
        Queue {
            events: stamps.iter().map(event).collect(),
            ..Queue::default()
        }
    }

    fn told(out: &[Record]) -> Vec<(u64, u32)> {
        let told = |event: &Record| (event.time, event.thread);
        out.iter().map(told).collect()
    }

    #[test]
    fn the_order_is_that_of_stamps_up_to_the_limit_and_the_rest_stays() {
        let mut queues = [
            queue(0, &[1, 4, 5, 9]),
            queue(1, &[2, 3, 8]),
            queue(2, &[]),
            queue(3, &[7]),
        ];
        queues[0].numbers = [(2, 55), (3, 99)].into();
        queues[1].numbers = [(0, 22)].into();
        let (mut out, mut numbers) = (Vec::new(), Vec::new());
        merge(queues.iter_mut(), 7, &mut out, |at, number| {
            numbers.push((at, number));
        });
        let first = [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0), (7, 3)];
        assert_eq!(
            (&told(&out)[..], &numbers[..]),
            (&first[..], &[(1, 22), (4, 55)][..])
        );
        numbers.clear();
        merge(queues.iter_mut(), u64::MAX, &mut out, |at, number| {
            numbers.push((at, number));
        });
        assert_eq!(
            (&told(&out)[6..], &numbers[..]),
            (&[(8, 1), (9, 0)][..], &[(7, 99)][..])
        );
        assert!(queues.iter().all(|queue| queue.len() == 0));
    }

    #[test]
    fn all_of_a_ring_that_is_alone_goes_at_once() {
        let mut queues = [queue(0, &[3, 4])];
        queues[0].numbers = [(1, 44)].into();
        let (mut out, mut numbers) = (Vec::new(), Vec::new());
        merge(queues.iter_mut(), 4, &mut out, |at, number| {
            numbers.push((at, number));
        });
        assert_eq!((told(&out), numbers), (vec![(3, 0), (4, 0)], vec![(1, 44)]));
        assert_eq!(queues[0].len(), 0);
    }

    #[test]
    fn a_ring_keeps_its_own_order_where_its_stamps_go_back() {
        let mut queues = [queue(0, &[5, 3, 6]), queue(1, &[4])];
        let mut out = Vec::new();
        merge(queues.iter_mut(), u64::MAX, &mut out, |_, _| {});
        assert_eq!(told(&out), [(4, 1), (5, 0), (3, 0), (6, 0)]);
    }
}
