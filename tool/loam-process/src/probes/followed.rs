//! The blocks of windows: which of them live, and the changes that the trace gets when a round has
//! ended and its weight is known.

use std::collections::{HashMap, VecDeque};

use super::pairs::Block;
use super::rounds::{self, Estimate, Round};
use crate::process::Pid;
use crate::python::Interpreter;
use crate::rings::CopiedStack;
use crate::sites::{Change, Grown, Sites};

/// An address in the process.
pub type Address = u64;
/// A stack that has not been unwound yet.
const UNKNOWN: u32 = u32::MAX;
/// A walk goes through a heap that changes. A block is dead if so many walks in a row do not find
/// it.
const MISSES: u8 = 2;

/// A block that was handed out in a window and is not known to be dead.
#[derive(Debug, Clone, Copy)]
struct Live {
    /// When it came, by which it is known from others at its place.
    time: u64,
    round: u32,
    site: u32,
    requested: u64,
    /// The bytes that the first walk found there.
    found: u64,
    misses: u8,
}

/// A block that lives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Living {
    /// Its address.
    pub address: Address,
    /// Its bytes, as requested.
    pub bytes: u64,
    /// Its stack: an index of `Sites::all`.
    pub site: usize,
    /// How many blocks it stands for.
    pub weight: f64,
}

#[derive(Debug)]
enum Waiting {
    Came(Pid, Address, Live),
    Gone(u64, Address, Live),
}

impl Waiting {
    fn time(&self) -> u64 {
        match self {
            Waiting::Came(_, _, block) => block.time,
            Waiting::Gone(time, ..) => *time,
        }
    }
}

/// The blocks that are followed.
#[derive(Debug)]
pub struct Followed {
    live: HashMap<Address, Live>,
    /// Changes of rounds that have not ended.
    waiting: Vec<Waiting>,
    /// Stacks that are not unwound yet, each of a place in `waiting`.
    queue: VecDeque<(usize, CopiedStack)>,
    sites: Sites,
    /// By site: frees that were seen of blocks after their round, and seconds in which they could
    /// be seen.
    ends: Vec<(f64, f64)>,
    taken: u64,
}

/// Two clocks of the process's own time: all of it, and that in which frees were watched.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clocks {
    /// All.
    pub own: f64,
    /// Watched.
    pub watched: f64,
}

impl Followed {
    /// None yet, of that process, with its Python if it has one.
    pub fn of(pid: Pid, python: Option<Interpreter>) -> Followed {
        Followed {
            live: HashMap::new(),
            waiting: Vec::new(),
            queue: VecDeque::new(),
            sites: Sites::of(pid, python),
            ends: Vec::new(),
            taken: 0,
        }
    }

    /// How many live, and how many there were.
    pub fn count(&self) -> (usize, u64) {
        (self.live.len(), self.taken)
    }

    /// The stacks.
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Whether all stacks are unwound.
    pub fn is_unwound(&self) -> bool {
        self.queue.is_empty()
    }

    /// A block came in a round.
    pub fn came(&mut self, block: Block, round: usize, time: u64) {
        // The free of the block before was not seen.
        self.gone(block.address, time);
        self.taken += 1;
        let live = Live {
            time,
            round: round as u32,
            site: UNKNOWN,
            requested: block.size,
            found: 0,
            misses: 0,
        };
        self.live.insert(block.address, live);
        self.queue.push_back((self.waiting.len(), block.stack));
        self.waiting
            .push(Waiting::Came(block.thread, block.address, live));
    }

    /// A block at that place is no more, if there is one.
    pub fn gone(&mut self, address: Address, time: u64) {
        if let Some(block) = self.live.remove(&address) {
            self.waiting.push(Waiting::Gone(time, address, block));
        }
    }

    /// A probe saw the free of the block at that place, if there is one.
    pub fn freed(&mut self, address: Address, time: u64, rounds: &[Round], clocks: Clocks) {
        if let Some(block) = self.live.get(&address).copied() {
            if let Some(watched) = watched(&block, rounds, clocks) {
                self.end(block.site, 1.0, watched);
            }
            self.gone(address, time);
        }
    }

    fn end(&mut self, site: u32, frees: f64, watched: f64) {
        let site = site as usize;
        if site >= self.ends.len() {
            self.ends.resize(site + 1, (0.0, 0.0));
        }
        self.ends[site].0 += frees;
        self.ends[site].1 += watched;
    }

    /// How probable it is that a block lives that is not known to be dead, by site and round, where
    /// no walk can tell: as if blocks of a site were freed at an even pace, in the times that were
    /// watched and in those that were not.
    pub fn survival(&self, rounds: &[Round], clocks: Clocks) -> impl Fn(usize, usize) -> f64 {
        let mut ends = self.ends.clone();
        ends.resize(self.sites.all().len(), (0.0, 0.0));
        for block in self.live.values() {
            if let Some(watched) = watched(block, rounds, clocks) {
                ends[block.site as usize].1 += watched;
            }
        }
        let unwatched: Vec<f64> = rounds
            .iter()
            .map(|round| {
                let (own, watched) = (
                    clocks.own - round.clocks.own,
                    clocks.watched - round.clocks.watched,
                );
                (own - watched).max(0.0)
            })
            .collect();
        move |site, round| match ends.get(site) {
            Some((frees, watched)) if *frees > 0.0 => {
                (-frees / watched.max(1e-6) * unwatched[round]).exp()
            }
            _ => 1.0,
        }
    }

    /// Unwinds stacks that wait, at most so many.
    pub fn unwind(&mut self, most: usize) {
        for _ in 0..most {
            let Some((place, stack)) = self.queue.pop_front() else {
                return;
            };
            let site = self.sites.number(&stack) as u32;
            if let Waiting::Came(_, address, block) = &mut self.waiting[place] {
                block.site = site;
                let known = self.live.get_mut(address);
                if let Some(known) = known.filter(|known| known.time == block.time) {
                    known.site = site;
                }
            }
        }
    }

    /// The changes of the rounds before the one with that number, which began at that time, in the
    /// order of time. None while stacks wait.
    pub fn take(&mut self, rounds: &[Round], current: usize, boundary: u64) -> Vec<Change> {
        let is_due = |one: &Waiting| match one {
            Waiting::Came(_, _, block) => (block.round as usize) < current,
            Waiting::Gone(time, ..) => *time < boundary,
        };
        let all = std::mem::take(&mut self.waiting);
        let (mut due, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(is_due);
        due.sort_by_key(Waiting::time);
        let mut fresh: HashMap<(Address, u64), u32> = HashMap::new();
        let mut changes = Vec::with_capacity(due.len());
        for one in due {
            match one {
                Waiting::Came(thread, address, block) => {
                    let weight = rounds[block.round as usize].weight;
                    fresh.insert((address, block.time), block.site);
                    let bytes = weight * block.requested as f64;
                    self.sites.add(block.site as usize, bytes);
                    changes.push(Change::Grown(Grown {
                        time: block.time,
                        thread,
                        address,
                        bytes: block.requested,
                        site: block.site as usize,
                        weight,
                    }));
                }
                Waiting::Gone(time, address, block) => {
                    let weight = rounds[block.round as usize].weight;
                    let known = (block.site != UNKNOWN).then_some(block.site);
                    let site = known.or_else(|| fresh.get(&(address, block.time)).copied());
                    if let Some(site) = site {
                        let bytes = weight * block.requested as f64;
                        self.sites.add(site as usize, -bytes);
                    }
                    changes.push(Change::Gone { time, address });
                }
            }
        }
        // What is told later went before its stack was unwound, too.
        self.waiting = rest;
        for one in &mut self.waiting {
            if let Waiting::Gone(_, address, block) = one {
                if let Some(site) = fresh.get(&(*address, block.time)) {
                    block.site = *site;
                }
            }
        }
        changes
    }

    /// The places of the blocks that live, sorted.
    pub fn places(&self) -> Vec<Address> {
        let mut all: Vec<Address> = self.live.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// What a walk found at these places: the bytes of a live block, or 0.
    pub fn looked(&mut self, places: &[Address], sizes: &[u64], time: u64) {
        for (address, size) in places.iter().zip(sizes) {
            let Some(block) = self.live.get_mut(address) else {
                continue;
            };
            let is_dead = match *size {
                0 => {
                    block.misses += 1;
                    block.misses >= MISSES
                }
                size => {
                    block.misses = 0;
                    let found = std::mem::replace(&mut block.found, size);
                    // Another block.
                    size < block.requested || found != 0 && found != size
                }
            };
            if is_dead {
                self.gone(*address, time);
            }
        }
    }

    /// By how much each stack grew, by its number: what came under it before that time and lives,
    /// times two. `lives`: how probable that is, by site and round.
    pub fn growth(
        &self,
        rounds: &[Round],
        half: u64,
        lives: impl Fn(usize, usize) -> f64,
    ) -> Vec<f64> {
        let mut all = vec![0.0; self.sites.all().len()];
        for block in self.live.values() {
            if block.time < half && block.site != UNKNOWN {
                let (site, round) = (block.site as usize, block.round as usize);
                let weight = rounds[round].weight * lives(site, round);
                all[site] += 2.0 * weight * block.requested as f64;
            }
        }
        all
    }

    /// The blocks that live, in the order of addresses.
    pub fn living(&self, rounds: &[Round]) -> Vec<Living> {
        let known = self.live.iter().filter(|(_, block)| block.site != UNKNOWN);
        let mut all: Vec<Living> = known
            .map(|(address, block)| Living {
                address: *address,
                bytes: block.requested,
                site: block.site as usize,
                weight: rounds[block.round as usize].weight,
            })
            .collect();
        all.sort_unstable_by_key(|block| block.address);
        all
    }

    /// What the blocks that live stand for.
    pub fn estimate(&self, rounds: &[Round]) -> Estimate {
        let blocks = self.live.values();
        rounds::estimate(
            rounds,
            blocks.map(|block| (block.round as usize, block.requested)),
        )
    }
}

/// For how long a free of the block could be seen after its round; none while that lasts.
fn watched(block: &Live, rounds: &[Round], clocks: Clocks) -> Option<f64> {
    let next = rounds.get(block.round as usize + 1)?;
    (block.site != UNKNOWN).then(|| (clocks.watched - next.clocks.watched).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed() -> Followed {
        let mut followed = Followed::of(std::process::id() as Pid, None);
        for (address, size) in [(0x1000, 100), (0x2000, 100), (0x3000, 100)] {
            let block = Block {
                address,
                size,
                thread: 1,
                time: address,
                stack: CopiedStack::default(),
            };
            followed.came(block, 0, address);
        }
        followed
    }

    #[test]
    fn a_block_is_dead_if_walks_miss_it_twice_or_find_another_size() {
        let mut followed = followed();
        let places = followed.places();
        assert_eq!(places, [0x1000, 0x2000, 0x3000]);
        followed.looked(&places, &[104, 0, 104], 1);
        assert_eq!(followed.places(), places, "one walk may miss a block");
        followed.looked(&places, &[104, 0, 120], 2);
        assert_eq!(followed.places(), [0x1000]);
        followed.looked(&places, &[0, 0, 0], 3);
        followed.looked(&places, &[104, 0, 0], 4);
        followed.looked(&places, &[0, 0, 0], 5);
        assert_eq!(followed.places(), [0x1000], "not twice in a row");
        followed.looked(&places, &[64, 0, 0], 6);
        assert!(
            followed.places().is_empty(),
            "smaller than what was requested"
        );
    }

    #[test]
    fn blocks_of_a_site_that_frees_are_not_taken_for_a_leak() {
        let mut followed = followed();
        followed.unwind(usize::MAX);
        let clocks = |own, watched| Clocks { own, watched };
        let mut rounds = [Round::begin(0, Default::default(), 0); 2];
        rounds[1].clocks = clocks(1.0, 1.0);
        // Nothing was freed in two seconds that were watched, of ten.
        let lives = followed.survival(&rounds, clocks(11.0, 3.0));
        assert_eq!(lives(0, 0), 1.0);
        // One of three after a second: then of the others few live after eight seconds that were
        // not watched.
        followed.freed(0x1000, 0x9000, &rounds, clocks(3.0, 2.0));
        let lives = followed.survival(&rounds, clocks(11.0, 3.0));
        let pace = 1.0 / (1.0 + 2.0 + 2.0);
        assert!((lives(0, 0) - f64::exp(-pace * 8.0)).abs() < 1e-9);
        assert_eq!(followed.places(), [0x2000, 0x3000]);
    }

    #[test]
    fn changes_come_in_order_when_their_round_has_ended() {
        let mut followed = followed();
        followed.gone(0x2000, 0x2800);
        followed.gone(0x1000, 0x9000);
        followed.unwind(usize::MAX);
        let rounds = [Round::begin(0, super::super::rounds::Spent::default(), 0); 2];
        assert!(followed.take(&rounds, 0, 0).is_empty());
        let times = |changes: &[Change]| -> Vec<u64> {
            let time = |change: &Change| match change {
                Change::Grown(grown) => grown.time,
                Change::Gone { time, .. } => *time,
            };
            changes.iter().map(time).collect()
        };
        let first = followed.take(&rounds, 1, 0x8000);
        assert_eq!(times(&first), [0x1000, 0x2000, 0x2800, 0x3000]);
        assert!((followed.sites().all()[0].bytes - 200.0).abs() < 1e-9);
        assert_eq!(times(&followed.take(&rounds, 2, u64::MAX)), [0x9000]);
        assert!((followed.sites().all()[0].bytes - 100.0).abs() < 1e-9);
    }
}
