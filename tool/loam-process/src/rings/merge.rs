//! Many rings into one order: by stamp, and each ring in its own order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::unit::Stamped;

/// Events of a ring that are not given out yet.
#[derive(Debug, Default)]
pub struct Queue {
    /// In the ring's order.
    pub events: Vec<Stamped>,
    next: usize,
}

impl Queue {
    fn front(&self) -> Option<u64> {
        self.events.get(self.next).map(|event| event.stamp)
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.events.len() - self.next
    }

    fn tidy(&mut self) {
        if self.next == self.events.len() {
            self.events.clear();
        } else {
            self.events.drain(..self.next);
        }
        self.next = 0;
    }
}

/// Gives out, in order, what has a stamp of at most `until`.
pub fn merge<'a>(
    queues: impl Iterator<Item = &'a mut Queue>,
    until: u64,
    mut give: impl FnMut(&Stamped),
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
        // A run of one ring, up to the next ring's turn.
        let limit = order
            .peek()
            .map_or(until, |Reverse((next, _))| (*next).min(until));
        let queue = &mut *queues[index];
        // The first one always: its turn has come, even where a ring's stamps go back.
        loop {
            give(&queue.events[queue.next]);
            queue.next += 1;
            match queue.front() {
                Some(next) if next <= limit => {}
                Some(next) => {
                    order.push(Reverse((next, index)));
                    break;
                }
                None => break,
            }
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
        let event = |stamp: &u64| Stamped {
            stamp: *stamp,
            thread,
            number: 0,
            event: Event::ThreadBegins,
        };
        Queue {
            events: stamps.iter().map(event).collect(),
            next: 0,
        }
    }

    #[test]
    fn the_order_is_that_of_stamps_up_to_the_limit_and_the_rest_stays() {
        let mut queues = [
            queue(0, &[1, 4, 5, 9]),
            queue(1, &[2, 3, 8]),
            queue(2, &[]),
            queue(3, &[7]),
        ];
        let mut given = Vec::new();
        merge(queues.iter_mut(), 7, |event| {
            given.push((event.stamp, event.thread))
        });
        assert_eq!(given, [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0), (7, 3)]);
        merge(queues.iter_mut(), u64::MAX, |event| {
            given.push((event.stamp, event.thread))
        });
        assert_eq!(given[6..], [(8, 1), (9, 0)]);
        assert!(queues.iter().all(|queue| queue.len() == 0));
    }

    #[test]
    fn a_ring_keeps_its_own_order_where_its_stamps_go_back() {
        let mut queues = [queue(0, &[5, 3, 6]), queue(1, &[4])];
        let mut given = Vec::new();
        merge(queues.iter_mut(), u64::MAX, |event| given.push(event.stamp));
        assert_eq!(given, [4, 5, 3, 6]);
    }
}
