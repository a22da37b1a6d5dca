//! A census: two looks at a target, and what they say.
//!
//! ```text
//!  look 1   blocks, edges with types, roots -> walk -> blocks that nothing reaches
//!  look 2   if there are such blocks: pointers to them; what nothing reached both times is lost
//!  then     of look 1: holders -> rows
//! ```
//!
//! A process runs on meanwhile. A pointer that moves from a place that was not read yet to one that
//! was already read is not seen, so one look alone may miss it. A core does not change, so one look
//! is enough.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use loam_format::units::bytes as of_bytes;
use loam_process::apart;
use serde::{Deserialize, Serialize};

use crate::again::{self, Verdict};
use crate::content;
use crate::graph::{self, Graph};
use crate::heap::{self, Heap, HeapError};
use crate::modules::Modules;
use crate::owner::{self, Holders, Walk};
use crate::python::{Pools, Python};
use crate::roots::{self, Root, Roots};
use crate::shared::{self, Labels};
use crate::target::Target;
use crate::tree::{self, Tree};
use crate::types::{Kind, Type, Types};

/// A row of a census: blocks of one type, or blocks without a type that have one holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The type, or the holder.
    pub name: String,
    /// How it is known.
    pub kind: Kind,
    /// Objects of the type; blocks without a type in other rows.
    pub blocks: u64,
    /// Their bytes.
    pub own_bytes: u64,
    /// The same with blocks without a type that belong to them. These add up to all live bytes.
    pub with_parts_bytes: u64,
    /// All that would be free if these blocks were. Rows hold each other, so these do not add up.
    pub held_bytes: u64,
    /// Of `blocks`, those that are lost.
    pub lost_blocks: u64,
    /// Of `with_parts_bytes`, those that are lost.
    pub lost_bytes: u64,
    /// From a root to the one of them that holds most; empty where it was not looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// How the bytes of the one that holds most begin, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// Lost blocks of one type and size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The type, or what the bytes look like.
    pub name: String,
    /// How that is known.
    pub kind: Kind,
    /// Bytes of each.
    pub size: u64,
    /// How many.
    pub blocks: u64,
    /// Of these, those to which no other lost block points.
    pub heads: u64,
    /// Bytes of all, and of the lost blocks that they hold.
    pub held_bytes: u64,
    /// How many blocks of that type and size are held.
    pub reachable: u64,
    /// The type that holds most of them, if another lost block does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How the bytes of one of them begin, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// Blocks and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// How many.
    pub blocks: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }
}

/// A census.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Census {
    /// The allocator, in words.
    pub allocator: String,
    /// Live blocks.
    pub live: Sum,
    /// Rows, by bytes with parts.
    pub rows: Vec<Row>,
    /// What blocks without a type look like.
    pub contents: BTreeMap<String, Sum>,
    /// Blocks that are lost.
    pub lost: Sum,
    /// Groups of them, by bytes held.
    pub groups: Vec<Group>,
    /// Blocks that are reached only from dead parts of stacks, or to just before which a pointer
    /// leads.
    pub doubtful: Sum,
    /// Blocks that one look did not reach, and the other did.
    pub fleeting: Sum,
    /// Seconds between the looks; none if there was one.
    pub between: Option<f64>,
    /// What CPython's own allocator keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Pools>,
    /// Seconds that it took, without the wait.
    pub seconds: f64,
    /// When, in seconds since 1970.
    pub when: f64,
    /// What was not followed and why, in words.
    pub problems: Vec<String>,
    /// What holds what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
}

impl Census {
    /// Bytes that have a type, or owners with one.
    pub fn typed_bytes(&self) -> u64 {
        let typed = self.rows.iter().filter(|row| row.kind.has_type());
        typed.map(|row| row.with_parts_bytes).sum()
    }
}

/// What is known of a heap between the steps.
struct Look {
    heap: Heap,
    roots: Roots,
    walk: Walk,
    graph: Graph,
}

/// Opens a target anew for each look.
pub type Open<'a> = dyn Fn() -> Result<Box<dyn Target>, String> + 'a;

/// Why there is no census.
#[derive(Debug, thiserror::Error)]
pub enum CensusError {
    /// The target can not be opened.
    #[error("{0}")]
    Open(String),
    /// Its heap can not be read.
    #[error(transparent)]
    Heap(#[from] HeapError),
}

/// What is wanted beside the counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// The time between the two looks at what runs. Without it there is one look, and what is
    /// called lost may only have been on its way.
    pub wait: Option<Duration>,
    /// How the bytes of an example begin. They are the program's secrets.
    pub content: bool,
}

/// Takes a census.
pub fn take(open: &Open, wanted: Wanted) -> Result<Census, CensusError> {
    let begun = Instant::now();
    let mut waited = Duration::ZERO;
    let target = open().map_err(CensusError::Open)?;
    let wait = wanted.wait.filter(|_| !target.is_still());
    let again = |unreached: &[(u64, u64)]| {
        if unreached.is_empty() || wanted.wait.is_none() {
            return Ok(None);
        }
        let Some(wait) = wait else {
            return Ok(Some(again::look(&*target, unreached)?));
        };
        let since = Instant::now();
        apart::compute(|| std::thread::sleep(wait));
        waited = since.elapsed();
        // Its mappings have changed, too.
        let target = open().map_err(CensusError::Open)?;
        Ok(Some(again::look(&*target, unreached)?))
    };
    let mut census = of(&*target, again, wanted.content)?;
    census.between = (waited > Duration::ZERO).then_some(waited.as_secs_f64());
    census.seconds = (begun.elapsed() - waited).as_secs_f64();
    Ok(census)
}

fn look(target: &dyn Target, modules: &Modules, types: &Types, heap: Heap) -> Look {
    let graph = graph::scan(target, &heap.blocks, types);
    let roots = roots::find(target, modules, Some(types), &heap.blocks, &heap.ranges);
    let walk = apart::compute(|| Walk::over(&graph, &roots, heap.blocks.count() as u32));
    Look {
        heap,
        roots,
        walk,
        graph,
    }
}

/// Addresses and sizes of the blocks that a look did not reach; sorted.
fn unreached(look: &Look) -> Vec<(u64, u64)> {
    let blocks = &look.heap.blocks;
    (0..blocks.count() as u32)
        .filter(|block| look.walk.is_held(*block) == Some(false))
        .map(|block| (blocks.address(block), blocks.size(block)))
        .collect()
}

/// `again`: what a second look says of blocks that the first one did not reach; none if there is
/// no second look.
fn of(
    target: &dyn Target,
    again: impl FnOnce(&[(u64, u64)]) -> Result<Option<Verdict>, CensusError>,
    content: bool,
) -> Result<Census, CensusError> {
    let modules = Modules::of(target);
    let heap = heap::read(target, &modules)?;
    let python = Python::is_in(&modules).then(|| Python::of(target, &modules));
    let types = Types::of(target, &modules, python);
    let mut look = look(target, &modules, &types, heap);
    let mut problems = std::mem::take(&mut look.heap.problems);
    problems.extend(target.problems());
    problems.extend(unseen(&look));
    let lost = again(&apart::compute(|| unreached(&look)))?;
    let numbers = std::mem::take(&mut look.graph.types);
    let Look {
        heap,
        roots,
        walk,
        graph,
    } = look;
    let ends = (walk.behind_strong, walk.lost_root());
    let found = apart::compute(|| owner::holders(graph, &roots, walk));
    let all = types.into_all();
    let mut sorter = Sorter {
        heap: &heap,
        roots: &roots,
        types: &all,
        numbers: &numbers,
        found: &found,
        ends,
        lost: lost.as_ref(),
        contents_of: content.then_some(target),
        owner: Vec::new(),
        retained: Vec::new(),
    };
    let mut census = apart::compute(|| sorter.census());
    census.tree = Some(apart::compute(|| sorter.tree()));
    census.allocator.clone_from(&heap.allocator);
    census.pools.clone_from(&heap.pools);
    census.problems = problems;
    Ok(census)
}

fn unseen(look: &Look) -> Vec<String> {
    let mut problems = Vec::new();
    let (partly, running) = look.roots.partly;
    if running > 0 {
        problems.push(format!(
            "{running} threads ran: their registers were not seen, and all of their stacks counted"
        ));
    }
    if partly > 0 {
        problems.push(format!(
            "of {partly} sleeping threads the registers of the system call were seen, and no others"
        ));
    }
    let unread = look.graph.unread + look.roots.unread;
    if unread > 0 {
        problems.push(format!(
            "{} went away before they were read",
            of_bytes(unread as f64)
        ));
    }
    problems
}

/// Paths are looked for, for so many rows and groups.
const PATHS: usize = 40;
/// A search for a path gives up after so many blocks.
const LONGEST_SEARCH: usize = 200_000;
/// So many bytes of a block are shown.
const SHOWN: u64 = 48;
/// A path longer than this is cut in the middle.
const LONGEST_PATH: usize = 12;

struct Sorter<'a> {
    heap: &'a Heap,
    roots: &'a Roots,
    types: &'a [Type],
    numbers: &'a [u32],
    found: &'a Holders,
    /// Numbers behind strong roots, and the lost blocks' root.
    ends: (u32, u32),
    /// Blocks that are lost; none: all that nothing reaches.
    lost: Option<&'a Verdict>,
    /// Whose bytes are shown; none: nobody's.
    contents_of: Option<&'a dyn Target>,
    /// For each number the nearest holder with a type, itself included; or a root.
    owner: Vec<u32>,
    /// For each number the bytes that it holds.
    retained: Vec<u64>,
}

#[derive(Default)]
struct Tally {
    blocks: u64,
    own: u64,
    parts: u64,
    held: u64,
    lost_blocks: u64,
    lost: u64,
    /// The number that holds most.
    largest: (u64, u32),
}

impl Sorter<'_> {
    fn block(&self, number: u32) -> Option<u32> {
        let node = self.found.order[number as usize];
        ((node as usize) < self.heap.blocks.count()).then_some(node)
    }

    fn root(&self, number: u32) -> Option<&Root> {
        let node = self.found.order[number as usize] as usize;
        let place = node.checked_sub(self.heap.blocks.count())?;
        self.roots.all.get(place)
    }

    fn kind(&self, block: u32) -> &Type {
        &self.types[self.numbers[block as usize] as usize]
    }

    /// The key of the row of a number without a type of its own, by its owner.
    fn key(&self, number: u32, owner: u32) -> (Kind, String) {
        let content = |block: Option<u32>| {
            block.map_or_else(String::new, |block| self.kind(block).name.clone())
        };
        if let Some(block) = self.block(owner) {
            let kind = self.kind(block);
            if kind.kind.is_type() {
                return (kind.kind, kind.name.clone());
            }
        }
        if owner == self.ends.1 {
            let what = content(self.block(number));
            return (
                Kind::Unheld,
                if number == owner {
                    "all".to_owned()
                } else {
                    what
                },
            );
        }
        match self.root(owner) {
            Some(root) => match root.class {
                Some(class) => {
                    let class = &self.types[class as usize].name;
                    (Kind::Object, format!("{}, a {class}", root.name))
                }
                None => (Kind::Root, root.name.clone()),
            },
            None if owner > 0 => (Kind::Root, "the end of the block before".to_owned()),
            None => (Kind::Shared, content(self.block(number))),
        }
    }

    fn is_typed(&self, number: u32) -> bool {
        self.block(number)
            .is_some_and(|block| self.kind(block).kind.is_type())
    }

    fn census(&mut self) -> Census {
        let count = self.found.order.len();
        self.owner = Vec::with_capacity(count);
        for number in 0..count as u32 {
            let is_own = self.block(number).is_none() || self.is_typed(number);
            let owner = if is_own {
                number
            } else {
                self.owner[self.found.holder[number as usize] as usize]
            };
            self.owner.push(owner);
        }
        let (labels, label) = self.labels();
        self.retained = vec![0; count];
        for number in (0..count as u32).rev() {
            if let Some(block) = self.block(number) {
                self.retained[number as usize] += self.heap.blocks.size(block);
            }
            if number > 0 {
                let above = self.found.holder[number as usize] as usize;
                self.retained[above] += self.retained[number as usize];
            }
        }
        let mut rows: HashMap<(Kind, String), Tally> = HashMap::new();
        let mut by_type: HashMap<u32, Tally> = HashMap::new();
        let mut by_owner: HashMap<u32, Tally> = HashMap::new();
        let mut lost: HashMap<(u32, u64), Group> = HashMap::new();
        let mut holders: HashMap<(u32, u64), HashMap<u32, u64>> = HashMap::new();
        let mut contents = vec![Sum::default(); self.types.len()];
        let (mut live, mut all_lost) = (Sum::default(), Sum::default());
        let (mut doubtful, mut fleeting) = (Sum::default(), Sum::default());
        // What one variable that is an object holds has its row.
        let of_label = |label: u32, owner: u32| {
            let is_object = self.root(owner).is_some_and(|root| root.class.is_some());
            labels.types(label).filter(|_| !is_object)
        };
        for number in 0..count as u32 {
            let Some(block) = self.block(number) else {
                continue;
            };
            let size = self.heap.blocks.size(block);
            live.add(size);
            let is_unreached = number >= self.ends.1;
            let place = (self.heap.blocks.address(block), size);
            let is_lost = is_unreached && self.lost.is_none_or(|told| told.lost.contains(&place));
            let is_in_doubt = self.lost.is_some_and(|told| told.doubtful.contains(&place));
            if is_lost {
                all_lost.add(size);
            } else if is_unreached && !is_in_doubt {
                fleeting.add(size);
            } else if number >= self.ends.0 {
                doubtful.add(size);
            }
            let retained = self.retained[number as usize];
            let owner = self.owner[number as usize];
            let kind_number = self.numbers[block as usize];
            let is_typed = owner == number;
            if !is_typed {
                contents[kind_number as usize].add(size);
            }
            let tally = if is_typed {
                let tally = by_type.entry(kind_number).or_default();
                tally.blocks += 1;
                tally.own += size;
                if !self.is_nested(number, kind_number) {
                    tally.held += retained;
                    tally.largest = tally.largest.max((retained, number));
                }
                tally.lost_blocks += u64::from(is_lost);
                tally
            } else if self.block(owner).is_some() {
                let owner = self
                    .block(owner)
                    .map_or(0, |block| self.numbers[block as usize]);
                by_type.entry(owner).or_default()
            } else if let Some(kinds) = of_label(label[number as usize], owner) {
                match kinds {
                    [one] => by_type.entry(*one).or_default(),
                    kinds => {
                        let key = (Kind::Owners, self.together(kinds));
                        let tally = rows.entry(key).or_default();
                        tally.blocks += 1;
                        tally.held += size;
                        tally.largest = tally.largest.max((retained, number));
                        tally
                    }
                }
            } else if owner == 0 || owner == self.ends.1 {
                let tally = rows.entry(self.key(number, owner)).or_default();
                tally.blocks += 1;
                tally.held += size;
                tally.largest = tally.largest.max((retained, number));
                tally.lost_blocks += u64::from(is_lost);
                tally
            } else {
                let tally = by_owner.entry(owner).or_default();
                tally.blocks += 1;
                tally.held = self.retained[owner as usize];
                tally.lost_blocks += u64::from(is_lost);
                tally.largest = tally.largest.max((retained, number));
                tally
            };
            tally.parts += size;
            tally.lost += if is_lost { size } else { 0 };
            let key = (kind_number, size);
            if is_lost {
                let above = self.found.holder[number as usize];
                let group = lost.entry(key).or_insert_with(|| Group {
                    name: self.kind(block).name.clone(),
                    kind: self.kind(block).kind,
                    size,
                    blocks: 0,
                    heads: 0,
                    held_bytes: 0,
                    reachable: 0,
                    holder: None,
                    content: self.content(number),
                });
                group.blocks += 1;
                group.heads += u64::from(above == self.ends.1);
                // A chain of such blocks is held by its first one.
                let is_of_group = self.block(above).is_some_and(|above| {
                    (self.numbers[above as usize], self.heap.blocks.size(above)) == key
                });
                group.held_bytes += if is_of_group { 0 } else { retained };
                if let Some(above) = self.block(self.owner[above as usize]) {
                    let kinds = holders.entry(key).or_default();
                    *kinds.entry(self.numbers[above as usize]).or_default() += 1;
                }
            }
        }
        for block in 0..if lost.is_empty() {
            0
        } else {
            self.heap.blocks.count()
        } as u32
        {
            let key = (self.numbers[block as usize], self.heap.blocks.size(block));
            if let Some(group) = lost.get_mut(&key) {
                group.reachable += 1;
            }
        }
        lost.values_mut()
            .for_each(|group| group.reachable -= group.blocks);
        let contents = contents
            .into_iter()
            .zip(self.types)
            .filter(|one| one.0.blocks > 0);
        let contents = contents
            .map(|(sum, kind)| (kind.name.clone(), sum))
            .collect();
        for (number, tally) in by_type {
            let kind = &self.types[number as usize];
            rows.insert((kind.kind, kind.name.clone()), tally);
        }
        for (owner, tally) in by_owner {
            let row = rows.entry(self.key(owner, owner)).or_default();
            row.blocks += tally.blocks;
            row.parts += tally.parts;
            row.held += tally.held;
            row.lost_blocks += tally.lost_blocks;
            row.lost += tally.lost;
            row.largest = row.largest.max(tally.largest);
        }
        let mut rows: Vec<((Kind, String), Tally)> = rows.into_iter().collect();
        rows.sort_by(|(a, one), (b, other)| other.parts.cmp(&one.parts).then_with(|| a.cmp(b)));
        let rows = rows.into_iter().enumerate();
        let rows = rows.map(|(place, ((kind, name), tally))| Row {
            path: match place < PATHS && kind != Kind::Unheld {
                true => self.path(tally.largest.1),
                false => Vec::new(),
            },
            name,
            kind,
            blocks: tally.blocks,
            own_bytes: tally.own,
            with_parts_bytes: tally.parts,
            held_bytes: tally.held,
            lost_blocks: tally.lost_blocks,
            lost_bytes: tally.lost,
            content: match place < PATHS {
                true => self.content(tally.largest.1),
                false => None,
            },
        });
        let rows = rows.collect();
        let mut groups: Vec<Group> = lost
            .into_iter()
            .map(|(key, mut group)| {
                let most = holders
                    .get(&key)
                    .and_then(|kinds| kinds.iter().max_by_key(|one| one.1));
                group.holder = most.map(|(kind, _)| self.types[*kind as usize].name.clone());
                group
            })
            .collect();
        groups.sort_by(|a, b| {
            let key = |one: &Group| (one.held_bytes, one.blocks, one.size);
            key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
        });
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Census {
            allocator: String::new(),
            live,
            rows,
            contents,
            lost: all_lost,
            groups,
            doubtful,
            fleeting,
            between: None,
            pools: None,
            seconds: 0.0,
            when: now.map_or(0.0, |now| now.as_secs_f64()),
            problems: Vec::new(),
            tree: None,
        }
    }

    /// The types whose objects share the blocks that no one object holds.
    fn labels(&self) -> (Labels, Vec<u32>) {
        let mut labels = Labels::of(self.types.len());
        let mut all = Vec::with_capacity(self.owner.len());
        for (number, owner) in self.owner.iter().enumerate() {
            let kind = match self.block(*owner) {
                Some(block) => Some(self.numbers[block as usize]),
                None => self.root(*owner).and_then(|root| root.class),
            };
            let is_root = self.block(number as u32).is_none();
            all.push(match kind {
                _ if number as u32 >= self.ends.1 => shared::ROOT,
                Some(kind) => labels.one(kind),
                None if is_root => shared::ROOT,
                None => shared::OPEN,
            });
        }
        labels.spread(&self.found.before, &mut all);
        (labels, all)
    }

    /// Names of types, for people.
    fn together(&self, kinds: &[u32]) -> String {
        let names: Vec<&str> = kinds
            .iter()
            .map(|kind| self.types[*kind as usize].name.as_str())
            .collect();
        match &names[..] {
            [] => "objects of many types".to_owned(),
            [one] => (*one).to_owned(),
            [some @ .., _, _] if some.len() > 1 => {
                format!(
                    "{} and {} other types",
                    some[..2].join(", "),
                    names.len() - 2
                )
            }
            [some @ .., last] => format!("{} and {last}", some.join(", ")),
        }
    }

    /// Whether a block of the same type holds this one. Chains of holders of other types are
    /// followed so far.
    fn is_nested(&self, number: u32, kind: u32) -> bool {
        const FURTHEST: usize = 256;
        let mut at = number;
        for _ in 0..FURTHEST {
            at = self.owner[self.found.holder[at as usize] as usize];
            match self.block(at) {
                Some(block) if self.numbers[block as usize] == kind => return true,
                Some(_) => {}
                None => return false,
            }
        }
        false
    }

    /// The name of a step of a path.
    /// How the bytes of a block begin, if that is wanted.
    fn content(&self, number: u32) -> Option<String> {
        let (target, block) = (self.contents_of?, self.block(number)?);
        let address = self.heap.blocks.address(block);
        let mut bytes = vec![0; self.heap.blocks.size(block).min(SHOWN) as usize];
        target.fill(address, &mut bytes);
        Some(format!("at {address:#x}: {}", content::shown(&bytes)))
    }

    /// What holds what, in names.
    fn tree(&self) -> Tree {
        let key = |number: u32| match self.block(number) {
            Some(block) => self.numbers[block as usize],
            None => {
                self.types.len() as u32 + self.found.order[number as usize]
                    - self.heap.blocks.count() as u32
            }
        };
        let name = |number: u32| {
            let Some(block) = self.block(number) else {
                return self.key(number, number);
            };
            let kind = self.kind(block);
            (kind.kind, kind.name.clone())
        };
        let size = |number: u32| self.block(number).map(|block| self.heap.blocks.size(block));
        tree::of(&self.found.holder, key, name, size)
    }

    fn step(&self, number: u32) -> String {
        let Some(block) = self.block(number) else {
            let (_, name) = self.key(number, number);
            return name;
        };
        let kind = self.kind(block);
        match kind.kind {
            Kind::Content => {
                let size = of_bytes(self.heap.blocks.size(block) as f64);
                format!(
                    "{} of {size}",
                    if kind.name == "bytes" {
                        "block"
                    } else {
                        &kind.name
                    }
                )
            }
            _ => kind.name.clone(),
        }
    }

    /// The shortest path from a root to a number, in words.
    fn path(&self, number: u32) -> Vec<String> {
        let mut towards: HashMap<u32, u32> = HashMap::from([(number, number)]);
        let mut queue = VecDeque::from([number]);
        let mut root = None;
        while let Some(at) = queue.pop_front() {
            if self.block(at).is_none() {
                root = Some(at);
                break;
            }
            if towards.len() > LONGEST_SEARCH {
                break;
            }
            for before in self.found.before.of(at) {
                if !towards.contains_key(before) {
                    towards.insert(*before, at);
                    queue.push_back(*before);
                }
            }
        }
        let Some(mut at) = root else {
            return Vec::new();
        };
        let mut steps: Vec<(String, u64)> = Vec::new();
        loop {
            let name = self.step(at);
            match steps.last_mut() {
                Some((last, times)) if *last == name => *times += 1,
                _ => steps.push((name, 1)),
            }
            let next = towards[&at];
            if next == at {
                break;
            }
            at = next;
        }
        if steps.len() > LONGEST_PATH {
            let left_out = steps.len() - LONGEST_PATH;
            let half = LONGEST_PATH / 2;
            steps.splice(half..half + left_out, [(format!("… {left_out} more …"), 1)]);
        }
        let steps = steps.into_iter();
        steps
            .map(|(name, times)| match times {
                1 => name,
                times => format!("{name} (×{times})"),
            })
            .collect()
    }
}
