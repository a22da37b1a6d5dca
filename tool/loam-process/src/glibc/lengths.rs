//! Chunks counted by length: exact up to 1 KiB, then eight steps a doubling.

use super::layout::ALIGNMENT;
use super::Sum;

/// Lengths up to this are counted one by one.
const EXACT: u64 = 1024;
const EXACT_CLASSES: usize = (EXACT / ALIGNMENT) as usize + 1;
/// Steps a doubling, as a power of two.
const STEP_BITS: u32 = 3;
const CLASSES: usize = EXACT_CLASSES + ((47 - EXACT.ilog2() as usize) << STEP_BITS);

/// Counts and bytes by length of chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lengths(Vec<Sum>);

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths(vec![Sum::default(); CLASSES])
    }
}

impl Lengths {
    /// Adds a chunk.
    pub fn add(&mut self, size: u64) {
        self.0[class(size)].add(size);
    }

    /// Adds another count.
    pub fn join(&mut self, other: &Lengths) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            sum.count += more.count;
            sum.bytes += more.bytes;
        }
    }

    /// Every class that has chunks: the bytes of its longest block, without the header, and its
    /// sum.
    pub fn classes(&self) -> impl Iterator<Item = (u64, Sum)> + '_ {
        let numbered = self.0.iter().enumerate().filter(|(_, sum)| sum.count > 0);
        numbered.map(|(class, sum)| (longest(class) - 8, *sum))
    }
}

/// The longest chunk of a class.
fn longest(class: usize) -> u64 {
    let Some(above) = class.checked_sub(EXACT_CLASSES) else {
        return (class as u64 * ALIGNMENT).max(2 * ALIGNMENT);
    };
    let doubling = EXACT << (above >> STEP_BITS);
    let step = (above & ((1 << STEP_BITS) - 1)) as u64 + 1;
    doubling + step * (doubling >> STEP_BITS)
}

fn class(size: u64) -> usize {
    if size <= EXACT {
        return (size / ALIGNMENT) as usize;
    }
    let doubling = (size - 1).ilog2();
    let step = ((size - 1) >> (doubling - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    let above = ((doubling - EXACT.ilog2()) << STEP_BITS) as usize + step as usize;
    (EXACT_CLASSES + above).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_and_end() {
        let mut last = 0;
        for size in (16..1 << 20).step_by(16) {
            let now = class(size);
            assert!(now == last || now == last + 1, "{size}");
            assert!(longest(now) >= size, "{size}");
            last = now;
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
        for number in 2..CLASSES - 1 {
            assert_eq!(class(longest(number)), number);
            assert_eq!(class(longest(number) + 16), number + 1);
        }
    }
}
