//! The first walk. It learns the touched pages of each block, and when most bytes lived.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use loam_format::trace::{Act, Action, Block, Item};

use super::lineage::{self, Step};
use super::program::MOST_BYTES;
use super::survey::Survey;
use super::touched::{self, Rows, RowsWriter, Shares};
use super::ReplayError;
use crate::measure::Stop;

/// What the first walk learns.
pub struct Learned {
    pub touched: touched::Reader,
    /// Time, stage and pages of each block that a look found grown.
    pub grown: Rows,
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
    let file = || tempfile::tempfile_in(folder).map_err(in_folder);
    let mut rows = RowsWriter::new(file()?);
    lineage::items(&survey.path, |stream, item| match item {
        Item::Touch(touch) if streams.contains(&stream) => {
            match (touch.time, touch.address, touch.pages) {
                (Some(time), Some(address), Some(pages))
                    if time < lineage::until(survey, streams, stream) =>
                {
                    rows.write([time, address, pages]).map_err(in_folder)
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    })?;
    let mut outside = rows.finish().map_err(in_folder)?;
    let writer = touched::Writer::new(file()?, page_bytes);
    let mut large = Large::new(writer, RowsWriter::new(file()?), page_bytes);
    let (mut live, mut peak_live, mut peak_act, mut acts) = (0u64, 0u64, 0u64, 0u64);
    let mut learn = |act: &Act| -> io::Result<()> {
        acts += 1;
        while let Some([time, address, pages]) = outside.before(act.time)? {
            large.saw(time, address, pages)?;
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
    let walked = lineage::walk(survey, streams, stop, |step| match step {
        Step::Act(act) => learn(act).map_err(in_folder),
        Step::Forked { .. } => Ok(()),
    })?;
    while let Some([time, address, pages]) = outside.before(u64::MAX).map_err(in_folder)? {
        large.saw(time, address, pages).map_err(in_folder)?;
    }
    large.end_all();
    let (count, seen) = (large.count, large.seen);
    let (touched, shares) = large
        .writer
        .finish(most_resident(survey, streams))
        .map_err(in_folder)?;
    let grown = large.grown.finish().map_err(in_folder)?;
    Ok(Learned {
        touched,
        grown,
        shares,
        events: walked.events,
        peak_live,
        peak_act,
        acts,
        large: count,
        large_seen: seen,
    })
}

/// The most anonymous memory that a look found in the processes, in bytes; none without a look.
fn most_resident(survey: &Survey, streams: &[u32]) -> Option<u64> {
    let processes = streams.iter().filter_map(|one| survey.processes.get(one));
    let samples = processes.flat_map(|process| &process.samples);
    samples.filter_map(|sample| sample.resident_anonymous).max()
}

/// The live large blocks of the first walk.
struct Large {
    writer: touched::Writer,
    grown: RowsWriter,
    page_bytes: u64,
    /// By number of the block.
    stages: HashMap<u64, Stage>,
    /// Number of the block, by address.
    at: HashMap<u64, u64>,
    count: u64,
    seen: u64,
}

/// The part of a block's life in which it has one size.
struct Stage {
    number: u64,
    size: u64,
    /// The most pages that a look found.
    pages: Option<u64>,
}

impl Large {
    fn new(writer: touched::Writer, grown: RowsWriter, page_bytes: u64) -> Large {
        Large {
            writer,
            grown,
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
            let stage = Stage {
                number: self.writer.begin(),
                size: block.size,
                pages: None,
            };
            self.stages.insert(block.id, stage);
            self.at.insert(block.address, block.id);
        }
    }

    fn end(&mut self, block: &Block, touched: Option<u64>) -> io::Result<()> {
        let Some(mut stage) = self.stages.remove(&block.id) else {
            return Ok(());
        };
        if self.at.get(&block.address) == Some(&block.id) {
            self.at.remove(&block.address);
        }
        let touched = touched.map(|pages| pages.min(touched::pages(stage.size, self.page_bytes)));
        match (stage.pages, touched) {
            (None, Some(pages)) => self.writer.first(stage.number, pages)?,
            (Some(seen), Some(pages)) if pages > seen => self.writer.last(stage.number, pages)?,
            _ => {}
        }
        stage.pages = stage.pages.max(touched);
        self.learn(&stage);
        Ok(())
    }

    /// Ends the blocks that live at the trace's end.
    fn end_all(&mut self) {
        for stage in std::mem::take(&mut self.stages).into_values() {
            self.learn(&stage);
        }
    }

    fn learn(&mut self, stage: &Stage) {
        if let Some(pages) = stage.pages {
            self.seen += 1;
            self.writer.learn(stage.size, pages);
        }
    }

    /// A look found this many pages of the block that lives at the address.
    fn saw(&mut self, time: u64, address: u64, pages: u64) -> io::Result<()> {
        let stage = self.at.get(&address).and_then(|id| self.stages.get_mut(id));
        let Some(stage) = stage else {
            return Ok(());
        };
        let pages = pages.min(touched::pages(stage.size, self.page_bytes));
        match stage.pages {
            None => self.writer.first(stage.number, pages)?,
            Some(before) if pages > before => self.grown.write([time, stage.number, pages])?,
            _ => {}
        }
        stage.pages = stage.pages.max(Some(pages));
        Ok(())
    }
}

/// The bytes that a block counts: the most that the replayer can ask for.
pub fn counted(size: u64) -> u64 {
    size.min(MOST_BYTES)
}
