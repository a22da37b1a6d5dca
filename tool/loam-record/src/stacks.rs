//! Stacks that the recorder copied become frames of the trace, while the process's files are at
//! hand.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use loam_format::trace::{Frame, Module, Named, Process, Stack};
use loam_process::code::Codes;
use loam_process::jit;
use loam_process::mappings;
use loam_process::rings::{self, CopiedStack};
use loam_process::unwind::{Place, Stacks};

use crate::board::Board;
use crate::describe::Finding;

/// The tree of a stream's frames.
#[derive(Debug, Default)]
pub struct Frames(
    /// Numbers of frames, by the frame that called them and their place.
    HashMap<(Option<u64>, Place), u64>,
);

impl Frames {
    /// The number of a stack's innermost frame. Frames that are new go to `fresh`. `module`: a
    /// module's number in the trace.
    pub fn number(
        &mut self,
        frames: &[Place],
        module: impl Fn(u32) -> u64,
        fresh: &mut Vec<Frame>,
    ) -> Option<u64> {
        let mut caller = None;
        for place in frames.iter().rev() {
            let next = self.0.len() as u64;
            let number = *self.0.entry((caller, *place)).or_insert_with(|| {
                fresh.push(Frame {
                    number: Some(next),
                    caller,
                    module: place.module.map(&module),
                    address: Some(place.address),
                });
                next
            });
            caller = Some(number);
        }
        caller
    }

    /// The addresses of frames in modules of that kind.
    fn addresses_in(&self, is_wanted: impl Fn(u32) -> bool) -> BTreeSet<u64> {
        let places = self.0.keys().map(|(_, place)| place);
        let wanted = places.filter(|place| place.module.is_some_and(&is_wanted));
        wanted.map(|place| place.address).collect()
    }
}

/// Stacks of one process image.
#[derive(Debug)]
pub struct Follower {
    stacks: Stacks,
    pid: i32,
    stream: u32,
    process: Process,
    frames: Frames,
    /// Numbers in the trace of the modules that `stacks` knows.
    modules: Vec<u64>,
    /// Where the names of code that the process made are told; none: no such code was seen.
    made: Option<jit::Source>,
    /// These names.
    names: Vec<Named>,
    is_told: bool,
}

/// What came of some stacks.
#[derive(Debug, Default)]
pub struct Followed {
    /// The process with its modules, where new ones were found.
    pub process: Option<Process>,
    /// Frames that are new.
    pub frames: Vec<Frame>,
    /// The stacks.
    pub stacks: Vec<Stack>,
}

impl Follower {
    /// Of that process.
    pub fn new(pid: i32, stream: u32, process: &Process) -> Follower {
        Follower {
            stacks: Stacks::of(pid),
            pid,
            stream,
            process: process.clone(),
            frames: Frames::default(),
            modules: Vec::new(),
            made: None,
            names: Vec::new(),
            is_told: false,
        }
    }

    /// Unwinds stacks of events whose numbers are told with them. `file`: the image's.
    pub fn follow(
        &mut self,
        copied: impl IntoIterator<Item = (u64, CopiedStack)>,
        file: &Path,
        codes: &mut Codes,
        board: &Board,
    ) -> Followed {
        let mut followed = Followed::default();
        for (event, copied) in copied {
            let pid = self.pid;
            let unwound = self.stacks.unwind(&copied, codes, || {
                // A process that has ended told before.
                let now = mappings::read_names(pid).ok();
                let told = fs::read(rings::maps_of(file)).ok();
                let told = told.and_then(|text| mappings::parse(&text[..]).ok());
                now.into_iter().chain(told).collect()
            });
            if self.modules.len() < self.stacks.modules().len() {
                followed.process = Some(self.learn(board));
            }
            let modules = &self.modules;
            let known = |module: u32| modules[module as usize];
            let frame = self
                .frames
                .number(&unwound.frames, known, &mut followed.frames);
            followed.stacks.push(Stack {
                event: Some(event),
                frame,
                cut: Some(unwound.is_cut.into()),
                ..Stack::default()
            });
        }
        self.is_told |= !followed.stacks.is_empty();
        followed
    }

    fn learn(&mut self, board: &Board) -> Process {
        let known = &self.stacks.modules()[self.modules.len()..];
        if known.iter().any(|module| module.path == jit::PATH) {
            // While the process lives.
            self.made = jit::Source::of(self.pid);
        }
        let (numbers, all) = board.know_modules((self.stream, self.pid), known);
        self.modules.extend(numbers);
        Process {
            modules: all,
            ..self.process.clone()
        }
    }

    /// Adds what was found out about the process's allocator.
    pub fn complete(&mut self, finding: &Finding) {
        finding.complete(&mut self.process);
        self.is_told = true;
    }

    /// Names the code that the process made, at its end: nobody finds these names later.
    pub fn name_made_code(&mut self) {
        let Some(source) = self.made.take() else {
            return;
        };
        let names = source.names();
        let modules = self.stacks.modules();
        let is_made = |module: u32| modules[module as usize].path == jit::PATH;
        let addresses = self.frames.addresses_in(is_made).into_iter();
        let named = addresses.filter_map(|address| {
            Some(Named {
                address,
                name: names.at(address)?,
                ..Named::default()
            })
        });
        self.names = named.collect();
    }

    /// The process with all its modules, if more is known than at its beginning, or stacks name the
    /// modules, or modules have checksums: the last word on it so far.
    pub fn process(&self, board: &Board) -> Option<Process> {
        let (_, mut modules): (_, Vec<Module>) = board.know_modules((self.stream, self.pid), &[]);
        if let Some(made) = modules.iter_mut().find(|module| module.path == jit::PATH) {
            made.names.clone_from(&self.names);
        }
        let has_more = modules.iter().any(|module| module.checksum.is_some());
        (self.is_told || has_more).then(|| Process {
            modules,
            ..self.process.clone()
        })
    }
}
