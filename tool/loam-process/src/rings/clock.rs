//! From stamps to time. The processor's counter ticks at a rate that follows from the pairs of
//! (stamp, `CLOCK_MONOTONIC`) in the rings; the rate becomes more exact with every second.

/// A shorter distance of two pairs says too little, because a pair is off by some ten nanoseconds.
const TELLING: u64 = 20_000;

/// The error of two roundings in ticks.
const MARGIN: i64 = 2;

/// The clock of a machine.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// When the recording began, by `CLOCK_MONOTONIC`.
    began: u64,
    first: Option<(u64, u64)>,
    /// The latest pair; times are computed from it.
    anchor: (u64, u64),
    /// Nanoseconds of a tick.
    rate: f64,
}

impl Clock {
    /// A clock for a recording that began at that time. `guess` is ticks a second, until a better
    /// rate is known.
    pub fn new(began: u64, guess: f64) -> Clock {
        Clock {
            began,
            first: None,
            anchor: (0, began),
            rate: 1e9 / guess.max(1.0),
        }
    }

    /// One moment by both clocks.
    pub fn pair(&mut self, stamp: u64, monotonic: u64) {
        let Some((first_stamp, first_time)) = self.first else {
            self.first = Some((stamp, monotonic));
            self.anchor = (stamp, monotonic);
            return;
        };
        if monotonic <= self.anchor.1 || stamp <= self.anchor.0 {
            return;
        }
        self.anchor = (stamp, monotonic);
        if monotonic > first_time + TELLING && stamp > first_stamp {
            self.rate = (monotonic - first_time) as f64 / (stamp - first_stamp) as f64;
        }
    }

    /// The processor tells its rate itself.
    pub fn says(&mut self, ticks_per_second: u64) {
        if ticks_per_second != 0 && self.first.is_none() {
            self.rate = 1e9 / ticks_per_second as f64;
        }
    }

    /// Nanoseconds since the recording began.
    pub fn time(&self, stamp: u64) -> u64 {
        let ticks = stamp.wrapping_sub(self.anchor.0) as i64;
        let time = self.anchor.1 as i64 + (ticks as f64 * self.rate) as i64;
        (time - self.began as i64).max(0) as u64
    }

    /// A stamp shortly before that time: no event from then on has an earlier one.
    pub fn stamp(&self, time: u64) -> u64 {
        let from_anchor = (self.began + time) as i64 - self.anchor.1 as i64;
        let ticks = (from_anchor as f64 / self.rate) as i64;
        self.anchor.0.saturating_add_signed(ticks - MARGIN)
    }

    /// Ticks a second, as far as they are known.
    pub fn ticks_per_second(&self) -> u64 {
        (1e9 / self.rate).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_shows_in_the_pairs() {
        let mut clock = Clock::new(1_000, 1e9);
        clock.pair(5_000_000, 2_000);
        clock.pair(5_000_010, 2_005); // too near to tell
        assert_eq!(clock.ticks_per_second(), 1_000_000_000);
        clock.pair(5_000_000 + 3_000_000, 1_002_000);
        assert_eq!(clock.ticks_per_second(), 3_000_000_000);
        assert_eq!(clock.time(8_000_000), 1_001_000);
        assert_eq!(clock.time(8_000_300), 1_001_100);
        // Before the anchor, and before the recording.
        assert_eq!(clock.time(5_000_000), 1_000);
        assert_eq!(clock.time(0), 0);
    }

    #[test]
    fn a_stamp_is_told_before_its_time() {
        let mut clock = Clock::new(1_000, 2e9);
        clock.pair(5_000_000, 2_000);
        clock.pair(5_000_000 + 2_900_000, 1_002_000);
        for time in [0, 1_024, 999_424, 5_000_192] {
            let stamp = clock.stamp(time);
            assert!(clock.time(stamp.saturating_sub(1)) <= time, "{time}");
            assert!(clock.time(stamp + 20) > time, "{time}");
        }
    }

    #[test]
    fn a_pair_that_goes_back_changes_nothing() {
        let mut clock = Clock::new(0, 2e9);
        clock.pair(1_000_000, 1_000_000);
        clock.pair(3_000_000, 2_000_000);
        let before = clock.time(3_000_000);
        clock.pair(2_000_000, 1_900_000);
        assert_eq!(clock.time(3_000_000), before);
    }
}
