//! From entries and returns to blocks. Allocators call themselves, so only the outermost call of a
//! thread counts.

use std::collections::HashMap;

use super::entries::Call;
use super::kernel::Event;
use super::program::Kind;
use crate::process::Pid;
use crate::rings::CopiedStack;

/// How far the stack pointer has moved at a function's return: the return address is gone.
const RETURNED: u64 = if cfg!(target_arch = "x86_64") { 8 } else { 0 };
/// A call that does not return within so many nanoseconds is forgotten; its return may have been
/// lost.
const LONGEST: u64 = 1_000_000_000;

/// A block that was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its address.
    pub address: u64,
    /// The requested bytes.
    pub size: u64,
    /// The thread.
    pub thread: Pid,
    /// When it was asked for.
    pub time: u64,
    /// The stack that asked.
    pub stack: CopiedStack,
}

/// What a probe says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// A block was handed out.
    Came(Block),
    /// A block was handed out, and its address lies there in the process's memory.
    CameAt(u64, Block),
    /// A block was given back, or moved.
    Went(u64),
}

#[derive(Debug)]
struct Open {
    call: Call,
    stack: u64,
    block: Block,
    out: u64,
}

/// The calls that threads are in.
#[derive(Debug, Default)]
pub struct Pairs(HashMap<Pid, Open>);

impl Pairs {
    /// Takes an event. `wants`: whether a block that is asked for now is wanted.
    pub fn take(&mut self, event: &Event<'_>, call: Call, wants: bool) -> Option<Said> {
        let [first, second, third] = event.arguments;
        match event.kind {
            Kind::Free => Some(Said::Went(first)),
            Kind::Return => self.returned(event, first),
            Kind::Entry => {
                // A call further in, or one whose return was not seen: the stack is shorter now.
                let is_inner = self.0.get(&event.thread).is_some_and(|open| {
                    event.stack <= open.stack && event.time < open.block.time + LONGEST
                });
                if is_inner {
                    return None;
                }
                self.0.remove(&event.thread);
                let size = match call {
                    Call::Malloc => first,
                    Call::Calloc => first.saturating_mul(second),
                    Call::Realloc | Call::Aligned => second,
                    Call::PosixMemalign => third,
                    Call::Free => return Some(Said::Went(first)),
                };
                if wants {
                    let block = Block {
                        address: 0,
                        size,
                        thread: event.thread,
                        time: event.time,
                        stack: event.copied(),
                    };
                    let open = Open {
                        call,
                        stack: event.stack,
                        block,
                        out: first,
                    };
                    self.0.insert(event.thread, open);
                }
                (call == Call::Realloc && first != 0).then_some(Said::Went(first))
            }
        }
    }

    fn returned(&mut self, event: &Event<'_>, value: u64) -> Option<Said> {
        let is_it = |open: &Open| event.stack == open.stack.wrapping_add(RETURNED);
        if !self.0.get(&event.thread).is_some_and(is_it) {
            return None;
        }
        let Open {
            call, block, out, ..
        } = self.0.remove(&event.thread)?;
        match (call, value) {
            (Call::PosixMemalign, 0) => Some(Said::CameAt(out, block)),
            (Call::PosixMemalign, _) | (_, 0) => None,
            (_, address) => Some(Said::Came(Block { address, ..block })),
        }
    }

    /// Forgets all calls: events were lost.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}
