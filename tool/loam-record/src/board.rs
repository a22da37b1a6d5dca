//! What the threads of a recording tell each other.
//!
//! ```text
//! main: signals, progress, the command's end ----+
//! drain: rings -> events, ends ------------------+--> write: the trace
//! sample: /proc -> samples, touched pages -------+
//! ```

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use loam_format::trace::{End, Frame, Mark, Module, Process, Sample, Stack, Touch};

use loam_process::code::{Checksum, Checksums};
use loam_process::rings::{Batch, Blocks};

use crate::cost::Cost;

/// Where a process's blocks lie: followed by the drainer, looked at by the sampler.
pub type Shared = Arc<Mutex<Blocks>>;

/// A message to the writer. Streams are numbered in the order of their `Process` messages.
#[derive(Debug)]
pub enum Note {
    /// The next stream begins.
    Process(Box<Process>),
    /// More is known of a stream.
    Update(u32, Box<Process>),
    /// The stream's next events.
    Events(u32, Batch),
    /// How the process looked.
    Sample(u32, Sample),
    /// How much of a block was resident.
    Touches(u32, Vec<Touch>),
    /// Moments that the program named.
    Marks(u32, Vec<Mark>),
    /// Stacks of blocks, and the frames that are new in them.
    Stacks(u32, Vec<Frame>, Vec<Stack>),
    /// The stream's end.
    End(u32, End),
}

/// A recorded process that runs, as far as the sampler needs it.
#[derive(Debug, Clone)]
pub struct Live {
    /// Its stream.
    pub stream: u32,
    /// Its number.
    pub pid: i32,
    /// What is known of it.
    pub process: Process,
    /// Since when it is known.
    pub since: Instant,
    /// Where its blocks lie.
    pub blocks: Shared,
}

/// The modules of streams.
#[derive(Debug, Default)]
struct Known {
    streams: BTreeMap<u32, Vec<(Module, Option<Checksum>)>>,
    checksums: Checksums,
}

/// Shared by all threads.
#[derive(Debug, Default)]
pub struct Board {
    /// The part of a process's time that recording may take; none: any.
    pub most: Option<f64>,
    /// Events that the drainer gave out.
    pub events: AtomicU64,
    /// Events that were lost.
    pub dropped: AtomicU64,
    /// Events that wait for the writer.
    pub waiting: AtomicU64,
    /// Bytes of the file.
    pub bytes: AtomicU64,
    /// Recording is to end, whatever the processes do.
    pub stop: AtomicBool,
    /// No process of the recording begins any more, though no command has ended: there was none.
    pub is_over: AtomicBool,
    /// All is drained.
    pub is_drained: AtomicBool,
    reason: Mutex<Option<String>>,
    costly: Mutex<Option<i32>>,
    costs: Mutex<BTreeMap<u32, Cost>>,
    ended: Mutex<Option<(u32, ExitStatus)>>,
    live: Mutex<Vec<Live>>,
    modules: Mutex<Known>,
    notes: Mutex<Vec<String>>,
}

/// What a thread that failed left is as good as ever.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// For a recording that may take this part of a process's time.
    pub fn with_cost(most: Option<f64>) -> Board {
        Board {
            most,
            ..Board::default()
        }
    }

    /// Ends the recording; the first reason is kept.
    pub fn end_recording(&self, reason: String) {
        lock(&self.reason).get_or_insert(reason);
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Ends the recording as was wanted.
    pub fn end_as_wanted(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Ends the recording because it takes too much of this process's time.
    pub fn end_costly(&self, pid: i32, reason: String) {
        if !self.is_stopped() {
            *lock(&self.costly) = Some(pid);
            self.end_recording(reason);
        }
    }

    /// The process for whose sake the recording ended.
    pub fn costly(&self) -> Option<i32> {
        *lock(&self.costly)
    }

    /// What recording a stream has taken by now.
    pub fn costs(&self, stream: u32, cost: Cost) {
        lock(&self.costs).insert(stream, cost);
    }

    /// That of all streams.
    pub fn cost(&self) -> Cost {
        lock(&self.costs).values().copied().sum()
    }

    /// Whether the recording is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Why the recording ended before its processes did.
    pub fn reason(&self) -> Option<String> {
        lock(&self.reason).clone()
    }

    /// The command itself has ended.
    pub fn command_ended(&self, pid: u32, status: ExitStatus) {
        *lock(&self.ended) = Some((pid, status));
    }

    /// How the command ended, if it has.
    pub fn command(&self) -> Option<(u32, ExitStatus)> {
        *lock(&self.ended)
    }

    /// Whether what the recording is of has ended; other processes may go on.
    pub fn is_subject_over(&self) -> bool {
        self.command().is_some() || self.is_over.load(Ordering::SeqCst)
    }

    /// The processes that run.
    pub fn live(&self) -> MutexGuard<'_, Vec<Live>> {
        lock(&self.live)
    }

    /// Adds to what is known of a stream's modules. Their numbers, and all of them with the
    /// checksums that are known by now: the list only grows, since frames name modules by their
    /// place in it.
    pub fn know_modules(&self, live: (u32, i32), found: &[Module]) -> (Vec<u64>, Vec<Module>) {
        let (stream, pid) = live;
        let Known { streams, checksums } = &mut *lock(&self.modules);
        let known = streams.entry(stream).or_default();
        let mut numbers = Vec::with_capacity(found.len());
        for module in found {
            let place = known.iter().position(|(other, _)| other == module);
            numbers.push(place.unwrap_or(known.len()) as u64);
            if place.is_none() {
                let has_none = module.build_id.is_none();
                let checksum = has_none.then(|| checksums.of(pid, &module.path));
                known.push((module.clone(), checksum.flatten()));
            }
        }
        let with_checksum = |(module, checksum): &(Module, Option<Checksum>)| Module {
            checksum: checksum.as_ref().and_then(Checksum::now),
            ..module.clone()
        };
        (numbers, known.iter().map(with_checksum).collect())
    }

    /// The checksums of a stream's modules that are still being computed.
    pub fn unknown_checksums(&self, stream: u32) -> Vec<Checksum> {
        let known = lock(&self.modules);
        let modules = known.streams.get(&stream).into_iter().flatten();
        let checksums = modules.filter_map(|(_, checksum)| checksum.as_ref());
        checksums.filter(|one| !one.is_known()).cloned().collect()
    }

    /// Something that the user is to know.
    pub fn note(&self, text: String) {
        lock(&self.notes).push(text);
    }

    /// What there is to know.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_module_comes_later_and_its_number_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.so");
        std::fs::write(&path, "123456789").unwrap();
        let module = |start| Module {
            path: path.to_str().unwrap().to_owned(),
            start,
            ..Module::default()
        };
        let with_id = Module {
            build_id: Some("ab".to_owned()),
            ..module(2)
        };
        let board = Board::default();
        let live = (3, std::process::id() as i32);
        let (numbers, _) = board.know_modules(live, &[module(1), with_id, module(4)]);
        assert_eq!(numbers, [0, 1, 2]);
        for checksum in board.unknown_checksums(3) {
            checksum.wait();
        }
        assert!(board.unknown_checksums(3).is_empty());
        let (numbers, all) = board.know_modules(live, &[module(4), module(9)]);
        assert_eq!(numbers, [2, 3]);
        let checksums = all.iter().map(|module| module.checksum.as_deref());
        let known = Some("cbf43926-9");
        assert_eq!(Vec::from_iter(checksums), [known, None, known, known]);
    }
}
