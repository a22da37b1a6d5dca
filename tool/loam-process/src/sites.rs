//! The stacks under which memory came, each once, and what happened under them: as page faults tell
//! (`growth`) or probes (`probes`).

use std::collections::HashMap;

use loam_format::trace::Module;

use crate::code::Codes;
use crate::mappings;
use crate::process::Pid;
use crate::python::functions::Functions;
use crate::python::Interpreter;
use crate::rings::CopiedStack;
use crate::unwind::{Place, Stacks};

/// Memory that came: pages of the heap, or a block.
#[derive(Debug, Clone, PartialEq)]
pub struct Grown {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The thread.
    pub thread: Pid,
    /// Its first byte.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The stack: an index of `Sites::all`.
    pub site: usize,
    /// How many such it stands for.
    pub weight: f64,
}

/// A stack under which memory came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Site {
    /// Its frames, the innermost first.
    pub frames: Vec<Place>,
    /// Whether frames further out are missing.
    pub is_cut: bool,
    /// Bytes that came under it, and are still there; an estimate if not all was seen.
    pub bytes: f64,
}

/// A change of the memory that a program has.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Memory came.
    Grown(Grown),
    /// Memory that had come, by its first byte, is not there any more.
    Gone {
        /// `CLOCK_MONOTONIC`, in nanoseconds, at which that was seen.
        time: u64,
        /// The first byte.
        address: u64,
    },
}

/// The stacks of a process.
#[derive(Debug)]
pub struct Sites {
    pid: Pid,
    all: Vec<Site>,
    by_frames: HashMap<(Vec<Place>, bool), usize>,
    unwinder: Stacks,
    codes: Codes,
    python: Option<Functions>,
}

impl Sites {
    /// Of that process, with its Python if it has one.
    pub fn of(pid: Pid, python: Option<Interpreter>) -> Sites {
        Sites {
            pid,
            all: Vec::new(),
            by_frames: HashMap::new(),
            unwinder: Stacks::of(pid),
            codes: Codes::default(),
            python: python.map(|python| Functions::of(pid, python)),
        }
    }

    /// The stacks, with what came under each and is still there.
    pub fn all(&self) -> &[Site] {
        &self.all
    }

    /// The files in which frames lie.
    pub fn modules(&self) -> &[Module] {
        self.unwinder.modules()
    }

    /// The number of a stack, which is unwound for it.
    pub fn number(&mut self, stack: &CopiedStack) -> usize {
        let pid = self.pid;
        let mut unwound = self.unwinder.unwind_all(stack, &mut self.codes, || {
            mappings::read_names(pid).into_iter().collect()
        });
        if let Some(python) = &mut self.python {
            python.put(&mut unwound, stack, &mut self.unwinder);
        }
        let next = self.all.len();
        let key = (unwound.frames, unwound.is_cut);
        *self
            .by_frames
            .entry(key)
            .or_insert_with_key(|(frames, is_cut)| {
                self.all.push(Site {
                    frames: frames.clone(),
                    is_cut: *is_cut,
                    bytes: 0.0,
                });
                next
            })
    }

    /// Counts bytes that came under a stack, or went.
    pub fn add(&mut self, site: usize, bytes: f64) {
        self.all[site].bytes += bytes;
    }
}
