//! The moments that a process marked with a name.

use loam_format::trace::{Item, Mark};

use crate::replay::lineage;
use crate::replay::{ReplayError, Survey};

/// The marks of a stream, in the order of its events.
pub fn of(survey: &Survey, stream: u32) -> Result<Vec<Mark>, ReplayError> {
    let mut marks = Vec::new();
    lineage::items(&survey.path, |of, item| {
        if let (true, Item::Mark(mark)) = (of == stream, item) {
            marks.push(mark);
        }
        Ok(())
    })?;
    Ok(marks)
}
