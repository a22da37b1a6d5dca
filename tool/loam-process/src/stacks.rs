//! The stacks of a process's threads: where they lie, and how many belong to threads that have
//! ended.
//!
//! A thread that waits in a system call tells its stack pointer. The C library makes a stack as a
//! mapping of its own, with a guard that can not be read directly below it. A mapping of such a
//! shape is a stack also if no thread tells a pointer into it: its thread runs at this moment, or
//! it has ended and was never joined.
//!
//! A pointer alone does not make a whole mapping a stack. Fibers and the stacks of Go lie within
//! mappings that hold other things: there only what lies near the pointer counts.

use std::fs;

use crate::mappings::Mapping;
use crate::process::{face, Pid};

/// The limit of threads: a process may have very many, and each costs one to three system calls.
const MOST_THREADS: usize = 4096;
/// A guard is not longer than this. The unused rest of an arena's heap can not be read either, and
/// is longer.
const LONGEST_GUARD: u64 = 1 << 20;
/// Behind its pointer a stack has the frames of the callers, and the thread's own variables at its
/// end.
const ABOVE: u64 = 256 << 10;
/// Before its pointer it may have been deeper.
const BELOW: u64 = 64 << 10;
/// The C library's stack where the limit does not say.
const USUAL: u64 = 8 << 20;
const PAGE: u64 = 4096;

/// What the threads of a process tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Threads {
    /// How many there are.
    pub count: usize,
    /// The stack pointers of those that wait in a system call. Sorted.
    pub pointers: Vec<u64>,
    /// The length of a stack that the program did not choose.
    pub usual: u64,
}

/// The stacks of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stacks {
    /// Start and end of each; sorted.
    pub ranges: Vec<(u64, u64)>,
    /// Stacks beyond those of the threads that there are.
    pub without_thread: u64,
}

impl Threads {
    /// Asks the threads of a process.
    pub fn of(pid: Pid) -> Threads {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return Threads::default();
        };
        let mut threads = Threads {
            usual: usual(pid),
            ..Threads::default()
        };
        for task in tasks.flatten() {
            threads.count += 1;
            if threads.count > MOST_THREADS {
                continue;
            }
            // "NUMBER ARGUMENT... SP PC", "-1 SP PC", or "running".
            let text = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            let word = text.split_whitespace().rev().nth(1);
            let pointer = word.and_then(|word| word.strip_prefix("0x"));
            let pointer = pointer.and_then(|word| u64::from_str_radix(word, 16).ok());
            threads.pointers.extend(pointer);
        }
        threads.pointers.sort_unstable();
        threads
    }

    /// Where their stacks are. The main thread's has a name of its own.
    pub fn stacks(&self, mappings: &[Mapping]) -> Stacks {
        let mut found = Stacks::default();
        // Mappings with a guard: whether a thread points into it.
        let mut guarded: Vec<(&Mapping, bool)> = Vec::new();
        let mut before: Option<&Mapping> = None;
        for mapping in mappings {
            let guard = before.filter(|before| is_guard(before) && before.end == mapping.start);
            before = Some(mapping);
            if !may_be_stack(mapping) {
                continue;
            }
            let pointers = self.within(mapping);
            match guard {
                Some(_) => guarded.push((mapping, !pointers.is_empty())),
                None => found.ranges.extend(pointers.iter().map(|pointer| {
                    let start = (pointer & !(PAGE - 1)).saturating_sub(BELOW);
                    let end = (pointer | (PAGE - 1)).saturating_add(1 + ABOVE);
                    (start.max(mapping.start), end.min(mapping.end))
                })),
            }
            if guard.is_some() {
                let end = mapping.start.saturating_add(self.usual);
                let highest = pointers.last().map_or(0, |last| last.saturating_add(ABOVE));
                let end = end.max(highest.next_multiple_of(PAGE)).min(mapping.end);
                if !pointers.is_empty() {
                    found.ranges.push((mapping.start, end));
                }
            }
        }
        // The lengths of stacks that are known to be some.
        let known: Vec<u64> = guarded
            .iter()
            .filter(|(_, points)| *points)
            .map(|(mapping, _)| mapping.size())
            .collect();
        let is_shaped = |mapping: &Mapping| {
            // The guard is a part of the length, or comes on top of it.
            let rest = self.usual.checked_sub(mapping.size());
            known.contains(&mapping.size()) || rest.is_some_and(|rest| rest <= LONGEST_GUARD)
        };
        let shaped = guarded.iter().filter(|(mapping, _)| is_shaped(mapping));
        let (mut with, mut without) = (0, 0);
        for (mapping, points) in shaped {
            if *points {
                with += 1;
            } else {
                without += 1;
                found.ranges.push((mapping.start, mapping.end));
            }
        }
        // A thread that runs tells no pointer. One stack is the main thread's.
        let others = self.count.saturating_sub(1) as u64;
        found.without_thread = (with + without as u64).saturating_sub(others);
        found.ranges.sort_unstable();
        found.ranges.dedup_by(|next, kept| match next.0 < kept.1 {
            true => {
                kept.1 = kept.1.max(next.1);
                true
            }
            false => false,
        });
        found
    }

    fn within(&self, mapping: &Mapping) -> &[u64] {
        let first = self.pointers.partition_point(|one| *one < mapping.start);
        let behind = self.pointers.partition_point(|one| *one < mapping.end);
        &self.pointers[first..behind]
    }
}

fn is_guard(mapping: &Mapping) -> bool {
    !mapping.readable && !mapping.writable && mapping.inode == 0 && mapping.size() <= LONGEST_GUARD
}

fn may_be_stack(mapping: &Mapping) -> bool {
    mapping.readable
        && mapping.writable
        && !mapping.shared
        && mapping.inode == 0
        && (mapping.name.is_empty() || mapping.name.starts_with("[anon:"))
}

/// The soft limit of stacks, which is the length of a thread's stack unless the program chooses
/// another.
fn usual(pid: Pid) -> u64 {
    let limits = fs::read_to_string(format!("/proc/{}/limits", face(pid))).unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max stack size"));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn mapping(start: u64, end: u64, is_guard: bool) -> Mapping {
        Mapping {
            start,
            end,
            readable: !is_guard,
            writable: !is_guard,
            ..Mapping::default()
        }
    }

    fn stacks(mappings: &[Mapping], count: usize, pointers: &[u64]) -> Stacks {
        let threads = Threads {
            count,
            pointers: pointers.to_vec(),
            usual: 8 * MIB,
        };
        threads.stacks(mappings)
    }

    #[test]
    fn a_pointer_makes_what_is_near_it_a_stack_and_not_the_whole_mapping() {
        let heap = mapping(0x1_0000_0000, 0x1_4000_0000, false);
        let found = stacks(std::slice::from_ref(&heap), 2, &[0x1_1000_0010]);
        let bytes: u64 = found.ranges.iter().map(|(start, end)| end - start).sum();
        assert_eq!((found.ranges.len(), found.without_thread), (1, 0));
        assert!(bytes <= ABOVE + BELOW + PAGE, "{bytes}");
        // Two pointers near to each other are one stretch.
        let both = stacks(&[heap], 3, &[0x1_1000_0010, 0x1_1000_2010]);
        assert_eq!(both.ranges.len(), 1);
    }

    #[test]
    fn stacks_of_threads_that_have_ended_are_known_by_their_shape() {
        let mut mappings = Vec::new();
        let mut start = 0x1_0000_0000;
        for _ in 0..10 {
            mappings.push(mapping(start, start + PAGE, true));
            mappings.push(mapping(start + PAGE, start + 8 * MIB, false));
            start += 8 * MIB;
        }
        // Another version's guard comes on top of the length.
        mappings.push(mapping(start, start + PAGE, true));
        mappings.push(mapping(start + PAGE, start + PAGE + 8 * MIB, false));
        start += PAGE + 8 * MIB;
        // One thread beside the main one.
        let found = stacks(&mappings, 2, &[0x1_0000_0000 + 8 * MIB - 4096]);
        assert_eq!((found.ranges.len(), found.without_thread), (11, 10));
        // Memory of any other length behind a guard is no stack.
        let other = [
            mapping(start, start + PAGE, true),
            mapping(start + PAGE, start + 3 * MIB, false),
        ];
        assert_eq!(stacks(&other, 1, &[]), Stacks::default());
    }

    #[test]
    fn the_threads_of_this_process_are_counted() {
        let found = Threads::of(std::process::id() as Pid);
        assert!(found.count >= 1 && found.usual >= PAGE);
    }
}
