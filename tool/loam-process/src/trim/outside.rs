//! Whether a stopped thread is outside of malloc: neither its program counter nor an address on its
//! stack lies in malloc's code.
//!
//! All words of the live stack are read. Without a word that leads into malloc's code the thread is
//! outside, whatever its frames look like. Such a word may also be left over from an earlier call.
//! Then the frames are followed by the tables of the program's files, and the answer is "outside"
//! only if they lead to the stack's end past no function of malloc's.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::inject::Held;
use crate::code::Codes;
use crate::mappings::Mapping;
use crate::process::Pid;
use crate::rings::{CopiedStack, Registers};
use crate::unwind::Stacks;

/// The longest stack that is read. Chosen: the copy takes 0.1 ms.
const LONGEST: u64 = 512 << 10;
/// How much of a thread's own record is searched for the place of its stack. It has 2,304 bytes in
/// 2.36.
const RECORD: usize = 2304;

/// Follows stacks of a process.
pub struct Frames {
    stacks: Stacks,
    malloc: Range<u64>,
    /// That of the first thread.
    main: Option<(u64, u64)>,
    pid: Pid,
}

impl Frames {
    /// Prepares.
    pub fn of(pid: Pid, mappings: &[Mapping], malloc: Range<u64>) -> Frames {
        let mut stacks = Stacks::of(pid);
        stacks.prepare(mappings.to_vec(), &mut Codes::default());
        let main = mappings.iter().find(|one| one.name == "[stack]");
        Frames {
            stacks,
            malloc,
            main: main.map(|one| (one.start, one.end)),
            pid,
        }
    }

    /// The lowest address of a thread's own stack and its end; none: it stands on another stack, or
    /// that is unknown.
    pub fn stack(&self, held: &Held, memory: &File) -> Option<(u64, u64)> {
        let here = held.registers.rsp;
        let is_in = |(low, high): &(u64, u64)| (*low..*high).contains(&here);
        if held.thread == self.pid {
            return self.main.filter(is_in);
        }
        // The record of a thread lies at the end of its stack, and says where that begins and how
        // long it is.
        let record = held.registers.fs_base;
        let mut bytes = vec![0; RECORD];
        let length = memory.read_at(&mut bytes, record).ok()?;
        let words: Vec<u64> = bytes[..length]
            .chunks_exact(8)
            .map(|word| {
                word.first_chunk()
                    .map_or(0, |word| u64::from_le_bytes(*word))
            })
            .collect();
        let mut pairs = words.windows(2).filter_map(|pair| {
            let (low, size) = (pair[0], pair[1]);
            let high = low.checked_add(size)?;
            let is_its = low % 4096 == 0 && size % 4096 == 0 && (low..high).contains(&record);
            is_its.then_some((low, record))
        });
        pairs.next().filter(is_in)
    }

    /// Whether the thread is outside of malloc, for all that can be known.
    pub fn is_outside(&mut self, held: &Held, end: u64, memory: &File) -> bool {
        let registers = &held.registers;
        if self.malloc.contains(&registers.rip) {
            return false;
        }
        let length = end.saturating_sub(registers.rsp);
        if length > LONGEST {
            return false;
        }
        let mut bytes = vec![0; length as usize];
        if memory.read_exact_at(&mut bytes, registers.rsp).is_err() {
            return false;
        }
        let leads_there = bytes.chunks_exact(8).any(|word| {
            let word = word
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word));
            self.malloc.contains(&word)
        });
        if !leads_there {
            return true;
        }
        let stack = CopiedStack {
            registers: Registers {
                instruction: registers.rip,
                stack: registers.rsp,
                frame: registers.rbp,
                link: 0,
            },
            bytes,
            ..CopiedStack::default()
        };
        let (frames, is_whole) = self.stacks.return_addresses(&stack);
        is_whole && !frames.iter().any(|frame| self.malloc.contains(frame))
    }
}
