//! Decides from several looks whether memory grows.
//!
//! A program's memory rises and falls with its work, and a look may fall anywhere in such a cycle. So the looks are
//! divided into windows, and the smallest values of the windows (their floors) are compared: a leak raises the floor.
//! The floors must rise nearly always (Kendall's tau, M. G. Kendall, "A New Measure of Rank Correlation", 1938), and
//! by enough.

use std::time::Duration;

use loam_process::glibc::Sum;

use super::Evidence;

/// The number of windows.
const WINDOWS: usize = 6;
/// Looks in a window. With few looks, a window's smallest value is chance. Chosen: if memory is at its floor half of
/// the time, one window in a thousand misses it.
const LOOKS_A_WINDOW: usize = 10;
/// Of the 15 pairs of windows, this many must rise. Chosen: by chance 13 of 15 rise in 0.8 % of all orders.
const RISING_PAIRS: usize = 13;
/// A smaller growth is no leak that a short watch can detect: in bytes, and as a share of the memory that is held.
const LEAST_BYTES: u64 = 512 << 10;
const LEAST_SHARE: f64 = 0.005;

/// One look.
#[derive(Debug, Clone, PartialEq)]
struct Look {
    at: Duration,
    live: Option<u64>,
    outside: u64,
    lengths: Vec<(u64, Sum)>,
}

/// The looks of a watch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Growth {
    looks: Vec<Look>,
}

/// The growth of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rise {
    /// Bytes from the first window's floor to the last one's.
    pub bytes: u64,
    /// Bytes per second.
    pub rate: f64,
}

impl Growth {
    /// The number of looks that suffices to judge.
    pub const ENOUGH: usize = LOOKS_A_WINDOW * WINDOWS;

    /// Adds a look at a time since the first look.
    pub fn add(&mut self, at: Duration, evidence: &Evidence) {
        let heap = evidence.heap.as_ref().ok();
        self.looks.push(Look {
            at,
            live: heap.map(|heap| heap.live),
            outside: evidence.outside_bytes(),
            lengths: heap.map_or_else(Vec::new, |heap| heap.lengths.clone()),
        });
    }

    /// The duration of the watch.
    pub fn duration(&self) -> Duration {
        self.looks.last().map_or(Duration::ZERO, |look| look.at)
    }

    /// The number of looks.
    pub fn count(&self) -> usize {
        self.looks.len()
    }

    /// Whether there are enough looks to judge.
    pub fn is_enough(&self) -> bool {
        self.looks.len() >= Growth::ENOUGH
    }

    /// The growth of live bytes.
    pub fn live(&self) -> Option<Rise> {
        let series: Option<Vec<u64>> = self.looks.iter().map(|look| look.live).collect();
        self.rise(&series?)
    }

    /// The growth of memory outside of the heap.
    pub fn outside(&self) -> Option<Rise> {
        let series: Vec<u64> = self.looks.iter().map(|look| look.outside).collect();
        self.rise(&series)
    }

    /// The sizes of blocks that grew most, with the bytes, the largest growth first.
    pub fn sizes(&self) -> Vec<(u64, u64)> {
        let (Some(first), Some(last)) = (self.looks.first(), self.looks.last()) else {
            return Vec::new();
        };
        let before = |size: u64| {
            let same = first.lengths.iter().filter(|(known, _)| *known == size);
            same.map(|(_, sum)| sum.bytes).sum::<u64>()
        };
        let grown = last
            .lengths
            .iter()
            .map(|(size, sum)| (*size, sum.bytes.saturating_sub(before(*size))));
        let mut grown: Vec<(u64, u64)> = grown.filter(|(_, bytes)| *bytes > 0).collect();
        grown.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        grown
    }

    fn rise(&self, series: &[u64]) -> Option<Rise> {
        if !self.is_enough() {
            return None;
        }
        let floors: Vec<u64> = (0..WINDOWS)
            .map(|window| {
                let from = window * series.len() / WINDOWS;
                let to = (window + 1) * series.len() / WINDOWS;
                series[from..to].iter().copied().min().unwrap_or(0)
            })
            .collect();
        let pairs =
            (0..WINDOWS).flat_map(|early| (early + 1..WINDOWS).map(move |late| (early, late)));
        let rising = pairs
            .filter(|(early, late)| floors[*late] > floors[*early])
            .count();
        let bytes = floors[WINDOWS - 1].saturating_sub(floors[0]);
        let needed = LEAST_BYTES.max((LEAST_SHARE * floors[0] as f64) as u64);
        let seconds = self.duration().as_secs_f64() * (WINDOWS - 1) as f64 / WINDOWS as f64;
        (rising >= RISING_PAIRS && bytes >= needed && seconds > 0.0).then(|| Rise {
            bytes,
            rate: bytes as f64 / seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(series: impl IntoIterator<Item = u64>) -> Growth {
        let looks = series.into_iter().enumerate().map(|(number, live)| Look {
            at: Duration::from_secs(number as u64),
            live: Some(live << 10),
            outside: 0,
            lengths: Vec::new(),
        });
        Growth {
            looks: looks.collect(),
        }
    }

    #[test]
    fn a_floor_that_rises_is_growth_and_breathing_is_not() {
        let steady = growth((0..72).map(|at| 20_000 + 100 * at)).live().unwrap();
        assert!(
            (90.0 * 1024.0..115.0 * 1024.0).contains(&steady.rate),
            "{steady:?}"
        );
        // It rises and falls by half.
        assert_eq!(
            growth((0..96).map(|at| 20_000 + 10_000 * (at % 4))).live(),
            None
        );
        // It rises and falls, and its floor rises.
        assert!(
            growth((0..96).map(|at| 20_000 + 10_000 * (at % 4) + 50 * at))
                .live()
                .is_some()
        );
        // It grows in bursts.
        assert!(growth((0..96).map(|at| 20_000 + 2000 * (at / 8)))
            .live()
            .is_some());
        // It grew once and stays.
        assert_eq!(
            growth((0..96).map(|at| 20_000 + 5000 * u64::from(at > 6))).live(),
            None
        );
        // It falls.
        assert_eq!(growth((0..96).map(|at| 90_000 - 500 * at)).live(), None);
        // There are too few looks, or the growth is too small.
        assert_eq!(growth((0..59).map(|at| 20_000 + 5000 * at)).live(), None);
        assert_eq!(growth((0..96).map(|at| 20_000 + at)).live(), None);
    }
}
