//! Stops: one thread is stopped, the arena is made sure of, chunks are checked again, and their pages are dropped.

use std::fs::File;
use std::time::{Duration, Instant};

use super::home;
use super::inject::{Errand, Held, Stop, MOST_RANGES};
use super::outside::Frames;
use super::plan::{Piece, PAGE};
use super::program::{Bytes, Program};
use super::system;
use super::verify::{self, Conditions, Verdict};
use super::{Step, TrimError, Watch};
use crate::process::Pid;
use loam_format::memory::Memory;

/// How long a thread may take to stop, while nothing stands yet. A thread in an uninterruptible wait never does. Chosen: on
/// a busy machine a thread waits for a processor for some ten milliseconds, and a thread that is given up after it was
/// interrupted may see an EINTR that nobody turns into a new begin of its call.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much of a stop's time is planned. The rest is for the ways there and back.
const PLANNED: f64 = 0.6;
/// What a page takes until that is measured.
const PAGE_TAKES: f64 = 0.5e-6;
/// What a check and a range take. Chosen: five reads of some 0.6 us.
const RANGE_TAKES: f64 = 4e-6;

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
    /// Seconds that a page took.
    pub page_takes: f64,
}

/// Why a stop did nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Futile {
    /// The thread was in malloc, or it could not be ruled out.
    Inside,
    /// The arena was locked.
    Locked,
    /// The thread can not be used: it stands on another stack, in a restartable sequence, or it does not stop.
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

/// Stops a thread, drops what can be dropped of the pieces in the planned time, and lets the thread go on. All pieces
/// belong to one arena.
pub fn one(
    setting: &Setting,
    frames: &mut Frames,
    thread: Pid,
    pieces: &[Piece],
    page_takes: f64,
) -> Result<Result<Slice, Futile>, TrimError> {
    let begun = Instant::now();
    let held = match hold(thread)? {
        Ok(held) => held,
        Err(futile) => return Ok(Err(futile)),
    };
    setting.watch.at(Step::Stopped);
    let done = in_stop(setting, frames, &held, pieces, page_takes, begun);
    if let Ok(Ok(slice)) = &done {
        debug_assert!(slice.taken <= pieces.len());
    }
    if let Err(error) = done {
        // Its stack brings the thread home. A thread that was not sent out stands where it stood.
        return Err(error);
    }
    system::let_go(thread, 0)?;
    setting.watch.at(Step::LetGo);
    let stood = begun.elapsed();
    done.map(|slice| slice.map(|slice| Slice { stood, ..slice }))
}

/// The same with a stopped thread, which stays stopped.
pub fn in_stop(
    setting: &Setting,
    frames: &mut Frames,
    held: &Held,
    pieces: &[Piece],
    page_takes: f64,
    begun: Instant,
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
    super::filters::require(held.thread, setting.pid, setting.trusts_filters)?;
    let lock = first.hole.arena;
    let is_locked = bytes.bytes(lock, 4)? != [0; 4];
    if conditions.lock && is_locked {
        return Ok(Err(Futile::Locked));
    }
    let is_alone = is_alone(setting.pid);
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
    let mut slice = Slice {
        page_takes,
        ..Slice::default()
    };
    let most = setting.most.as_secs_f64() * PLANNED;
    loop {
        let left = most - begun.elapsed().as_secs_f64();
        let rest = &pieces[slice.taken..];
        // A stop that came late still does something.
        let left = if slice.taken == 0 {
            left.max(most / 4.0)
        } else {
            left
        };
        let mut batch = Vec::new();
        let mut takes = 0.0;
        for piece in rest.iter().take(MOST_RANGES) {
            let pages = (piece.end - piece.start) / PAGE;
            takes += RANGE_TAKES + pages as f64 * slice.page_takes;
            if takes > left && !(slice.taken == 0 && batch.is_empty()) {
                break;
            }
            batch.push(*piece);
        }
        if batch.is_empty() {
            break;
        }
        slice.taken += batch.len();
        let mut free = Vec::new();
        for piece in &batch {
            match verify::check(&bytes, &piece.hole, &conditions) {
                Verdict::Free => free.push(*piece),
                Verdict::Changed => {
                    slice.changed += 1;
                    slice.changed_bytes += piece.resident;
                }
            }
        }
        if free.is_empty() {
            continue;
        }
        let before = Instant::now();
        let ranges: Vec<(u64, u64)> = free.iter().map(|piece| (piece.start, piece.end)).collect();
        let mut accepted = match errand.give_back(&ranges, setting.at_once) {
            Ok(accepted) => accepted,
            Err(error @ TrimError::Refused(_)) => {
                errand.go_home()?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let mut pages = 0;
        for piece in &free {
            let length = piece.end - piece.start;
            if accepted < length {
                break;
            }
            accepted -= length;
            pages += length / PAGE;
            slice.ranges += 1;
            slice.bytes += piece.resident;
            slice.swapped += piece.swapped;
        }
        if pages > 16 {
            let took = before.elapsed().as_secs_f64() / pages as f64;
            slice.page_takes = (slice.page_takes + took) / 2.0;
        }
    }
    errand.go_home()?;
    Ok(Ok(slice))
}

/// Whether the process has one thread.
fn is_alone(pid: Pid) -> bool {
    crate::process::Stat::read(pid).is_ok_and(|stat| stat.threads == 1)
}

/// Whether the thread is in a sequence that the kernel begins again after an interruption. Where the kernel does not
/// say, a thread in a system call is in none.
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

/// The first guess.
pub const FIRST_PAGE_TAKES: f64 = PAGE_TAKES;
