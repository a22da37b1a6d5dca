//! How long a trim takes. It measures, on this machine and now, how long the system takes to remove
//! pages.
//!
//! `malloc_trim` holds the arena's lock while it asks the kernel, hole by hole, to take pages. So
//! its time is the sum of three parts: the calls, the pages, and the free chunks that it visits on
//! the way.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds for a page and for a call.
#[derive(Debug, Clone, Copy)]
struct Cost {
    page: f64,
    call: f64,
}

const PAGE: usize = 4096;
/// Pages of the test mapping, and how many mappings of one page are tested. Chosen: ten
/// milliseconds in all.
const PAGES: usize = 4096;
const CALLS: usize = 256;
/// Nanoseconds for each free chunk, and for each new hole, where a trim misses the caches. Measured
/// with tests/doctor/truth.c in ten shapes on one machine: within 0.5 to 2 of the time of the call.
const CHUNK: f64 = 22.0;
const HOLE: f64 = 130.0;
/// An allocation of this size is a mapping of its own in every allocator.
const MAPPED: usize = 1 << 26;

/// A huge page goes in one step, which costs as much as this many small ones. Chosen: a trim with
/// all of its pages in huge ones took a twentieth of what their number tells.
const HUGE_PAGE: f64 = 512.0 / 20.0;
const HUGE: usize = 2 << 20;

/// Milliseconds of a trim of `bytes`, of which `huge` are in huge pages, in `calls` calls, which
/// visits this many free chunks in this many holes.
pub fn milliseconds(bytes: u64, huge: u64, calls: u64, chunks: u64, holes: u64) -> f64 {
    static COST: OnceLock<Cost> = OnceLock::new();
    let cost = COST.get_or_init(measure);
    let small = bytes.saturating_sub(huge) as f64 / PAGE as f64;
    let pages = small + HUGE_PAGE * huge.min(bytes) as f64 / HUGE as f64;
    let walk = chunks as f64 * CHUNK + holes as f64 * HOLE;
    (pages * cost.page + calls as f64 * cost.call + walk) / 1e6
}

fn measure() -> Cost {
    let per_page = |pages: usize| {
        let mut memory: Vec<u8> = Vec::with_capacity(MAPPED);
        memory.resize(pages * PAGE, 1);
        black_box(&memory);
        let begun = Instant::now();
        drop(memory);
        begun.elapsed().as_nanos() as f64
    };
    let mut calls: Vec<f64> = (0..CALLS).map(|_| per_page(1)).collect();
    calls.sort_by(f64::total_cmp);
    let call = calls[CALLS / 2];
    let many = per_page(PAGES).min(per_page(PAGES)).min(per_page(PAGES));
    Cost {
        page: (many - call).max(0.0) / PAGES as f64,
        call,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_takes_longer() {
        assert!(milliseconds(1 << 30, 0, 1, 0, 0) > milliseconds(1 << 20, 0, 1, 0, 0));
        assert!(milliseconds(0, 0, 100_000, 0, 0) > milliseconds(0, 0, 1, 0, 0));
        assert!(milliseconds(0, 0, 0, 1 << 20, 1) < milliseconds(0, 0, 0, 1 << 20, 1 << 19));
    }
}
