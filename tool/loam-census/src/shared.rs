//! Blocks that no one object holds, and to which nevertheless only objects with types lead: a text
//! that two sessions share, a vertex of two triangles.
//!
//! ```text
//!  label of an object, and of a block that one object holds   its type
//!  label of a variable, stack, mapping                        a root
//!  label of another block                                     all labels of what points to it
//! ```
//!
//! So the label of a block is the types of the nearest objects on all ways to it, or a root if one
//! way has no object. Labels only grow, at most a few times each, until nothing changes.

use std::collections::HashMap;

use crate::owner::Before;

/// Not known yet.
pub const OPEN: u32 = 0;
/// A way without an object leads to it.
pub const ROOT: u32 = 1;
/// Objects of more types than are told apart.
const MANY: u32 = 2;
/// Types that are told apart.
const MOST: usize = 8;
/// Passes over all open blocks. Chosen: a pass goes along the numbers, up or down, which are those
/// of a walk, so a few are enough but for odd graphs.
const PASSES: usize = 32;

/// Labels, and what they stand for.
pub struct Labels {
    sets: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, u32>,
    joined: HashMap<(u32, u32), u32>,
    singles: Vec<u32>,
}

impl Labels {
    /// For so many types.
    pub fn of(types: usize) -> Labels {
        Labels {
            sets: vec![Vec::new(); 3],
            numbers: HashMap::new(),
            joined: HashMap::new(),
            singles: vec![OPEN; types],
        }
    }

    /// The label of a type.
    pub fn one(&mut self, kind: u32) -> u32 {
        if self.singles[kind as usize] == OPEN {
            self.singles[kind as usize] = self.set(vec![kind]);
        }
        self.singles[kind as usize]
    }

    /// The types of a label; none if it has a root or is open. Many types are an empty list.
    pub fn types(&self, label: u32) -> Option<&[u32]> {
        match label {
            OPEN | ROOT => None,
            label => Some(&self.sets[label as usize]),
        }
    }

    fn set(&mut self, kinds: Vec<u32>) -> u32 {
        if kinds.len() > MOST {
            return MANY;
        }
        if let Some(number) = self.numbers.get(&kinds) {
            return *number;
        }
        let number = self.sets.len() as u32;
        self.sets.push(kinds.clone());
        self.numbers.insert(kinds, number);
        number
    }

    fn join(&mut self, a: u32, b: u32) -> u32 {
        if a == b || b == OPEN {
            return a;
        }
        if a == OPEN {
            return b;
        }
        if a <= MANY || b <= MANY {
            return if a == ROOT || b == ROOT { ROOT } else { MANY };
        }
        if let Some(joined) = self.joined.get(&(a, b)) {
            return *joined;
        }
        let mut kinds = self.sets[a as usize].clone();
        kinds.extend_from_slice(&self.sets[b as usize]);
        kinds.sort_unstable();
        kinds.dedup();
        let joined = self.set(kinds);
        self.joined.insert((a, b), joined);
        joined
    }

    /// Finds the label of each number that is open.
    pub fn spread(&mut self, before: &Before, labels: &mut [u32]) {
        let numbers = 0..labels.len() as u32;
        let mut open: Vec<u32> = numbers
            .filter(|number| labels[*number as usize] == OPEN)
            .collect();
        let all = open.clone();
        for _ in 0..PASSES {
            let mut has_changed = false;
            for number in &open {
                let mut label = labels[*number as usize];
                for from in before.of(*number) {
                    label = self.join(label, labels[*from as usize]);
                    if label == ROOT {
                        break;
                    }
                }
                has_changed |= label != labels[*number as usize];
                labels[*number as usize] = label;
            }
            if !has_changed {
                return;
            }
            open.retain(|number| labels[*number as usize] != ROOT);
            open.reverse();
        }
        // A label that would still grow says too much.
        for number in all {
            labels[number as usize] = ROOT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The labels of open blocks, with these edges between numbers.
    fn spread(edges: &[(u32, u32)], fixed: &[(u32, u32)], count: u32) -> Vec<Option<Vec<u32>>> {
        let mut labels = Labels::of(16);
        let mut all = vec![OPEN; count as usize];
        for (number, kind) in fixed {
            all[*number as usize] = match *kind {
                u32::MAX => ROOT,
                kind => labels.one(kind),
            };
        }
        let before = Before::of_edges(edges, count);
        labels.spread(&before, &mut all);
        let types = |label: &u32| labels.types(*label).map(<[u32]>::to_vec);
        all.iter().map(types).collect()
    }

    #[test]
    fn a_block_belongs_to_the_types_that_share_it() {
        let root = u32::MAX;
        // 0 is a variable, 1 and 2 are of type 5, 3 of type 6; the others are open.
        let edges = [
            (0, 1),
            (0, 2),
            (0, 3),
            (1, 4),
            (2, 4),
            (4, 5),
            (3, 5),
            (5, 6),
            (0, 6),
            (6, 7),
            (7, 8),
            (8, 7),
            (1, 9),
            (9, 10),
            (10, 9),
        ];
        let found = spread(&edges, &[(0, root), (1, 5), (2, 5), (3, 6)], 11);
        assert_eq!(found[4], Some(vec![5]), "both owners have one type");
        assert_eq!(found[5], Some(vec![5, 6]));
        assert_eq!(found[6], None, "a variable leads to it as well");
        assert_eq!(found[8], None);
        assert_eq!(found[10], Some(vec![5]), "a ring");
    }

    #[test]
    fn a_long_way_against_the_numbers_is_given_up_or_right() {
        // Two chains that go up and down so often that no few passes follow them.
        let count = 400;
        let mut order: Vec<u32> = (1..count).collect();
        order.sort_by_key(|number| (number.wrapping_mul(2_654_435_761), *number));
        let mut edges = vec![(0, order[0])];
        edges.extend(order.windows(2).map(|two| (two[0], two[1])));
        for found in &spread(&edges, &[(0, 3)], count)[1..] {
            assert!(found.is_none() || *found == Some(vec![3]));
        }
        let found = spread(&edges, &[(0, u32::MAX)], count);
        assert!(found.iter().all(Option::is_none), "a root is never a type");
    }

    #[test]
    fn more_types_than_are_told_apart_are_many() {
        let count = MOST as u32 + 1;
        let edges: Vec<(u32, u32)> = (0..count).map(|number| (number, count)).collect();
        let fixed: Vec<(u32, u32)> = (0..count).map(|number| (number, number)).collect();
        let found = spread(&edges, &fixed, count + 1);
        assert_eq!(found[count as usize], Some(Vec::new()));
    }
}
