//! The blocks of a process as rows. Each row has the block's beginning and end.

use loam_format::trace::{Action, Block, FreeFamily};
use serde::Serialize;

use super::Never;
use crate::replay::lineage::{self, Step};
use crate::replay::{ReplayError, Survey};

/// A block's life. A resize ends a row and begins another one with the same number.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Life {
    /// Its number.
    pub block: u64,
    /// Where it was.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// The requested alignment; 0: none.
    pub alignment: u64,
    /// The function that allocated it.
    pub family: &'static str,
    /// The thread that allocated it.
    pub thread: u32,
    /// When it was handed out, in nanoseconds.
    pub begin: u64,
    /// When it ended; none: it lived to the end.
    pub end: Option<u64>,
    /// The function that ended it; `resize`, or `lost` if the trace lacks its end.
    pub ended_by: Option<&'static str>,
    /// The thread that ended it.
    pub end_thread: Option<u32>,
    /// Its resident pages, if a look found them.
    pub touched_pages: Option<u64>,
}

impl Life {
    fn of(block: &Block) -> Life {
        Life {
            block: block.id,
            address: block.address,
            size: block.size,
            alignment: block.alignment,
            family: block.family.name(),
            thread: block.thread,
            begin: block.born,
            end: None,
            ended_by: None,
            end_thread: None,
            touched_pages: None,
        }
    }
}

/// Hands out each life when it ends. The blocks that still live come last.
pub fn each(
    survey: &Survey,
    stream: u32,
    mut visit: impl FnMut(&Life) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    let streams = lineage::of(survey, stream);
    let mut live = std::collections::BTreeMap::new();
    lineage::walk(survey, &streams, &Never, |step| {
        let Step::Act(act) = step else {
            return Ok(());
        };
        let (block, by, touched) = match &act.action {
            Action::Begin { block, .. } => {
                live.insert(block.id, *block);
                return Ok(());
            }
            Action::End {
                block,
                family,
                touched,
                ..
            } => (block, FreeFamily::name(*family), *touched),
            Action::Gone { block } => (block, "lost", None),
            Action::Resize {
                before, touched, ..
            } => (before, "resize", *touched),
            _ => return Ok(()),
        };
        // After a resize, a life begins at the resize. The block itself has only its first
        // beginning.
        let began = live
            .remove(&block.id)
            .map_or(block.born, |known| known.born);
        visit(&Life {
            begin: began,
            end: Some(act.time),
            ended_by: Some(by),
            end_thread: Some(act.thread),
            touched_pages: touched,
            ..Life::of(block)
        })?;
        if let Action::Resize { after, .. } = &act.action {
            let again = Block {
                born: act.time,
                ..*after
            };
            live.insert(after.id, again);
        }
        Ok(())
    })?;
    live.values().try_for_each(|block| visit(&Life::of(block)))
}
