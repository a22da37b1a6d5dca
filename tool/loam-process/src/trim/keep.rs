//! When a process is trimmed that is trimmed again and again: not where its pages come back, and
//! not so often that the looks at its heap would cost much.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::process::ProcessKey;

/// Pages that come back within this time were wanted.
const SOON: Duration = Duration::from_secs(60);
/// How long a process rests whose pages came back, at first and at most. The time doubles. Chosen:
/// at most one trim in vain an hour.
const REST: Duration = Duration::from_secs(120);
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// The pause between two looks at a heap, in times of the look. Chosen: a tenth of a processor at
/// most.
const PAUSE: u32 = 10;

/// What was seen of the processes that are kept thin. Times are given by the caller.
#[derive(Debug)]
pub struct Keeper {
    /// The least that is given back.
    above: u64,
    /// The time between two rounds.
    every: Duration,
    /// Whether processes rest whose pages came back.
    rests: bool,
    wards: HashMap<ProcessKey, Ward>,
}

#[derive(Debug, Default)]
struct Ward {
    last: Option<Trimmed>,
    /// How long it rests when its pages come back the next time.
    rest: Option<Duration>,
    rests_until: Option<Instant>,
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Trimmed {
    at: Instant,
    resident: u64,
    given: u64,
}

impl Keeper {
    /// One that has seen nothing. `rests`: whether processes are left alone whose pages came back.
    /// Where a limit is near, page faults cost less than what the system does at the limit.
    pub fn new(above: u64, every: Duration, rests: bool) -> Keeper {
        Keeper {
            above,
            every,
            rests,
            wards: HashMap::new(),
        }
    }

    /// A process has so many resident bytes. Whether its heap is to be looked at.
    pub fn is_due(&mut self, key: ProcessKey, now: Instant, resident: u64) -> bool {
        if resident < self.above {
            return false;
        }
        let ward = self.wards.entry(key).or_default();
        if let Some(last) = &ward.last {
            let since = now.saturating_duration_since(last.at);
            if resident >= last.resident + last.given / 2 && since <= SOON.max(self.every * 2) {
                let rest = ward.rest.map_or(REST, |rest| (rest * 2).min(LONGEST_REST));
                ward.rest = Some(rest);
                ward.rests_until = Some(last.at + rest);
                ward.last = None;
            } else if since > SOON {
                // They stayed away.
                ward.rest = None;
                ward.last = None;
            }
        }
        if !self.rests {
            ward.rests_until = None;
        }
        if ward.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        ward.rests_until = None;
        ward.next_look.is_none_or(|next| now >= next)
    }

    /// A look at its heap took so long, and so much could be given back. Whether that is to be
    /// done.
    pub fn is_worth(&mut self, key: ProcessKey, now: Instant, took: Duration, could: u64) -> bool {
        let ward = self.wards.entry(key).or_default();
        ward.next_look = Some(now + took * PAUSE);
        could > 0 && could >= self.above
    }

    /// So much was given back, and so much is resident now.
    pub fn trimmed(&mut self, key: ProcessKey, now: Instant, given: u64, resident: u64) {
        let ward = self.wards.entry(key).or_default();
        ward.last = (given > 0).then_some(Trimmed {
            at: now,
            resident,
            given,
        });
    }

    /// Forgets processes that have ended.
    pub fn keep(&mut self, alive: &HashSet<ProcessKey>) {
        self.wards.retain(|key, _| alive.contains(key));
    }

    /// How many processes rest because their pages came back.
    pub fn resting(&self, now: Instant) -> usize {
        let rests = |ward: &&Ward| ward.rests_until.is_some_and(|until| now < until);
        self.wards.values().filter(rests).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ProcessKey = ProcessKey { pid: 7, started: 1 };
    const MIB: u64 = 1 << 20;
    const EVERY: Duration = Duration::from_secs(10);

    /// Lets a process run for a day whose pages come back after so long, and counts the trims.
    fn trims_of_a_day(comes_back: Option<Duration>, rests: bool) -> u32 {
        let start = Instant::now();
        let mut keeper = Keeper::new(64 * MIB, EVERY, rests);
        let (mut trims, mut resident) = (0, 500 * MIB);
        let mut last = None;
        for round in 0..8640 {
            let now = start + EVERY * round;
            let is_back = |last: Instant| comes_back.is_some_and(|after| now >= last + after);
            if last.is_some_and(is_back) {
                resident = 500 * MIB;
                last = None;
            }
            if !keeper.is_due(KEY, now, resident) {
                continue;
            }
            let could = resident - 50 * MIB;
            if keeper.is_worth(KEY, now, Duration::from_millis(100), could) {
                resident = 50 * MIB;
                last = Some(now);
                trims += 1;
                keeper.trimmed(KEY, now, could, resident);
            }
        }
        trims
    }

    #[test]
    fn pages_that_come_back_soon_are_left_longer_and_longer() {
        assert_eq!(trims_of_a_day(None, true), 1);
        // Each nightly report is one; each hour too, since the pages stay away for an hour.
        assert_eq!(trims_of_a_day(Some(Duration::from_secs(3600)), true), 24);
        let soon = Some(Duration::from_secs(20));
        let often = trims_of_a_day(soon, true);
        assert!((24..32).contains(&often), "{often}: one an hour in the end");
        assert_eq!(trims_of_a_day(soon, false), 4320, "each time, near a limit");
    }

    #[test]
    fn a_process_is_looked_at_if_it_is_large_and_not_all_the_time() {
        let now = Instant::now();
        let mut keeper = Keeper::new(64 * MIB, EVERY, true);
        assert!(!keeper.is_due(KEY, now, 63 * MIB));
        assert!(keeper.is_due(KEY, now, 64 * MIB));
        let took = Duration::from_secs(2);
        assert!(!keeper.is_worth(KEY, now, took, 63 * MIB));
        assert!(!keeper.is_due(KEY, now + took * (PAUSE - 1), 500 * MIB));
        assert!(keeper.is_due(KEY, now + took * PAUSE, 500 * MIB));
        keeper.keep(&HashSet::new());
        assert!(keeper.is_due(KEY, now, 500 * MIB), "it is forgotten");
    }
}
