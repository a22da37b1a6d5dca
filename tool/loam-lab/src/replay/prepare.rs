//! The walks that make a prepared file, and the figures that they collect.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};

use loam_format::trace::{Act, Action, AllocFamily, Block, Repairs};

use super::learn::{counted, learn, Learned};
use super::lineage::{self, Step};
use super::lives::Lives;
use super::points::{self, Point, SPREAD_POINTS};
use super::program::{Kind, Operation, Program, SamplePoint, Totals, ALL_TOUCHED};
use super::slots::{Slot, Slots};
use super::streams::Streams;
use super::survey::Survey;
use super::touched;
use super::ReplayError;
use crate::measure::Stop;

/// The number of `free`, which the replay uses to free a block if the trace lacks its end.
const FREE_OF_GONE: u8 = 0;

/// What the caller of a replay decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes<'a> {
    /// Keeps times, so that the program's pauses can be repeated.
    pub pauses: bool,
    /// How long each block lives, so that long-lived ones can be kept apart.
    pub lives: Option<&'a Lives>,
}

/// A prepared replay.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The file that the replayer reads. It has no name of its own and lives as long as this
    /// process, so that nothing is left of it even if this process is killed.
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
    /// The most bytes that lived at once.
    pub peak_live: u64,
    /// Points at which threads meet.
    pub points: usize,
    /// Points with a recorded size of the heap.
    pub compared: usize,
    /// Blocks of two pages and more.
    pub large: u64,
    /// Of these, blocks for which a look found their touched pages.
    pub large_seen: u64,
    /// Requests that failed when recorded; they are left out.
    pub failed: u64,
    /// What did not fit together in the trace.
    pub repairs: Repairs,
    /// Events in chunks that can not be read.
    pub missing: u64,
    /// Nanoseconds from the first event to the end of the recording.
    pub nanoseconds: u64,
    /// Nanoseconds from the beginning of the recording to the first event.
    pub first_time: u64,
}

/// Prepares a stream of a trace; files are made in `folder`.
pub fn prepare(
    survey: &Survey,
    stream: u32,
    wishes: Wishes<'_>,
    folder: &Path,
    stop: &dyn Stop,
) -> Result<Prepared, ReplayError> {
    let streams = lineage::of(survey, stream);
    let page_bytes = survey.header.page_size.max(4_096);
    let learned = learn(survey, &streams, page_bytes, folder, stop)?;
    if learned.acts == 0 {
        return Err(ReplayError::NoEvents(survey.path.clone()));
    }
    let in_folder = |source| ReplayError::Io {
        path: folder.to_owned(),
        source,
    };
    let file = tempfile::tempfile_in(folder).map_err(in_folder)?;
    let path = kept(&file).map_err(in_folder)?;
    let in_file = in_folder;
    let mut builder = Builder {
        program: Program::new(file).map_err(in_file)?,
        streams: Streams::new(wishes.pauses),
        slots: Slots::default(),
        blocks: HashMap::new(),
        stages: HashMap::new(),
        next_stage: 0,
        points: points::of(survey, &streams),
        next_point: 0,
        spread: (learned.acts / SPREAD_POINTS).max(1),
        acts: 0,
        live: 0,
        first_time: None,
        last_time: 0,
        until: survey.processes[&stream].until(),
        begun: 0,
        allocations: 0,
        failed: 0,
        wishes,
        page_bytes,
        learned,
    };
    let walked = lineage::walk(survey, &streams, stop, |step| {
        builder.step(step).map_err(in_file)
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

/// A path by which other processes read the file as long as this one lives.
fn kept(file: &File) -> io::Result<PathBuf> {
    let number = file.try_clone()?.into_raw_fd();
    let process = std::process::id();
    Ok(PathBuf::from(format!("/proc/{process}/fd/{number}")))
}

/// A live block in the second walk.
struct Placed {
    slot: Slot,
    /// The thread of the replay that has the slot.
    owner: u32,
    /// Class of its lifetime.
    lifetime: u8,
    /// Its stage, if it is a large block.
    stage: Option<u64>,
    /// Pages that the replay has touched so far, and those that it touches when the stage ends.
    pages: u64,
    last: u64,
}

impl Placed {
    /// The operation that touches the block's pages up to this number, if that is more than now.
    fn touch(&mut self, pages: u64) -> Option<Operation> {
        if pages <= self.pages {
            return None;
        }
        let word = self.pages.min(u64::from(u32::MAX)) | pages.min(u64::from(u32::MAX)) << 32;
        self.pages = pages;
        Some(Operation {
            generation: self.slot.generation,
            lifetime: self.lifetime,
            ..Operation::of(Kind::Touch, self.slot.number, word)
        })
    }
}

/// The second walk.
struct Builder<'a> {
    program: Program,
    streams: Streams,
    slots: Slots,
    blocks: HashMap<u64, Placed>,
    /// Numbers of large blocks, by stage.
    stages: HashMap<u64, u64>,
    next_stage: u64,
    points: Vec<Point>,
    next_point: usize,
    spread: u64,
    acts: u64,
    live: u64,
    first_time: Option<u64>,
    last_time: u64,
    /// The time up to which the process was recorded, in nanoseconds.
    until: u64,
    /// Blocks handed out, resizes not counted.
    begun: usize,
    allocations: u64,
    failed: u64,
    wishes: Wishes<'a>,
    page_bytes: u64,
    learned: Learned,
}

impl Builder<'_> {
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

    /// Time since the first event. The recording may have begun long before.
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
            Action::Trim { keep } => {
                let trim = Operation::of(Kind::Trim, 0, keep);
                self.streams
                    .push(&mut self.program, act.thread, time, trim)?;
            }
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

    /// Meets at the sample points up to this time.
    fn meet_before(&mut self, time: u64) -> io::Result<()> {
        while let Some(point) = self.points.get(self.next_point).copied() {
            let at = point.time;
            // An event of the same time comes first.
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

    /// All threads meet. Before that, pages of large blocks that a look had found by then are
    /// touched.
    fn meet(&mut self, time: u64, point: Option<Point>) -> io::Result<()> {
        let seen = self.first_time.unwrap_or(0).saturating_add(time);
        while let Some([_, stage, pages]) = self.learned.grown.before(seen.saturating_add(1))? {
            self.grow(stage, pages)?;
        }
        let point = SamplePoint {
            time,
            events: self.acts,
            live_bytes: self.live,
            live_blocks: self.blocks.len() as u64,
            recorded_heap: point.and_then(|point| point.recorded_heap),
            looks: point.is_some_and(|point| point.recorded_heap.is_some()),
            participants: self.streams.participants(),
            ended: self.streams.ended(),
        };
        if point.participants == 0 {
            return Ok(());
        }
        let number = self.program.sample(point);
        self.streams.meet(&mut self.program, number, time)
    }

    fn grow(&mut self, stage: u64, pages: u64) -> io::Result<()> {
        // The block may have ended since, or have another size.
        let id = self.stages.get(&stage);
        let Some(placed) = id.and_then(|id| self.blocks.get_mut(id)) else {
            return Ok(());
        };
        let Some(touch) = placed.touch(pages) else {
            return Ok(());
        };
        self.streams.push_to_any(&mut self.program, touch)
    }

    fn begin(&mut self, thread: u32, number: u32, time: u64, block: &Block) -> io::Result<()> {
        let slot = self.slots.take(number);
        let slot = slot.ok_or_else(|| io::Error::other("more than 2^32 blocks live at once"))?;
        let mut placed = Placed {
            slot,
            owner: number,
            lifetime: (self.wishes.lives).map_or(0, |lives| lives.class(self.begun)),
            stage: None,
            pages: 0,
            last: 0,
        };
        let operation = Operation {
            family: block.family as u8,
            alignment_log: alignment_log(block),
            ..self.operation(Kind::Allocate, &mut placed, block)?
        };
        self.blocks.insert(block.id, placed);
        self.live += counted(block.size);
        self.begun += 1;
        self.allocations += 1;
        self.streams
            .push(&mut self.program, thread, time, operation)
    }

    fn end(&mut self, thread: u32, time: u64, block: &Block, family: u8) -> io::Result<()> {
        let Some(mut placed) = self.blocks.remove(&block.id) else {
            return Ok(());
        };
        self.end_stage(thread, time, &mut placed)?;
        let slot = placed.slot;
        self.slots.give(placed.owner, slot);
        self.live -= counted(block.size);
        let operation = Operation {
            family,
            lifetime: placed.lifetime,
            generation: slot.generation,
            ..Operation::of(Kind::Free, slot.number, counted(block.size))
        };
        self.streams
            .push(&mut self.program, thread, time, operation)
    }

    fn resize(&mut self, thread: u32, time: u64, before: &Block, after: &Block) -> io::Result<()> {
        let Some(mut placed) = self.blocks.remove(&before.id) else {
            return Ok(());
        };
        self.end_stage(thread, time, &mut placed)?;
        self.live += counted(after.size);
        self.live -= counted(before.size);
        self.allocations += 1;
        let operation = self.operation(Kind::Resize, &mut placed, after)?;
        self.streams
            .push(&mut self.program, thread, time, operation)?;
        let old = Operation::of(Kind::Old, placed.slot.number, counted(before.size));
        placed.slot = placed.slot.next();
        self.blocks.insert(after.id, placed);
        self.streams.push(&mut self.program, thread, time, old)
    }

    /// Touches the last pages of a stage. The thread that ends the stage does it.
    fn end_stage(&mut self, thread: u32, time: u64, placed: &mut Placed) -> io::Result<()> {
        if let Some(stage) = placed.stage.take() {
            self.stages.remove(&stage);
        }
        match placed.touch(placed.last) {
            Some(touch) => self.streams.push(&mut self.program, thread, time, touch),
            None => Ok(()),
        }
    }

    /// The operation that hands out a block, with the pages that the first look found touched.
    fn operation(
        &mut self,
        kind: Kind,
        placed: &mut Placed,
        block: &Block,
    ) -> io::Result<Operation> {
        let size = block.size;
        let mut touched = ALL_TOUCHED;
        (placed.pages, placed.last) = (0, 0);
        if touched::is_large(size, self.page_bytes) {
            let (first, last) = self.learned.touched.next()?;
            let pages = first.unwrap_or_else(|| self.learned.shares.guess(size, self.page_bytes));
            if pages < touched::pages(size, self.page_bytes) {
                touched = pages.min(ALL_TOUCHED - 1);
            }
            (placed.pages, placed.last) = (pages, last.unwrap_or(0));
            placed.stage = Some(self.next_stage);
            self.stages.insert(self.next_stage, block.id);
            self.next_stage += 1;
        }
        let slot = placed.slot;
        Ok(Operation {
            lifetime: placed.lifetime,
            generation: slot.generation,
            ..Operation::of(kind, slot.number, counted(size) | touched << 40)
        })
    }

    fn finish(mut self) -> io::Result<Prepared> {
        // The process keeps the blocks that are left until it ends. Only its first look there is
        // compared: from then on its heap may give memory back, and a replay without pauses has no
        // time for that.
        let mut compares = true;
        for point in self
            .points
            .split_off(self.next_point.min(self.points.len()))
        {
            let at = self.since(point.time);
            let looks = compares && point.recorded_heap.is_some();
            compares &= !looks;
            self.meet(at, looks.then_some(point))?;
        }
        let last = self.since(self.until).max(self.last_time);
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
            first_time: self.first_time.unwrap_or(0),
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

/// The alignment that the call requested, as a logarithm.
fn alignment_log(block: &Block) -> u8 {
    let is_aligned = AllocFamily::is_aligned(block.family);
    if !is_aligned || block.alignment < 2 {
        return 0;
    }
    (63 - block.alignment.leading_zeros()).min(40) as u8
}
