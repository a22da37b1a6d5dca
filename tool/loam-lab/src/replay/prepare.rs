//! The walks that make a prepared file, and what they found on the way.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use loam_format::trace::{Act, Action, AllocFamily, Block, Repairs};

use super::learn::{counted, learn, Learned};
use super::lineage::{self, Step};
use super::points::{self, Point, SPREAD_POINTS};
use super::program::{Kind, Operation, Program, SamplePoint, Totals, ALL_TOUCHED};
use super::slots::{Slot, Slots};
use super::streams::Streams;
use super::survey::Survey;
use super::touched;
use super::ReplayError;
use crate::measure::Stop;

/// `free`, by its number: how a block goes whose end nobody saw.
const FREE_OF_GONE: u8 = 0;

/// What the caller of a replay decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// Keep times, so that the program's pauses can be repeated.
    pub pauses: bool,
}

/// A prepared replay.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The file that the replayer reads.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// The stream that is replayed.
    pub stream: u32,
    /// Events that were read.
    pub events: u64,
    /// Blocks handed out, and resizes.
    pub allocations: u64,
    /// Threads in all.
    pub threads: u64,
    /// Threads at once.
    pub most_threads: u64,
    /// Bytes that lived at most.
    pub peak_live: u64,
    /// Points at which threads meet.
    pub points: usize,
    /// Of those, points with a recorded size of the heap.
    pub compared: usize,
    /// Blocks of two pages and more, and of how many somebody saw what they touched.
    pub large: u64,
    /// Of how many somebody saw it.
    pub large_seen: u64,
    /// Requests that failed when recorded; they are left out.
    pub failed: u64,
    /// What did not fit in the trace.
    pub repairs: Repairs,
    /// Events in chunks that can not be read.
    pub missing: u64,
    /// Nanoseconds from the first to the last event.
    pub nanoseconds: u64,
}

/// Prepares a stream of a trace; files are made in `folder`.
pub fn prepare(
    survey: &Survey,
    stream: u32,
    wishes: Wishes,
    folder: &Path,
    stop: &dyn Stop,
) -> Result<Prepared, ReplayError> {
    let streams = lineage::of(survey, stream);
    let page_bytes = survey.header.page_size.max(4_096);
    let learned = learn(survey, &streams, page_bytes, folder, stop)?;
    if learned.acts == 0 {
        return Err(ReplayError::NoEvents(survey.path.clone()));
    }
    let path = folder.join("program");
    let in_file = |source| ReplayError::Io {
        path: path.clone(),
        source,
    };
    let file = File::create(&path).map_err(in_file)?;
    let mut builder = Builder {
        program: Program::new(file).map_err(in_file)?,
        streams: Streams::new(wishes.pauses),
        slots: Slots::default(),
        blocks: HashMap::new(),
        points: points::of(survey, &streams),
        next_point: 0,
        spread: (learned.acts / SPREAD_POINTS).max(1),
        acts: 0,
        live: 0,
        first_time: None,
        last_time: 0,
        allocations: 0,
        failed: 0,
        wishes,
        page_bytes,
        learned,
    };
    let walked = lineage::walk(&survey.path, &streams, stop, |step| {
        builder.step(step).map_err(|source| ReplayError::Io {
            path: path.clone(),
            source,
        })
    })?;
    builder.finish().map_err(in_file).map(|prepared| Prepared {
        path: path.clone(),
        stream,
        events: walked.events,
        repairs: walked.repairs,
        missing: walked.missing,
        ..prepared
    })
}

/// A live block in the second walk.
struct Placed {
    slot: Slot,
    /// The thread of the replay whose slot it is.
    owner: u32,
}

/// The second walk.
struct Builder {
    program: Program,
    streams: Streams,
    slots: Slots,
    blocks: HashMap<u64, Placed>,
    points: Vec<Point>,
    next_point: usize,
    spread: u64,
    acts: u64,
    live: u64,
    first_time: Option<u64>,
    last_time: u64,
    allocations: u64,
    failed: u64,
    wishes: Wishes,
    page_bytes: u64,
    learned: Learned,
}

impl Builder {
    fn step(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::Act(act) => self.act(act),
            Step::Forked { thread, .. } => {
                for gone in self.streams.forked(&mut self.program, thread)? {
                    self.slots.end_thread(gone);
                }
                Ok(())
            }
        }
    }

    /// Time since the first event: the recording may have begun long before.
    fn since(&mut self, time: u64) -> u64 {
        let first = *self.first_time.get_or_insert(time);
        time.saturating_sub(first)
    }

    fn act(&mut self, act: &Act) -> io::Result<()> {
        let time = self.since(act.time);
        self.last_time = self.last_time.max(time);
        self.meet_before(act.time)?;
        let thread = match act.action {
            Action::ThreadEnds => {
                if let Some(number) = self.streams.end(&mut self.program, act.thread)? {
                    self.slots.end_thread(number);
                }
                self.acts += 1;
                return Ok(());
            }
            _ => self.streams.get(&mut self.program, act.thread, time)?,
        };
        match act.action {
            Action::Begin { block, .. } => self.begin(act.thread, thread, time, &block)?,
            Action::End { block, family, .. } => {
                self.end(act.thread, time, &block, family as u8)?
            }
            Action::Gone { block } => self.end(act.thread, time, &block, FREE_OF_GONE)?,
            Action::Resize { before, after, .. } => {
                self.resize(act.thread, time, &before, &after)?
            }
            Action::Failed { .. } => self.failed += 1,
            Action::ThreadBegins
            | Action::ThreadEnds
            | Action::Fork { .. }
            | Action::Exec
            | Action::Dropped { .. } => {}
        }
        self.acts += 1;
        if self.acts % self.spread == 0 || self.acts == self.learned.peak_act {
            self.meet(time, None)?;
        }
        Ok(())
    }

    /// Sample points whose time has come.
    fn meet_before(&mut self, time: u64) -> io::Result<()> {
        while let Some(point) = self.points.get(self.next_point).copied() {
            let at = point.time;
            // An event of the same moment comes first.
            if at >= time {
                break;
            }
            self.next_point += 1;
            // Before the first event there is nothing to compare.
            if self.first_time.is_some_and(|first| at >= first) && self.acts > 0 {
                let at = self.since(at);
                self.meet(at, Some(point))?;
            }
        }
        Ok(())
    }

    fn meet(&mut self, time: u64, point: Option<Point>) -> io::Result<()> {
        let point = SamplePoint {
            time,
            events: self.acts,
            live_bytes: self.live,
            live_blocks: self.blocks.len() as u64,
            recorded_heap: point.and_then(|point| point.recorded_heap),
            looks: point.is_some_and(|point| point.looks),
            participants: self.streams.participants(),
            ended: self.streams.ended(),
        };
        if point.participants == 0 {
            return Ok(());
        }
        let number = self.program.sample(point);
        self.streams.meet(&mut self.program, number, time)
    }

    fn begin(&mut self, thread: u32, number: u32, time: u64, block: &Block) -> io::Result<()> {
        let slot = self.slots.take(number);
        let slot = slot.ok_or_else(|| io::Error::other("more than 2^32 blocks live at once"))?;
        let operation = Operation {
            family: block.family as u8,
            alignment_log: alignment_log(block),
            ..self.operation(Kind::Allocate, slot, block.size)?
        };
        self.blocks.insert(
            block.id,
            Placed {
                slot,
                owner: number,
            },
        );
        self.live += counted(block.size);
        self.allocations += 1;
        self.streams
            .push(&mut self.program, thread, time, operation)
    }

    fn end(&mut self, thread: u32, time: u64, block: &Block, family: u8) -> io::Result<()> {
        let Some(placed) = self.blocks.remove(&block.id) else {
            return Ok(());
        };
        let slot = placed.slot;
        self.slots.give(placed.owner, slot);
        self.live -= counted(block.size);
        let operation = Operation {
            family,
            generation: slot.generation,
            ..Operation::of(Kind::Free, slot.number, counted(block.size))
        };
        self.streams
            .push(&mut self.program, thread, time, operation)
    }

    fn resize(&mut self, thread: u32, time: u64, before: &Block, after: &Block) -> io::Result<()> {
        let Some(placed) = self.blocks.get_mut(&before.id) else {
            return Ok(());
        };
        let slot = placed.slot;
        placed.slot = slot.next();
        self.live += counted(after.size);
        self.live -= counted(before.size);
        self.allocations += 1;
        let operation = self.operation(Kind::Resize, slot, after.size)?;
        self.streams
            .push(&mut self.program, thread, time, operation)?;
        let old = Operation::of(Kind::Old, slot.number, counted(before.size));
        self.streams.push(&mut self.program, thread, time, old)
    }

    /// An operation that hands out a block, and what the program touched of it.
    fn operation(&mut self, kind: Kind, slot: Slot, size: u64) -> io::Result<Operation> {
        let mut touched = ALL_TOUCHED;
        if touched::is_large(size, self.page_bytes) {
            let seen = self.learned.touched.next()?;
            let pages = seen.unwrap_or_else(|| self.learned.shares.guess(size, self.page_bytes));
            if pages < touched::pages(size, self.page_bytes) {
                touched = pages.min(ALL_TOUCHED - 1);
            }
        }
        Ok(Operation {
            generation: slot.generation,
            ..Operation::of(kind, slot.number, counted(size) | touched << 40)
        })
    }

    fn finish(mut self) -> io::Result<Prepared> {
        // Samples behind the last event still see what is left.
        let end = self
            .points
            .get(self.next_point..)
            .unwrap_or_default()
            .to_vec();
        let last = self.last_time;
        if let Some(point) = end.iter().find(|point| point.recorded_heap.is_some()) {
            self.meet(last, Some(*point))?;
        }
        self.meet(last, None)?;
        let most_threads = self.streams.most();
        self.streams.finish(&mut self.program)?;
        let (threads, points) = (self.program.threads(), self.program.samples());
        let compared = points
            .iter()
            .filter(|point| point.recorded_heap.is_some())
            .count();
        let prepared = Prepared {
            path: PathBuf::new(),
            bytes: 0,
            stream: 0,
            events: self.learned.events,
            allocations: self.allocations,
            threads,
            most_threads,
            peak_live: self.learned.peak_live,
            points: points.len(),
            compared,
            large: self.learned.large,
            large_seen: self.learned.large_seen,
            failed: self.failed,
            repairs: Repairs::default(),
            missing: 0,
            nanoseconds: last,
        };
        let totals = Totals {
            slots: self.slots.count(),
            most_threads,
            allocations: self.allocations,
            page_bytes: self.page_bytes,
            has_times: self.wishes.pauses,
        };
        let bytes = self.program.finish(&totals)?;
        Ok(Prepared { bytes, ..prepared })
    }
}

/// The alignment that the call asked for, as a logarithm.
fn alignment_log(block: &Block) -> u8 {
    let is_aligned = AllocFamily::is_aligned(block.family);
    if !is_aligned || block.alignment < 2 {
        return 0;
    }
    (63 - block.alignment.leading_zeros()).min(40) as u8
}
