//! The pages of a heap, and the blocks that keep them.
//!
//! Blocks arrive in the order of their addresses. A page is reported when the next block lies
//! behind it; neighbouring pages that one block fills are reported together.
//!
//! ```text
//!  blocks   [  a  ][b]      [      c                          ]   [d]
//!  pages    |    1      |    2      |    3      |    4      |    5      |
//!  reported  1: a b       2: c        3 and 4: c full         5: c d
//! ```

/// Bytes of a page.
pub const PAGE: u64 = 4_096;

/// The part of a block that lies on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<T> {
    /// The block.
    pub block: T,
    /// Its bytes there; 0 for a block of size 0.
    pub bytes: u64,
}

/// Neighbouring like pages; most often a single page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'a, T> {
    /// The first page's number.
    pub number: u64,
    /// How many pages.
    pub count: u64,
    /// Live bytes on each page.
    pub live: u64,
    /// The blocks on each page; at least one.
    pub parts: &'a [Part<T>],
}

impl<T> Page<'_, T> {
    /// Bytes of each page that no block has.
    pub fn free(&self) -> u64 {
        PAGE - self.live
    }

    /// Whether blocks have less than half of each page.
    pub fn is_sparse(&self) -> bool {
        is_sparse(self.live)
    }
}

/// Whether a page with this many live bytes is sparse.
pub fn is_sparse(live: u64) -> bool {
    live < PAGE / 2
}

/// Collects blocks into pages.
#[derive(Debug)]
pub struct Pages<T> {
    number: u64,
    parts: Vec<Part<T>>,
    /// The end of the last block.
    behind: u64,
}

impl<T: Copy> Default for Pages<T> {
    fn default() -> Pages<T> {
        Pages {
            number: 0,
            parts: Vec::new(),
            behind: 0,
        }
    }
}

impl<T: Copy> Pages<T> {
    /// Adds the next block. If it overlaps the one before, which happens only in a damaged trace,
    /// the overlapping bytes count for the earlier block.
    pub fn push(&mut self, address: u64, size: u64, block: T, mut tell: impl FnMut(&Page<T>)) {
        let end = address.saturating_add(size).max(self.behind);
        let start = address.max(self.behind);
        let (first, last) = (start / PAGE, end.saturating_sub(1).max(start) / PAGE);
        self.behind = end;
        if first != self.number {
            self.finish(&mut tell);
            self.number = first;
        }
        let bytes = end.min((first + 1).saturating_mul(PAGE)) - start;
        self.parts.push(Part { block, bytes });
        if last == first {
            return;
        }
        self.finish(&mut tell);
        if first + 1 < last {
            tell(&Page {
                number: first + 1,
                count: last - first - 1,
                live: PAGE,
                parts: &[Part { block, bytes: PAGE }],
            });
        }
        let bytes = end - last * PAGE;
        self.number = last;
        self.parts.push(Part { block, bytes });
    }

    /// Reports the last page. Further blocks may follow.
    pub fn finish(&mut self, mut tell: impl FnMut(&Page<T>)) {
        if !self.parts.is_empty() {
            tell(&Page {
                number: self.number,
                count: 1,
                live: self.parts.iter().map(|part| part.bytes).sum(),
                parts: &self.parts,
            });
            self.parts.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Told = Vec<(u64, u64, u64, Vec<(char, u64)>)>;

    fn told(blocks: &[(u64, u64, char)]) -> Told {
        let mut pages = Pages::default();
        let mut told = Vec::new();
        let mut tell = |page: &Page<char>| {
            let parts = page.parts.iter().map(|part| (part.block, part.bytes));
            told.push((page.number, page.count, page.live, parts.collect()));
        };
        for (address, size, name) in blocks {
            pages.push(*address, *size, *name, &mut tell);
        }
        pages.finish(&mut tell);
        told
    }

    #[test]
    fn each_page_is_told_once_with_its_blocks() {
        let blocks = [
            (PAGE, 100, 'a'),
            (PAGE + 200, 0, 'z'),
            (2 * PAGE - 10, 3 * PAGE + 20, 'b'),
            (5 * PAGE + 50, 50, 'c'),
            (7 * PAGE, PAGE, 'd'),
            (8 * PAGE, 1, 'e'),
        ];
        let expected = vec![
            (1, 1, 110, vec![('a', 100), ('z', 0), ('b', 10)]),
            (2, 3, PAGE, vec![('b', PAGE)]),
            (5, 1, 60, vec![('b', 10), ('c', 50)]),
            (7, 1, PAGE, vec![('d', PAGE)]),
            (8, 1, 1, vec![('e', 1)]),
        ];
        assert_eq!(told(&blocks), expected);
    }

    #[test]
    fn blocks_that_overlap_never_fill_more_than_a_page() {
        for (page, _, live, _) in told(&[(0, 3_000, 'a'), (100, 200, 'b'), (2_000, 9_000, 'c')]) {
            assert!(live <= PAGE, "{page}: {live}");
        }
        let sum: u64 = told(&[(0, 3_000, 'a'), (100, 200, 'b'), (2_000, 9_000, 'c')])
            .iter()
            .map(|(_, count, live, _)| count * live)
            .sum();
        assert_eq!(sum, 11_000);
        assert_eq!(told(&[(u64::MAX - 5, 100, 'x')]).len(), 1);
    }
}
