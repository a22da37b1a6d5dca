//! How often something dear may be looked at, by what it costs.
//!
//! Who watches many times a second must not cost much, however large what is watched is. So what is
//! dear takes at most a share of one core: after a look that took 1 ms of processor time the next one
//! comes a second later. What is shown meanwhile is old, and says so.

use std::time::{Duration, Instant};

use nix::time::{clock_gettime, ClockId};

/// The share of one core that one dear thing may take: 0.1 %. Chosen: a whole look ten times a second is
/// to stay under 1 %.
const SHARE: u32 = 1;
const OF: u32 = 1000;

/// When something was last looked at, and when it may be again.
#[derive(Debug, Default)]
pub struct Budget {
    looked: Option<Instant>,
    spent: Duration,
    is_stale: bool,
}

/// A look that has begun.
#[derive(Debug)]
pub struct Look(Duration);

impl Budget {
    /// Whether it may be looked at again; `longest` after the last look in any case.
    pub fn is_due(&self, longest: Duration) -> bool {
        let pause = (self.spent * OF / SHARE).min(longest);
        self.looked.is_none_or(|looked| looked.elapsed() >= pause)
    }

    /// A look begins.
    pub fn begin(&self) -> Look {
        Look(processor_time())
    }

    /// It has ended.
    pub fn end(&mut self, look: Look) {
        self.spent = processor_time().saturating_sub(look.0);
        self.renew();
    }

    /// What was seen then is what would be seen now.
    pub fn renew(&mut self) {
        self.looked = Some(Instant::now());
        self.is_stale = false;
    }

    /// What was seen then is shown once more, although it may have changed.
    pub fn skip(&mut self) {
        self.is_stale = true;
    }

    /// How old what is shown is; none if it is not old.
    pub fn age(&self) -> Option<Duration> {
        self.looked
            .filter(|_| self.is_stale)
            .map(|looked| looked.elapsed())
    }
}

/// What this thread has used. Time that passed would grow with what else the machine has to do.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(3600);

    #[test]
    fn what_was_dear_waits_and_what_was_cheap_does_not() {
        let mut budget = Budget::default();
        assert!(budget.is_due(LONGEST) && budget.age().is_none());
        budget.renew();
        assert!(budget.is_due(LONGEST), "it has cost nothing");
        budget.spent = Duration::from_secs(10);
        assert!(!budget.is_due(LONGEST), "0.1 % of a core is 10,000 s");
        assert!(budget.is_due(Duration::ZERO));
        budget.skip();
        assert!(budget.age().is_some());
        budget.renew();
        assert!(budget.age().is_none());
    }

    #[test]
    fn a_look_costs_the_time_that_it_works_and_not_the_time_that_it_sleeps() {
        let mut budget = Budget::default();
        let look = budget.begin();
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(200));
        budget.end(look);
        assert!(budget.spent < began.elapsed() / 2, "{:?}", budget.spent);
    }
}
