//! How long the blocks of a process live. Blocks are classified by call site if the trace has the
//! stack of every block, else each by itself.

use std::collections::HashMap;

use loam_format::trace::{Action, Block};

use super::stacks::{Key, Read};
use super::Never;
use crate::replay::lineage::{self, Step};
use crate::replay::lives::{Clock, Lives, CLASSES};
use crate::replay::{ReplayError, Survey};

/// If the average distance between chosen blocks is at most this many bytes, every block of 16
/// bytes and more is chosen (all but one in ten million).
const EVERY_BLOCK: u64 = 1;

/// What a walk found.
#[derive(Debug, Default)]
pub struct Found {
    /// The classes of the blocks.
    pub lives: Lives,
    /// Whether each block has the class of its call site: the class of most of the site's bytes.
    pub is_by_site: bool,
    /// Share of the requested bytes in blocks of each class.
    pub shares: [f64; CLASSES],
}

/// The length of a process's recording, its ancestors' included.
pub fn clock(survey: &Survey, streams: &[u32]) -> Clock {
    let of = |stream: Option<&u32>| stream.and_then(|stream| survey.processes.get(stream));
    Clock {
        first: of(streams.first()).map_or(0, |one| one.first_time),
        last: of(streams.last()).map_or(0, |one| one.last_time),
    }
}

/// A live block: its number, when it was handed out, its largest size, and its call site.
struct Live {
    number: usize,
    born: u64,
    bytes: u64,
    site: Option<u32>,
}

#[derive(Default)]
struct Walk {
    found: Found,
    live: HashMap<u64, Live>,
    bytes: [u64; CLASSES],
    numbers: HashMap<Key, u32>,
    /// Bytes of each class, by call site.
    sites: Vec<[u64; CLASSES]>,
    /// The call site of each block; `u32::MAX`: not known.
    of_block: Vec<u32>,
}

impl Walk {
    fn begin(&mut self, block: &Block, site: Option<Key>) {
        let (next, sites) = (self.numbers.len() as u32, &mut self.sites);
        let site = site.map(|key| {
            *self.numbers.entry(key).or_insert_with(|| {
                sites.push([0; CLASSES]);
                next
            })
        });
        let live = Live {
            number: self.found.lives.push(),
            born: block.born,
            bytes: block.size,
            site,
        };
        if self.found.is_by_site {
            self.of_block.push(site.unwrap_or(u32::MAX));
        }
        self.live.insert(block.id, live);
    }

    fn end(&mut self, live: Live, clock: &Clock, end: Option<u64>) {
        let class = clock.class(live.born, end);
        self.found.lives.set(live.number, class);
        self.bytes[usize::from(class)] += live.bytes;
        if let Some(site) = live.site {
            self.sites[site as usize][usize::from(class)] += live.bytes;
        }
    }

    fn finish(mut self, clock: &Clock) -> Found {
        for live in std::mem::take(&mut self.live).into_values() {
            self.end(live, clock, None);
        }
        let classes: Vec<u8> = self.sites.iter().map(middle).collect();
        for (block, site) in self.of_block.iter().enumerate() {
            if let Some(class) = classes.get(*site as usize) {
                self.found.lives.set(block, *class);
            }
        }
        if self.found.is_by_site {
            self.bytes = [0; CLASSES];
            for (bytes, class) in self.sites.iter().zip(&classes) {
                self.bytes[usize::from(*class)] += bytes.iter().sum::<u64>();
            }
        }
        let all = self.bytes.iter().sum::<u64>().max(1) as f64;
        self.found.shares = self.bytes.map(|bytes| bytes as f64 / all);
        self.found
    }
}

/// The longest class that at least half of the bytes reach.
fn middle(bytes: &[u64; CLASSES]) -> u8 {
    let all: u64 = bytes.iter().sum();
    let mut reach = 0;
    for class in (0..CLASSES).rev() {
        reach += bytes[class];
        if reach * 2 >= all {
            return class as u8;
        }
    }
    0
}

/// Follows a process's blocks to their ends.
pub fn of(survey: &Survey, stream: u32) -> Result<Found, ReplayError> {
    let streams = lineage::of(survey, stream);
    let clock = clock(survey, &streams);
    let mut walk = Walk::default();
    let mean = survey.header.stack_bytes;
    let read = match (1..=EVERY_BLOCK).contains(&mean) && !survey.header.weighted {
        true => Read::of(survey, &streams)?,
        false => None,
    };
    walk.found.is_by_site = read.is_some();
    let mut begins = vec![0];
    lineage::walk(survey, &streams, &Never, |step| {
        let act = match step {
            Step::Forked { events, .. } => {
                begins.push(events);
                return Ok(());
            }
            Step::Act(act) => act,
        };
        match &act.action {
            Action::Begin { block, .. } => {
                let site = read.as_ref().and_then(|read| read.stack(block, &begins));
                walk.begin(block, site);
            }
            Action::Resize { before, after, .. } => {
                if let Some(mut live) = walk.live.remove(&before.id) {
                    live.bytes = live.bytes.max(after.size);
                    walk.live.insert(after.id, live);
                }
            }
            Action::End { block, .. } | Action::Gone { block } => {
                if let Some(live) = walk.live.remove(&block.id) {
                    walk.end(live, &clock, Some(act.time));
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(walk.finish(&clock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_the_class_that_half_of_its_bytes_reach() {
        assert_eq!(middle(&[0, 0, 0, 0]), 3);
        assert_eq!(middle(&[10, 0, 0, 9]), 0);
        assert_eq!(middle(&[10, 0, 1, 9]), 2);
        assert_eq!(middle(&[1, 0, 0, 9]), 3);
    }
}
