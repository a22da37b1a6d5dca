//! What a trim takes out of the spans of a Loam heap, estimated from its counters.
//!
//! Loam's trim gives back each page of a span that no used slot touches. The counters tell of a
//! class how many spans lie in each eighth of use, how many slots are free in all of them, and how
//! many spans are empty. They do not tell which slots are used. So the used slots count as drawn at
//! random, among all ways that have these numbers:
//!
//! ```text
//! spans with u of N slots used, in one eighth    ~ C(N, u) * q^u      q: the same in all eighths,
//!                                                      so that the sum of free slots is exact
//! all n slots that touch a page are free         C(N - n, u) / C(N, u)
//! ```
//!
//! A trim first takes blocks out of the queues between threads. Their slots count as free, evenly
//! in all spans; but no span that has free slots becomes empty by that. Blocks that are freed
//! together often lie together. Then more pages are free as a whole than this says. Mixed spans are
//! left out.

use std::ops::RangeInclusive;

use loam_format::counters::ids;

use crate::snapshot::{ClassFigures, Snapshot};

const PAGE: u64 = 4096;
/// More pages and slots than a span of any library has. The class of damaged counters is left out.
const MOST_PAGES: u64 = 1024;
const MOST_SLOTS: u64 = 4096;
/// Halvings of the range of q. Then the sum of free slots is off by less than one in 10,000.
const HALVINGS: u32 = 24;

/// The part of a trim that is inside of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct InSpans {
    pub bytes: f64,
    /// Calls of the system, one for each stretch of pages.
    pub calls: f64,
    /// Spans at which the trim looks.
    pub spans: f64,
}

/// Of all heaps of the process.
pub fn of(snapshot: &Snapshot) -> InSpans {
    // A trim empties the cache of the thread that calls it. If there are several, that is little,
    // and which one calls is not known.
    let is_alone = snapshot.process.whole(ids::THREADS) <= 1;
    let classes = snapshot.heaps.iter().flat_map(|heap| &heap.classes);
    let sum = classes.fold(InSpans::default(), |sum, class| {
        let here = of_class(class, is_alone);
        InSpans {
            bytes: sum.bytes + here.bytes,
            calls: sum.calls + here.calls,
            spans: sum.spans + here.spans,
        }
    });
    InSpans {
        bytes: sum.bytes.max(0.0),
        calls: sum.calls.max(0.0),
        ..sum
    }
}

/// Below zero where the class has given back more pages than the average says. Only the sum of all
/// classes is cut at zero: a cut of each would make it too large.
fn of_class(class: &ClassFigures, is_alone: bool) -> InSpans {
    let length = class.block_bytes;
    let Some(chances) = Chances::of(class) else {
        return InSpans::default();
    };
    // Slots of blocks in a cache are used, until the cache gives them back.
    let blocks = |id| class.values.whole(id) as f64;
    let cached = blocks(ids::CLASS_CACHED_BLOCKS);
    let out = cached + blocks(ids::CLASS_LIVE_BLOCKS);
    let given = match is_alone {
        true => cached,
        false => blocks(ids::CLASS_QUEUED_BLOCKS),
    };
    let stays = 1.0 - (given / out.max(1.0)).min(1.0);
    let Some((full, partly)) = class.occupancy.split_last() else {
        return InSpans::default();
    };
    let empty = class.empty_spans.min(partly.first().copied().unwrap_or(0));
    let eighths = eighths_of(class.span_slots, partly, empty);
    let free = blocks(ids::CLASS_FREE_BLOCKS) - empty as f64 * class.span_slots as f64;
    let tilt = chances.tilt_for(&eighths, free);
    let staying = |used: u64| used as f64 * stays;
    // Blocks that wait were freed last, and most of them lie in full spans. The last used slot of
    // another span is hardly one of them.
    let in_part = |used: u64| chances.idle_pages(staying(used).max(used.min(1) as f64));
    let part = |eighth: &Eighth| eighth.spans * chances.mean(eighth, tilt, in_part);
    let pages = eighths.iter().map(part).sum::<f64>()
        + *full as f64 * chances.idle_pages(staying(class.span_slots))
        + empty as f64 * class.span_pages as f64;
    let gone = blocks(ids::CLASS_UNBACKED_BYTES);
    let bytes = pages * PAGE as f64 - gone;
    // Neighbours go in one call: a page, or the pages of a slot, begins a call if those before it
    // do not go.
    let unit = PAGE.max(length / PAGE * PAGE);
    let spans: f64 = class.occupancy.iter().map(|spans| *spans as f64).sum();
    let all = spans * class.span_pages as f64;
    InSpans {
        bytes,
        calls: bytes / unit as f64 * (1.0 - pages / all.max(1.0)).max(0.0),
        spans,
    }
}

/// Spans of one eighth.
#[derive(Debug)]
struct Eighth {
    spans: f64,
    /// The numbers of used slots that these spans can have.
    used: RangeInclusive<u64>,
}

/// The eighths that have spans, without `empty` spans. In the eighth of a few used slots no other
/// span is empty.
fn eighths_of(slots: u64, partly: &[u64], empty: u64) -> Vec<Eighth> {
    let count = partly.len() as u64;
    // A span lies in the eighth used * count / slots, rounded down.
    let first = |eighth: u64| (eighth * slots).div_ceil(count);
    let eighth = |(eighth, spans): (u64, &u64)| {
        let used = first(eighth)..=first(eighth + 1).saturating_sub(1);
        match eighth {
            0 => Eighth {
                spans: spans.saturating_sub(empty) as f64,
                used: 1.min(*used.end())..=*used.end(),
            },
            _ => Eighth {
                spans: *spans as f64,
                used,
            },
        }
    };
    let eighths = (0..count).zip(partly).map(eighth);
    eighths
        .filter(|eighth| eighth.spans > 0.0 && !eighth.used.is_empty())
        .collect()
}

/// The chances of a class's spans.
#[derive(Debug)]
struct Chances {
    slots: u64,
    /// The logarithms of factorials, up to that of the slots.
    factorials: Vec<f64>,
    /// How many pages so many slots touch.
    touched: Vec<(u64, f64)>,
}

impl Chances {
    /// None for figures that no library has.
    fn of(class: &ClassFigures) -> Option<Chances> {
        let (slots, length) = (class.span_slots, class.block_bytes);
        let is_possible = (1..=MOST_SLOTS).contains(&slots) && class.span_pages <= MOST_PAGES;
        if !is_possible || length == 0 {
            return None;
        }
        let mut touched: Vec<(u64, f64)> = Vec::new();
        for page in 0..class.span_pages {
            let first = page * PAGE / length;
            let end = (((page + 1) * PAGE - 1) / length + 1).min(slots);
            let touching = end.saturating_sub(first);
            match touched.iter_mut().find(|(known, _)| *known == touching) {
                Some((_, pages)) => *pages += 1.0,
                None => touched.push((touching, 1.0)),
            }
        }
        let sum = |sum: &mut f64, n: u64| {
            *sum += (n.max(1) as f64).ln();
            Some(*sum)
        };
        Some(Chances {
            slots,
            factorials: (0..=slots).scan(0.0, sum).collect(),
            touched,
        })
    }

    /// The logarithm of the number of ways to choose.
    fn ways(&self, of: u64, chosen: u64) -> f64 {
        let factorial = |n: u64| self.factorials[n as usize];
        factorial(of) - factorial(chosen) - factorial(of - chosen)
    }

    /// The pages of a span that no used slot touches, on average. Between two whole numbers of used
    /// slots the average lies between theirs.
    fn idle_pages(&self, used: f64) -> f64 {
        let at = |used: u64| -> f64 {
            let idle = |(touching, pages): &(u64, f64)| match self.slots - touching {
                rest if rest < used => 0.0,
                rest => pages * (self.ways(rest, used) - self.ways(self.slots, used)).exp(),
            };
            self.touched.iter().map(idle).sum()
        };
        let (below, part) = (used.floor(), used.fract());
        match below as u64 {
            below if part > 0.0 => at(below) * (1.0 - part) + at(below + 1) * part,
            below => at(below),
        }
    }

    /// The average of a figure over the spans of an eighth.
    fn mean(&self, eighth: &Eighth, tilt: f64, figure: impl Fn(u64) -> f64) -> f64 {
        let logarithm = |used: u64| self.ways(self.slots, used) + tilt * used as f64;
        let most = eighth.used.clone().map(logarithm).fold(f64::MIN, f64::max);
        let add = |(sum, all): (f64, f64), used: u64| {
            let weight = (logarithm(used) - most).exp();
            (sum + weight * figure(used), all + weight)
        };
        let (sum, all) = eighth.used.clone().fold((0.0, 0.0), add);
        sum / all
    }

    /// The logarithm of q with which so many slots are free in these spans.
    fn tilt_for(&self, eighths: &[Eighth], free: f64) -> f64 {
        // More than that of one used slot of all, or of all but one.
        let most = 2.0 * (self.slots as f64 + 1.0).ln();
        let (mut low, mut high) = (-most, most);
        for _ in 0..HALVINGS {
            let tilt = (low + high) / 2.0;
            let slots = self.slots as f64;
            let in_eighth = |eighth: &Eighth| {
                eighth.spans * (slots - self.mean(eighth, tilt, |used| used as f64))
            };
            // The higher the tilt, the more is used.
            match eighths.iter().map(in_eighth).sum::<f64>() > free {
                true => low = tilt,
                false => high = tilt,
            }
        }
        (low + high) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(length: u64, pages: u64, slots: u64, occupancy: [u64; 9], free: u64) -> ClassFigures {
        let mut class = ClassFigures {
            block_bytes: length,
            span_pages: pages,
            span_slots: slots,
            occupancy: occupancy.to_vec(),
            ..ClassFigures::default()
        };
        let spans: u64 = occupancy.iter().sum();
        let used = spans * slots - free;
        class.values.set(ids::CLASS_FREE_BLOCKS, free);
        class.values.set(ids::CLASS_LIVE_BLOCKS, used);
        class
    }

    fn idle_pages(length: u64, slots: u64, pages: u64, used: f64) -> f64 {
        let class = class(length, pages, slots, [0; 9], 0);
        Chances::of(&class).unwrap().idle_pages(used)
    }

    fn pages_of(class: &ClassFigures, is_alone: bool) -> f64 {
        of_class(class, is_alone).bytes / PAGE as f64
    }

    #[test]
    fn a_page_is_idle_if_all_slots_that_touch_it_are_free() {
        // Four slots of a page each, of which one is used.
        assert!((idle_pages(4096, 4, 4, 1.0) - 3.0).abs() < 1e-9);
        // Of another slot a half is used on average.
        assert!((idle_pages(4096, 4, 4, 1.5) - 2.5).abs() < 1e-9);
        // Two slots of 6 KiB in three pages: the middle page needs both.
        assert!((idle_pages(6144, 2, 3, 1.0) - 1.0).abs() < 1e-9);
        assert!((idle_pages(6144, 2, 3, 0.0) - 3.0).abs() < 1e-9);
        // 64 slots touch the page, and one of them is used.
        assert!(idle_pages(64, 64, 1, 1.0).abs() < 1e-9);
        // Pages behind the last slot are idle in any case.
        assert!((idle_pages(4096, 1, 2, 1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_span_of_few_slots_has_the_number_that_its_eighth_allows() {
        // Of four slots, in eighths of their use: none, 1, 2, 3 and all used.
        let few = class(4096, 4, 4, [1, 0, 10, 0, 10, 0, 10, 0, 7], 4 + 30 + 20 + 10);
        assert!((pages_of(&few, false) - 64.0).abs() < 1e-6);
    }

    #[test]
    fn free_slots_are_as_many_as_are_told() {
        // 9 slots touch each page of such a span; two thirds of the first eighth have 2 used slots,
        // or most have 4.
        let told = |free| {
            pages_of(
                &class(496, 4, 33, [100, 0, 0, 0, 0, 0, 0, 0, 0], free),
                false,
            )
        };
        let (lighter, fuller) = (told(3200), told(2900));
        assert!(idle_pages(496, 33, 4, 1.0) * 100.0 > lighter && lighter > fuller);
        let all_have_4 = idle_pages(496, 33, 4, 4.0) * 100.0;
        assert!(
            (told(2900) - all_have_4).abs() < 0.001 * all_have_4,
            "{fuller}"
        );
    }

    #[test]
    fn empty_spans_go_as_a_whole() {
        let mut some = class(64, 4, 256, [3, 0, 0, 0, 0, 0, 0, 0, 1], 2 * 256 + 240);
        some.empty_spans = 2;
        let pages = pages_of(&some, false);
        assert!((8.0..9.0).contains(&pages), "{pages}");
        // More than there are.
        some.empty_spans = u64::MAX;
        assert!((pages_of(&some, false) - 12.0).abs() < 1e-6);
    }

    #[test]
    fn figures_that_no_library_has_end_and_give_nothing() {
        let most = ClassFigures {
            block_bytes: 1,
            span_pages: u64::MAX,
            span_slots: u64::MAX,
            occupancy: vec![u64::MAX; 9],
            ..ClassFigures::default()
        };
        assert_eq!(of_class(&most, true), InSpans::default());
        let long = ClassFigures {
            span_pages: MOST_PAGES,
            span_slots: MOST_SLOTS,
            ..most
        };
        assert!(of_class(&long, true).bytes.is_finite());
        let without_eighths = ClassFigures {
            occupancy: vec![u64::MAX],
            ..long.clone()
        };
        assert!(of_class(&without_eighths, true).bytes.is_finite());
        for count in 1..12 {
            let odd = ClassFigures {
                span_slots: 1,
                occupancy: vec![u64::MAX; count],
                ..long.clone()
            };
            assert!(of_class(&odd, false).bytes.is_finite());
        }
    }

    #[test]
    fn what_the_trim_frees_first_counts_and_what_is_purged_does_not() {
        let class = |cached: u64, queued: u64, unbacked: u64| {
            let mut class = class(4096, 4, 4, [0, 0, 0, 0, 0, 0, 0, 0, 100], 0);
            class.values.set(ids::CLASS_CACHED_BLOCKS, cached);
            class.values.set(ids::CLASS_QUEUED_BLOCKS, queued);
            class.values.set(ids::CLASS_LIVE_BLOCKS, 400 - cached);
            class.values.set(ids::CLASS_UNBACKED_BYTES, unbacked);
            class
        };
        assert!(pages_of(&class(0, 0, 0), true).abs() < 1e-6);
        assert!((pages_of(&class(40, 0, 0), true) - 40.0).abs() < 1e-6);
        assert!(pages_of(&class(40, 0, 0), false).abs() < 1e-6);
        assert!((pages_of(&class(40, 10, 0), false) - 10.0).abs() < 1e-6);
        assert!((pages_of(&class(40, 10, 0), true) - 40.0).abs() < 1e-6);
        assert!((pages_of(&class(40, 0, 8 * 4096), true) - 32.0).abs() < 1e-6);
    }
}
