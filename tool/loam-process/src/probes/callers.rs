//! The threads of a Python, and the part of a program in the kernel that copies their frames at
//! the moment of a sample.
//!
//! The kernel tells a thread's number in the namespace of its process, by which CPython knows it
//! too. A map leads from it to CPython's record of the thread. A thread that has just begun is not
//! in the map, but at the head of CPython's list, whose first records the program reads then. It
//! gets into the map when its samples are seen.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::program::{Made, LOOK_UP, NUMBERS_WITHIN, READ_USER};
use super::system::Addresses;
use crate::process::{face, Pid};
use crate::python::calls::{HEAD, MOST, WORDS};
use crate::python::layout::FRAME;
use crate::python::Interpreter;
use crate::remote::ProcessMemory;

/// The most threads that are in the map.
const THREADS: usize = 8_192;
/// Threads are looked for no more often than this, and that takes one part in so many of the time.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: u32 = 50;
/// So many threads of the list are looked at in the kernel. Chosen: for threads that begin at a
/// time, and cheap where a thread is not Python's.
const NEWEST: usize = 8;
/// Where things lie on the program's stack: a word that was read, the thread's number, a record,
/// and a frame.
const WORD: i32 = -8;
const NUMBER: i32 = -16;
const SAVED: i32 = -24;
const COPY: i32 = SAVED - FRAME as i32;

/// The threads.
#[derive(Debug)]
pub struct Callers {
    python: Interpreter,
    memory: ProcessMemory,
    /// Where the list of the main interpreter's threads begins.
    list: u64,
    threads: Addresses,
    known: HashMap<u32, u64>,
    /// The namespace of the process's numbers: the device and the number of its file.
    namespace: (u64, u64),
    looked: Instant,
    cost: Duration,
}

impl Callers {
    /// Of a process and its Python. None: the kernel has no such map, or tells no namespace.
    pub fn of(pid: Pid, python: Interpreter) -> Option<Callers> {
        let file = fs::metadata(format!("/proc/{}/ns/pid", face(pid))).ok()?;
        let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        let memory = ProcessMemory::of(pid);
        let mut callers = Callers {
            python,
            list: python.list_of_threads(&memory)?,
            memory,
            threads: Addresses::new(THREADS).ok()?,
            known: HashMap::new(),
            // As the kernel has them within itself.
            namespace: (u64::from(major) << 20 | u64::from(minor), file.ino()),
            looked: Instant::now(),
            cost: Duration::ZERO,
        };
        callers.look();
        Some(callers)
    }

    /// Learns which threads there are.
    pub fn look(&mut self) {
        let begun = Instant::now();
        let all = self.python.threads(&self.memory);
        let now: HashMap<u32, u64> = all.iter().map(|one| (one.number, one.record)).collect();
        for number in self.known.keys().filter(|number| !now.contains_key(number)) {
            let _ = self.threads.forget(*number);
        }
        for (number, record) in &now {
            if self.known.get(number) != Some(record) {
                // Where there is no room, the thread's frames have no names.
                let _ = self.threads.set(*number, *record);
            }
        }
        self.known = now;
        self.looked = Instant::now();
        self.cost = begun.elapsed();
    }

    /// The same, if it was not done a moment ago.
    pub fn look_sometimes(&mut self) {
        if self.looked.elapsed() >= LOOK.max(self.cost * LOOKS) {
            self.look();
        }
    }

    /// Copies the chain of the thread's frames into a record, whose address is in r7, from that
    /// offset on. Changes r8 and r9.
    pub(super) fn copy_frames(&self, made: &mut Made, at: i16) {
        let layout = &self.python.layout;
        let mut ends = Vec::new();
        // r8: a record or frame of Python; r9: how many frames there are.
        made.set(9, 0);
        made.store(7, at, 9);
        made.long(1, self.namespace.0);
        made.long(2, self.namespace.1);
        made.copy(3, 10);
        made.add(3, NUMBER);
        made.set(4, 8);
        made.call(NUMBERS_WITHIN);
        ends.push(made.jump(0x55, 0));
        made.map(1, self.threads.number());
        made.copy(2, 10);
        made.add(2, NUMBER);
        made.call(LOOK_UP);
        let is_new = made.jump(0x15, 0);
        made.load(8, 0, 0);
        let mut found = vec![made.jump_always()];
        made.lands_here(is_new);
        made.long(8, self.list);
        ends.extend(follow(made, 0));
        for _ in 0..NEWEST {
            made.store(10, SAVED as i16, 8);
            ends.extend(follow(made, layout.number));
            made.load_number(1, 10, NUMBER as i16);
            made.copy(2, 8);
            made.load(8, 10, SAVED as i16);
            found.push(made.jump_if_equal(1, 2));
            ends.extend(follow(made, layout.next_thread));
        }
        ends.push(made.jump_always());
        for jump in found {
            made.lands_here(jump);
        }
        let leads_to = [Some(layout.current), layout.of_record];
        for (place, offset) in leads_to.into_iter().flatten().enumerate() {
            if place == 1 {
                made.store(7, at, 8);
            }
            ends.extend(follow(made, offset));
        }
        for place in 0..MOST {
            made.copy(1, 10);
            made.add(1, COPY);
            made.set(2, FRAME as i32);
            made.copy(3, 8);
            made.call(READ_USER);
            ends.push(made.jump(0x55, 0));
            let to = at + 8 * (HEAD + WORDS * place) as i16;
            let from = |offset: u64| COPY as i16 + offset as i16;
            made.store(7, to, 8);
            made.load(1, 10, from(layout.code));
            made.store(7, to + 8, 1);
            made.load(1, 10, from(layout.instruction));
            made.store(7, to + 16, 1);
            made.load_byte(1, 10, from(layout.kind));
            made.store(7, to + 24, 1);
            made.add(9, 1);
            made.load(8, 10, from(layout.previous));
            ends.push(made.jump(0x15, 8));
        }
        for end in ends {
            made.lands_here(end);
        }
        made.store(7, at + 8, 9);
    }
}

/// Sets r8 to the word at this offset from the address in r8. The jumps that are taken if it can
/// not be read or is zero.
fn follow(made: &mut Made, offset: u64) -> [usize; 2] {
    made.copy(1, 10);
    made.add(1, WORD);
    made.set(2, 8);
    made.copy(3, 8);
    made.add(3, offset as i32);
    made.call(READ_USER);
    let is_unread = made.jump(0x55, 0);
    made.load(8, 10, WORD as i16);
    [is_unread, made.jump(0x15, 8)]
}
