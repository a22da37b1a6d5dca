//! Rounds and their weights: for how many blocks one of a window stands.
//!
//! A round lasts from a window's begin to the next one's. The process's own time is
//!
//! ```text
//! own = all - scale * priced - measured
//! ```
//!
//! Most of what a probed call costs lies between the times that its entry and its return tell: that
//! is measured, call by call. The rest is known by its price on this machine.
//!
//! ```text
//! weight = own of the round / own of its window
//! ```

use super::followed::Clocks;

/// At least this part of a time is the process's own: less can not be told from the prices' errors.
const LEFT: f64 = 0.03;
/// In a window the process does not ask for blocks so many times more often than in others. Chosen.
const VARIES: f64 = 4.0;
/// Fewer blocks tell nothing of it.
const FEW: usize = 50;
/// By this part the prices of probes may be wrong. Measured: up to 10 % in runs of the tests.
const UNSURE: f64 = 0.1;

/// Processor time of the process in seconds, and what of it probes took by their prices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// All.
    pub all: f64,
    /// By probes, by their prices.
    pub priced: f64,
    /// By probes, as measured.
    pub measured: f64,
}

impl Spent {
    /// What was spent since.
    pub fn since(&self, before: &Spent) -> Spent {
        Spent {
            all: self.all - before.all,
            priced: self.priced - before.priced,
            measured: self.measured - before.measured,
        }
    }

    /// The process's own part, if prices are multiplied with that.
    pub fn own(&self, scale: f64) -> f64 {
        (self.all - self.probes(scale)).max(LEFT * self.all)
    }

    /// The part of the probes.
    pub fn probes(&self, scale: f64) -> f64 {
        scale * self.priced + self.measured
    }
}

/// From one window's begin to the next one's.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// When, in nanoseconds.
    pub at: u64,
    /// What had been spent.
    pub began: Spent,
    /// What had been spent when the window was closed; none: it lasts as long as the round.
    pub closed: Option<Spent>,
    /// Blocks of the window.
    pub blocks: usize,
    /// Events that were lost.
    pub lost: u64,
    /// Events before.
    pub hits: u64,
    /// The clocks at its begin.
    pub clocks: Clocks,
    /// For how many blocks one stands.
    pub weight: f64,
    /// By which part that may be wrong.
    error: f64,
    /// The process's own time, and that of the window for each block.
    own: f64,
    each: f64,
}

impl Round {
    /// Begins.
    pub fn begin(at: u64, spent: Spent, hits: u64) -> Round {
        Round {
            at,
            began: spent,
            closed: None,
            blocks: 0,
            lost: 0,
            hits,
            clocks: Clocks::default(),
            weight: 1.0,
            error: 0.0,
            own: 0.0,
            each: 0.0,
        }
    }

    /// At its end its weight is known. `usual`: the process's own time for a block of other
    /// windows.
    pub fn end(&mut self, spent: Spent, scale: f64, hits: u64, usual: f64) {
        self.own = spent.since(&self.began).own(scale);
        if let Some(closed) = self.closed {
            let window = closed.since(&self.began);
            // A window of which nothing is left was disturbed.
            let least = usual / VARIES * self.blocks as f64;
            let own = window.own(scale).max(least).max(1e-9);
            self.each = own / self.blocks.max(1) as f64;
            self.error = UNSURE * scale * window.priced / own;
            self.weight = (self.own / own).max(1.0);
        }
        // A block is seen if neither its entry nor its return was lost.
        if self.lost > 0 {
            let seen = (hits - self.hits) as f64;
            self.weight /= (seen / (seen + self.lost as f64)).max(0.01).powi(2);
        }
    }
}

/// The own time for a block, as windows before told: the one in the middle; 0: not known.
pub fn usual(rounds: &[Round]) -> f64 {
    let told = rounds
        .iter()
        .filter(|round| round.each > 0.0 && round.blocks >= FEW);
    let mut all: Vec<f64> = told.map(|round| round.each).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// What came and lives, as the blocks of windows tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Bytes.
    pub bytes: f64,
    /// Twice their standard error, and what the prices of probes may be wrong by.
    pub error: f64,
    /// Blocks of windows that live.
    pub blocks: usize,
}

/// What blocks stand for: the round and the bytes of each.
pub fn estimate(rounds: &[Round], blocks: impl Iterator<Item = (usize, u64)>) -> Estimate {
    let mut found = vec![0.0; rounds.len()];
    let (mut variance, mut count) = (0.0, 0);
    for (round, size) in blocks {
        let weight = rounds[round].weight;
        let bytes = weight * size as f64;
        found[round] += bytes;
        variance += bytes * bytes * (1.0 - 1.0 / weight);
        count += 1;
    }
    let bytes: f64 = found.iter().sum();
    let own: f64 = rounds.iter().map(|round| round.own).sum();
    let each = || rounds.iter().zip(&found);
    let is_partial = |round: &Round| round.weight > 1.0;
    // Blocks of a window are not drawn one by one. If rounds differ more than such draws would,
    // that counts.
    if rounds.len() > 2 && own > 0.0 {
        let between: f64 = each()
            .filter(|(round, _)| is_partial(round))
            .map(|(round, found)| (found - bytes * round.own / own).powi(2))
            .sum();
        let rounds = rounds.len() as f64;
        variance = f64::max(variance, between * rounds / (rounds - 1.0));
    }
    // Prices err in the same direction in all rounds.
    let of_prices: f64 = each().map(|(round, found)| round.error * found).sum();
    Estimate {
        bytes,
        error: 2.0 * variance.sqrt() + of_prices,
        blocks: count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(all: f64, priced: f64) -> Spent {
        Spent {
            all,
            priced,
            measured: 0.0,
        }
    }

    #[test]
    fn a_block_stands_for_the_rounds_own_time_by_that_of_the_window() {
        let mut round = Round::begin(0, spent(1.0, 0.0), 0);
        // A window of 30 ms, of which probes took 20.
        round.closed = Some(spent(1.03, 0.02));
        round.end(spent(2.02, 0.02), 1.0, 100, 0.0);
        assert!((round.weight - 100.0).abs() < 1e-6, "{round:?}");
        // A block in ten was lost, entries and returns alike.
        round.lost = 10;
        round.end(spent(2.02, 0.02), 1.0, 90, 0.0);
        assert!((round.weight - 100.0 / 0.81).abs() < 1e-6, "{round:?}");
        // A window that lasts as long as its round has all blocks.
        let mut whole = Round::begin(0, spent(0.0, 0.0), 0);
        whole.end(spent(1.0, 0.5), 1.0, 10, 0.0);
        assert_eq!(whole.weight, 1.0);
    }

    #[test]
    fn a_sum_has_the_error_of_its_blocks_and_of_its_rounds() {
        let mut rounds = Vec::new();
        for number in 0..4 {
            let begin = f64::from(number);
            let mut round = Round::begin(0, spent(begin, 0.0), 0);
            round.closed = Some(spent(begin + 0.1, 0.0));
            round.end(spent(begin + 1.0, 0.0), 1.0, 10, 0.0);
            rounds.push(round);
        }
        let one = |round: usize, count: usize| std::iter::repeat_n((round, 100), count);
        let even = estimate(&rounds, (0..4).flat_map(|round| one(round, 5)));
        assert!((even.bytes - 20_000.0).abs() < 1e-6, "{even:?}");
        let drawn = 2.0 * (20.0 * 1000.0f64.powi(2) * 0.9).sqrt();
        assert!((even.error - drawn).abs() < 1e-6, "{even:?} {drawn}");
        // All in one round: a burst, which says less.
        let burst = estimate(&rounds, one(1, 20));
        assert!((burst.bytes - even.bytes).abs() < 1e-6 && burst.error > 3.0 * even.error);
        let exact = [Round::begin(0, spent(0.0, 0.0), 0)];
        assert_eq!(estimate(&exact, one(0, 3)).error, 0.0);
    }
}
