//! Limits how often a costly look may be repeated, by its cost.
//!
//! A tool that watches many times a second must not cost much, however large the watched process
//! is. So costly looks take at most a share of one core: after a look that took 1 ms of processor
//! time, the next one comes a second later. Meanwhile the tool shows old figures, and says that
//! they are old.

use std::time::{Duration, Instant};

use nix::time::{clock_gettime, ClockId};

/// The share of one core that one costly look may take: 0.1 %. Chosen: a whole look ten times a
/// second is to stay under 1 %.
const SHARE: u32 = 1;
const OF: u32 = 1000;

/// When the last look was, and when the next one may be.
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
    /// Whether the next look may begin; in any case when `longest` has passed since the last one.
    pub fn is_due(&self, longest: Duration) -> bool {
        let pause = (self.spent * OF / SHARE).min(longest);
        self.looked.is_none_or(|looked| looked.elapsed() >= pause)
    }

    /// Begins a look.
    pub fn begin(&self) -> Look {
        Look(processor_time())
    }

    /// Ends it.
    pub fn end(&mut self, look: Look) {
        self.spent = processor_time().saturating_sub(look.0);
        self.renew();
    }

    /// The figures of the last look are still those of now.
    pub fn renew(&mut self) {
        self.looked = Some(Instant::now());
        self.is_stale = false;
    }

    /// The figures of the last look are shown once more, although they may have changed.
    pub fn skip(&mut self) {
        self.is_stale = true;
    }

    /// The age of the shown figures; none if they are not old.
    pub fn age(&self) -> Option<Duration> {
        self.looked
            .filter(|_| self.is_stale)
            .map(|looked| looked.elapsed())
    }
}

/// The processor time of this thread. Elapsed time would grow with the other load of the machine.
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
