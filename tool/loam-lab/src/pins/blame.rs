//! Which blocks keep the free bytes of sparse pages.
//!
//! A page with `k` blocks and `F` free bytes goes back only when all of them end, so each block is
//! to blame for `F/k`: that is the page's Shapley value. The sum over all blocks is exactly the
//! free bytes. *Sole* blame comes from the pages on which all blocks belong to one group: these
//! pages would go back if that group's blocks lay elsewhere.
//!
//! If groups are known only for a sample of blocks (stacks), each block of `s` bytes was chosen
//! with probability `p = 1 - exp(-s/m)` and stands for `1/p` blocks. The blame of all blocks of a
//! size together is known exactly. The sample only divides it.
//!
//! ```text
//!  stratum   blocks of like size                   T: their blame, exact
//!  group g   sampled blocks of it in the stratum   w = blame / p,
//!                                                  share = sum of its w / sum of all w
//!  row       sum over strata of T * share          error = 2 * root of sum of (T * its error)^2
//! ```
//!
//! The blame of a stratum without a sample counts as unknown. The error of a share is that of
//! Agresti and Coull, with Kish's effective number of samples; it is 0 if every block was chosen.

use std::collections::{BTreeMap, HashMap};

use loam_format::trace::chance;

use super::pages::Page;
use crate::traces::summary::class_of;

/// The blame of a group of blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Free bytes of sparse pages, shared with the other blocks there.
    pub shared: f64,
    /// Free bytes of sparse pages that blocks of this group alone keep.
    pub sole: u64,
    /// Its blocks' live bytes on sparse pages.
    pub live: u64,
}

/// Adds a page's blame to the groups, which are numbered from 0. Pages that are not sparse are left
/// out.
pub fn add(groups: &mut Vec<Figures>, page: &Page<u32>) {
    if !page.is_sparse() {
        return;
    }
    let share = page.free() as f64 / page.parts.len() as f64;
    let first = page.parts[0].block;
    let last = page.parts.iter().map(|part| part.block).max();
    let needed = last.map_or(0, |last| last as usize + 1);
    if groups.len() < needed {
        groups.resize(needed, Figures::default());
    }
    for part in page.parts {
        let figures = &mut groups[part.block as usize];
        figures.shared += share;
        figures.live += part.bytes;
    }
    if page.parts.iter().all(|part| part.block == first) {
        groups[first as usize].sole += page.free();
    }
}

/// A block and its blame.
#[derive(Debug, Clone, Copy)]
pub struct Blamed {
    /// Its bytes.
    pub size: u64,
    /// Its share of sparse pages' free bytes.
    pub shared: f64,
    /// The free bytes of sparse pages that it alone keeps.
    pub alone: u64,
    /// Its group, if it was chosen.
    pub group: Option<u32>,
}

/// An estimate for a group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Shared blame in bytes.
    pub shared: f64,
    /// Twice its standard error.
    pub error: f64,
    /// Free bytes of pages that one block of the group keeps alone.
    pub alone: f64,
    /// Chosen blocks with blame.
    pub samples: u64,
    /// Blocks with blame, in proportion.
    pub blocks: f64,
    /// Their bytes.
    pub bytes: f64,
}

/// Estimates by group, and the blame that no group gets.
#[derive(Debug, Default)]
pub struct Estimates {
    /// Estimates by group.
    pub groups: HashMap<u32, Estimate>,
    /// Shared blame of strata without a sample.
    pub unsampled: f64,
    /// Pages that such blocks keep alone.
    pub unsampled_alone: f64,
}

#[derive(Debug, Default)]
struct Stratum {
    shared: f64,
    alone: f64,
    blocks: u64,
    bytes: u64,
    /// Blame of the blocks that were chosen.
    seen: f64,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    group: u32,
    size: u64,
    chance: f64,
    shared: f64,
    alone: f64,
}

/// A size class with fewer samples than this is joined with its neighbours in the same doubling.
/// Chosen: with fewer samples, the error of a share is more than a third.
const ENOUGH: usize = 8;

impl Stratum {
    fn join(&mut self, other: Stratum) {
        self.shared += other.shared;
        self.alone += other.alone;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.seen += other.seen;
        self.samples.extend(other.samples);
    }
}

/// Divides blame between the groups of a sample. `mean`: average bytes between two chosen blocks.
pub fn estimate(blocks: impl Iterator<Item = Blamed>, mean: u64) -> Estimates {
    let mut classes: BTreeMap<usize, Stratum> = BTreeMap::new();
    for block in blocks.filter(|block| block.shared > 0.0) {
        let stratum = classes.entry(class_of(block.size)).or_default();
        stratum.shared += block.shared;
        stratum.alone += block.alone as f64;
        stratum.blocks += 1;
        stratum.bytes += block.size;
        let chance = chance(block.size, mean);
        if let (Some(group), true) = (block.group, chance > 0.0) {
            stratum.seen += block.shared;
            stratum.samples.push(Sample {
                group,
                size: block.size,
                chance,
                shared: block.shared,
                alone: block.alone as f64,
            });
        }
    }
    let mut estimates = Estimates::default();
    let mut squares: HashMap<u32, f64> = HashMap::new();
    let mut thin: BTreeMap<usize, Stratum> = BTreeMap::new();
    for (class, stratum) in classes {
        if stratum.samples.len() >= ENOUGH {
            divide(&stratum, &mut estimates, &mut squares);
        } else {
            // Each doubling has four classes, above the classes of 16 bytes each.
            thin.entry(class / 4).or_default().join(stratum);
        }
    }
    for stratum in thin.values() {
        divide(stratum, &mut estimates, &mut squares);
    }
    for (group, square) in squares {
        estimates.groups.entry(group).or_default().error = square.sqrt();
    }
    estimates
}

fn divide(stratum: &Stratum, estimates: &mut Estimates, squares: &mut HashMap<u32, f64>) {
    if stratum.samples.is_empty() {
        estimates.unsampled += stratum.shared;
        estimates.unsampled_alone += stratum.alone;
        return;
    }
    let weight = |sample: &Sample| sample.shared / sample.chance;
    let sum: f64 = stratum.samples.iter().map(weight).sum();
    let of_squares: f64 = stratum.samples.iter().map(|one| weight(one).powi(2)).sum();
    let part = |figure: &dyn Fn(&Sample) -> f64| -> f64 {
        let parts = stratum.samples.iter().map(|one| figure(one) / one.chance);
        parts.sum()
    };
    let (blocks, bytes) = (part(&|_| 1.0), part(&|one| one.size as f64));
    let alone = part(&|one| one.alone);
    let effective = sum * sum / of_squares;
    // The blame of chosen blocks is known exactly, so only the rest has an error.
    let unseen = (1.0 - stratum.seen / stratum.shared).max(0.0).sqrt();
    let mut shares: BTreeMap<u32, f64> = BTreeMap::new();
    for sample in &stratum.samples {
        let estimate = estimates.groups.entry(sample.group).or_default();
        estimate.samples += 1;
        estimate.blocks += stratum.blocks as f64 / sample.chance / blocks;
        estimate.bytes += stratum.bytes as f64 * sample.size as f64 / sample.chance / bytes;
        if alone > 0.0 {
            estimate.alone += stratum.alone * (sample.alone / sample.chance) / alone;
        }
        *shares.entry(sample.group).or_default() += weight(sample) / sum;
    }
    if alone == 0.0 {
        estimates.unsampled_alone += stratum.alone;
    }
    for (group, share) in shares {
        estimates.groups.entry(group).or_default().shared += stratum.shared * share;
        let error = stratum.shared * error_of(share, effective) * unseen;
        *squares.entry(group).or_default() += error * error;
    }
}

/// Twice the standard error of a share that is estimated from `samples` samples.
fn error_of(share: f64, samples: f64) -> f64 {
    let near = (share * samples + 2.0) / (samples + 4.0);
    2.0 * (near * (1.0 - near) / (samples + 4.0)).sqrt()
}

/// Whole numbers in proportion to the weights. Their sum is `total`.
pub fn apportion(total: u64, weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    let (mut before, mut given) = (0.0, 0);
    let mut parts: Vec<u64> = weights
        .iter()
        .map(|weight| {
            // The sums are rounded instead of the parts, so that rounding errors cancel out.
            before += weight;
            let sum = (total as f64 * (before / sum)).round() as u64;
            let part = sum.min(total) - given;
            given += part;
            part
        })
        .collect();
    if let Some(largest) = parts.iter_mut().max() {
        *largest += total - given;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::pages::{Pages, PAGE};
    use super::*;

    #[test]
    fn shares_of_a_page_sum_to_its_free_bytes_and_one_group_alone_is_told() {
        let mut pages = Pages::default();
        let mut groups = Vec::new();
        let mut tell = |page: &Page<u32>| add(&mut groups, page);
        for (address, size, group) in [
            (0, 96, 0),
            (1_000, 100, 1),
            (2_000, 100, 0),
            (PAGE, 100, 2),
            (PAGE + 300, 100, 2),
            // A page that is not sparse.
            (2 * PAGE, 3_000, 1),
        ] {
            pages.push(address, size, group, &mut tell);
        }
        pages.finish(&mut tell);
        let expected = [
            (3_800.0 / 3.0 * 2.0, 0, 196),
            (3_800.0 / 3.0, 0, 100),
            (3_896.0, 3_896, 200),
        ];
        for (group, (shared, sole, live)) in groups.iter().zip(expected) {
            assert!((group.shared - shared).abs() < 1e-6);
            assert_eq!((group.sole, group.live), (sole, live));
        }
    }

    #[test]
    fn parts_sum_to_the_whole() {
        for (total, weights) in [
            (10, vec![1.0, 1.0, 1.0]),
            (7, vec![0.1, 0.0, 1e9, 3.0]),
            (1 << 40, vec![0.3; 1000]),
            (5, vec![1.0]),
            (0, vec![1.0, 2.0]),
        ] {
            let parts = apportion(total, &weights);
            assert_eq!(parts.iter().sum::<u64>(), total, "{weights:?}");
        }
        assert_eq!(apportion(0, &[]), Vec::<u64>::new());
        assert_eq!(apportion(100, &[1.0, 3.0]), [25, 75]);
    }

    /// Blocks of three sizes and two groups, with a sample drawn from them.
    fn draw(seed: u64, mean: u64) -> (Vec<Blamed>, [f64; 2]) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut truth = [0.0; 2];
        let blocks = (0..20_000).map(|number| {
            let size = [48, 64, 900][number % 3];
            let group = u32::from(random.f64() < if size == 900 { 0.9 } else { 0.2 });
            let shared = random.f64() * 2_000.0;
            truth[group as usize] += shared;
            let is_chosen = random.f64() < chance(size, mean);
            Blamed {
                size,
                shared,
                alone: 0,
                group: is_chosen.then_some(group),
            }
        });
        (blocks.collect(), truth)
    }

    #[test]
    fn the_truth_is_within_the_error_as_often_as_it_says() {
        let (mut within, mut all) = (0, 0);
        for seed in 0..200 {
            let (blocks, truth) = draw(seed, 16_384);
            let total: f64 = truth.iter().sum();
            let estimates = estimate(blocks.into_iter(), 16_384);
            let sum: f64 = estimates.groups.values().map(|one| one.shared).sum();
            assert!((sum + estimates.unsampled - total).abs() < total * 1e-9);
            for (group, truth) in truth.iter().enumerate() {
                let estimate = estimates.groups[&(group as u32)];
                all += 1;
                within += u32::from((estimate.shared - truth).abs() <= estimate.error);
                assert!(estimate.error < 0.35 * total, "{estimate:?}");
            }
        }
        // The method promises 95 of 100; the draws are the same in each run of this test.
        assert!(within * 100 >= all * 93, "{within} of {all}");
        assert!(within < all, "errors that are never exceeded say nothing");
    }

    #[test]
    fn all_blocks_chosen_is_no_estimate() {
        let (blocks, truth) = draw(7, 1);
        let estimates = estimate(blocks.into_iter(), 1);
        for (group, truth) in truth.iter().enumerate() {
            let estimate = estimates.groups[&(group as u32)];
            assert!((estimate.shared - truth).abs() < 1.0, "{estimate:?}");
            assert!(estimate.error < 1.0, "{estimate:?}");
        }
    }

    #[test]
    fn sizes_of_which_none_was_chosen_stay_apart() {
        let block = |size, group| Blamed {
            size,
            shared: 100.0,
            alone: 50,
            group,
        };
        let blocks = [block(64, Some(0)), block(64, None), block(5_000, None)];
        let estimates = estimate(blocks.into_iter(), 4_096);
        assert!((estimates.groups[&0].shared - 200.0).abs() < 1e-9);
        assert!((estimates.groups[&0].alone - 100.0).abs() < 1e-9);
        assert_eq!(
            (estimates.unsampled, estimates.unsampled_alone),
            (100.0, 50.0)
        );
    }
}
