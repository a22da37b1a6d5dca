//! What the sampled blocks are that stay: the type of each, by what stands in it, summed by stack
//! and type.

use std::collections::HashMap;

use loam_census::single;
use loam_census::target::Live;
use loam_format::units;
use loam_process::probes::Living;
use loam_process::process::Pid;

/// The most blocks whose type is looked for. Chosen: a second or two.
const MOST_BLOCKS: usize = 1 << 16;
/// The most sums that are kept, those with the most bytes.
const MOST_SUMS: usize = 20_000;

/// How many types are shown.
const TYPES: usize = 5;

/// Blocks of one type under one stack.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// The stack: an index of `Sites::all`.
    pub site: usize,
    /// The type, or in parentheses what the bytes look like.
    pub kind: String,
    /// Blocks that they stand for.
    pub blocks: f64,
    /// Bytes that they stand for.
    pub bytes: f64,
    variance: f64,
}

impl Sum {
    /// Twice the standard error of the bytes.
    pub fn error(&self) -> f64 {
        2.0 * self.variance.sqrt()
    }
}

/// The types with the most bytes and their shares, as a line; none: nothing was looked at.
pub fn line(sums: &[Sum]) -> Option<String> {
    let mut types: HashMap<&str, f64> = HashMap::new();
    for sum in sums {
        *types.entry(&sum.kind).or_default() += sum.bytes;
    }
    let all: f64 = types.values().sum();
    let mut types: Vec<_> = types
        .into_iter()
        .filter(|(_, bytes)| *bytes >= 1.0)
        .collect();
    types.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let shown = units::shares(types.into_iter(), all, TYPES);
    (!shown.is_empty()).then(|| format!("what lives, by type: {shown}"))
}

/// Looks at the blocks that live; nothing if the process can not be read.
pub fn of(pid: Pid, living: &[Living]) -> Vec<Sum> {
    let Ok(live) = Live::open(pid) else {
        return Vec::new();
    };
    // Of many, some that lie evenly among them stand for the others.
    let step = living.len().div_ceil(MOST_BLOCKS).max(1);
    let chosen: Vec<&Living> = living.iter().step_by(step).collect();
    let blocks: Vec<(u64, u64)> = chosen.iter().map(|one| (one.address, one.bytes)).collect();
    let kinds = single::of(&live, &blocks);
    let named = kinds.iter().map(|one| one.kind.title(&one.name));
    summed(chosen.into_iter().zip(named), step as f64)
}

fn summed<'a>(blocks: impl Iterator<Item = (&'a Living, String)>, step: f64) -> Vec<Sum> {
    let mut sums: HashMap<(usize, String), Sum> = HashMap::new();
    for (block, kind) in blocks {
        let weight = block.weight * step;
        let bytes = weight * block.bytes as f64;
        let key = (block.site, kind);
        let sum = sums.entry(key).or_insert_with_key(|(site, kind)| Sum {
            site: *site,
            kind: kind.clone(),
            blocks: 0.0,
            bytes: 0.0,
            variance: 0.0,
        });
        sum.blocks += weight;
        sum.bytes += bytes;
        sum.variance += bytes * bytes * (1.0 - 1.0 / weight);
    }
    let mut sums: Vec<Sum> = sums.into_values().collect();
    sums.sort_by(|a, b| {
        let order = b.bytes.total_cmp(&a.bytes);
        order.then_with(|| (a.site, &a.kind).cmp(&(b.site, &b.kind)))
    });
    sums.truncate(MOST_SUMS);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_type_and_a_stack_are_one_sum_with_its_error() {
        let block = |site, bytes, weight| Living {
            address: 0,
            bytes,
            site,
            weight,
        };
        let blocks = [block(0, 100, 4.0), block(0, 50, 1.0), block(1, 10, 2.0)];
        let kinds = ["a", "a", "b"].map(str::to_owned);
        let sums = summed(blocks.iter().zip(kinds), 1.0);
        let said: Vec<_> = sums
            .iter()
            .map(|one| (one.site, one.blocks, one.bytes))
            .collect();
        assert_eq!(said, [(0, 5.0, 450.0), (1, 2.0, 20.0)]);
        let line = line(&sums).unwrap();
        assert_eq!(line, "what lives, by type: a 96 %, b 4 %");
        assert_eq!(super::line(&[]), None);
        // One of four: 400 bytes, and a variance of 400^2 * 3/4.
        assert!((sums[0].error() - 2.0 * (400.0f64 * 400.0 * 0.75).sqrt()).abs() < 1e-9);
    }
}
