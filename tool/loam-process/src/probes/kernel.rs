//! The three programs in the kernel, their ring, and what is attached; what they write, as values.

use std::ffi::CString;
use std::io;
use std::thread;

use loam_format::bytes::u64_at;

use super::callers::Callers;
use super::program::{self, Kind, HEAD, STACK};
use super::system::{Counter, Link, Program, Ring};
use crate::process::Pid;
use crate::python::calls::Chain;
use crate::rings::{CopiedStack, Registers};

/// Bytes of the ring. Chosen: some 2,000 entries with their stacks, or 300,000 frees.
const RING: usize = 32 << 20;

/// Bits of a probe's cookie: below them the caller's number.
const KINDS: u32 = 32;

/// What a probe wrote.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Which program.
    pub kind: Kind,
    /// The number that its place was attached with.
    pub cookie: u32,
    /// The thread.
    pub thread: Pid,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// Arguments; at a return the value, three times.
    pub arguments: [u64; 3],
    /// The stack pointer.
    pub stack: u64,
    body: &'a [u8],
}

impl Event<'_> {
    fn read(body: &[u8]) -> Option<Event<'_>> {
        let word = |at: usize| u64_at(body, 8 * at);
        let cookie = word(0)?;
        Some(Event {
            kind: match cookie >> KINDS {
                0 => Kind::Entry,
                1 => Kind::Free,
                2 => Kind::Return,
                _ => return None,
            },
            cookie: cookie as u32,
            thread: (word(1)? & 0xffff_ffff) as Pid,
            time: word(2)?,
            arguments: [word(3)?, word(4)?, word(5)?],
            stack: word(7)?,
            body,
        })
    }

    /// Whether the thread was in no Python function, or one that is not known to be Python's.
    fn has_no_python(&self) -> bool {
        u64_at(self.body, HEAD + STACK + 8).is_none_or(|count| count == 0)
    }

    /// The stack that was copied.
    pub fn copied(&self) -> CopiedStack {
        let word = |at: usize| u64_at(self.body, 8 * at).unwrap_or(0);
        let rest = self.body.get(HEAD..).unwrap_or_default();
        let length = (word(10) as usize).min(rest.len()).min(STACK);
        CopiedStack {
            registers: Registers {
                instruction: word(6),
                stack: word(7),
                frame: word(8),
                link: if cfg!(target_arch = "aarch64") {
                    word(9)
                } else {
                    0
                },
            },
            bytes: rest[..length].to_vec(),
            python: rest.get(STACK..).map_or_else(Chain::default, Chain::read),
        }
    }
}

/// The programs, loaded.
#[derive(Debug)]
pub struct Kernel {
    ring: Ring,
    lost: Counter,
    entry: Program,
    free: Program,
    at_return: Program,
    callers: Option<Callers>,
}

impl Kernel {
    /// Loads them. `callers`: the Python whose frames are copied with stacks.
    pub fn load(callers: Option<Callers>) -> io::Result<Kernel> {
        let ring = Ring::new(RING)?;
        let lost = Counter::new()?;
        let load = |kind| Program::load(&program::make(kind, &ring, &lost, callers.as_ref()));
        Ok(Kernel {
            entry: load(Kind::Entry)?,
            free: load(Kind::Free)?,
            at_return: load(Kind::Return)?,
            ring,
            lost,
            callers,
        })
    }

    /// Sets probes at offsets of a file, each with a number.
    pub fn attach(
        &self,
        kind: Kind,
        file: &CString,
        places: &[(u64, u64)],
        pid: Pid,
    ) -> io::Result<Link> {
        let (program, number) = match kind {
            Kind::Entry => (&self.entry, 0),
            Kind::Free => (&self.free, 1),
            Kind::Return => (&self.at_return, 2),
        };
        let places: Vec<(u64, u64)> = places
            .iter()
            .map(|(offset, cookie)| (*offset, number << KINDS | cookie))
            .collect();
        program.attach(file, &places, kind == Kind::Return, pid)
    }

    /// Takes probes out. The kernel does so at once, and then waits until no processor runs them:
    /// nobody waits here for that.
    pub fn close(&self, links: Vec<Link>) {
        for link in links {
            thread::spawn(move || drop(link));
        }
    }

    /// Tells what was written, in its order.
    pub fn drain(&mut self, mut tell: impl FnMut(Event<'_>)) {
        let mut is_new = false;
        self.ring.drain(|body| {
            if let Some(event) = Event::read(body) {
                is_new |= event.kind == Kind::Entry && event.has_no_python();
                tell(event);
            }
        });
        if let Some(callers) = self.callers.as_mut().filter(|_| is_new) {
            callers.look_sometimes();
        }
    }

    /// Learns which threads of Python there are.
    pub fn look_for_threads(&mut self) {
        if let Some(callers) = &mut self.callers {
            callers.look();
        }
    }

    /// Records that found no room in the ring, since it was made.
    pub fn lost(&self) -> u64 {
        self.lost.read()
    }
}
