//! What recording takes of a program's own processor time, from what is seen outside: the number of
//! its events, and what one of them took in programs that were measured with and without it.
//!
//! The time inside the recorder alone would be too little: most of what a program loses, it loses
//! because its own code finds less in the caches.

use std::time::Duration;

/// The middle of what `bench/record` measures: 6 ns in a loop that does nothing but allocate, 27 ns
/// in a compiler, whose code has no room in the caches beside the recorder's.
const EVENT: Duration = Duration::from_nanos(15);
/// What a program may lose beyond the agreed part: a burst at its start is no reason to end.
const GRACE: Duration = Duration::from_millis(50);
/// A process with less processor time of its own has no share yet.
const FEW: Duration = Duration::from_millis(100);
/// From this part on the user is told.
pub const NOTABLE: f64 = 0.1;

/// Events of a process and its processor time, both at the same moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Events that were recorded.
    pub events: u64,
    /// Its processor time since its recording began.
    pub processor: Duration,
}

impl Cost {
    /// At most half of its processor time: no program was seen that lost more.
    fn taken(self) -> Duration {
        let events = (EVENT.as_nanos() as u64).saturating_mul(self.events);
        Duration::from_nanos(events).min(self.processor / 2)
    }

    /// What the process would have taken without the recorder.
    fn own(self) -> Duration {
        self.processor.saturating_sub(self.taken())
    }

    /// What recording adds to each second of the process's own; none if it has hardly run.
    pub fn share(self) -> Option<f64> {
        (self.own() >= FEW).then(|| self.taken().as_secs_f64() / self.own().as_secs_f64())
    }

    /// Whether recording has taken clearly more than this part.
    pub fn exceeds(self, most: f64) -> bool {
        let allowed = self.own().mul_f64(most) + GRACE;
        self.share().is_some() && self.taken() > allowed
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(all: I) -> Cost {
        all.fold(Cost::default(), |sum, one| Cost {
            events: sum.events + one.events,
            processor: sum.processor + one.processor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(events: u64, milliseconds: u64) -> Cost {
        Cost {
            events,
            processor: Duration::from_millis(milliseconds),
        }
    }

    #[test]
    fn a_share_is_of_the_programs_own_time() {
        // 150 of 650 ms are the recorder's, so it adds 30 % to 500 ms.
        assert!((cost(10_000_000, 650).share().unwrap() - 0.3).abs() < 1e-9);
        assert_eq!(cost(1_000_000, 40).share(), None);
        assert_eq!(cost(0, 0).share(), None);
        assert_eq!(cost(1_000_000_000, 1_000).share(), Some(1.0));
    }

    #[test]
    fn a_burst_is_allowed_and_a_habit_is_not() {
        // 30 ms, a fifth of 150 ms.
        assert!(!cost(2_000_000, 180).exceeds(0.1));
        // A tenth, for fifteen seconds.
        assert!(!cost(100_000_000, 16_500).exceeds(0.1));
        // A fifth, for two and a half seconds.
        assert!(cost(33_000_000, 2_970).exceeds(0.1));
    }
}
