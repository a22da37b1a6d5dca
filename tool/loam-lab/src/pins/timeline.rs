//! A program's pages over the time of its trace: the peak of live bytes, the worst moment of sparse
//! pages, and the blocks that live at a moment.
//!
//! It takes two walks of the trace. The first walk keeps the live bytes of each page that is not
//! full, so that sums are known after every event. The second walk hands out the blocks that live
//! at the chosen moments.

use loam_format::trace::{Action, Block, ByAddress};
use serde::Serialize;

use super::pages::{is_sparse, Page, Pages, PAGE};
use crate::replay::lineage::{self, Step};
use crate::replay::{ReplayError, Survey};
use crate::traces::Never;

/// Sums over the pages that blocks keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Pages with a live block.
    pub pages: u64,
    /// Live bytes on them.
    pub live_bytes: u64,
    /// Pages that are less than half live.
    pub sparse_pages: u64,
    /// Live bytes on the sparse pages.
    pub sparse_live_bytes: u64,
}

impl Sums {
    /// Adds like pages.
    pub fn add<T>(&mut self, page: &Page<T>) {
        self.change(page.live, page.count as i64);
    }

    fn change(&mut self, live: u64, count: i64) {
        let bytes = live as i64 * count;
        self.pages = self.pages.saturating_add_signed(count);
        self.live_bytes = self.live_bytes.saturating_add_signed(bytes);
        if is_sparse(live) {
            self.sparse_pages = self.sparse_pages.saturating_add_signed(count);
            self.sparse_live_bytes = self.sparse_live_bytes.saturating_add_signed(bytes);
        }
    }

    /// Bytes that no block has, on pages that blocks keep.
    pub fn free_bytes(&self) -> u64 {
        self.pages * PAGE - self.live_bytes
    }

    /// Bytes that no block has, on sparse pages.
    pub fn sparse_free_bytes(&self) -> u64 {
        self.sparse_pages * PAGE - self.sparse_live_bytes
    }
}

/// A moment of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// Number of acts of the walk before this moment.
    #[serde(skip)]
    pub acts: u64,
    /// Nanoseconds, as events have them.
    pub time: u64,
    /// Blocks that live.
    pub blocks: u64,
    /// Their bytes, as asked for.
    pub bytes: u64,
    /// Sums over the pages.
    pub sums: Sums,
}

/// The moments of a trace.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// When most bytes lived.
    pub peak: Moment,
    /// When sparse pages had most free bytes.
    pub worst: Moment,
    /// Behind the last event.
    pub end: Moment,
    /// The moments at the requested times, in the same order.
    pub at: Vec<Moment>,
}

/// Live bytes and blocks of a page.
type Ledger = ByAddress<(u64, u32)>;

struct Walked {
    ledger: Ledger,
    now: Moment,
}

impl Walked {
    /// A block begins (`1`) or ends (`-1`).
    fn block(&mut self, block: &Block, sign: i64) {
        let Walked { ledger, now } = self;
        now.blocks = now.blocks.saturating_add_signed(sign);
        now.bytes = now.bytes.saturating_add_signed(sign * block.size as i64);
        let mut pages = Pages::default();
        let mut tell = |page: &Page<()>| {
            if page.live == PAGE {
                now.sums.change(PAGE, sign * page.count as i64);
                return;
            }
            let (live, blocks) = ledger.get(&page.number).copied().unwrap_or_default();
            if blocks > 0 {
                now.sums.change(live.min(PAGE), -1);
            }
            let live = live.saturating_add_signed(sign * page.live as i64);
            let blocks = blocks.saturating_add_signed(sign as i32);
            if blocks > 0 {
                now.sums.change(live.min(PAGE), 1);
                ledger.insert(page.number, (live, blocks));
            } else {
                ledger.remove(&page.number);
            }
        };
        pages.push(block.address, block.size, (), &mut tell);
        pages.finish(&mut tell);
    }
}

/// Blocks that an act ended and began.
fn changes(action: &Action) -> (Option<&Block>, Option<&Block>) {
    match action {
        Action::Begin { block, .. } => (None, Some(block)),
        Action::Resize { before, after, .. } => (Some(before), Some(after)),
        Action::End { block, .. } | Action::Gone { block } => (Some(block), None),
        _ => (None, None),
    }
}

/// Walks the trace for its moments, and for those at the given times, which ascend.
pub fn of(survey: &Survey, stream: u32, times: &[u64]) -> Result<Timeline, ReplayError> {
    let mut walked = Walked {
        ledger: Ledger::default(),
        now: Moment::default(),
    };
    let mut timeline = Timeline::default();
    let streams = lineage::of(survey, stream);
    lineage::walk(survey, &streams, &Never, |step| {
        let Step::Act(act) = step else { return Ok(()) };
        while times
            .get(timeline.at.len())
            .is_some_and(|at| act.time > *at)
        {
            timeline.at.push(walked.now);
        }
        let (ended, begun) = changes(&act.action);
        ended.into_iter().for_each(|block| walked.block(block, -1));
        begun.into_iter().for_each(|block| walked.block(block, 1));
        let now = &mut walked.now;
        (now.acts, now.time) = (now.acts + 1, now.time.max(act.time));
        if now.bytes > timeline.peak.bytes {
            timeline.peak = *now;
        }
        if now.sums.sparse_free_bytes() > timeline.worst.sums.sparse_free_bytes() {
            timeline.worst = *now;
        }
        Ok(())
    })?;
    timeline.end = walked.now;
    timeline.at.resize(times.len(), walked.now);
    Ok(timeline)
}

/// The blocks that live at a moment.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// Which of the requested moments this is.
    pub number: usize,
    /// Its blocks, by address.
    pub blocks: &'a [Block],
    /// Where the events of each stream of the lineage begin, in the walk's count of events.
    pub begins: &'a [u64],
}

/// Hands out the blocks that live after each of the given numbers of acts, which ascend.
pub fn snapshots(
    survey: &Survey,
    stream: u32,
    acts: &[u64],
    mut visit: impl FnMut(&Snapshot),
) -> Result<(), ReplayError> {
    let mut live: ByAddress<Block> = ByAddress::default();
    let mut begins = vec![0];
    let (mut done, mut number) = (0, 0);
    let mut tell = |done: u64, live: &ByAddress<Block>, begins: &[u64]| {
        let mut blocks: Vec<Block> = Vec::new();
        while acts.get(number).is_some_and(|wanted| *wanted <= done) {
            if blocks.is_empty() {
                let all: Vec<Block> = live.values().copied().collect();
                // Short pairs are sorted instead of blocks: fifty moments may have millions of
                // blocks each.
                let pairs = all.iter().enumerate();
                let mut order: Vec<(u64, usize)> =
                    pairs.map(|(place, block)| (block.address, place)).collect();
                order.sort_unstable();
                blocks.extend(order.iter().map(|(_, place)| all[*place]));
            }
            visit(&Snapshot {
                number,
                blocks: &blocks,
                begins,
            });
            number += 1;
        }
    };
    let streams = lineage::of(survey, stream);
    tell(0, &live, &begins);
    lineage::walk(survey, &streams, &Never, |step| {
        let act = match step {
            Step::Forked { events, .. } => {
                begins.push(events);
                return Ok(());
            }
            Step::Act(act) => act,
        };
        if acts.last().is_none_or(|last| *last <= done) {
            return Ok(());
        }
        let (ended, begun) = changes(&act.action);
        ended.into_iter().for_each(|block| {
            live.remove(&block.id);
        });
        begun.into_iter().for_each(|block| {
            live.insert(block.id, *block);
        });
        done += 1;
        tell(done, &live, &begins);
        Ok(())
    })?;
    // A trace that changed between the walks may have fewer acts.
    tell(u64::MAX, &live, &begins);
    Ok(())
}
