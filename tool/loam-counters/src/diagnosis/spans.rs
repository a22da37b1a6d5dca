//! What a trim takes out of the spans of a Loam heap, estimated from its counters.
//!
//! Loam's trim gives back each page of a span that no used slot touches. The counters tell how full the spans of a
//! class are, in eighths, and not which of their slots are used. So the free slots of a span count as drawn at random:
//! all `n` slots that touch a page are free with the probability
//!
//! ```text
//! F/N * (F-1)/(N-1) * ... * (F-n+1)/(N-n+1)      F free slots of the N slots of a span
//! ```
//!
//! Blocks that are freed together often lie together. Then more pages are free as a whole than this says. Mixed spans
//! are left out.

use loam_format::counters::ids;

use crate::snapshot::{ClassFigures, Snapshot};

const PAGE: u64 = 4096;
/// More pages than a span of any library has. The class of damaged counters is left out.
const MOST_PAGES: u64 = 1024;

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
    // A trim empties the cache of the thread that calls it. If there are several, that is little, and which one calls is
    // not known.
    let is_alone = snapshot.process.whole(ids::THREADS) <= 1;
    let classes = snapshot.heaps.iter().flat_map(|heap| &heap.classes);
    classes.fold(InSpans::default(), |sum, class| {
        let here = of_class(class, is_alone);
        InSpans {
            bytes: sum.bytes + here.bytes,
            calls: sum.calls + here.calls,
            spans: sum.spans + here.spans,
        }
    })
}

fn of_class(class: &ClassFigures, is_alone: bool) -> InSpans {
    let (slots, length) = (class.span_slots, class.block_bytes);
    if slots == 0 || length == 0 || class.span_pages > MOST_PAGES {
        return InSpans::default();
    }
    // Slots of blocks in a cache are used, until the cache gives them back.
    let cached = class.values.whole(ids::CLASS_CACHED_BLOCKS);
    let out = cached as f64 + class.values.whole(ids::CLASS_LIVE_BLOCKS) as f64;
    let returned = if is_alone && out > 0.0 {
        cached as f64 / out
    } else {
        0.0
    };
    let Some((full, partly)) = class.occupancy.split_last() else {
        return InSpans::default();
    };
    let step = slots as f64 / partly.len() as f64;
    // In the middle of its eighth. With few slots an eighth holds one number of them; a span in use has a used one.
    let used = |eighth: usize| match eighth as f64 {
        eighth if step < 2.0 => (eighth * step).ceil().max(1.0),
        eighth => (eighth + 0.5) * step,
    };
    let idle = |used: f64| {
        idle_pages(
            length,
            slots,
            class.span_pages,
            slots as f64 - used * (1.0 - returned),
        )
    };
    let eighths = partly.iter().enumerate();
    let pages: f64 = eighths
        .map(|(eighth, spans)| (*spans, used(eighth)))
        .chain([(*full, slots as f64)])
        .filter(|(spans, _)| *spans > 0)
        .map(|(spans, used)| spans as f64 * idle(used))
        .sum();
    let gone = class.values.whole(ids::CLASS_UNBACKED_BYTES) as f64;
    let bytes = (pages * PAGE as f64 - gone).max(0.0);
    // Neighbours go in one call: a page, or the pages of a slot, begins a call if those before it do not go.
    let unit = PAGE.max(length / PAGE * PAGE);
    let spans: f64 = class.occupancy.iter().map(|spans| *spans as f64).sum();
    let all = spans * class.span_pages as f64;
    InSpans {
        bytes,
        calls: bytes / unit as f64 * (1.0 - pages / all.max(1.0)).max(0.0),
        spans,
    }
}

/// The pages of a span that no used slot touches, on average.
fn idle_pages(length: u64, slots: u64, pages: u64, free: f64) -> f64 {
    // Nearly all pages have the same number of slots.
    let mut last = (0, 1.0);
    let idle = |page: u64| {
        let first = page * PAGE / length;
        let end = (((page + 1) * PAGE - 1) / length + 1).min(slots);
        let touching = end.saturating_sub(first);
        if touching != last.0 {
            let chance = (0..touching).fold(1.0, |chance, n| {
                chance * (free - n as f64).max(0.0) / (slots - n) as f64
            });
            last = (touching, chance);
        }
        last.1
    };
    (0..pages).map(idle).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_idle_if_all_slots_that_touch_it_are_free() {
        // Four slots of a page each, of which one is used.
        assert!((idle_pages(4096, 4, 4, 3.0) - 3.0).abs() < 1e-9);
        // Two slots of 6 KiB in three pages: the middle page needs both.
        assert!((idle_pages(6144, 2, 3, 1.0) - 1.0).abs() < 1e-9);
        assert!((idle_pages(6144, 2, 3, 2.0) - 3.0).abs() < 1e-9);
        // 64 slots touch the page, and one of them is used.
        assert!(idle_pages(64, 64, 1, 63.0).abs() < 1e-9);
        // Pages behind the last slot are idle in any case.
        assert!((idle_pages(4096, 1, 2, 0.0) - 1.0).abs() < 1e-9);
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
            ..most
        };
        assert!(of_class(&long, true).bytes.is_finite());
    }

    #[test]
    fn what_the_calling_threads_cache_returns_counts_and_what_is_purged_does_not() {
        let class = |cached: u64, unbacked: u64| {
            let mut class = ClassFigures {
                block_bytes: 4096,
                span_pages: 4,
                span_slots: 4,
                occupancy: vec![0, 0, 0, 0, 0, 0, 0, 0, 100],
                ..ClassFigures::default()
            };
            class.values.set(ids::CLASS_CACHED_BLOCKS, cached);
            class.values.set(ids::CLASS_LIVE_BLOCKS, 400 - cached);
            class.values.set(ids::CLASS_UNBACKED_BYTES, unbacked);
            class
        };
        let pages = |class: &ClassFigures, is_alone| of_class(class, is_alone).bytes / 4096.0;
        assert!(pages(&class(0, 0), true).abs() < 1e-6);
        assert!((pages(&class(40, 0), true) - 40.0).abs() < 1e-6);
        assert!(pages(&class(40, 0), false).abs() < 1e-6);
        assert!((pages(&class(40, 8 * 4096), true) - 32.0).abs() < 1e-6);
    }
}
