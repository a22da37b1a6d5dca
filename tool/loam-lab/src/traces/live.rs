//! Live bytes over time, for a chart.

use loam_format::trace::Action;

use super::Never;
use crate::replay::lineage::{self, Step};
use crate::replay::{ReplayError, Survey};

/// Live bytes at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LivePoint {
    /// Nanoseconds since the recording began.
    pub time: u64,
    /// Bytes that were requested and not freed.
    pub bytes: u64,
    /// Allocations, frees and resizes since the point before.
    pub calls: u64,
}

/// At most `spans` spans of time with calls: one point for each, and one for the largest value of
/// each.
pub fn of(survey: &Survey, stream: u32, spans: u64) -> Result<Vec<LivePoint>, ReplayError> {
    let process = survey.processes.get(&stream);
    let (first, last) = process.map_or((0, 0), |one| (one.first_time, one.last_time));
    let span = (last.saturating_sub(first) / spans.max(1)).max(1);
    let mut points: Vec<LivePoint> = Vec::new();
    let (mut now, mut largest) = (LivePoint::default(), LivePoint::default());
    let streams = lineage::of(survey, stream);
    lineage::walk(survey, &streams, &Never, |step| {
        let Step::Act(act) = step else {
            return Ok(());
        };
        let (ended, begun) = match &act.action {
            Action::Begin { block, .. } => (0, block.size),
            Action::Resize { before, after, .. } => (before.size, after.size),
            Action::End { block, .. } | Action::Gone { block } => (block.size, 0),
            _ => return Ok(()),
        };
        if act.time / span != now.time / span {
            add(&mut points, largest, now);
            now.calls = 0;
            largest = LivePoint::default();
        }
        now.time = now.time.max(act.time);
        now.bytes = now.bytes.saturating_add(begun).saturating_sub(ended);
        now.calls += 1;
        if now.bytes > largest.bytes {
            largest = now;
        }
        Ok(())
    })?;
    add(&mut points, largest, now);
    Ok(points)
}

/// Adds the largest point of a span, unless it is the last one, and the last point.
fn add(points: &mut Vec<LivePoint>, largest: LivePoint, last: LivePoint) {
    if last.calls == 0 {
        return;
    }
    let mut last = last;
    if largest.bytes > last.bytes {
        points.push(largest);
        last.calls -= largest.calls;
    }
    points.push(last);
}
