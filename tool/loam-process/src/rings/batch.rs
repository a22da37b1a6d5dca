//! Events as they are in the rings: 16 bytes each, in order. They stay so until the trace's encoder
//! reads them, because to unpack them costs more than to copy them.
//!
//! ```text
//!   units  | event | event | rare | event | ...      one unit an event
//!   runs   | thread, high half of the stamps, end | ...
//!   rare   what fits no unit: alignments, touched pages, sizes of 4 GiB and more, threads, forks
//! ```
//!
//! [Decision 101](../../../../docs/decisions/0101-events-stay-units-until-they-are-encoded.md) has
//! the figures.

use std::collections::VecDeque;
use std::ops::Range;

use loam_format::trace::{AllocFamily, Encoder, Event, FreeFamily, Source};

use super::clock::Clock;
use super::layout::UNIT_BYTES;

/// Bytes of a unit.
pub const UNIT: usize = UNIT_BYTES as usize;
/// The two words of a unit.
pub type Unit = [u64; 2];

/// The place of the kind in the first word.
pub const KIND: u32 = 48;
/// The place of the family.
pub const FAMILY: u32 = 53;
/// The bits of the address, or of another value, in the first word.
pub const VALUE: u64 = (1 << KIND) - 1;
/// The low half of the second word, or of a stamp.
pub const LOW: u64 = (1 << 32) - 1;
/// Kinds of units that need no other data.
pub const ALLOCATE: u64 = 2;
/// The same.
pub const FREE: u64 = 3;
/// The same.
pub const RESIZE_FROM: u64 = 4;
/// The same.
pub const RESIZE_TO: u64 = 5;
/// The same.
pub const EXISTS: u64 = 17;
/// Only in a batch: the next of its rare events.
const RARE: u64 = 31;

#[inline(always)]
fn is_rare(unit: &Unit) -> bool {
    unit[0] >> KIND & 31 == RARE
}

/// Whether a unit with this first word is an event by itself: by kind and family.
const PLAIN: [bool; 512] = plain();

const fn plain() -> [bool; 512] {
    let mut plain = [false; 512];
    let mut at = 0;
    while at < plain.len() {
        let (kind, family) = (at as u64 & 31, at >> 5);
        plain[at] = match kind {
            ALLOCATE => family < AllocFamily::ALL.len() && !AllocFamily::ALL[family].is_aligned(),
            FREE => family < FreeFamily::ALL.len(),
            RESIZE_FROM | RESIZE_TO | EXISTS => true,
            _ => false,
        };
        at += 1;
    }
    plain
}

/// Whether a unit is an event by itself.
#[inline(always)]
pub fn is_plain(word0: u64) -> bool {
    PLAIN[(word0 >> KIND) as usize & 511]
}

/// The two words of a unit.
#[inline(always)]
pub fn words(unit: &[u8]) -> Unit {
    let (first, second) = unit.split_at(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    [word(first), word(second)]
}

/// The two kinds of nearly all units. They are distinguished only here, so that a loop over units
/// has a branch for each and no table of jumps.
enum Common {
    Allocate(AllocFamily, u64, u64),
    Free(FreeFamily, u64, u64),
    Other,
}

#[inline(always)]
fn common([word0, word1]: Unit) -> Common {
    let (address, size) = (word0 & VALUE, word1 & LOW);
    let family = (word0 >> FAMILY) as usize & 7;
    if word0 >> KIND & 30 != ALLOCATE {
        Common::Other
    } else if word0 >> KIND & 1 == 0 {
        Common::Allocate(AllocFamily::ALL[family], address, size)
    } else {
        // No unit has another number than a family's.
        let family = FreeFamily::ALL.get(family).copied();
        Common::Free(family.unwrap_or(FreeFamily::Free), address, size)
    }
}

/// The event of a plain unit of the other kinds.
fn uncommon([word0, word1]: Unit) -> Event {
    let (address, size) = (word0 & VALUE, word1 & LOW);
    match word0 >> KIND & 31 {
        RESIZE_FROM => Event::ResizeFrom {
            address,
            touched: None,
        },
        RESIZE_TO => Event::ResizeTo { address, size },
        _ => Event::Existing { address, size },
    }
}

/// A receiver of events. Nearly all events are plain allocations or plain frees.
pub trait Take {
    /// A block was handed out.
    fn allocated(&mut self, family: AllocFamily, address: u64, size: u64);
    /// A block is about to be freed.
    fn freed(&mut self, family: FreeFamily, address: u64, size: u64);
    /// Anything else.
    fn other(&mut self, thread: u32, event: &Event);
}

/// Units in a row of one thread, whose stamps have the same high half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// The thread, numbered from 0.
    pub thread: u32,
    /// The high half of the stamps, at its place in a stamp.
    pub high: u64,
    /// The number of the unit after it.
    pub end: usize,
}

impl Run {
    #[inline(always)]
    fn stamp(&self, unit: &Unit) -> u64 {
        self.high | unit[1] >> 32
    }
}

/// Units of events, with the data that fits no unit beside them.
#[derive(Debug, Clone, Default)]
pub struct Units {
    all: Vec<Unit>,
    runs: VecDeque<Run>,
    rare: VecDeque<Event>,
}

impl Units {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds units, with the thread and the high half that were set last.
    pub fn extend(&mut self, units: impl Iterator<Item = Unit>) {
        self.all.extend(units);
        let end = self.all.len();
        match self.runs.back_mut() {
            Some(run) => run.end = end,
            // Nothing was set; a recorder never does this.
            None => self.runs.push_back(Run {
                end,
                ..Run::default()
            }),
        }
    }

    /// Adds an event that fits no unit.
    pub fn push_rare(&mut self, stamp: u64, event: Event) {
        self.rare.push_back(event);
        self.extend([[RARE << KIND, stamp << 32]].into_iter());
    }

    /// Sets the thread of the next units, and the high half of their stamps.
    pub fn begin_run(&mut self, thread: u32, high: u64) {
        let end = self.all.len();
        match self.runs.back() {
            Some(last) if (last.thread, last.high) == (thread, high) => {}
            _ => self.runs.push_back(Run { thread, high, end }),
        }
    }
}

/// Units that are given out in parts.
#[derive(Debug, Default)]
pub struct Queue {
    /// All of them.
    pub units: Units,
    /// Whether a stamp is lower than the one before it.
    pub is_unsorted: bool,
    next: usize,
}

impl Queue {
    /// How many units wait.
    pub fn len(&self) -> usize {
        self.units.len() - self.next
    }

    /// How many units were given out since the last tidying.
    pub fn given(&self) -> usize {
        self.next
    }

    /// The run of the next unit.
    fn run(&mut self) -> Option<Run> {
        let runs = &mut self.units.runs;
        // The last run stays, because more of its units may follow.
        while runs.len() > 1 && runs[0].end <= self.next {
            runs.pop_front();
        }
        runs.front().copied().filter(|run| run.end > self.next)
    }

    /// The stamp of the next unit.
    pub fn front(&mut self) -> Option<u64> {
        let run = self.run()?;
        Some(run.stamp(&self.units.all[self.next]))
    }

    /// Gives out the next unit and those after it, up to the first one that is later than `limit`.
    pub fn give(&mut self, limit: u64, out: &mut Batch) {
        let begin = self.next;
        while let Some(run) = self.run() {
            let end = self.end_in(run, limit, self.next + usize::from(self.next == begin));
            out.take(&mut self.units, self.next..end, run);
            self.next = end;
            if end < run.end {
                break;
            }
        }
    }

    /// The end of the units of a run, from `first` on, up to the first one that is later than
    /// `limit`.
    fn end_in(&self, run: Run, limit: u64, first: usize) -> usize {
        let units = &self.units.all[first..run.end];
        let is_early = |unit: &Unit| run.stamp(unit) <= limit;
        if self.is_unsorted {
            let late = units.iter().position(|unit| !is_early(unit));
            return late.map_or(run.end, |late| first + late);
        }
        match units.last() {
            Some(last) if !is_early(last) => first + units.partition_point(is_early),
            _ => run.end,
        }
    }

    /// Drops the units that were given out.
    pub fn tidy(&mut self) {
        if self.next == 0 {
            return;
        }
        let _ = self.run();
        let given = std::mem::take(&mut self.next);
        self.units.all.drain(..given);
        for run in &mut self.units.runs {
            run.end -= given;
        }
        self.is_unsorted &= self.units.len() > 0;
    }
}

/// Events of one process image, in its order.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    units: Units,
    clock: Clock,
    /// The run, the unit and the rare event that the encoder takes next.
    run: usize,
    next: usize,
    rare: usize,
}

impl Batch {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.units.len() == 0
    }

    /// The clock of its times.
    pub fn set_clock(&mut self, clock: &Clock) {
        self.clock = clock.clone();
    }

    /// Adds units of one run.
    fn take(&mut self, from: &mut Units, units: Range<usize>, run: Run) {
        let units = &from.all[units];
        if !from.rare.is_empty() {
            let rare = units.iter().filter(|unit| is_rare(unit)).count();
            self.units.rare.extend(from.rare.drain(..rare));
        }
        self.units.begin_run(run.thread, run.high);
        self.units.extend(units.iter().copied());
    }

    /// Gives each event to `to`.
    #[inline(always)]
    pub fn each(&self, to: &mut impl Take) {
        let (mut begin, mut rare) = (0, self.units.rare.iter());
        for run in &self.units.runs {
            for unit in &self.units.all[begin..run.end] {
                give(*unit, run.thread, &mut rare, to);
            }
            begin = run.end;
        }
    }
}

#[inline(always)]
fn give<'a>(
    unit: Unit,
    thread: u32,
    rare: &mut impl Iterator<Item = &'a Event>,
    to: &mut impl Take,
) {
    match common(unit) {
        Common::Allocate(family, address, size) => to.allocated(family, address, size),
        Common::Free(family, address, size) => to.freed(family, address, size),
        Common::Other if is_rare(&unit) => {
            if let Some(event) = rare.next() {
                to.other(thread, event);
            }
        }
        Common::Other => to.other(thread, &uncommon(unit)),
    }
}

impl Take for Encoder {
    #[inline(always)]
    fn allocated(&mut self, family: AllocFamily, address: u64, size: u64) {
        self.push_allocated(family, address, size);
    }

    #[inline(always)]
    fn freed(&mut self, family: FreeFamily, address: u64, size: u64) {
        self.push_freed(family, address, size);
    }

    #[inline(never)]
    fn other(&mut self, _thread: u32, event: &Event) {
        self.push_now(event);
    }
}

#[cfg(test)]
#[derive(Default)]
struct Events(Vec<Event>);

#[cfg(test)]
impl Take for Events {
    fn allocated(&mut self, family: AllocFamily, address: u64, size: u64) {
        let alignment = 0;
        self.0.push(Event::Allocate {
            family,
            address,
            size,
            alignment,
        });
    }

    fn freed(&mut self, family: FreeFamily, address: u64, size: u64) {
        let size = if family.is_sized() { size } else { 0 };
        self.0.push(Event::Free {
            family,
            address,
            size,
            touched: None,
        });
    }

    fn other(&mut self, _thread: u32, event: &Event) {
        self.0.push(*event);
    }
}

#[cfg(test)]
impl Batch {
    /// Stamp, thread and event of all.
    pub fn told(&self) -> Vec<(u64, u32, Event)> {
        let mut events = Events::default();
        self.each(&mut events);
        let mut told = Vec::new();
        for (unit, event) in self.units.all.iter().zip(events.0) {
            let run = self.units.runs.iter().find(|run| run.end > told.len());
            let run = run.expect("each unit is of a run");
            told.push((run.stamp(unit), run.thread, event));
        }
        told
    }

    /// These events of one thread.
    pub fn of(thread: u32, events: &[Event]) -> Batch {
        let mut batch = Batch::default();
        batch.units.begin_run(thread, 0);
        for event in events {
            batch.units.push_rare(0, *event);
        }
        batch
    }
}

impl Source for Batch {
    fn fill(&mut self, encoder: &mut Encoder) {
        // The first event of a chunk has its time.
        let mut tick = 0;
        let mut rare = self
            .units
            .rare
            .iter()
            .skip(self.rare)
            .inspect(|_| self.rare += 1);
        while let Some(run) = self.units.runs.get(self.run).copied() {
            encoder.begin_run(run.thread);
            let end = run.end.min(self.next + encoder.room());
            for (at, unit) in (self.next..).zip(&self.units.all[self.next..end]) {
                let stamp = run.stamp(unit);
                let is_later = stamp >= tick;
                if is_later {
                    let time = self.clock.time(stamp);
                    tick = self.clock.stamp(encoder.next_unit(time));
                    encoder.advance(time);
                }
                give(*unit, run.thread, &mut rare, encoder);
                if is_later && encoder.is_closed() {
                    self.next = at + 1;
                    return;
                }
            }
            self.next = end;
            if end < run.end {
                return;
            }
            self.run += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.next == self.units.len()
    }
}
