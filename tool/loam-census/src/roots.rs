//! Where pointers to blocks begin: variables, stacks, registers, and memory that the program maps
//! itself.

use std::collections::HashMap;
use std::sync::Mutex;

use loam_format::bytes::u64_at;
use loam_format::units::bytes;
use loam_process::mappings::Mapping;

use crate::graph::{share, Ends, WINDOW};
use crate::modules::Modules;
use crate::names;
use crate::table::Table;
use crate::target::{Target, Thread, PAGE};
use crate::types::Types;

/// A root: a variable, a stack, a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// What it is, printable.
    pub name: String,
    /// How much its pointers say.
    pub rank: Rank,
    /// The class of a variable that is an object with virtual functions.
    pub class: Option<u32>,
}

/// How much a root's pointers say of who holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Variables and mappings stay, so what they lead to is held by them.
    Lasting,
    /// Stacks and registers borrow most of what they point to. They hold what nothing else leads
    /// to.
    Passing,
    /// A dead part of a stack: what only it points to is neither held nor surely lost.
    Dead,
}

impl Rank {
    /// All, from the strongest on.
    pub const ALL: [Rank; 3] = [Rank::Lasting, Rank::Passing, Rank::Dead];
}

/// The roots of a target.
#[derive(Debug, Default)]
pub struct Roots {
    /// Strong ones and weak ones.
    pub all: Vec<Root>,
    /// A root and a block to which it points; sorted, each once.
    pub edges: Vec<(u32, u32)>,
    /// A root and a block that begins where a buffer of the root's ends; sorted.
    pub ends: Vec<(u32, u32)>,
    /// Threads whose registers are known in part, and threads that ran.
    pub partly: (usize, usize),
    /// Bytes that were looked at, and bytes that could not be read.
    pub looked_at: u64,
    /// See `looked_at`.
    pub unread: u64,
}

/// No more roots are told apart.
const MOST: usize = 1 << 18;
/// Below a stack pointer the ABI lets leaf functions keep this much.
const RED_ZONE: u64 = 128;
/// The work of one turn.
const PIECE: u64 = 4 << 20;

#[derive(Debug, Clone, Copy)]
enum Whose {
    Variables,
    Stack(u64),
    DeadStack(u64),
    Unfollowed,
    Mapping(usize),
}

#[derive(Default)]
struct Named {
    all: Vec<Root>,
    numbers: HashMap<String, u32>,
}

impl Named {
    fn number(&mut self, name: String, rank: Rank, class: Option<u32>) -> u32 {
        let name = match self.all.len() >= MOST {
            true => "many other roots".to_owned(),
            false => name,
        };
        let all = &mut self.all;
        *self.numbers.entry(name.clone()).or_insert_with(|| {
            all.push(Root { name, rank, class });
            all.len() as u32 - 1
        })
    }
}

/// Finds the roots. `heap`: ranges, sorted, that are no roots. Without `types` variables have none.
pub fn find(
    target: &dyn Target,
    modules: &Modules,
    types: Option<&Types>,
    blocks: &Table,
    heap: &[(u64, u64)],
) -> Roots {
    let threads = target.threads();
    let pieces = pieces(target, modules, &threads, heap);
    let named = Mutex::new(Named::default());
    let looks = share(
        pieces.len(),
        || Look {
            target,
            modules,
            types,
            blocks,
            named: &named,
            window: vec![0; WINDOW],
            found: Vec::new(),
            ends: Ends::default(),
            behind: Vec::new(),
            hint: 0,
            looked_at: 0,
            unread: 0,
        },
        |look, number| look.piece(pieces[number]),
    );
    let (mut edges, mut ends) = (Vec::new(), Vec::new());
    let (mut looked_at, mut unread) = (0, 0);
    for mut look in looks {
        edges.append(&mut look.found);
        ends.append(&mut look.behind);
        looked_at += look.looked_at;
        unread += look.unread;
    }
    let mut named = named
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut hint = 0;
    for thread in &threads {
        for register in &thread.registers {
            if let Some(block) = blocks.find(*register, &mut hint) {
                let name = format!("registers of thread {}", thread.id);
                edges.push((named.number(name, Rank::Passing, None), block));
            }
        }
    }
    for edges in [&mut edges, &mut ends] {
        edges.sort_unstable();
        edges.dedup();
    }
    let partly = threads
        .iter()
        .filter(|one| !one.is_whole && one.stack.is_some());
    let running = threads.iter().filter(|one| one.stack.is_none());
    Roots {
        all: named.all,
        edges,
        ends,
        partly: (partly.count(), running.count()),
        looked_at,
        unread,
    }
}

/// Whether a mapping can have pointers: it can be written to, or has no file, and is no device.
fn may_have(mapping: &Mapping) -> bool {
    let is_device = mapping.name.starts_with("/dev/")
        && !mapping.name.starts_with("/dev/shm/")
        && !mapping.name.starts_with("/dev/zero");
    let is_kernels = mapping.name.starts_with("[v") || mapping.name == "[uprobes]";
    let is_of_a_file = mapping.name.starts_with('/');
    mapping.readable && !is_device && !is_kernels && (mapping.writable || !is_of_a_file)
}

fn pieces(
    target: &dyn Target,
    modules: &Modules,
    threads: &[Thread],
    heap: &[(u64, u64)],
) -> Vec<(u64, u64, Whose)> {
    let mut found = Vec::new();
    let mut add = |start: u64, end: u64, whose: Whose| {
        let mut at = start;
        while at < end {
            let next = (at + PIECE).min(end);
            found.push((at, next, whose));
            at = next;
        }
    };
    for (number, mapping) in target.mappings().iter().enumerate() {
        if !may_have(mapping) {
            continue;
        }
        for (start, end) in without(mapping.start, mapping.end, heap) {
            let stack = threads
                .iter()
                .filter_map(|one| Some((one.stack?, one.id)))
                .filter(|(stack, _)| (start..end).contains(stack))
                .min();
            match stack {
                Some((stack, id)) => {
                    let live = stack.saturating_sub(RED_ZONE).max(start) & !7;
                    add(start, live, Whose::DeadStack(id));
                    add(live, end, Whose::Stack(id));
                }
                // A running thread does not say how much of its stack is in use.
                None if mapping.name == "[stack]" => {
                    let first = threads.iter().map(|one| one.id).min();
                    add(start, end, Whose::Stack(first.unwrap_or(0)));
                }
                // What leads to the blocks of a heap is mostly in its blocks, so it says nothing of
                // who holds them.
                None if mapping.name == "[heap]" => add(start, end, Whose::Unfollowed),
                None if modules.at(start).is_some() => add(start, end, Whose::Variables),
                None => match thread_of(target, number) {
                    Some(id) if threads.iter().any(|one| one.id == id) => {
                        add(start, end, Whose::Stack(id));
                    }
                    // The C library keeps stacks of threads that have ended.
                    Some(id) => add(start, end, Whose::DeadStack(id)),
                    None => add(start, end, Whose::Mapping(number)),
                },
            }
        }
    }
    found
}

/// The thread of glibc's whose stack a mapping is, which ends with the thread's record.
fn thread_of(target: &dyn Target, number: usize) -> Option<u64> {
    /// Where a record has the thread's number, on x86-64. Its first and third words are its own
    /// address.
    const ID: usize = 0x2d0;
    const STEP: usize = 64;
    let mapping = &target.mappings()[number];
    let guard = &target.mappings()[number.checked_sub(1)?];
    let is_stack = mapping.name.is_empty()
        && mapping.writable
        && guard.end == mapping.start
        && !guard.readable
        && !guard.executable;
    if !is_stack || !cfg!(target_arch = "x86_64") {
        return None;
    }
    let start = mapping.end.checked_sub(PAGE)?.max(mapping.start);
    let mut bytes = vec![0; (mapping.end - start) as usize];
    target.fill(start, &mut bytes);
    let record = (0..bytes.len()).step_by(STEP).find(|place| {
        let own = Some(start + *place as u64);
        u64_at(&bytes, *place) == own && u64_at(&bytes, *place + 16) == own
    })?;
    u64_at(&bytes, record + ID).map(|word| word & 0xffff_ffff)
}

/// The parts of a range that are in none of the others, which are sorted.
fn without(start: u64, end: u64, others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = start;
    let first = others.partition_point(|(_, behind)| *behind <= start);
    for (from, to) in &others[first..] {
        if *from >= end {
            break;
        }
        if *from > at {
            parts.push((at, *from));
        }
        at = at.max(*to);
    }
    if at < end {
        parts.push((at, end));
    }
    parts
}

struct Look<'a> {
    target: &'a dyn Target,
    modules: &'a Modules<'a>,
    types: Option<&'a Types<'a>>,
    blocks: &'a Table,
    named: &'a Mutex<Named>,
    window: Vec<u8>,
    found: Vec<(u32, u32)>,
    ends: Ends,
    behind: Vec<(u32, u32)>,
    hint: usize,
    looked_at: u64,
    unread: u64,
}

impl Look<'_> {
    fn piece(&mut self, (start, end, whose): (u64, u64, Whose)) {
        let (low, high) = self.blocks.span();
        // The variable of the last pointer.
        let mut last = (0, 0, 0);
        for (from, to) in self.target.present(start, end) {
            let (mut at, to) = (from.max(start), to.min(end));
            while at < to {
                let length = (to - at).min(WINDOW as u64) as usize;
                let mut window = std::mem::take(&mut self.window);
                self.unread += self.target.fill(at, &mut window[..length]);
                self.looked_at += length as u64;
                for (place, word) in window[..length].chunks_exact(8).enumerate() {
                    let word = u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8]));
                    if word < low || word >= high {
                        continue;
                    }
                    let Some(block) = self.blocks.find(word, &mut self.hint) else {
                        continue;
                    };
                    let address = at + 8 * place as u64;
                    if !(last.0..last.1).contains(&address) {
                        last = self.root(address, whose);
                    }
                    let next = u64_at(&window[..length], 8 * place + 8);
                    if self.ends.is_one(address, word, block, next, self.blocks) {
                        self.behind.push((last.2, block));
                    } else if self.found.last() != Some(&(last.2, block)) {
                        self.found.push((last.2, block));
                    }
                }
                self.window = window;
                at += length as u64;
            }
        }
    }

    /// The root at an address, and the range for which that is so.
    fn root(&mut self, address: u64, whose: Whose) -> (u64, u64, u32) {
        let (mut start, mut end) = (address, address + 1);
        let mut class = None;
        let name = match whose {
            Whose::Stack(id) => format!("stack of thread {id}"),
            Whose::DeadStack(id) => format!("dead part of the stack of thread {id}"),
            Whose::Unfollowed => "part of the heap that was not followed".to_owned(),
            Whose::Mapping(number) => {
                let mapping = &self.target.mappings()[number];
                let what = match mapping.name.as_str() {
                    "" => "mapping".to_owned(),
                    name => names::printable(name, 80),
                };
                format!(
                    "{what}, {} at {:#x}",
                    bytes(mapping.size() as f64),
                    mapping.start
                )
            }
            Whose::Variables => {
                let module = self.modules.at(address);
                let module = module.map_or("?", |one| one.name.as_str());
                match self.modules.symbol(address) {
                    Some((from, to, name)) => {
                        (start, end) = (from, to);
                        let table = self.target.word(from).unwrap_or(0);
                        class = self.types.and_then(|types| types.class(table));
                        format!("`{}` (variable of {module})", names::of_variable(&name))
                    }
                    None => format!("variables of {module}"),
                }
            }
        };
        if !matches!(whose, Whose::Variables) {
            (start, end) = (0, u64::MAX);
        }
        let rank = match whose {
            Whose::Variables | Whose::Mapping(_) => Rank::Lasting,
            Whose::Stack(_) | Whose::Unfollowed => Rank::Passing,
            Whose::DeadStack(_) => Rank::Dead,
        };
        let mut named = self
            .named
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        (start, end, named.number(name, rank, class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_are_cut_out_of_mappings() {
        assert_eq!(
            without(10, 50, &[(0, 5), (20, 30), (60, 70)]),
            [(10, 20), (30, 50)]
        );
        assert_eq!(without(10, 50, &[(0, 60)]), []);
        assert_eq!(without(10, 50, &[(5, 20), (15, 25), (40, 99)]), [(25, 40)]);
    }
}
