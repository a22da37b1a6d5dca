//! What the replays say, put together: the candidates beside those that the user named, whether
//! the replay is believed, and the answer.

use anyhow::{bail, Context, Result};

use loam_format::results::{AllocatorRecord, Results, Status, TraceRecord};

use super::apart::{self, Separated};
use super::hints::Hint;
use super::page::{Advised, Answer};
use super::{best, line, Place};
use crate::allocators::{spec, Allocator};
use crate::experiments::replay::judged;
use crate::traces::lives;

/// Replays that keep long-lived blocks apart, and the recorded allocator that they are compared
/// with. None where that one or Loam is not here.
pub fn separations(
    record: &TraceRecord,
    available: &[Allocator],
    specs: &[String],
    lives: &lives::Found,
) -> Vec<String> {
    let library = spec::known("loam", available).and_then(|loam| loam.path.as_deref());
    let base = spec::known(&record.recorded_allocator, available);
    let (Some(base), Some(library)) = (base, library) else {
        return Vec::new();
    };
    let mut more = apart::candidates(&base.name, library, lives);
    if !more.is_empty() && !specs.contains(&base.name) {
        more.push(base.name.clone());
    }
    more
}

/// What the user wrote for that label.
pub fn spec_of(label: &str, specs: &[String]) -> String {
    let prefix = format!("{label}=");
    let named = specs.iter().find(|spec| spec.starts_with(&prefix));
    named.map_or_else(|| label.to_owned(), String::clone)
}

/// The label of the recorded allocator, if its replay is the program's.
pub fn believed(results: &Results) -> Result<String> {
    let trace = results.experiments[0]
        .trace
        .as_ref()
        .context("nothing was replayed")?;
    let judged = judged(trace.error.as_ref(), trace);
    match (&trace.same_allocator, trace.error) {
        (Some(base), Some(error)) if error.reproduces => Ok(base.clone()),
        _ => bail!("no advice is drawn from this trace. {judged}"),
    }
}

/// The record of an allocator in a results file.
pub fn record<'r>(results: &'r Results, label: &str) -> Result<&'r AllocatorRecord> {
    let mut records = results.allocators.iter();
    let record = records.find(|record| record.label == label);
    record.context("the advised allocator is not in the plan")
}

/// The advice of an allocator.
pub fn advised(results: &Results, label: &str) -> Result<Advised> {
    let trace = results.experiments[0].trace.as_ref();
    let command = &trace.context("nothing was replayed")?.command;
    Ok(Advised {
        allocator: label.to_owned(),
        line: line(record(results, label)?, command),
    })
}

/// The answer to what was measured.
pub fn answer(
    results: &Results,
    base: &str,
    places: Vec<Place>,
    separated: Option<Separated>,
    hints: Vec<Hint>,
) -> Result<Answer> {
    let trace = results.experiments[0]
        .trace
        .as_ref()
        .context("nothing was replayed")?;
    let advised = match best(&places, base) {
        Some(place) => Some(advised(results, &place.allocator)?),
        None => None,
    };
    let mut remarks = vec![judged(trace.error.as_ref(), trace)];
    remarks.extend(trace.remarks.iter().cloned());
    match trace.speed_percent {
        0 => remarks.push(
            "The program's pauses were left out: what a heap gives back as time passes is not in \
             these figures."
                .to_owned(),
        ),
        percent if percent > 100 => remarks.push(format!(
            "The program's pauses were {:.0} times shorter: a heap that gives memory back as time \
             passes gave back less (--speed 1 keeps them whole).",
            percent as f64 / 100.0
        )),
        _ => {}
    }
    let failed = results.failed();
    let failed = failed.filter(|trial| trial.status != Status::Unavailable);
    remarks.extend(failed.map(|trial| format!("Left out: {} failed.", trial.describe())));
    Ok(Answer {
        trace: trace.path.display().to_string(),
        command: trace.command.clone(),
        recorded: base.to_owned(),
        advised,
        verified: None,
        frontier: Answer::frontier_of(&places),
        places,
        separated,
        hints,
        remarks,
    })
}
