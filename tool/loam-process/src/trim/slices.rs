//! Stops: one thread is stopped, the arena is made sure of, chunks are checked again, and their
//! pages are dropped.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant};

use super::home;
use super::inject::{Errand, Held, Stop, MOST_RANGES};
use super::outside::Frames;
use super::pace::{Clock, Moment, Pace, Work};
use super::plan::{Piece, PAGE};
use super::program::{Bytes, Program};
use super::system;
use super::verify::{self, Conditions, Hole, Verdict};
use super::{Step, TrimError, Watch};
use crate::process::{has_memory, Pid, Stat};
use loam_format::memory::{Memory, ReadError};

/// How long a thread may take to stop, while nothing stands yet. A thread in an uninterruptible
/// wait never does. Chosen: on a busy machine a thread waits for a processor for some ten
/// milliseconds, and a thread that is given up after it was interrupted may see an EINTR that
/// nobody turns into a new begin of its call.
const PATIENCE: Duration = Duration::from_secs(1);
/// What does not change from stop to stop.
pub struct Setting<'a> {
    /// The process.
    pub pid: Pid,
    /// Its memory.
    pub memory: &'a File,
    /// Its code.
    pub program: &'a Program,
    /// Whether one call takes many ranges.
    pub at_once: bool,
    /// The longest stop.
    pub most: Duration,
    /// What is checked.
    pub conditions: Conditions,
    /// Who sees each step.
    pub watch: &'a Watch,
    /// Whether filters that can not be read are believed to allow the calls.
    pub trusts_filters: bool,
}

/// What a stop did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slice {
    /// How many of the pieces were looked at.
    pub taken: usize,
    /// Pieces that the program had changed.
    pub changed: u64,
    /// Bytes of the changed pieces.
    pub changed_bytes: u64,
    /// Dropped ranges.
    pub ranges: u64,
    /// Resident bytes given back.
    pub bytes: u64,
    /// Swapped out bytes given back.
    pub swapped: u64,
    /// How long the thread stood.
    pub stood: Duration,
    /// The part of it in which a thread waited for a processor.
    pub waited: Duration,
}

/// Why a stop did nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Futile {
    /// The thread was in malloc, or it could not be ruled out.
    Inside,
    /// The arena was locked.
    Locked,
    /// The thread can not be used: it stands on another stack, in a restartable sequence, or it
    /// does not stop.
    Unfit,
    /// The thread has gone.
    Gone,
}

/// Stops a thread.
pub fn hold(thread: Pid) -> Result<Result<Held, Futile>, TrimError> {
    match system::seize(thread) {
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {
            return Ok(Err(Futile::Gone))
        }
        // It ends, or has ended: the first thread of a process stays in the list.
        Err(_) if !has_memory(thread) => return Ok(Err(Futile::Gone)),
        // The thread that traced it for the last stop has ended, and the kernel has not let go yet.
        Err(error) if super::is_ours(thread, &error) => return Ok(Err(Futile::Unfit)),
        seized => seized?,
    }
    system::interrupt(thread)?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = system::news(thread)? {
            break status;
        }
        // The end of the calling thread lets it go.
        if begun.elapsed() > PATIENCE {
            return Ok(Err(Futile::Unfit));
        }
        std::thread::yield_now();
    };
    let signal = match Stop::of(status) {
        Stop::Asked(signal) => signal,
        Stop::Signal(signal) => {
            system::let_go(thread, signal)?;
            return Ok(Err(Futile::Unfit));
        }
        Stop::Call | Stop::Ended => return Ok(Err(Futile::Gone)),
    };
    let mut registers = system::registers(thread)?;
    if signal == 0 && home::failed_by_stop(&registers) {
        registers = home::to_be_restarted(&registers);
        system::set_registers(thread, &registers)?;
    }
    Ok(Ok(Held { thread, registers }))
}

/// Stops a thread, drops what can be dropped of the pieces in the planned time, and lets the thread
/// go on. All pieces belong to one arena.
pub fn one(
    setting: &Setting,
    frames: &mut Frames,
    thread: Pid,
    pieces: &[Piece],
    pace: &mut Pace,
) -> Result<Result<Slice, Futile>, TrimError> {
    let clock = Clock::of(setting.pid, thread);
    let begun = clock.now();
    let held = match hold(thread)? {
        Ok(held) => held,
        Err(futile) => return Ok(Err(futile)),
    };
    setting.watch.at(Step::Stopped);
    let done = in_stop(setting, frames, &held, pieces, pace, (&clock, begun));
    if let Ok(Ok(slice)) = &done {
        debug_assert!(slice.taken <= pieces.len());
    }
    if matches!(done, Ok(Err(_))) && home::waits_on(&held.registers).is_some() {
        wait_on(setting, frames, &held)?;
    }
    if let Err(error) = done {
        // Its stack brings the thread home. A thread that was not sent out stands where it stood.
        return Err(error);
    }
    system::let_go(thread, 0)?;
    setting.watch.at(Step::LetGo);
    let (stood, waited) = begun.until(&clock.now());
    done.map(|slice| {
        slice.map(|slice| Slice {
            stood,
            waited,
            ..slice
        })
    })
}

/// Lets a thread wait on that was not used for anything.
fn wait_on(setting: &Setting, frames: &Frames, held: &Held) -> Result<(), TrimError> {
    let Some((low, _)) = frames.stack(held, setting.memory) else {
        return Ok(());
    };
    let gadgets = setting.program.gadgets;
    Errand::begin(held, setting.memory, gadgets, low, 0, setting.watch)?.go_home()
}

/// The same with a stopped thread, which stays stopped.
pub fn in_stop(
    setting: &Setting,
    frames: &mut Frames,
    held: &Held,
    pieces: &[Piece],
    pace: &mut Pace,
    (clock, begun): (&Clock, Moment),
) -> Result<Result<Slice, Futile>, TrimError> {
    let Setting {
        memory, conditions, ..
    } = *setting;
    let bytes = Bytes(memory);
    let Some(first) = pieces.first() else {
        return Ok(Ok(Slice::default()));
    };
    // A 32-bit program, or a thread between its call of `clone` and its own stack.
    const CODE: u64 = 0x33;
    let Some((low, end)) = frames
        .stack(held, memory)
        .filter(|_| held.registers.cs == CODE)
    else {
        return Ok(Err(Futile::Unfit));
    };
    if is_in_sequence(held, &bytes) {
        return Ok(Err(Futile::Unfit));
    }
    if conditions.outside && !frames.is_outside(held, end, memory) {
        return Ok(Err(Futile::Inside));
    }
    let takes_ranges = super::filters::require(held.thread, setting.pid, setting.trusts_filters)?;
    let at_once = setting.at_once && takes_ranges;
    let lock = first.hole.arena;
    let is_locked = bytes.bytes(lock, 4)? != [0; 4];
    if conditions.lock && is_locked {
        return Ok(Err(Futile::Locked));
    }
    let is_alone = is_alone(setting.pid, held.thread);
    let header = held.registers.fs_base;
    if !is_alone && conditions.lock && !setting.program.takes_locks(&bytes, header) {
        return Err(TrimError::Threads);
    }
    let mut errand = Errand::begin(
        held,
        memory,
        setting.program.gadgets,
        low,
        lock,
        setting.watch,
    )?;
    if !is_alone && conditions.lock && !errand.lock(lock)? {
        errand.go_home()?;
        return Ok(Err(Futile::Locked));
    }
    let mut slice = Slice::default();
    let mut checks = Checks::new(&bytes, conditions);
    // `ready`: how long the thread will have stood when the call that it makes ends.
    let mut fill = |slice: &mut Slice, pace: &Pace, ready: Duration| {
        Batch::fill(&mut checks, pieces, slice, |work, is_first| {
            let stood = begun.elapsed().max(ready);
            pace.allows(work, stood, setting.most, is_first)
        })
    };
    let mut batch = fill(&mut slice, pace, Duration::ZERO);
    while !batch.ranges.is_empty() {
        let before = clock.now();
        let mut next = Batch::default();
        // The next chunks are checked while the thread is inside of the kernel.
        let ready = begun.elapsed() + pace.expects(batch.work);
        let accepted = errand.give_back(&batch.ranges, at_once, || {
            next = fill(&mut slice, pace, ready);
        });
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error @ TrimError::Refused(_)) => {
                errand.go_home()?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        pace.called(batch.work, before.worked_until(&clock.now()));
        batch.count(accepted, &mut slice);
        batch = next;
    }
    let before = clock.now();
    errand.go_home()?;
    pace.went_home(before.worked_until(&clock.now()));
    Ok(Ok(slice))
}

/// Checks of chunks in one stop. With the arena's lock no header and no link changes, so each is
/// read once.
struct Checks<'a> {
    memory: Once<'a>,
    conditions: Conditions,
    last: Option<(Hole, Verdict)>,
}

impl<'a> Checks<'a> {
    fn new(memory: &'a Bytes<'a>, conditions: Conditions) -> Checks<'a> {
        Checks {
            memory: Once {
                memory,
                lines: RefCell::default(),
            },
            conditions,
            last: None,
        }
    }

    /// A chunk may have several pieces.
    fn check(&mut self, hole: &Hole) -> Verdict {
        match self.last {
            Some((last, verdict)) if last == *hole => verdict,
            _ => {
                let verdict = verify::check(&self.memory, hole, &self.conditions);
                self.last = Some((*hole, verdict));
                verdict
            }
        }
    }
}

/// Memory of which each line is read once.
struct Once<'a> {
    memory: &'a Bytes<'a>,
    lines: RefCell<HashMap<u64, [u8; LINE as usize]>>,
}

/// Chosen: a read takes as long as the copy of some hundred bytes that are in no cache.
const LINE: u64 = 128;

impl Memory for Once<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let place = (address % LINE) as usize;
        if place + buffer.len() > LINE as usize {
            return self.memory.read(address, buffer);
        }
        let mut lines = self.lines.borrow_mut();
        let line = match lines.entry(address - address % LINE) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(room) => {
                let mut line = [0; LINE as usize];
                self.memory.read(*room.key(), &mut line)?;
                room.insert(line)
            }
        };
        buffer.copy_from_slice(&line[place..place + buffer.len()]);
        Ok(())
    }
}

/// What one call drops.
#[derive(Default)]
struct Batch {
    pieces: Vec<Piece>,
    ranges: Vec<(u64, u64)>,
    work: Work,
}

impl Batch {
    /// Takes pieces as long as `allows` says so, and checks them. At least one is taken of a stop
    /// that has done nothing.
    fn fill(
        checks: &mut Checks,
        pieces: &[Piece],
        slice: &mut Slice,
        allows: impl Fn(Work, bool) -> bool,
    ) -> Batch {
        let mut batch = Batch::default();
        let is_first = slice.taken == 0;
        while let Some(piece) = pieces.get(slice.taken) {
            let continues = batch
                .ranges
                .last()
                .is_some_and(|(_, end)| *end == piece.start);
            let more = Work {
                pages: batch.work.pages + (piece.resident + piece.swapped) / PAGE,
                ranges: batch.work.ranges + u64::from(!continues),
            };
            let is_full = more.ranges > MOST_RANGES as u64 || !allows(more, is_first);
            if is_full && slice.taken > 0 {
                break;
            }
            slice.taken += 1;
            if checks.check(&piece.hole) == Verdict::Changed {
                slice.changed += 1;
                slice.changed_bytes += piece.resident;
                continue;
            }
            match batch.ranges.last_mut() {
                Some((_, end)) if continues => *end = piece.end,
                _ => batch.ranges.push((piece.start, piece.end)),
            }
            batch.work = more;
            batch.pieces.push(*piece);
        }
        batch
    }

    /// Counts what the kernel has done, which it says in bytes.
    fn count(&self, mut accepted: u64, slice: &mut Slice) {
        let mut end = 0;
        for piece in &self.pieces {
            let length = piece.end - piece.start;
            if accepted < length {
                return;
            }
            accepted -= length;
            slice.ranges += u64::from(piece.start != end);
            end = piece.end;
            slice.bytes += piece.resident;
            slice.swapped += piece.swapped;
        }
    }
}

/// Whether a thread is the only one of its process.
fn is_alone(pid: Pid, thread: Pid) -> bool {
    Stat::read_thread(pid, thread).is_ok_and(|stat| stat.threads == 1)
}

/// Whether the thread is in a sequence that the kernel begins again after an interruption. Where
/// the kernel does not say, a thread in a system call is in none.
fn is_in_sequence(held: &Held, memory: &impl Memory) -> bool {
    const CURRENT: u64 = 8;
    match system::sequences(held.thread) {
        Ok(0) => false,
        Ok(record) => memory
            .bytes(record + CURRENT, 8)
            .map_or(true, |word| word != [0; 8]),
        Err(_) => (held.registers.orig_rax as i64) < 0,
    }
}
