//! Which Python functions a process is in at its page faults: a program in the kernel writes their
//! frames before perf takes the fault's sample.

use std::collections::HashMap;

use loam_format::bytes::u64_at;

use super::callers::Callers;
use super::program::{at_faults, FAULT_WORDS};
use super::system::{Counter, Program, Ring};
use crate::mappings;
use crate::perf::Sample;
use crate::process::Pid;
use crate::python::calls::Chain;
use crate::python::Interpreter;
use crate::remote::ProcessMemory;

/// Bytes of the ring. Chosen: some 2,500 faults, more than perf's own ring has.
const RING: usize = 8 << 20;
/// A sample and its frames are of times that are so many nanoseconds apart at most; kernels
/// differ in which they take first. Chosen: only an interrupt comes between them, and the same
/// page does not come twice in that time.
const NEAR: u64 = 50_000;
/// The most chains whose samples have not been seen; those of lost samples are forgotten then.
const MOST: usize = 16_384;

/// The program and what it wrote.
#[derive(Debug)]
pub struct Faults {
    interpreter: Interpreter,
    program: Program,
    ring: Ring,
    callers: Callers,
    /// By the fault's address: times, and the frames.
    chains: HashMap<u64, Vec<(u64, Chain)>>,
    waiting: usize,
}

impl Faults {
    /// Of a process. None: it has no Python that is known, or the kernel refuses.
    pub fn of(pid: Pid) -> Option<Faults> {
        let mapped = mappings::read_names(pid).ok()?;
        let interpreter = Interpreter::find(pid, &mapped, &ProcessMemory::of(pid))?;
        let callers = Callers::of(pid, interpreter)?;
        let (ring, lost) = (Ring::new(RING).ok()?, Counter::new().ok()?);
        let program = Program::load_for_events(&at_faults(&ring, &lost, &callers)).ok()?;
        Some(Faults {
            interpreter,
            program,
            ring,
            callers,
            chains: HashMap::new(),
            waiting: 0,
        })
    }

    /// The program's descriptor.
    pub fn program(&self) -> i32 {
        self.program.number()
    }

    /// The process's Python.
    pub fn interpreter(&self) -> Interpreter {
        self.interpreter
    }

    /// Gives samples their Python frames. The samples were read before this call.
    pub fn tell(&mut self, samples: &mut [Sample]) {
        let chains = &mut self.chains;
        let mut is_new = false;
        self.ring.drain(|body| {
            let word = |at: usize| u64_at(body, 8 * at).unwrap_or(0);
            let chain = Chain::read(body.get(8 * FAULT_WORDS..).unwrap_or_default());
            is_new |= chain.frames.is_empty();
            chains.entry(word(0)).or_default().push((word(1), chain));
            self.waiting += 1;
        });
        for sample in samples {
            let Some(near) = chains.get_mut(&sample.address) else {
                continue;
            };
            let distance = |(time, _): &(u64, Chain)| time.abs_diff(sample.time);
            let nearest = (0..near.len()).min_by_key(|place| distance(&near[*place]));
            let nearest = nearest.filter(|place| distance(&near[*place]) <= NEAR);
            let found = nearest.map(|place| near.swap_remove(place).1);
            if near.is_empty() {
                chains.remove(&sample.address);
            }
            self.waiting -= usize::from(found.is_some());
            if let (Some(found), Some(stack)) = (found, sample.stack.as_mut()) {
                // One of another thread at the same address does not fit the stack.
                stack.python = found;
            }
        }
        if self.waiting > MOST {
            chains.clear();
            self.waiting = 0;
        }
        if is_new {
            self.callers.look_sometimes();
        }
    }
}
