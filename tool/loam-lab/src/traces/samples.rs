//! The looks at a process from outside, each with the bytes that lived at that moment.

use loam_format::trace::{Action, Item, Sample, Wanted};

use super::Never;
use crate::replay::lineage::{self, Step};
use crate::replay::{ReplayError, Survey};

/// Hands out each sample of a stream with the bytes that were requested and not freed.
pub fn each(
    survey: &Survey,
    stream: u32,
    mut visit: impl FnMut(&Sample, u64) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    let wanted = Wanted {
        events: false,
        tables: true,
    };
    let mut samples = lineage::open(&survey.path, wanted)?
        .only(stream)
        .filter_map(|item| match item {
            Ok((_, Item::Sample(sample))) => Some(Ok(sample)),
            Ok(_) => None,
            Err(source) => Some(Err(ReplayError::Read {
                path: survey.path.clone(),
                source,
            })),
        });
    let mut next = samples.next().transpose()?;
    let mut live = 0u64;
    let streams = lineage::of(survey, stream);
    lineage::walk(survey, &streams, &Never, |step| {
        let Step::Act(act) = step else {
            return Ok(());
        };
        while let Some(sample) = next.take_if(|one| one.time.is_some_and(|time| time < act.time)) {
            visit(&sample, live)?;
            next = samples.next().transpose()?;
        }
        let (ended, begun) = match &act.action {
            Action::Begin { block, .. } => (0, block.size),
            Action::Resize { before, after, .. } => (before.size, after.size),
            Action::End { block, .. } | Action::Gone { block } => (block.size, 0),
            _ => return Ok(()),
        };
        live = live.saturating_add(begun).saturating_sub(ended);
        Ok(())
    })?;
    while let Some(sample) = next {
        visit(&sample, live)?;
        next = samples.next().transpose()?;
    }
    Ok(())
}
