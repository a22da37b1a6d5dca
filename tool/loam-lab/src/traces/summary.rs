//! Figures of one process of a trace.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use loam_format::trace::{Action, Block, Repairs};

use super::Never;
use crate::replay::lineage::{self, Step};
use crate::replay::{ReplayError, Survey};

/// Blocks of like size: at most `up_to` bytes, and more than the class before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Bytes of the largest block of the class.
    pub up_to: u64,
    /// Blocks handed out.
    pub allocations: u64,
    /// Bytes of these blocks.
    pub allocated_bytes: u64,
    /// Blocks that lived at the peak.
    pub peak_blocks: u64,
    /// Bytes of these blocks.
    pub peak_bytes: u64,
}

/// Blocks that lived for a time of like length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Lifetime {
    /// The longest life in nanoseconds; none: these blocks lived to the end.
    pub up_to_ns: Option<u64>,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
}

/// A thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ThreadFigures {
    /// Its number in the trace.
    pub thread: u32,
    /// Blocks handed out to it, and resizes.
    pub allocations: u64,
    /// Blocks that it freed.
    pub frees: u64,
    /// Of these, blocks that were handed to another thread.
    pub frees_of_others: u64,
    /// Bytes handed out to it.
    pub bytes: u64,
}

/// The figures of a process.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Its number in the trace.
    pub process: u32,
    /// Events.
    pub events: u64,
    /// Nanoseconds from the first to the last event.
    pub nanoseconds: u64,
    /// Blocks handed out.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Resizes.
    pub resizes: u64,
    /// Resizes that moved the block.
    pub moved: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Bytes handed out in all.
    pub allocated_bytes: u64,
    /// Frees by another thread than the one that the block was handed to.
    pub frees_of_others: u64,
    /// The most bytes that lived at once.
    pub peak_bytes: u64,
    /// Blocks that lived then.
    pub peak_blocks: u64,
    /// The time of the peak, in nanoseconds since the recording began.
    pub peak_time: u64,
    /// Bytes that live at the end.
    pub end_bytes: u64,
    /// Blocks that live at the end.
    pub end_blocks: u64,
    /// By size; classes without blocks are left out.
    pub sizes: Vec<SizeClass>,
    /// By lifetime.
    pub lifetimes: Vec<Lifetime>,
    /// The threads with most events; at most a hundred.
    pub threads: Vec<ThreadFigures>,
    /// How many threads there are.
    pub thread_count: u64,
    /// What did not fit together.
    pub repairs: Repairs,
    /// Events in chunks that can not be read.
    pub missing: u64,
}

/// The most threads that are listed.
const LISTED: usize = 100;
/// Decades of lifetimes, from a microsecond.
const DECADES: usize = 10;

#[derive(Debug, Default)]
struct Counts {
    summary: Summary,
    first: Option<u64>,
    last: u64,
    live_bytes: u64,
    live_blocks: u64,
    classes: Vec<SizeClass>,
    /// Live blocks and bytes, by class.
    live: Vec<(u64, u64)>,
    /// Whether `live` has the figures of the peak.
    at_peak: bool,
    lifetimes: [(u64, u64); DECADES],
    threads: BTreeMap<u32, ThreadFigures>,
}

/// The figures of a process.
pub fn of(survey: &Survey, stream: u32) -> Result<Summary, ReplayError> {
    let streams = lineage::of(survey, stream);
    let mut counts = Counts::default();
    let walked = lineage::walk(survey, &streams, &Never, |step| {
        if let Step::Act(act) = step {
            counts.first.get_or_insert(act.time);
            counts.last = counts.last.max(act.time);
            counts.act(act.time, act.thread, &act.action);
        }
        Ok(())
    })?;
    counts.last = counts.last.max(survey.processes[&stream].until());
    let mut summary = counts.finish();
    summary.process = stream;
    summary.events = walked.events;
    summary.repairs = walked.repairs;
    summary.missing = walked.missing;
    Ok(summary)
}

impl Counts {
    fn act(&mut self, time: u64, thread: u32, action: &Action) {
        match action {
            Action::Begin { block, .. } => {
                self.summary.allocations += 1;
                self.hand_out(thread, block.size);
                self.live(time, block.size, true);
            }
            Action::Resize { before, after, .. } => {
                self.summary.resizes += 1;
                self.summary.moved += u64::from(before.address != after.address);
                self.live(time, before.size, false);
                self.hand_out(thread, after.size);
                self.live(time, after.size, true);
            }
            Action::End { block, .. } => {
                self.summary.frees += 1;
                let figures = self.thread(thread);
                figures.frees += 1;
                if block.thread != thread {
                    figures.frees_of_others += 1;
                    self.summary.frees_of_others += 1;
                }
                self.end(time, block);
            }
            Action::Gone { block } => self.end(time, block),
            Action::Failed { .. } => self.summary.failed += 1,
            _ => {
                self.thread(thread);
            }
        }
    }

    fn thread(&mut self, thread: u32) -> &mut ThreadFigures {
        let figures = self.threads.entry(thread).or_default();
        figures.thread = thread;
        figures
    }

    fn hand_out(&mut self, thread: u32, size: u64) {
        let figures = self.thread(thread);
        figures.allocations += 1;
        figures.bytes = figures.bytes.saturating_add(size);
        self.summary.allocated_bytes = self.summary.allocated_bytes.saturating_add(size);
        let class = self.class(size);
        self.classes[class].allocations += 1;
        let bytes = &mut self.classes[class].allocated_bytes;
        *bytes = bytes.saturating_add(size);
    }

    fn class(&mut self, size: u64) -> usize {
        let class = class_of(size);
        while self.classes.len() <= class {
            let up_to = largest(self.classes.len());
            self.classes.push(SizeClass {
                up_to,
                ..SizeClass::default()
            });
            self.live.push((0, 0));
        }
        class
    }

    fn live(&mut self, time: u64, size: u64, begins: bool) {
        let class = self.class(size);
        if begins {
            self.live_blocks += 1;
            self.live_bytes = self.live_bytes.saturating_add(size);
            self.live[class].0 += 1;
            self.live[class].1 = self.live[class].1.saturating_add(size);
            if self.live_bytes > self.summary.peak_bytes {
                self.summary.peak_bytes = self.live_bytes;
                self.summary.peak_blocks = self.live_blocks;
                self.summary.peak_time = time;
                self.at_peak = true;
            }
            return;
        }
        self.keep_peak();
        self.live_blocks = self.live_blocks.saturating_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(size);
        self.live[class].0 = self.live[class].0.saturating_sub(1);
        self.live[class].1 = self.live[class].1.saturating_sub(size);
    }

    /// The figures of a peak are copied when the peak is left, not at each step up to it.
    fn keep_peak(&mut self) {
        if !std::mem::take(&mut self.at_peak) {
            return;
        }
        for (class, (blocks, bytes)) in self.classes.iter_mut().zip(&self.live) {
            (class.peak_blocks, class.peak_bytes) = (*blocks, *bytes);
        }
    }

    fn end(&mut self, time: u64, block: &Block) {
        let lived = time.saturating_sub(block.born).max(1);
        let decade = (lived.ilog10() as usize).saturating_sub(2).min(DECADES - 1);
        self.lifetimes[decade].0 += 1;
        self.lifetimes[decade].1 = self.lifetimes[decade].1.saturating_add(block.size);
        self.live(time, block.size, false);
    }

    fn finish(mut self) -> Summary {
        self.keep_peak();
        let mut summary = self.summary;
        summary.nanoseconds = self.last.saturating_sub(self.first.unwrap_or(0));
        summary.end_bytes = self.live_bytes;
        summary.end_blocks = self.live_blocks;
        let used = self
            .classes
            .into_iter()
            .filter(|class| class.allocations > 0);
        summary.sizes = used.collect();
        let decades = self.lifetimes.iter().enumerate();
        summary.lifetimes = decades
            .filter(|(_, (blocks, _))| *blocks > 0)
            .map(|(decade, (blocks, bytes))| Lifetime {
                up_to_ns: Some(10u64.pow(decade as u32 + 3)),
                blocks: *blocks,
                bytes: *bytes,
            })
            .collect();
        if summary.end_blocks > 0 {
            summary.lifetimes.push(Lifetime {
                up_to_ns: None,
                blocks: summary.end_blocks,
                bytes: summary.end_bytes,
            });
        }
        summary.thread_count = self.threads.len() as u64;
        let mut threads: Vec<ThreadFigures> = self.threads.into_values().collect();
        threads.sort_by_key(|thread| std::cmp::Reverse(thread.allocations + thread.frees));
        threads.truncate(LISTED);
        summary.threads = threads;
        summary
    }
}

/// The class of a size: steps of 16 bytes up to 128, then four steps for each doubling.
pub(crate) fn class_of(size: u64) -> usize {
    if size <= 128 {
        return (size.max(1) as usize - 1) / 16;
    }
    let below = size - 1;
    let doublings = 63 - below.leading_zeros() as usize;
    8 + (doublings - 7) * 4 + ((below >> (doublings - 2)) & 3) as usize
}

/// The largest size of a class.
pub(crate) fn largest(class: usize) -> u64 {
    if class < 8 {
        return 16 * (class as u64 + 1);
    }
    let (doublings, quarter) = ((class - 8) / 4 + 7, (class - 8) as u64 % 4);
    let step = 1u64 << (doublings - 2);
    (step * 4).saturating_add(step * (quarter + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_lies_in_the_class_that_ends_at_or_above_it() {
        for size in (0..5_000).chain([1 << 20, (1 << 20) + 1, 1 << 40, u64::MAX / 3]) {
            let class = class_of(size);
            assert!(size <= largest(class), "{size}");
            assert!(class == 0 || size > largest(class - 1), "{size}");
        }
    }
}
