//! Who holds a block: the blocks and roots through which every path to it leads (its dominators).
//!
//! ```text
//!  numbers   0: all roots together; then roots, live blocks, and last the lost ones, in the order
//!            of a depth-first walk
//!  parent    by which a number was reached first
//!  before    who points to a number (the graph turned round)
//!  holder    the nearest number through which all paths lead
//! ```
//!
//! The walk and the search for holders (semi-dominators and nearest common ancestors) need no
//! recursion and a time that grows little faster than the graph. Nothing here is of more than 32
//! bits a block.

use crate::graph::Graph;
use crate::roots::{Rank, Roots};
use crate::table::NONE;

/// The numbers of a walk from the roots over all blocks.
pub struct Walk {
    /// The node of each number: a block, or [`Walk::blocks`] and the number of a root behind it.
    pub order: Vec<u32>,
    /// The number from which each was reached.
    pub parent: Vec<u32>,
    /// The number of each node.
    number: Vec<u32>,
    /// How many blocks there are.
    pub blocks: u32,
    /// Numbers below this one are reached from variables and mappings.
    pub behind_lasting: u32,
    /// Numbers below this one are reached from those, or from stacks.
    pub behind_strong: u32,
    /// Numbers below this one, and not below the others, are reached from dead parts of stacks
    /// alone.
    pub behind_weak: u32,
    /// Blocks that are lost and that no other lost block points to, or that stand for a ring of
    /// them.
    pub heads: u32,
}

struct Edges<'a> {
    graph: &'a Graph,
    roots: Vec<u32>,
    offsets: Vec<usize>,
    blocks: u32,
}

impl Edges<'_> {
    fn of(&self, node: u32) -> &[u32] {
        match node.checked_sub(self.blocks) {
            None => self.graph.edges(node),
            Some(root) => match self.offsets.get(root as usize..root as usize + 2) {
                Some(ends) => &self.roots[ends[0]..ends[1]],
                None => &[],
            },
        }
    }
}

fn edges<'a>(graph: &'a Graph, roots: &Roots, blocks: u32) -> Edges<'a> {
    let mut offsets = vec![0; roots.all.len() + 1];
    for (root, _) in &roots.edges {
        offsets[*root as usize + 1] += 1;
    }
    for place in 1..offsets.len() {
        offsets[place] += offsets[place - 1];
    }
    Edges {
        graph,
        roots: roots.edges.iter().map(|(_, block)| *block).collect(),
        offsets,
        blocks,
    }
}

impl Walk {
    /// Walks over all blocks.
    pub fn over(graph: &Graph, roots: &Roots, blocks: u32) -> Walk {
        let edges = edges(graph, roots, blocks);
        // Behind the roots: all of them together, and what stands for the lost blocks' root.
        let together = blocks + roots.all.len() as u32;
        let lost = together + 1;
        let all = lost as usize + 2;
        let mut walk = Walk {
            order: Vec::with_capacity(all),
            parent: Vec::with_capacity(all),
            number: vec![NONE; all],
            blocks,
            behind_lasting: 0,
            behind_strong: 0,
            behind_weak: 0,
            heads: 0,
        };
        let mut cursor = Vec::with_capacity(all);
        walk.from(together, 0, &edges, &mut cursor);
        for rank in Rank::ALL {
            for (root, what) in roots.all.iter().enumerate() {
                if what.rank == rank {
                    walk.from(blocks + root as u32, 0, &edges, &mut cursor);
                }
            }
            if rank == Rank::Passing {
                walk.behind_ends(together + 2, graph, roots, &edges, &mut cursor);
            }
            let behind = walk.order.len() as u32;
            match rank {
                Rank::Lasting => walk.behind_lasting = behind,
                Rank::Passing => walk.behind_strong = behind,
                Rank::Dead => walk.behind_weak = behind,
            }
        }
        let root = walk.order.len() as u32;
        walk.from(lost, 0, &edges, &mut cursor);
        let mut has_before = vec![0_u64; (blocks as usize).div_ceil(64)];
        for block in (0..blocks).filter(|block| walk.number[*block as usize] == NONE) {
            for to in graph.edges(block) {
                has_before[*to as usize / 64] |= 1 << (to % 64);
            }
        }
        for is_ring in [false, true] {
            for block in 0..blocks {
                let has_before = has_before[block as usize / 64] >> (block % 64) & 1 == 1;
                if walk.number[block as usize] == NONE && (is_ring || !has_before) {
                    walk.from(block, root, &edges, &mut cursor);
                    walk.heads += 1;
                }
            }
        }
        walk
    }

    /// Walks on from blocks that lie where a buffer of a reached one ends, and that nothing else
    /// reached: they may be held, and who holds them is not known.
    fn behind_ends(
        &mut self,
        node: u32,
        graph: &Graph,
        roots: &Roots,
        edges: &Edges,
        cursor: &mut Vec<u32>,
    ) {
        if graph.ends.is_empty() && roots.ends.is_empty() {
            return;
        }
        let root = self.order.len() as u32;
        self.from(node, 0, edges, cursor);
        let mut at = 0;
        while let Some(from) = self.order.get(at) {
            let (ends, from) = match from.checked_sub(self.blocks) {
                Some(root) => (&roots.ends, root),
                None => (&graph.ends, *from),
            };
            let first = ends.partition_point(|(other, _)| *other < from);
            for (_, to) in ends[first..].iter().take_while(|(other, _)| *other == from) {
                self.from(*to, root, edges, cursor);
            }
            at += 1;
        }
    }

    /// Whether a block is reached: `Some(true)` from a strong root, `None` only from weak ones.
    pub fn is_held(&self, block: u32) -> Option<bool> {
        match self.number[block as usize] {
            number if number < self.behind_strong => Some(true),
            number if number < self.behind_weak => None,
            _ => Some(false),
        }
    }

    /// The number of the node that stands for the lost blocks' root.
    pub fn lost_root(&self) -> u32 {
        self.behind_weak
    }

    fn from(&mut self, node: u32, parent: u32, edges: &Edges, cursor: &mut Vec<u32>) {
        if self.number[node as usize] != NONE {
            return;
        }
        let first = self.add(node, parent, cursor);
        let mut at = first;
        loop {
            let targets = edges.of(self.order[at as usize]);
            let place = &mut cursor[at as usize];
            match targets.get(*place as usize) {
                Some(target) => {
                    *place += 1;
                    if self.number[*target as usize] == NONE {
                        at = self.add(*target, at, cursor);
                    }
                }
                None if at == first => return,
                None => at = self.parent[at as usize],
            }
        }
    }

    fn add(&mut self, node: u32, parent: u32, cursor: &mut Vec<u32>) -> u32 {
        let number = self.order.len() as u32;
        self.number[node as usize] = number;
        self.order.push(node);
        self.parent.push(parent);
        cursor.push(0);
        number
    }
}

/// Who points to whom, by numbers.
pub struct Before {
    offsets: Vec<u32>,
    all: Vec<u32>,
}

impl Before {
    /// A graph of known edges.
    #[cfg(test)]
    pub fn of_edges(edges: &[(u32, u32)], count: u32) -> Before {
        let mut turned: Vec<(u32, u32)> = edges.iter().map(|(from, to)| (*to, *from)).collect();
        turned.sort_unstable();
        let first = |number: u32| turned.partition_point(|(to, _)| *to < number) as u32;
        Before {
            offsets: (0..=count).map(first).collect(),
            all: turned.iter().map(|(_, from)| *from).collect(),
        }
    }

    /// Those that point to a number.
    pub fn of(&self, number: u32) -> &[u32] {
        let start = self.offsets[number as usize] as usize;
        let end = self.offsets[number as usize + 1] as usize;
        &self.all[start..end]
    }
}

/// The holders of all numbers.
pub struct Holders {
    /// The node of each number.
    pub order: Vec<u32>,
    /// The holder of each number. It is lower, but for 0.
    pub holder: Vec<u32>,
    /// Who points to whom.
    pub before: Before,
}

/// Turns the graph round and finds who holds whom.
pub fn holders(graph: Graph, roots: &Roots, walk: Walk) -> Holders {
    let before = turned(graph, roots, &walk);
    let Walk {
        order,
        parent,
        number,
        ..
    } = walk;
    drop(number);
    let count = order.len();
    let mut semi: Vec<u32> = (0..count as u32).collect();
    let mut label = semi.clone();
    let mut above = parent.clone();
    let mut way = Vec::new();
    for at in (1..count as u32).rev() {
        let mut least = parent[at as usize];
        for from in before.of(at) {
            let best = lowest(*from, at + 1, &mut above, &mut label, &semi, &mut way);
            least = least.min(semi[best as usize]);
        }
        semi[at as usize] = least;
    }
    drop((above, label));
    let mut holder = parent;
    for at in 1..count {
        let mut candidate = holder[at];
        while candidate > semi[at] {
            candidate = holder[candidate as usize];
        }
        holder[at] = candidate;
    }
    Holders {
        order,
        holder,
        before,
    }
}

/// The number with the lowest semi-dominator on the way up from a number, among those from `last`
/// on.
fn lowest(
    number: u32,
    last: u32,
    above: &mut [u32],
    label: &mut [u32],
    semi: &[u32],
    way: &mut Vec<u32>,
) -> u32 {
    if above[number as usize] < last {
        return label[number as usize];
    }
    way.clear();
    let mut at = number;
    while above[at as usize] >= last {
        way.push(at);
        at = above[at as usize];
    }
    let mut upper = at;
    let mut best = label[at as usize];
    while let Some(at) = way.pop() {
        above[at as usize] = above[upper as usize];
        if semi[best as usize] < semi[label[at as usize] as usize] {
            label[at as usize] = best;
        } else {
            best = label[at as usize];
        }
        upper = at;
    }
    label[number as usize]
}

fn turned(mut graph: Graph, roots: &Roots, walk: &Walk) -> Before {
    let count = walk.order.len();
    let mut offsets = vec![0_u32; count + 1];
    let number = |node: u32| walk.number[node as usize];
    // What is lost itself holds nothing that others hold, and what is in doubt nothing that is not.
    // What only stacks lead to holds nothing that variables hold.
    let ends = [walk.behind_lasting, walk.behind_strong, walk.behind_weak];
    let part = |number: u32| ends.iter().filter(|end| number >= **end).count();
    let counts = |from: u32, to: u32| part(from) <= part(to);
    for (root, block) in &roots.edges {
        if counts(number(walk.blocks + root), number(*block)) {
            offsets[number(*block) as usize + 1] += 1;
        }
    }
    for block in 0..walk.blocks {
        let from = number(block);
        for to in graph.edges(block).iter().map(|to| number(*to)) {
            if counts(from, to) {
                offsets[to as usize + 1] += 1;
            }
        }
    }
    for place in 0..count {
        offsets[place + 1] += offsets[place];
    }
    let mut all = vec![0; offsets[count] as usize];
    let mut put = |to: u32, from: u32, offsets: &mut [u32]| {
        let place = &mut offsets[to as usize];
        all[*place as usize] = from;
        *place += 1;
    };
    for (root, block) in &roots.edges {
        let (from, to) = (number(walk.blocks + root), number(*block));
        if counts(from, to) {
            put(to, from, &mut offsets);
        }
    }
    for block in 0..walk.blocks {
        let from = number(block);
        for to in graph.edges(block).iter().map(|to| number(*to)) {
            if counts(from, to) {
                put(to, from, &mut offsets);
            }
        }
        graph.forget_before(block);
    }
    // Each offset has moved to the next one's place.
    for place in (1..=count).rev() {
        offsets[place] = offsets[place - 1];
    }
    offsets[0] = 0;
    Before { offsets, all }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Root;
    use proptest::prelude::*;

    #[test]
    fn stacks_borrow_what_variables_hold() {
        // The variable has 0, which has 1. A stack points to 1 and to 2, and 2 to 1 and 3.
        let graph = Graph::of_edges(&[&[1], &[], &[1, 3], &[]]);
        let root = |rank| Root {
            name: format!("{rank:?}"),
            rank,
            class: None,
        };
        let roots = Roots {
            all: vec![root(Rank::Passing), root(Rank::Lasting)],
            edges: vec![(0, 1), (0, 2), (1, 0)],
            ..Roots::default()
        };
        let walk = Walk::over(&graph, &roots, 4);
        assert!((0..4).all(|block| walk.is_held(block) == Some(true)));
        let found = holders(graph, &roots, walk);
        let holder_of = |block: u32| {
            let number = found.order.iter().position(|node| *node == block).unwrap();
            found.order[found.holder[number] as usize]
        };
        let held_by: Vec<u32> = (0..4).map(holder_of).collect();
        // Behind the blocks: the stack, and the variable.
        assert_eq!(held_by, [5, 0, 4, 2]);
    }

    #[test]
    fn what_lies_where_a_buffer_ends_is_reached_but_not_held_by_it() {
        // 0 has the buffer 1, which ends where 2 begins; 2 has 3, whose buffer ends where 4 begins.
        // 5 has 1 as well.
        let mut graph = Graph::of_edges(&[&[1], &[], &[3], &[], &[], &[]]);
        graph.ends = vec![(0, 2), (3, 4)];
        let roots = roots(&[0]);
        let walk = Walk::over(&graph, &roots, 6);
        let held: Vec<_> = (0..6).map(|block| walk.is_held(block)).collect();
        let lost = Some(false);
        assert_eq!(
            held,
            [
                Some(true),
                Some(true),
                Some(true),
                Some(true),
                Some(true),
                lost
            ]
        );
        let found = holders(graph, &roots, walk);
        let holder_of = |block: u32| {
            let number = found.order.iter().position(|node| *node == block).unwrap();
            found.order[found.holder[number] as usize]
        };
        assert_eq!((holder_of(1), holder_of(3)), (0, 2));
        // Behind the blocks: the root, all together, the lost ones', the ends'.
        assert_eq!((holder_of(2), holder_of(4)), (6 + 3, 6 + 3));
    }

    fn roots(blocks: &[u32]) -> Roots {
        let mut edges: Vec<(u32, u32)> = blocks.iter().map(|block| (0, *block)).collect();
        edges.sort_unstable();
        edges.dedup();
        Roots {
            all: vec![Root {
                name: "root".into(),
                rank: Rank::Lasting,
                class: None,
            }],
            edges,
            ..Roots::default()
        }
    }

    /// The block that holds each block; none if it is held by roots alone.
    fn held(edges: &[Vec<u32>], from: &[u32]) -> (Vec<Option<u32>>, Vec<u32>) {
        let some: Vec<&[u32]> = edges.iter().map(Vec::as_slice).collect();
        let graph = Graph::of_edges(&some);
        let roots = roots(from);
        let walk = Walk::over(&graph, &roots, edges.len() as u32);
        let lost = (0..edges.len() as u32)
            .filter(|one| walk.is_held(*one) == Some(false))
            .collect();
        let found = holders(graph, &roots, walk);
        let mut held = vec![None; edges.len()];
        for (number, node) in found.order.iter().enumerate() {
            let above = found.order[found.holder[number] as usize];
            if (*node as usize) < edges.len() {
                held[*node as usize] = ((above as usize) < edges.len()).then_some(above);
            }
        }
        (held, lost)
    }

    #[test]
    fn the_holder_is_where_all_paths_meet() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3 -> 4; 5 <-> 6 lost, 7 -> 5 lost.
        let edges: Vec<Vec<u32>> = vec![
            vec![1, 2],
            vec![3],
            vec![3],
            vec![4],
            vec![],
            vec![6],
            vec![5],
            vec![5],
        ];
        let (held, lost) = held(&edges, &[0]);
        assert_eq!(held[..5], [None, Some(0), Some(0), Some(0), Some(3)]);
        assert_eq!(lost, [5, 6, 7]);
        assert_eq!(held[5..], [Some(7), Some(5), None]);
    }

    #[test]
    fn a_ring_of_a_million_is_held_by_its_head_at_once() {
        let count = 1 << 20;
        let edges: Vec<Vec<u32>> = (0..count)
            .map(|at: u32| vec![(at + 1) % count, at.checked_sub(1).unwrap_or(count - 1)])
            .collect();
        let (held, _) = held(&edges, &[0]);
        assert!(held[1..].iter().all(|one| *one == Some(0)));
    }

    proptest! {
        #[test]
        fn holders_are_those_without_which_a_block_is_not_reached(
            links in proptest::collection::vec((0_u32..24, 0_u32..24), 0..80),
            from in proptest::collection::vec(0_u32..24, 1..3),
        ) {
            let mut edges: Vec<Vec<u32>> = vec![Vec::new(); 24];
            for (a, b) in &links {
                if a != b && !edges[*a as usize].contains(b) {
                    edges[*a as usize].push(*b);
                }
            }
            let reached = |without: Option<u32>| {
                let mut seen = vec![false; 24];
                let mut work: Vec<u32> = from
                    .iter()
                    .copied()
                    .filter(|one| Some(*one) != without)
                    .collect();
                while let Some(one) = work.pop() {
                    if !std::mem::replace(&mut seen[one as usize], true) {
                        work.extend(edges[one as usize].iter().filter(|to| Some(**to) != without));
                    }
                }
                seen
            };
            let (held, lost) = held(&edges, &from);
            let all = reached(None);
            let unreached: Vec<u32> = (0..24).filter(|one| !all[*one as usize]).collect();
            prop_assert_eq!(lost, unreached);
            for block in (0..24_u32).filter(|one| all[*one as usize]) {
                // All holders of a block, by leaving each other one out.
                let mut expected: Vec<u32> = (0..24)
                    .filter(|other| {
                        *other != block
                            && all[*other as usize]
                            && !reached(Some(*other))[block as usize]
                    })
                    .collect();
                let mut chain = Vec::new();
                let mut at = block;
                while let Some(above) = held[at as usize] {
                    chain.push(above);
                    at = above;
                }
                chain.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(chain, expected);
            }
        }
    }
}
