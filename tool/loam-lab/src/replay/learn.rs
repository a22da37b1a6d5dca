//! The first walk: what touched pages the blocks end with, and when most bytes lived.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use loam_format::trace::{Act, Action, Block, Item};

use super::lineage::{self, Step};
use super::program::MOST_BYTES;
use super::survey::Survey;
use super::touched::{self, Outside, Shares};
use super::ReplayError;
use crate::measure::Stop;

/// What the first walk learns.
pub struct Learned {
    pub touched: touched::Reader,
    pub shares: Shares,
    pub events: u64,
    pub peak_live: u64,
    /// The act at which most bytes lived.
    pub peak_act: u64,
    pub acts: u64,
    pub large: u64,
    pub large_seen: u64,
}

/// The first walk.
pub fn learn(
    survey: &Survey,
    streams: &[u32],
    page_bytes: u64,
    folder: &Path,
    stop: &dyn Stop,
) -> Result<Learned, ReplayError> {
    let in_folder = |source| ReplayError::Io {
        path: folder.to_owned(),
        source,
    };
    let outside = tempfile::tempfile_in(folder).map_err(in_folder)?;
    let mut rows = BufWriter::new(&outside);
    lineage::items(&survey.path, |stream, item| match item {
        Item::Touch(touch) if streams.contains(&stream) => {
            Outside::write(&mut rows, &touch).map_err(in_folder)
        }
        _ => Ok(()),
    })?;
    rows.flush().map_err(in_folder)?;
    drop(rows);
    let mut outside = Outside::new(outside).map_err(in_folder)?;
    let side = tempfile::tempfile_in(folder).map_err(in_folder)?;
    let writer = touched::Writer::new(side, page_bytes);
    let mut large = Large::new(writer, page_bytes);
    let (mut live, mut peak_live, mut peak_act, mut acts) = (0u64, 0u64, 0u64, 0u64);
    let mut learn = |act: &Act| -> io::Result<()> {
        acts += 1;
        while let Some((address, pages)) = outside.before(act.time)? {
            large.saw_at(address, pages)?;
        }
        match act.action {
            Action::Begin { block, .. } => {
                live += counted(block.size);
                large.begin(&block);
            }
            Action::Resize {
                before,
                after,
                touched,
            } => {
                live += counted(after.size);
                live -= counted(before.size);
                large.end(&before, touched)?;
                large.begin(&after);
            }
            Action::End { block, touched, .. } => {
                live -= counted(block.size);
                large.end(&block, touched)?;
            }
            Action::Gone { block } => {
                live -= counted(block.size);
                large.end(&block, None)?;
            }
            _ => {}
        }
        if live > peak_live {
            (peak_live, peak_act) = (live, acts);
        }
        Ok(())
    };
    let walked = lineage::walk(&survey.path, streams, stop, |step| match step {
        Step::Act(act) => learn(act).map_err(in_folder),
        Step::Forked { .. } => Ok(()),
    })?;
    while let Some((address, pages)) = outside.before(u64::MAX).map_err(in_folder)? {
        large.saw_at(address, pages).map_err(in_folder)?;
    }
    let (count, seen) = (large.count, large.seen);
    let (touched, shares) = large.writer.finish().map_err(in_folder)?;
    Ok(Learned {
        touched,
        shares,
        events: walked.events,
        peak_live,
        peak_act,
        acts,
        large: count,
        large_seen: seen,
    })
}

/// The large blocks that live, in the first walk.
struct Large {
    writer: touched::Writer,
    page_bytes: u64,
    /// Stage and bytes, by number of the block.
    stages: HashMap<u64, (u64, u64)>,
    /// Number of the block, by address.
    at: HashMap<u64, u64>,
    count: u64,
    seen: u64,
}

impl Large {
    fn new(writer: touched::Writer, page_bytes: u64) -> Large {
        Large {
            writer,
            page_bytes,
            stages: HashMap::new(),
            at: HashMap::new(),
            count: 0,
            seen: 0,
        }
    }

    fn begin(&mut self, block: &Block) {
        if touched::is_large(block.size, self.page_bytes) {
            self.count += 1;
            self.stages
                .insert(block.id, (self.writer.begin(), block.size));
            self.at.insert(block.address, block.id);
        }
    }

    fn end(&mut self, block: &Block, touched: Option<u64>) -> io::Result<()> {
        let Some((stage, size)) = self.stages.remove(&block.id) else {
            return Ok(());
        };
        if self.at.get(&block.address) == Some(&block.id) {
            self.at.remove(&block.address);
        }
        touched.map_or(Ok(()), |pages| self.saw(stage, size, pages))
    }

    fn saw_at(&mut self, address: u64, pages: u64) -> io::Result<()> {
        let id = self.at.get(&address);
        match id.and_then(|id| self.stages.get(id)).copied() {
            Some((stage, size)) => self.saw(stage, size, pages),
            None => Ok(()),
        }
    }

    fn saw(&mut self, stage: u64, size: u64, pages: u64) -> io::Result<()> {
        self.seen += u64::from(self.writer.saw(stage, size, pages)?);
        Ok(())
    }
}

/// Bytes that a block counts for: what the replayer can ask for.
pub fn counted(size: u64) -> u64 {
    size.min(MOST_BYTES)
}
