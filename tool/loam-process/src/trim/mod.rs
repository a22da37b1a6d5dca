//! Gives the free pages of a running program's heap back to the system, from outside (glibc's
//! malloc).
//!
//! ```text
//!  without a stop   walk of the heap --> free chunks --> pages that are the process's alone (plan)
//!  in each stop     one thread --> outside of malloc (outside) --> takes the arena's lock (inject)
//!                   --> chunks are checked again (verify) --> madvise --> unlocks --> goes on
//! ```
//!
//! No code of malloc runs. A process with one thread needs no lock. In a process with several
//! threads the others run on: the lock keeps them out of the arena. The tool may die at any moment
//! (`inject`). `docs/trust.md` has the proof.

mod filters;
mod home;
#[cfg(test)]
mod hostile;
mod inject;
pub mod keep;
mod outside;
mod pace;
mod plan;
mod program;
mod slices;
#[cfg(test)]
mod steps;
mod system;
#[cfg(test)]
mod tests;
mod verify;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::glibc::layout::{Layout, Version};
use crate::glibc::{self, GlibcError, GlibcHeap};
use crate::mappings::{self, Mapping};
use crate::process::{
    face, has_memory, permission_remedy, resident_bytes, status_value, Pid, ProcessError,
    ProcessKey, Stat,
};
use loam_format::memory::ReadError;
use outside::Frames;
use pace::Pace;
use plan::{Holes, Pages, Piece, Sums};
use program::{Bytes, Program};
use slices::{Futile, Setting, Slice};
use verify::Conditions;

/// Why nothing, or nothing more, was dropped.
#[derive(Debug, Error)]
pub enum TrimError {
    /// The heap can not be read.
    #[error(transparent)]
    Heap(#[from] GlibcError),
    /// The process.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The order of its stores was not studied.
    #[error(
        "its C library is glibc {0}, and a trim is proven safe from 2.28 to 2.41 only: nothing \
         was dropped"
    )]
    Version(Version),
    /// Its code is not understood.
    #[error("nothing was dropped: {0}")]
    Code(String),
    /// The system's refusal to stop a thread.
    #[error("the process can not be stopped: {0}")]
    Stopping(String),
    /// The heap does not add up.
    #[error("the heap does not add up, and nothing is dropped: {0}")]
    Broken(String),
    /// The kernel refused.
    #[error("the kernel refused to drop pages: {0}")]
    Refused(String),
    /// The C library does not know of all threads.
    #[error(
        "it has threads that its C library does not know of, so that malloc takes no locks: \
         nothing is safe here"
    )]
    Threads,
    /// A thread can not be used.
    #[error("a thread could not be used: {0}")]
    Thread(String),
    /// Filters that may not be read.
    #[error(
        "process {0} has seccomp filters that loam may not read (that needs CAP_SYS_ADMIN, outside \
         of a container): a filter might end it; `--trust-filters` if you know that they allow \
         madvise, futex and getpid"
    )]
    Filters(Pid),
    /// A filter that is against it.
    #[error("its seccomp filter does not allow {0}, or looks at the call's arguments")]
    Forbidden(&'static str),
    /// It ended.
    #[error("the process ended meanwhile, or became another program")]
    Ended,
    /// No moment was found.
    #[error("no safe moment was found in {0} stops: {1}")]
    NoMoment(u32, &'static str),
    /// Other errors of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its memory.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// How to trim.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long a stop may take.
    pub max_stop: Duration,
    /// Whether seccomp filters that can not be read are believed to allow the calls.
    pub trusts_filters: bool,
}

/// What could be dropped, or was.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Resident bytes of the process before and after.
    pub resident: (u64, u64),
    /// Resident bytes that could be given back, by the last look.
    pub could: u64,
    /// Resident bytes given back.
    pub bytes: u64,
    /// Swapped out bytes given back.
    pub swapped: u64,
    /// Ranges.
    pub ranges: u64,
    /// Stops that dropped something.
    pub slices: u64,
    /// Stops that did not.
    pub futile: u64,
    /// The longest stop.
    pub longest: Duration,
    /// The longest stop without waits for a processor.
    pub longest_at_work: Duration,
    /// All stops together.
    pub stood: Duration,
    /// The part of it in which a thread that was ready waited for a processor.
    pub waited: Duration,
    /// Resident bytes in free chunks that the program changed meanwhile.
    pub changed: u64,
    /// Resident bytes in pages that other processes have as well.
    pub shared: u64,
    /// Resident bytes of the heap that are free, and that share their pages with live blocks or
    /// with chunks of fast bins.
    pub between: u64,
    /// Bytes of small freed blocks that wait in fast bins and threads' caches.
    pub small: u64,
    /// What was not looked at, in words.
    pub problems: Vec<String>,
    /// How long all took.
    pub took: Duration,
}

/// Moments at which the tool may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The thread stands.
    Stopped,
    /// The frames are on its stack.
    Framed,
    /// Its registers are those of the first call.
    Armed,
    /// It blocks all signals.
    Masked,
    /// It is about to take the lock.
    Locking,
    /// It has the lock, or knows that another thread has it.
    Locked,
    /// Its registers are those of a call.
    Set,
    /// A call has begun.
    Begun,
    /// A call has been made.
    Made,
    /// It is about to unlock.
    Unlocking,
    /// It has unlocked.
    Unlocked,
    /// Its signal mask is the program's.
    Unmasked,
    /// Its registers are the program's.
    Restored,
    /// It runs on.
    LetGo,
}

/// Sees each step. The product's sees nothing.
pub struct Watch(Option<Box<dyn Fn(Step) + Send + Sync>>);

impl Watch {
    fn at(&self, step: Step) {
        if let Some(see) = &self.0 {
            see(step);
        }
    }
}

/// The newest version whose order of stores is known (docs/trust.md).
const NEWEST: Version = Version {
    major: 2,
    minor: 41,
};
/// How many stops in a row may find no safe moment.
const MOST_FUTILE: u32 = 200;
/// How many walks may lose their way.
const WALKS: u32 = 5;
/// How often the heap is walked again because the program changed much of it meanwhile.
const ROUNDS: usize = 3;

/// The layout of a version that is proven safe.
fn studied(version: Version) -> Result<Layout, TrimError> {
    let layout = Layout::of(version).ok_or(GlibcError::Version(version))?;
    match version > NEWEST {
        true => Err(TrimError::Version(version)),
        false => Ok(layout),
    }
}

/// A process that can be trimmed.
struct Patient {
    pid: Pid,
    key: ProcessKey,
    memory: File,
    program: Program,
    mappings: Vec<Mapping>,
}

impl Patient {
    /// `writes`: whether it will be trimmed, and not only looked at.
    fn open(pid: Pid, writes: bool) -> Result<Patient, TrimError> {
        let key = Stat::read(pid)?.key(pid);
        let mappings = mappings::read_names(pid)?;
        // First: without the right to it nothing else is known either.
        let memory = OpenOptions::new()
            .read(true)
            .write(writes)
            .open(format!("/proc/{}/mem", face(pid)))
            .map_err(|error| ProcessError::of_io(pid, "the memory", &error))?;
        let version = glibc::version(pid, &mappings).ok_or(GlibcError::Absent)?;
        let layout = studied(version)?;
        let program = Program::read(pid, &mappings, layout.version, &Bytes(&memory))?;
        Ok(Patient {
            pid,
            key,
            memory,
            program,
            mappings,
        })
    }

    /// Walks the heap without a stop. While the program changes it, a walk may lose its way.
    fn walk(&self) -> Result<(GlibcHeap, Holes), TrimError> {
        let mut unread = 0;
        for time in 0..WALKS {
            let mut holes = Holes::default();
            let heap = glibc::read_and_tell(self.key, &mut holes)?;
            unread = heap.sum(|arena| arena.unread);
            if unread == 0 {
                return Ok((heap, holes));
            }
            std::thread::sleep(Duration::from_millis(10 << time));
        }
        Err(TrimError::Broken(format!(
            "{unread} bytes of it could not be followed from block to block in {WALKS} looks; it \
             is corrupted, or changes all the time"
        )))
    }

    /// Looks at the heap without a stop.
    fn look(&self, outcome: &mut Outcome) -> Result<Vec<Piece>, TrimError> {
        let (heap, holes) = self.walk()?;
        let pages = Pages::open(self.pid)
            .map_err(|error| ProcessError::of_io(self.pid, "the pages", &error))?;
        let mut sums = Sums::default();
        let mut pieces = Vec::new();
        for hole in &holes.found {
            pages.pieces(hole, &mut pieces, &mut sums);
        }
        let locked = locked(self.pid, &self.mappings);
        pieces.retain(|piece| {
            !locked
                .iter()
                .any(|(start, end)| (*start..*end).contains(&piece.start))
        });
        plan::sums(&pieces, &mut sums);
        let free = heap.sum(|arena| arena.holes.bytes + arena.top_resident);
        outcome.could = sums.resident;
        outcome.shared = sums.shared;
        outcome.between =
            free.saturating_sub(heap.sum(|arena| arena.whole_pages + arena.top_resident));
        outcome.small = heap.sum(|arena| arena.fast.bytes + arena.cached.bytes);
        outcome.problems = heap.problems;
        Ok(pieces)
    }
}

/// Says what a trim would give back. Nothing is stopped, and nothing is written.
pub fn predict(pid: Pid) -> Result<Outcome, TrimError> {
    let begun = Instant::now();
    let mut outcome = Outcome::default();
    let patient = Patient::open(pid, false)?;
    let resident = resident_bytes(pid).unwrap_or(0);
    outcome.resident = (resident, resident);
    patient.look(&mut outcome)?;
    outcome.took = begun.elapsed();
    Ok(outcome)
}

/// Gives free pages back.
pub fn run(pid: Pid, options: &Options) -> Result<Outcome, TrimError> {
    watched(pid, options, Conditions::ALL, &Watch(None))
}

fn watched(
    pid: Pid,
    options: &Options,
    conditions: Conditions,
    watch: &Watch,
) -> Result<Outcome, TrimError> {
    Patient::open(pid, true)?.trim(options, conditions, watch)
}

impl Patient {
    fn trim(
        &self,
        options: &Options,
        conditions: Conditions,
        watch: &Watch,
    ) -> Result<Outcome, TrimError> {
        let begun = Instant::now();
        let pid = self.pid;
        require_untraced(pid)?;
        let mut outcome = Outcome {
            resident: (resident_bytes(pid).unwrap_or(0), 0),
            ..Outcome::default()
        };
        let setting = Setting {
            pid,
            memory: &self.memory,
            program: &self.program,
            at_once: system::takes_ranges_of_itself(),
            most: options.max_stop,
            conditions,
            watch,
            trusts_filters: options.trusts_filters,
        };
        let mut frames = Frames::of(pid, &self.mappings, self.program.malloc.clone());
        let mut pace = Pace::default();
        for _ in 0..ROUNDS {
            let pieces = self.look(&mut outcome)?;
            outcome.changed = 0;
            self.drop_all(&setting, &mut frames, &pieces, &mut pace, &mut outcome)?;
            if outcome.changed * 20 < outcome.could {
                break;
            }
        }
        outcome.resident.1 = resident_bytes(pid).unwrap_or(0);
        outcome.took = begun.elapsed();
        Ok(outcome)
    }

    /// Drops pieces, which are in the order of their arenas.
    fn drop_all(
        &self,
        setting: &Setting,
        frames: &mut Frames,
        pieces: &[Piece],
        pace: &mut Pace,
        outcome: &mut Outcome,
    ) -> Result<(), TrimError> {
        for pieces in pieces.chunk_by(|a, b| a.hole.arena == b.hole.arena) {
            arena(setting, frames, pieces, pace, outcome)
                .map_err(|error| of_stop(self.key, error))?;
        }
        Ok(())
    }
}

/// Drops the pieces of an arena, stop by stop.
fn arena(
    setting: &Setting,
    frames: &mut Frames,
    pieces: &[Piece],
    pace: &mut Pace,
    outcome: &mut Outcome,
) -> Result<(), TrimError> {
    let mut at = 0;
    let mut futile = 0;
    let mut reasons: HashMap<&'static str, u32> = HashMap::new();
    let mut threads = Vec::new();
    while at < pieces.len() {
        if threads.is_empty() {
            threads = threads_of(setting.pid)?;
        }
        let Some(thread) = threads.pop() else {
            return Err(TrimError::Ended);
        };
        // The end of the thread that traces lets go of what it traces.
        let rest = &pieces[at..];
        let done = std::thread::scope(|scope| {
            let tracer = scope.spawn(|| slices::one(setting, frames, thread, rest, pace));
            tracer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        match done? {
            Ok(slice) => {
                at += slice.taken;
                futile = 0;
                add(outcome, &slice);
                // The same thread is as good for the next stop.
                threads.push(thread);
                std::thread::sleep(slice.stood.max(Duration::from_micros(200)));
            }
            Err(reason) => {
                outcome.futile += 1;
                futile += 1;
                let reason = match reason {
                    Futile::Inside => {
                        "its threads were inside of malloc, or that could not be ruled out"
                    }
                    Futile::Locked => "other threads had the lock of the arena",
                    Futile::Unfit => "no thread stood on its own stack with room on it",
                    Futile::Gone => "its threads ended",
                };
                *reasons.entry(reason).or_default() += 1;
                if futile >= MOST_FUTILE {
                    let most = reasons.iter().max_by_key(|(_, count)| **count);
                    let most = most.map_or("", |(reason, _)| *reason);
                    return Err(TrimError::NoMoment(futile, most));
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    }
    Ok(())
}

fn add(outcome: &mut Outcome, slice: &Slice) {
    outcome.bytes += slice.bytes;
    outcome.swapped += slice.swapped;
    outcome.ranges += slice.ranges;
    outcome.slices += 1;
    outcome.changed += slice.changed_bytes;
    outcome.longest = outcome.longest.max(slice.stood);
    outcome.longest_at_work = outcome.longest_at_work.max(slice.stood - slice.waited);
    outcome.stood += slice.stood;
    outcome.waited += slice.waited;
}

/// The threads of a process, the one to try first at the end: one that sleeps, and the first thread
/// before others.
fn threads_of(pid: Pid) -> Result<Vec<Pid>, TrimError> {
    /// More than this are not asked for their state.
    const MOST: usize = 16;
    let entries = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| TrimError::Ended)?;
    let mut found: Vec<Pid> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    // A thread that has ended stays in the list if it is the first one.
    let states = found.into_iter().filter_map(|thread| {
        let stat = Stat::read(thread).ok().filter(|_| has_memory(thread))?;
        Some((matches!(stat.state, 'S' | 'T'), Reverse(thread)))
    });
    let mut states: Vec<(bool, Reverse<Pid>)> = states.take(MOST).collect();
    states.sort_unstable();
    Ok(states
        .into_iter()
        .map(|(_, Reverse(thread))| thread)
        .collect())
}

fn require_untraced(pid: Pid) -> Result<(), TrimError> {
    match tracer(pid) {
        Some(tracer) => Err(traced_by(tracer)),
        None => Ok(()),
    }
}

fn traced_by(tracer: Pid) -> TrimError {
    let name = status_value(tracer, "Name").map_or_else(String::new, |name| format!(" ({name})"));
    // The thread that traces.
    let process = status_value(tracer, "Tgid").and_then(|tgid| tgid.parse().ok());
    let process: Pid = process.unwrap_or(tracer);
    TrimError::Stopping(format!(
        "process {process}{name} traces it already (a debugger, strace, or another `loam trim`); \
         end that first, or wait for its end"
    ))
}

/// What the refusal to stop a thread means. Another trim traces one thread at a time, and only for
/// moments, so that it is looked for among all threads, and more than once.
fn refused(pid: Pid) -> TrimError {
    if !may_trace(pid) {
        return TrimError::Stopping(permission_remedy(pid));
    }
    for _ in 0..TRACER_LOOKS {
        let threads = fs::read_dir(format!("/proc/{}/task", face(pid)));
        let threads = threads.into_iter().flatten().flatten();
        let ids = threads.filter_map(|one| one.file_name().to_str()?.parse().ok());
        if let Some(tracer) = ids.filter_map(tracer).find(|one| !is_own_thread(*one)) {
            return traced_by(tracer);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    TrimError::Stopping(
        "another process traced it at that moment (a debugger, strace, or another `loam trim`), \
         or a seccomp filter keeps ptrace from loam; try again"
            .to_owned(),
    )
}

/// How often a tracer is looked for, a millisecond apart. Chosen: longer than the pause between two
/// stops of a trim.
const TRACER_LOOKS: u32 = 50;

fn is_own_thread(thread: Pid) -> bool {
    std::path::Path::new(&format!("/proc/{}/task/{thread}", std::process::id())).exists()
}

/// The process that traces a process.
pub fn tracer(pid: Pid) -> Option<Pid> {
    let tracer = status_value(pid, "TracerPid")?.parse().ok();
    tracer.filter(|tracer| *tracer != 0)
}

/// Whether a thread can not be traced because a thread of this program still traces it, or did a
/// moment ago.
fn is_ours(thread: Pid, error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::EPERM)
        && match tracer(thread) {
            // A thread's number. One of a thread that has ended meanwhile is soon gone.
            Some(by) => {
                is_own_thread(by) || {
                    std::thread::sleep(Duration::from_millis(5));
                    tracer(thread) != Some(by)
                }
            }
            None => Stat::read(thread).is_ok_and(|stat| !stat.is_dead()) && may_trace(thread),
        }
}

/// Whether the system lets this program look into the process as deep as tracing needs.
fn may_trace(thread: Pid) -> bool {
    File::open(format!("/proc/{thread}/mem")).is_ok()
}

/// What an error of a stop means.
fn of_stop(key: ProcessKey, error: TrimError) -> TrimError {
    let pid = key.pid;
    let is_there = Stat::read(pid).is_ok_and(|stat| stat.key(pid) == key && !stat.is_dead());
    if !is_there {
        return TrimError::Ended;
    }
    // A program that becomes another one loses its memory and all threads but one.
    let TrimError::Io(system) = &error else {
        return match error {
            TrimError::Read(_) => TrimError::Ended,
            error => error,
        };
    };
    if matches!(
        system.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero
    ) {
        return TrimError::Ended;
    }
    match system.raw_os_error() {
        Some(nix::libc::ESRCH | nix::libc::ECHILD | nix::libc::EIO) => TrimError::Ended,
        Some(nix::libc::EPERM | nix::libc::EACCES) => match require_untraced(pid) {
            Err(traced) => traced,
            Ok(()) => refused(pid),
        },
        _ => error,
    }
}

/// Stretches of the heap whose pages are locked in memory. Only a process that locks some is asked
/// for them.
fn locked(pid: Pid, mappings: &[Mapping]) -> Vec<(u64, u64)> {
    let pid = face(pid);
    if status_value(pid, "VmLck").is_some_and(|locks| locks == "0 kB") {
        return Vec::new();
    }
    // The flags of a mapping are behind its figures.
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let mut found = Vec::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.split_whitespace().any(|flag| flag == "lo") {
                found.extend(current);
            }
        } else if let Some((start, end)) = line.split_whitespace().next().and_then(|word| {
            let (start, end) = word.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?))
        }) {
            current = Some((start, end));
        }
    }
    if found.is_empty() && text.is_empty() {
        found.extend(mappings.iter().map(|one| (one.start, one.end)));
    }
    found
}
