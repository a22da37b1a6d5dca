//! The programs that the kernel runs at a probe: they write registers, time and thread into a ring,
//! and at a function's entry a part of the stack.
//!
//! ```text
//! record, in words:  0 cookie   1 process and thread   2 time
//!                    3 4 5 arguments, or the returned value
//!                    6 instruction   7 stack pointer   8 frame pointer   9 link
//!                    10 bytes of the stack   then the stack
//!                    then Python's frames (python::calls), where there is such a program
//! ```

use super::callers::Callers;
use super::system::{Counter, Ring};
use crate::python::calls;

/// Words before the stack.
pub const WORDS: usize = 11;
/// Bytes of a record's head.
pub const HEAD: usize = 8 * WORDS;
/// Bytes of a stack that are copied, and the pieces in which they are: a piece that is not there
/// ends it.
pub const STACK: usize = 12 << 10;
const PIECE: usize = 1 << 10;

/// An instruction, as the kernel has it: code, registers, offset, constant.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    constant: i32,
}

/// Where the kernel has the registers of a thread at a probe.
#[cfg(target_arch = "x86_64")]
mod context {
    pub const ARGUMENTS: [i16; 3] = [112, 104, 96];
    pub const RETURNED: i16 = 80;
    pub const INSTRUCTION: i16 = 128;
    pub const STACK: i16 = 152;
    pub const FRAME: i16 = 32;
    pub const LINK: i16 = 128;
    /// The address of a page fault.
    pub const FAULT: i16 = 176;
}
#[cfg(target_arch = "aarch64")]
mod context {
    pub const ARGUMENTS: [i16; 3] = [0, 8, 16];
    pub const RETURNED: i16 = 0;
    pub const INSTRUCTION: i16 = 256;
    pub const STACK: i16 = 248;
    pub const FRAME: i16 = 232;
    pub const LINK: i16 = 240;
    pub const FAULT: i16 = 280;
}

/// Functions of the kernel.
pub(super) const LOOK_UP: i32 = 1;
const TIME: i32 = 5;
const PROCESS_AND_THREAD: i32 = 14;
pub(super) const READ_USER: i32 = 112;
const RESERVE: i32 = 131;
const SUBMIT: i32 = 132;
pub(super) const NUMBERS_WITHIN: i32 = 120;
const COOKIE: i32 = 174;
/// Nobody is woken: the tool looks by itself.
const NO_WAKEUP: i32 = 1;

/// A program that is being made.
#[derive(Default)]
pub(super) struct Made {
    code: Vec<Instruction>,
}

impl Made {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, constant: i32) {
        self.code.push(Instruction {
            code,
            registers: from << 4 | to,
            offset,
            constant,
        });
    }

    pub fn copy(&mut self, to: u8, from: u8) {
        self.push(0xbf, to, from, 0, 0);
    }

    pub fn set(&mut self, to: u8, value: i32) {
        self.push(0xb7, to, 0, 0, value);
    }

    pub fn add(&mut self, to: u8, value: i32) {
        self.push(0x07, to, 0, 0, value);
    }

    pub fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.push(0x79, to, from, offset, 0);
    }

    pub fn load_byte(&mut self, to: u8, from: u8, offset: i16) {
        self.push(0x71, to, from, offset, 0);
    }

    /// A number of four bytes.
    pub fn load_number(&mut self, to: u8, from: u8, offset: i16) {
        self.push(0x61, to, from, offset, 0);
    }

    /// A value of eight bytes.
    pub fn long(&mut self, to: u8, value: u64) {
        self.push(0x18, to, 0, 0, value as u32 as i32);
        self.push(0, 0, 0, 0, (value >> 32) as i32);
    }

    pub fn store(&mut self, to: u8, offset: i16, from: u8) {
        self.push(0x7b, to, from, offset, 0);
    }

    pub fn call(&mut self, function: i32) {
        self.push(0x85, 0, 0, 0, function);
    }

    fn exit(&mut self, answer: i32) {
        self.set(0, answer);
        self.push(0x95, 0, 0, 0, 0);
    }

    /// A map, by its descriptor.
    pub fn map(&mut self, to: u8, number: i32) {
        self.push(0x18, to, 1, 0, number);
        self.push(0, 0, 0, 0, 0);
    }

    /// Jumps if a register is not (`0x55`) or is (`0x15`) zero, to a place that is known later.
    pub fn jump(&mut self, code: u8, register: u8) -> usize {
        self.push(code, register, 0, 0, 0);
        self.code.len() - 1
    }

    /// Jumps to a place that is known later.
    pub fn jump_always(&mut self) -> usize {
        self.push(0x05, 0, 0, 0, 0);
        self.code.len() - 1
    }

    /// The same if two registers are equal.
    pub fn jump_if_equal(&mut self, one: u8, other: u8) -> usize {
        self.push(0x1d, one, other, 0, 0);
        self.code.len() - 1
    }

    pub fn lands_here(&mut self, jump: usize) {
        self.code[jump].offset = (self.code.len() - jump - 1) as i16;
    }

    /// Begins the program: the context is in r6, and a new record of so many bytes in r7. The jump
    /// that is taken if there is no room for one.
    fn begin(&mut self, ring: &Ring, bytes: usize) -> usize {
        self.copy(6, 1);
        self.map(1, ring.number());
        self.set(2, bytes as i32);
        self.set(3, 0);
        self.call(RESERVE);
        let is_full = self.jump(0x15, 0);
        self.copy(7, 0);
        is_full
    }

    /// Ends the program with an answer: gives the record away, or counts one that found no room.
    fn end(mut self, is_full: usize, lost: &Counter, answer: i32) -> Vec<Instruction> {
        self.copy(1, 7);
        self.set(2, NO_WAKEUP);
        self.call(SUBMIT);
        self.exit(answer);
        self.lands_here(is_full);
        // The counter's key lies on the program's stack.
        self.push(0x62, 10, 0, -4, 0);
        self.copy(2, 10);
        self.add(2, -4);
        self.map(1, lost.number());
        self.call(LOOK_UP);
        let is_none = self.jump(0x15, 0);
        self.set(1, 1);
        self.push(0xdb, 0, 1, 0, 0);
        self.lands_here(is_none);
        self.exit(answer);
        self.code
    }
}

/// What a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Arguments and stack.
    Entry,
    /// Arguments.
    Free,
    /// The returned value.
    Return,
}

/// Words of what is written at a page fault, before Python's frames: its address and its time.
pub const FAULT_WORDS: usize = 2;

/// Makes a program for page faults: it writes Python's frames, and lets the fault's sample be
/// taken.
pub fn at_faults(ring: &Ring, lost: &Counter, callers: &Callers) -> Vec<Instruction> {
    const HEAD: usize = 8 * FAULT_WORDS;
    let mut made = Made::default();
    let is_full = made.begin(ring, HEAD + calls::BYTES);
    made.load(1, 6, context::FAULT);
    made.store(7, 0, 1);
    made.call(TIME);
    made.store(7, 8, 0);
    callers.copy_frames(&mut made, HEAD as i16);
    made.end(is_full, lost, 1)
}

/// Makes a program. `callers`: whose Python frames are copied at entries.
pub fn make(
    kind: Kind,
    ring: &Ring,
    lost: &Counter,
    callers: Option<&Callers>,
) -> Vec<Instruction> {
    // r6: the registers of the thread; r7: the record; r8: the stack pointer; r9: bytes of the
    // stack.
    let mut made = Made::default();
    let callers = callers.filter(|_| kind == Kind::Entry);
    let length = match kind {
        Kind::Entry => HEAD + STACK + callers.map_or(0, |_| calls::BYTES),
        Kind::Free | Kind::Return => HEAD,
    };
    let is_full = made.begin(ring, length);
    made.copy(1, 6);
    made.call(COOKIE);
    made.store(7, 0, 0);
    made.call(PROCESS_AND_THREAD);
    made.store(7, 8, 0);
    made.call(TIME);
    made.store(7, 16, 0);
    let [first, second, third] = match kind {
        Kind::Return => [context::RETURNED; 3],
        _ => context::ARGUMENTS,
    };
    let registers = [
        first,
        second,
        third,
        context::INSTRUCTION,
        context::STACK,
        context::FRAME,
        context::LINK,
    ];
    for (place, register) in registers.into_iter().enumerate() {
        made.load(1, 6, register);
        made.store(7, 24 + 8 * place as i16, 1);
    }
    made.set(9, 0);
    if kind == Kind::Entry {
        made.load(8, 6, context::STACK);
        let mut ends = Vec::new();
        for piece in 0..(STACK / PIECE) as i32 {
            made.copy(1, 7);
            made.add(1, HEAD as i32 + piece * PIECE as i32);
            made.set(2, PIECE as i32);
            made.copy(3, 8);
            made.add(3, piece * PIECE as i32);
            made.call(READ_USER);
            ends.push(made.jump(0x55, 0));
            made.add(9, PIECE as i32);
        }
        for end in ends {
            made.lands_here(end);
        }
    }
    made.store(7, 80, 9);
    if let Some(callers) = callers {
        callers.copy_frames(&mut made, (HEAD + STACK) as i16);
    }
    made.end(is_full, lost, 0)
}
