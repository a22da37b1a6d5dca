//! Who holds what, by names: the tree of holders with equal names under one holder taken together.
//!
//! ```text
//!  all -> variable `sessions` -> pointers -> Session -> text
//!                                        '-> ...     '-> numbers
//! ```
//!
//! A name that an ancestor a few steps above has is that ancestor's: a list of a million nodes is
//! one place. The tree is cut to the places that hold most, so that it is small however large the
//! heap is.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::types::Kind;

/// A place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The number of the holder's place; it is lower, but for the first place.
    pub parent: u32,
    /// The number of the name.
    pub name: u32,
    /// How it is known.
    pub kind: Kind,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of these.
    pub own_bytes: u64,
    /// These, and what they hold.
    pub held_bytes: u64,
}

/// Who holds what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Names.
    pub names: Vec<String>,
    /// Places; the first one is all.
    pub nodes: Vec<Node>,
    /// Places that hold no more than this may be missing.
    pub least_bytes: u64,
}

/// So many places stay.
pub const MOST: usize = 10_000;
/// So many are told apart before the tree is cut.
const MOST_APART: usize = 1 << 20;
/// Deeper ones belong to the last place.
const DEEPEST: u16 = 48;
/// A name is looked for in so many ancestors.
const FOLDED: usize = 6;
/// Longer names are cut.
const LONGEST_NAME: usize = 160;

struct Place {
    parent: u32,
    key: u32,
    /// The first number of it.
    number: u32,
    depth: u16,
    blocks: u64,
    own: u64,
    held: u64,
}

/// Makes the tree. `holder` has a lower number for each number but 0; equal keys have equal names.
pub fn of(
    holder: &[u32],
    key: impl Fn(u32) -> u32,
    name: impl Fn(u32) -> (Kind, String),
    size: impl Fn(u32) -> Option<u64>,
) -> Tree {
    let mut places: Vec<Place> = Vec::new();
    let mut known: HashMap<(u32, u32), u32> = HashMap::new();
    let mut place_of: Vec<u32> = Vec::with_capacity(holder.len());
    for number in 0..holder.len() as u32 {
        let own_key = key(number);
        let parent = match number {
            0 => 0,
            number => place_of[holder[number as usize] as usize],
        };
        let place = match number {
            0 => None,
            _ => folded(&places, parent, own_key),
        };
        let place = place.or_else(|| known.get(&(parent, own_key)).copied());
        let place = place.unwrap_or_else(|| {
            let depth = places.get(parent as usize).map_or(0, |one| one.depth + 1);
            if depth > DEEPEST || places.len() >= MOST_APART {
                return parent;
            }
            places.push(Place {
                parent,
                key: own_key,
                number,
                depth,
                blocks: 0,
                own: 0,
                held: 0,
            });
            let place = places.len() as u32 - 1;
            known.insert((parent, own_key), place);
            place
        });
        if let Some(size) = size(number) {
            places[place as usize].blocks += 1;
            places[place as usize].own += size;
        }
        place_of.push(place);
    }
    drop((known, place_of));
    for place in (0..places.len()).rev() {
        places[place].held += places[place].own;
        if place > 0 {
            let (held, parent) = (places[place].held, places[place].parent);
            places[parent as usize].held += held;
        }
    }
    cut(&places, name)
}

/// The place among the next ancestors that has this key.
fn folded(places: &[Place], mut place: u32, key: u32) -> Option<u32> {
    for _ in 0..FOLDED {
        let one = &places[place as usize];
        if one.key == key {
            return Some(place);
        }
        if place == 0 {
            return None;
        }
        place = one.parent;
    }
    None
}

/// The places that hold most. A holder holds what its places hold, so it stays if one of them does.
fn cut(places: &[Place], name: impl Fn(u32) -> (Kind, String)) -> Tree {
    let mut kept: Vec<u32> = (0..places.len() as u32).collect();
    kept.sort_by_key(|place| (std::cmp::Reverse(places[*place as usize].held), *place));
    let least_bytes = kept
        .get(MOST)
        .map_or(0, |place| places[*place as usize].held);
    kept.truncate(MOST);
    kept.sort_unstable();
    let mut tree = Tree {
        least_bytes,
        ..Tree::default()
    };
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    let mut names: HashMap<String, u32> = HashMap::new();
    for place in kept {
        let one = &places[place as usize];
        let (kind, text) = name(one.number);
        let text = crate::names::printable(&text, LONGEST_NAME);
        let name = *names.entry(text.clone()).or_insert_with(|| {
            tree.names.push(text);
            tree.names.len() as u32 - 1
        });
        numbers.insert(place, tree.nodes.len() as u32);
        tree.nodes.push(Node {
            parent: numbers.get(&one.parent).copied().unwrap_or(0),
            name,
            kind,
            blocks: one.blocks,
            own_bytes: one.own,
            held_bytes: one.held,
        });
    }
    tree
}

impl Tree {
    /// For each place, what the place of that name held in an earlier tree.
    pub fn before(&self, earlier: &Tree) -> Vec<u64> {
        let mut numbers: HashMap<(u32, Kind, &str), u32> = HashMap::new();
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            numbers.insert((node.parent, node.kind, self.name(node)), number as u32);
        }
        // What was too small to be told then counts as unchanged.
        let unknown = |node: &Node| match node.held_bytes <= earlier.least_bytes {
            true => node.held_bytes,
            false => 0,
        };
        let mut before: Vec<u64> = self.nodes.iter().map(unknown).collect();
        let mut same: Vec<Option<u32>> = Vec::with_capacity(earlier.nodes.len());
        for (number, node) in earlier.nodes.iter().enumerate() {
            let found = match number {
                0 => (!self.nodes.is_empty()).then_some(0),
                _ => same
                    .get(node.parent as usize)
                    .copied()
                    .flatten()
                    .and_then(|parent| {
                        numbers
                            .get(&(parent, node.kind, earlier.name(node)))
                            .copied()
                    }),
            };
            if let Some(found) = found {
                before[found as usize] = node.held_bytes;
            }
            same.push(found);
        }
        before
    }

    /// The name of a place.
    pub fn name(&self, node: &Node) -> &str {
        self.names
            .get(node.name as usize)
            .map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers with holders and names; each block has 10 bytes, and number 0 is no block.
    fn tree(all: &[(u32, &str)]) -> Tree {
        let holder: Vec<u32> = all.iter().map(|(holder, _)| *holder).collect();
        let mut names: Vec<&str> = Vec::new();
        for (_, name) in all {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let key = |number: u32| {
            let name = all[number as usize].1;
            names.iter().position(|one| *one == name).unwrap() as u32
        };
        let name = |number: u32| (Kind::Class, all[number as usize].1.to_owned());
        of(&holder, key, name, |number| (number > 0).then_some(10))
    }

    fn told(tree: &Tree) -> Vec<(u32, &str, u64, u64)> {
        let node = |node: &Node| (node.parent, node.blocks, node.held_bytes);
        let nodes = tree.nodes.iter().map(|one| (node(one), tree.name(one)));
        nodes
            .map(|((parent, blocks, held), name)| (parent, name, blocks, held))
            .collect()
    }

    #[test]
    fn equal_names_under_one_holder_are_one_place() {
        let all = [
            (0, "all"),
            (0, "list"),
            (1, "node"),
            (2, "node"),
            (2, "text"),
            (3, "node"),
            (3, "text"),
        ];
        let tree = tree(&all);
        let expected = [
            (0, "all", 0, 60),
            (0, "list", 1, 60),
            (1, "node", 3, 50),
            (2, "text", 2, 20),
        ];
        assert_eq!(told(&tree), expected);
        assert_eq!(tree.least_bytes, 0);
    }

    #[test]
    fn a_million_names_are_cut_to_those_that_hold_most() {
        let count = 1_000_001;
        let holder = vec![0; count];
        let size = |number: u32| (number > 0).then_some(u64::from(number));
        let name = |number: u32| (Kind::Class, format!("Type{number}"));
        let tree = of(&holder, |number| number, name, size);
        assert_eq!(tree.nodes.len(), MOST);
        assert_eq!(tree.nodes[0].held_bytes, (1..count as u64).sum::<u64>());
        assert_eq!(tree.name(&tree.nodes[MOST - 1]), "Type1000000");
        assert_eq!(tree.least_bytes, count as u64 - MOST as u64);
    }

    #[test]
    fn places_are_compared_by_their_way_from_the_top() {
        let before = tree(&[(0, "all"), (0, "a"), (1, "x"), (0, "b"), (3, "x")]);
        let after = tree(&[(0, "all"), (0, "b"), (1, "x"), (1, "x"), (0, "c"), (4, "x")]);
        let names: Vec<&str> = after.nodes.iter().map(|one| after.name(one)).collect();
        assert_eq!(names, ["all", "b", "x", "c", "x"]);
        assert_eq!(after.before(&before), [40, 20, 10, 0, 0]);
    }

    #[test]
    fn a_deep_tree_of_many_names_ends_somewhere() {
        let count = 10_000_u32;
        let holder: Vec<u32> = (0..count).map(|number| number.saturating_sub(1)).collect();
        let name = |number: u32| (Kind::Class, number.to_string());
        let tree = of(&holder, |number| number, name, |_| Some(1));
        assert_eq!(tree.nodes.len(), usize::from(DEEPEST) + 1);
        assert_eq!(tree.nodes[0].held_bytes, u64::from(count));
        assert_eq!(
            tree.nodes.last().unwrap().blocks,
            u64::from(count - u32::from(DEEPEST))
        );
    }
}
