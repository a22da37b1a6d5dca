//! What is unusual in a program's requests: the exact sizes that hold the peak, blocks that grow by
//! moving, and for each doubling of size the ratio of requests to the blocks that stay.

use std::collections::HashMap;

use loam_format::trace::Action;
use serde::Serialize;

use super::Never;
use crate::replay::lineage::{self, Step};
use crate::replay::{ReplayError, Survey};

/// How many exact sizes are kept: those with the most bytes at the peak.
const SIZES: usize = 64;
/// Number of doublings of size, from one byte on.
pub const DOUBLINGS: usize = 48;

/// Blocks of one size that lived at the peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PeakSize {
    /// Bytes asked for.
    pub size: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Requests of up to `1 << doubling` bytes, above the doubling before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Doubling {
    /// Blocks handed out, resizes not counted.
    pub requests: u64,
    /// Of these, blocks that were freed before the end.
    pub freed: u64,
    /// Bytes that lived at the peak.
    pub peak_bytes: u64,
    /// Blocks that lived at the peak.
    pub peak_blocks: u64,
}

/// What is unusual in the requests.
#[derive(Debug, Clone, Serialize)]
pub struct Shapes {
    /// Bytes that lived at the peak.
    pub peak_bytes: u64,
    /// Exact sizes, those with the most bytes at the peak first.
    pub sizes: Vec<PeakSize>,
    /// Allocations and resizes.
    pub requests: u64,
    /// Resizes to a larger size that moved the block.
    pub moved: u64,
    /// Bytes that these resizes copied.
    pub copied: u64,
    /// Bytes of the blocks after these resizes.
    pub grown: u64,
    /// Requests by doubling of size.
    pub doublings: Vec<Doubling>,
}

impl Default for Shapes {
    fn default() -> Shapes {
        Shapes {
            peak_bytes: 0,
            sizes: Vec::new(),
            requests: 0,
            moved: 0,
            copied: 0,
            grown: 0,
            doublings: vec![Doubling::default(); DOUBLINGS],
        }
    }
}

/// The doubling that a size belongs to.
pub fn doubling(size: u64) -> usize {
    (64 - size.saturating_sub(1).leading_zeros() as usize).min(DOUBLINGS - 1)
}

/// Live blocks by size, and the changes since the peak.
#[derive(Debug, Default)]
struct Sizes {
    live: HashMap<u64, i64>,
    since: HashMap<u64, i64>,
    changed: Vec<u64>,
    bytes: u64,
    peak: u64,
}

impl Sizes {
    fn add(&mut self, size: u64, sign: i64) {
        *self.live.entry(size).or_default() += sign;
        *self.since.entry(size).or_default() += sign;
        self.changed.push(size);
        self.bytes = match sign > 0 {
            true => self.bytes.saturating_add(size),
            false => self.bytes.saturating_sub(size),
        };
        if self.bytes > self.peak {
            self.peak = self.bytes;
            for size in self.changed.drain(..) {
                self.since.remove(&size);
            }
        } else if self.changed.len() > 1 << 16 {
            self.changed.sort_unstable();
            self.changed.dedup();
        }
        if self.live.get(&size) == Some(&0) {
            self.live.remove(&size);
        }
    }

    /// Blocks at the peak, by size.
    fn at_peak(mut self) -> Vec<PeakSize> {
        for (size, since) in self.since {
            *self.live.entry(size).or_default() -= since;
        }
        let mut sizes: Vec<PeakSize> = self
            .live
            .into_iter()
            .filter_map(|(size, blocks)| {
                let blocks = u64::try_from(blocks).ok().filter(|blocks| *blocks > 0)?;
                Some(PeakSize { size, blocks })
            })
            .collect();
        sizes.sort_by_key(|one| std::cmp::Reverse((one.size.saturating_mul(one.blocks), one.size)));
        sizes
    }
}

/// Walks through the events of a process.
pub fn of(survey: &Survey, stream: u32) -> Result<Shapes, ReplayError> {
    let streams = lineage::of(survey, stream);
    let mut shapes = Shapes::default();
    let mut sizes = Sizes::default();
    lineage::walk(survey, &streams, &Never, |step| {
        let Step::Act(act) = step else { return Ok(()) };
        match &act.action {
            Action::Begin { block, .. } => {
                shapes.requests += 1;
                shapes.doublings[doubling(block.size)].requests += 1;
                sizes.add(block.size, 1);
            }
            Action::Resize { before, after, .. } => {
                shapes.requests += 1;
                if before.address != after.address && after.size > before.size {
                    shapes.moved += 1;
                    shapes.copied = shapes.copied.saturating_add(before.size);
                    shapes.grown = shapes.grown.saturating_add(after.size);
                }
                sizes.add(before.size, -1);
                sizes.add(after.size, 1);
            }
            Action::End { block, .. } | Action::Gone { block } => {
                shapes.doublings[doubling(block.size)].freed += 1;
                sizes.add(block.size, -1);
            }
            _ => {}
        }
        Ok(())
    })?;
    shapes.peak_bytes = sizes.peak;
    let peak = sizes.at_peak();
    for one in &peak {
        let doubling = &mut shapes.doublings[doubling(one.size)];
        doubling.peak_blocks += one.blocks;
        doubling.peak_bytes = doubling
            .peak_bytes
            .saturating_add(one.size.saturating_mul(one.blocks));
    }
    shapes.sizes = peak;
    shapes.sizes.truncate(SIZES);
    Ok(shapes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubling_ends_at_its_power_of_two() {
        for (size, at) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (4_096, 12)] {
            assert_eq!(doubling(size), at, "{size}");
        }
        assert_eq!(doubling(4_097), 13);
        assert_eq!(doubling(u64::MAX), DOUBLINGS - 1);
    }

    #[test]
    fn sizes_are_those_of_the_peak() {
        let mut sizes = Sizes::default();
        for (size, sign) in [(100, 1), (100, 1), (7, 1), (100, -1), (7, -1), (50, 1)] {
            sizes.add(size, sign);
        }
        let [hundred, seven] = [(100, 2), (7, 1)].map(|(size, blocks)| PeakSize { size, blocks });
        assert_eq!(sizes.at_peak(), [hundred, seven]);
    }
}
