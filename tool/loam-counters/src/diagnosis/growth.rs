//! Decides from several looks whether memory grows.
//!
//! A program's memory rises and falls with its work, and a look may fall anywhere in such a cycle.
//! So the looks are divided into windows, and the smallest values of the windows (their floors) are
//! compared: a leak raises the floor. The floors must rise nearly always (Kendall's tau, M. G.
//! Kendall, "A New Measure of Rank Correlation", 1938), and by enough. A cache, a pool or a
//! run-time's heap that fills rises too, and slows down: so the second half of a rise is compared
//! with the first one.

use std::ops::Range;
use std::time::Duration;

use loam_process::glibc::Sum;

use super::Evidence;

/// The number of windows.
const WINDOWS: usize = 6;
/// Looks in a window. With few looks, a window's smallest value is chance. Chosen: if memory is at
/// its floor half of the time, one window in a thousand misses it.
const LOOKS_A_WINDOW: usize = 10;
/// Of the 15 pairs of windows, this many must rise. Chosen: by chance 13 of 15 rise in 0.8 % of all
/// orders.
const RISING_PAIRS: usize = 13;
/// A smaller growth is no leak that a short watch can detect: in bytes, and as a share of the
/// memory that is held.
const LEAST_BYTES: u64 = 512 << 10;
const LEAST_SHARE: f64 = 0.005;
/// A rise of less says nothing at all.
const FAINT_BYTES: u64 = 128 << 10;

/// One look.
#[derive(Debug, Clone, PartialEq)]
struct Look {
    at: Duration,
    live: Option<u64>,
    /// Whole free pages that the heap keeps.
    kept: Option<u64>,
    outside: u64,
    own: u64,
    common: u64,
    stacks: u64,
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
    /// Whether the second half of it is much less than the first.
    pub slows_down: bool,
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
            kept: heap.map(|heap| heap.trim.own()),
            outside: evidence.own_outside(),
            own: evidence.own_anonymous(),
            common: evidence.common,
            stacks: evidence.stacks_without_thread,
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

    /// The growth of memory outside of the heap that only this process can give back.
    pub fn outside(&self) -> Option<Rise> {
        self.rise(&self.series(|look| look.outside))
    }

    /// The growth of copies: memory that other processes had too, and of which this one now has its
    /// own.
    pub fn copies(&self) -> Option<Rise> {
        let rise = self.rise(&self.series(|look| look.own))?;
        let (first, last) = (self.looks.first()?, self.looks.last()?);
        let fallen = first.common.saturating_sub(last.common);
        (fallen >= rise.bytes / 2).then_some(rise)
    }

    /// How many stacks without a thread there are now, and how many more than at first.
    pub fn stacks_without_thread(&self) -> (u64, u64) {
        let at = |look: Option<&Look>| look.map_or(0, |look| look.stacks);
        let now = at(self.looks.last());
        (now, now.saturating_sub(at(self.looks.first())))
    }

    /// The fewest bytes of whole free pages that the heap kept at any time after it kept `many` of
    /// them. None if it never did, or where that is not known.
    pub fn least_kept_after(&self, many: impl Fn(u64) -> bool) -> Option<u64> {
        let kept: Option<Vec<u64>> = self.looks.iter().map(|look| look.kept).collect();
        kept?.into_iter().skip_while(|kept| !many(*kept)).min()
    }

    /// What must rise in the time of the watch to be seen, in bytes a second.
    pub fn least_rate(&self) -> f64 {
        let live = self.looks.first().and_then(|look| look.live).unwrap_or(0);
        needed(live) as f64 / self.risen_in().max(1.0)
    }

    /// A rise of live bytes that is too small to be sure, in bytes a second.
    pub fn faint(&self) -> Option<f64> {
        let series: Option<Vec<u64>> = self.looks.iter().map(|look| look.live).collect();
        let series = series?;
        let floors = self.floors(&series)?;
        let bytes = floors[WINDOWS - 1].saturating_sub(floors[0]);
        let is_faint = rising_pairs(&floors) >= RISING_PAIRS
            && !self.slows_down(&series)
            && bytes < needed(floors[0])
            && bytes >= FAINT_BYTES.max(needed(floors[0]) / 4);
        is_faint.then(|| bytes as f64 / self.risen_in().max(1.0))
    }

    fn series(&self, figure: impl Fn(&Look) -> u64) -> Vec<u64> {
        self.looks.iter().map(figure).collect()
    }

    /// Seconds from the first window to the last one.
    fn risen_in(&self) -> f64 {
        self.duration().as_secs_f64() * (WINDOWS - 1) as f64 / WINDOWS as f64
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

    fn floors(&self, series: &[u64]) -> Option<Vec<u64>> {
        self.is_enough().then(|| floors(series, WINDOWS))
    }

    /// Whether the second half of a rise is less than a third as fast as the first, with all steps
    /// or without the largest one of each half: a hash table that fills grows by one large step now
    /// and then. Chosen: a third. What comes in bursts differs by less. Looks come more often on a
    /// machine that is less busy, so both halves are compared by their rates.
    fn slows_down(&self, series: &[u64]) -> bool {
        const PIECES: usize = 2 * WINDOWS;
        let floors = floors(series, PIECES);
        let begins = |piece: usize| {
            self.looks[piece * self.looks.len() / PIECES]
                .at
                .as_secs_f64()
        };
        let steps = |pieces: Range<usize>| {
            let step = |piece: usize| {
                let rise = floors[piece + 1].saturating_sub(floors[piece]);
                (rise, begins(piece + 1) - begins(piece))
            };
            let mut steps: Vec<(u64, f64)> = pieces.map(step).collect();
            steps.sort_by_key(|(rise, _)| *rise);
            steps
        };
        let rate = |steps: &[(u64, f64)]| {
            let seconds: f64 = steps.iter().map(|(_, seconds)| seconds).sum();
            let rise: u64 = steps.iter().map(|(rise, _)| rise).sum();
            rise as f64 / seconds.max(f64::EPSILON)
        };
        let (first, second) = (steps(0..WINDOWS - 1), steps(WINDOWS..PIECES - 1));
        let is_less = |count: usize| rate(&second[..count]) < rate(&first[..count]) / 3.0;
        is_less(first.len()) || is_less(first.len() - 1)
    }

    fn rise(&self, series: &[u64]) -> Option<Rise> {
        let floors = self.floors(series)?;
        let bytes = floors[WINDOWS - 1].saturating_sub(floors[0]);
        let seconds = self.risen_in();
        let is_growth = rising_pairs(&floors) >= RISING_PAIRS && bytes >= needed(floors[0]);
        (is_growth && seconds > 0.0).then(|| Rise {
            bytes,
            rate: bytes as f64 / seconds,
            slows_down: self.slows_down(series),
        })
    }
}

/// What must rise to be growth, of so many bytes.
fn needed(bytes: u64) -> u64 {
    LEAST_BYTES.max((LEAST_SHARE * bytes as f64) as u64)
}

fn rising_pairs(floors: &[u64]) -> usize {
    let pairs = (0..WINDOWS).flat_map(|early| (early + 1..WINDOWS).map(move |late| (early, late)));
    pairs
        .filter(|(early, late)| floors[*late] > floors[*early])
        .count()
}

/// The smallest value of each window.
fn floors(series: &[u64], windows: usize) -> Vec<u64> {
    let floor = |window: usize| {
        let from = window * series.len() / windows;
        let to = (window + 1) * series.len() / windows;
        series[from..to].iter().copied().min().unwrap_or(0)
    };
    (0..windows).map(floor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(series: impl IntoIterator<Item = u64>) -> Growth {
        let looks = series.into_iter().enumerate().map(|(number, live)| Look {
            at: Duration::from_secs(number as u64),
            live: Some(live << 10),
            kept: None,
            outside: 0,
            own: 0,
            common: 0,
            stacks: 0,
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
        // It fills up: an exponential that has nearly reached its bound.
        let filling = |at: u64| 20_000 + (8_000.0 * (1.0 - (-(at as f64) / 15.0).exp())) as u64;
        assert!(growth((0..96).map(filling)).live().unwrap().slows_down);
        assert!(!steady.slows_down);
        // It fills up, and its table grows by a large step meanwhile.
        let table = |at: u64| filling(at) + 3000 * u64::from(at > 55);
        assert!(growth((0..96).map(table)).live().unwrap().slows_down);
        // It fills at once, and then rises by a little that is no more than before.
        let full = |at: u64| 20_000 + 8000 * at.min(6) / 6 + 3 * at;
        assert!(growth((0..96).map(full)).live().unwrap().slows_down);
        // Bursts that come every two seconds or so, of a watch of twelve.
        for first in 0..17 {
            let bursts = growth((0..96).map(|at| 20_000 + 2000 * ((at + first) / 17)));
            assert!(!bursts.live().unwrap().slows_down, "{first}");
        }
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

    #[test]
    fn a_rise_that_is_too_small_to_be_sure_is_told_as_such() {
        // 412 MiB, and 58 KiB a second: 5 GB a day, in 30 s.
        let faint = growth((0..72).map(|at| 412 * 1024 + 58 * at / 3));
        assert_eq!(faint.live(), None);
        let rate = faint.faint().unwrap() * 3.0 / 1024.0;
        assert!((50.0..62.0).contains(&rate), "{rate}");
        assert!(faint.least_rate() > faint.faint().unwrap());
        assert_eq!(growth((0..72).map(|_| 412 * 1024)).faint(), None);
    }

    #[test]
    fn a_steady_rise_does_not_slow_down_where_looks_become_more_frequent() {
        let mut watch = growth(std::iter::repeat_n(1000, 72));
        let mut at = 0;
        for (number, look) in watch.looks.iter_mut().enumerate() {
            at += if number < 36 { 8 } else { 1 };
            look.at = Duration::from_secs(at);
            look.own = (80 << 20) + (at << 20);
            look.common = (500 << 20) - (at << 20);
        }
        assert!(watch.copies().is_some_and(|rise| !rise.slows_down));
    }

    #[test]
    fn copies_are_own_memory_that_was_common_before() {
        let worker = |falls: u64| {
            let mut watch = growth((0..72).map(|_| 1000));
            for (at, look) in watch.looks.iter_mut().enumerate() {
                let at = at as u64;
                (look.own, look.common) =
                    ((80 << 20) + (at << 20), (90 << 20) - falls * (at << 20));
            }
            watch.copies()
        };
        assert!(worker(1).is_some());
        assert_eq!(worker(0), None, "it grows by memory that nobody shared");
    }
}
