//! Python's functions in stacks: in the place of the interpreter's function that executes them.

use std::collections::BTreeMap;
use std::ops::Range;

use loam_format::trace::Module;

use super::calls::Frame;
use super::code::Codes;
use super::{placed, Interpreter, PATH};
use crate::jit;
use crate::process::Pid;
use crate::remote::ProcessMemory;
use crate::rings::CopiedStack;
use crate::unwind::{Place, Stacks, Unwound};

/// The functions of one process.
#[derive(Debug)]
pub struct Functions {
    interpreter: Interpreter,
    memory: ProcessMemory,
    codes: Codes,
    module: Option<u32>,
}

impl Functions {
    /// None is known yet.
    pub fn of(pid: Pid, interpreter: Interpreter) -> Functions {
        Functions {
            interpreter,
            memory: ProcessMemory::of(pid),
            codes: Codes::default(),
            module: None,
        }
    }

    /// Puts the functions of a stack's chain into what was unwound of it. A function that is not
    /// proven is left as the interpreter's.
    pub fn put(&mut self, unwound: &mut Unwound, stack: &CopiedStack, stacks: &mut Stacks) {
        let frames = &stack.python.frames;
        if frames.is_empty() {
            return;
        }
        let layout = self.interpreter.layout;
        let placed = placed::place(&layout, &stack.python, stack, &unwound.pointers);
        let rest = placed.rest;
        let mut parts: BTreeMap<usize, Range<usize>> = placed.parts.into_iter().collect();
        let mut all = Vec::with_capacity(unwound.frames.len() + frames.len());
        for (at, place) in unwound.frames.iter().enumerate() {
            let is_named = unwound.frames.get(at + 1).is_some_and(|caller| {
                // The trampolines of `-X perf` have names of their own.
                caller
                    .module
                    .is_some_and(|one| stacks.modules()[one as usize].path == jit::PATH)
            });
            let part = parts
                .remove(&at)
                .filter(|part| !part.is_empty() && !is_named);
            let before = all.len();
            for frame in part.map_or(&[][..], |part| &frames[part]) {
                let found = self.place(frame, stacks).unwrap_or(*place);
                // One interpreter's function stands for all in it that are not proven.
                if all[before..].last() != Some(&found) || found != *place {
                    all.push(found);
                }
            }
            if all.len() == before {
                all.push(*place);
            }
        }
        if unwound.is_cut {
            let is_function = |frame: &&Frame| layout.is_function(frame.kind);
            for frame in frames[rest].iter().filter(is_function) {
                all.extend(self.place(frame, stacks));
            }
        }
        unwound.frames = all;
        // They do not fit any longer.
        unwound.pointers.clear();
    }

    fn place(&mut self, frame: &Frame, stacks: &mut Stacks) -> Option<Place> {
        let Frame {
            code, instruction, ..
        } = *frame;
        let found = self
            .codes
            .number(&self.interpreter, &self.memory, code, instruction);
        let (address, fresh) = found?;
        let module = *self.module.get_or_insert_with(|| {
            stacks.add_module(Module {
                path: PATH.to_owned(),
                ..Module::default()
            })
        });
        if let Some(named) = fresh {
            stacks.name(module, named);
        }
        Some(Place {
            module: Some(module),
            address,
        })
    }
}
