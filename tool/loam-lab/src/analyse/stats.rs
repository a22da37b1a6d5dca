//! Medians with intervals, and ratios paired by round.
//!
//! The tables show medians, because timings have outliers on one side only. From five values on,
//! the interval is the 95 % percentile bootstrap of the median (Efron and Tibshirani, An
//! Introduction to the Bootstrap, 1993, chapter 13). Its seed is fixed, so that the same file
//! always gives the same table. Below five values a bootstrap of the median only pretends to know
//! more than the values themselves. The interval is then their range, and is called so.
//!
//! A ratio to the base is formed within a round, where both processes met the same state of the
//! machine (`Row::ratios`). The median is taken of these ratios; it is not a ratio of medians.

use serde::Serialize;

/// With this many values or more, the interval is a bootstrap.
pub const BOOTSTRAP_FROM: usize = 5;
const RESAMPLES: usize = 2000;
const CONFIDENCE: f64 = 0.95;

/// How an interval was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// A single value has no interval.
    Single,
    /// From the smallest to the largest value.
    Range,
    /// 95% bootstrap interval of the median.
    Bootstrap,
}

/// A median and its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How many values there are.
    pub count: usize,
    /// How the interval was made.
    pub method: Method,
}

impl Summary {
    /// Summarises values; none if there are no values, or if one is not a number.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high, method) = match sorted.len() {
            1 => (sorted[0], sorted[0], Method::Single),
            n if n < BOOTSTRAP_FROM => (sorted[0], sorted[n - 1], Method::Range),
            _ => {
                let (low, high) = bootstrap(&sorted);
                (low, high, Method::Bootstrap)
            }
        };
        Some(Summary {
            median: median_of_sorted(&sorted),
            low,
            high,
            count: sorted.len(),
            method,
        })
    }

    /// The summary of 1 / value: turns a ratio of times into a ratio of speeds.
    pub fn inverse(&self) -> Summary {
        Summary {
            median: 1.0 / self.median,
            low: 1.0 / self.high,
            high: 1.0 / self.low,
            ..*self
        }
    }

    /// Whether the value lies outside the interval.
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }
}

/// Half of the values are below, half above.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

fn bootstrap(sorted: &[f64]) -> (f64, f64) {
    let mut random = fastrand::Rng::with_seed(0x6c6f_616d);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut sample: Vec<f64> = (0..sorted.len())
                .map(|_| sorted[random.usize(..sorted.len())])
                .collect();
            sample.sort_by(f64::total_cmp);
            median_of_sorted(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
    (at(tail), at(1.0 - tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_give_their_range_and_many_a_bootstrap() {
        let few = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            (few.median, few.low, few.high, few.method),
            (2.0, 1.0, 3.0, Method::Range)
        );
        let many = Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 900.0]).unwrap();
        assert_eq!((many.median, many.method), (5.0, Method::Bootstrap));
        assert!(
            many.low >= 2.0 && many.high <= 8.0,
            "{many:?}: an outlier does not move a median"
        );
        assert_eq!(Summary::of(&[4.0]).unwrap().method, Method::Single);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
    }

    #[test]
    fn the_same_values_always_give_the_same_interval() {
        let values = [5.0, 3.0, 9.0, 1.0, 7.0, 2.0];
        assert_eq!(Summary::of(&values), Summary::of(&values));
    }
}
