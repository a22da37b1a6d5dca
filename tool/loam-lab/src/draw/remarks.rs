//! What is missing or doubtful about a run.

use loam_format::results::{Results, State, Status};
use loam_format::words;

use super::experiments_of;
use crate::allocators::wine::HEAP_VARIABLE;
use crate::experiments;

/// One sentence for each remark, the most important first.
pub fn of(results: &Results) -> Vec<String> {
    let mut lines: Vec<String> = wine(results).into_iter().collect();
    match results.state {
        State::Complete => {}
        State::Interrupted => lines.push("The run was interrupted.".to_owned()),
        State::Stopped => lines.push("The run was stopped by an error.".to_owned()),
        State::Running => {
            lines.push("The run is under way, or ended without finishing.".to_owned());
        }
    }
    let missing = results.missing();
    if missing > 0 {
        let trials = words::count(missing, "planned trial");
        let rest = match results.can_go_on() {
            true => " (--resume runs what is missing)",
            false => "",
        };
        lines.push(format!("Missing: {trials} did not run{rest}."));
    }
    for trial in results.failed() {
        let reason = trial.reason.as_deref().unwrap_or("no reason recorded");
        lines.push(format!("Failed: {}: {reason}.", trial.describe()));
    }
    for trial in results
        .trials
        .iter()
        .filter(|trial| trial.status == Status::Unavailable)
    {
        let reason = trial.reason.as_deref().unwrap_or("no reason given");
        lines.push(format!("Not available: {}: {reason}.", trial.describe()));
    }
    for record in results.allocators.iter().filter(|record| !record.measured) {
        let reason = record.reason.as_deref().unwrap_or("absent");
        let remedy = record
            .remedy
            .as_ref()
            .map(|r| format!(" ({r})"))
            .unwrap_or_default();
        lines.push(format!("Not measured: {}: {reason}{remedy}.", record.label));
    }
    let traces = results
        .experiments
        .iter()
        .filter_map(|record| record.trace.as_ref());
    lines.extend(traces.flat_map(|trace| trace.remarks.iter().cloned()));
    lines.extend(noise(results));
    lines
}

/// A warning for a run of programs for Windows: what it must not be taken for.
fn wine(results: &Results) -> Option<String> {
    let record = results
        .allocators
        .iter()
        .find(|record| record.environment.contains_key(HEAP_VARIABLE))?;
    Some(format!(
        "Programs for Windows under Wine: every figure is Wine's and says nothing about the heap \
         or the speed of Windows. A verdict on what an article found is about Wine's heap too. The \
         system's heap here: {}.",
        record.source
    ))
}

fn noise(results: &Results) -> Option<String> {
    let measured = || results.trials.iter().filter(|trial| trial.is_measured());
    let noisy = measured().filter(|trial| trial.noisy).count();
    if noisy == 0 {
        return None;
    }
    let left_out: usize = experiments_of(results)
        .iter()
        .flat_map(|experiment| experiments::view(experiment.as_ref(), results).rows)
        .map(|row| row.left_out.len())
        .sum();
    Some(format!(
        "Noise: during {noisy} of {} the machine was busy with something else, or its memory was \
         cold; {}.",
        words::count(measured().count(), "trial"),
        match left_out {
            0 => "they count all the same, because too few quiet ones are left".to_owned(),
            n if n == noisy => "they do not count".to_owned(),
            n => format!("{n} of them do not count, the others do, for lack of quiet ones"),
        }
    ))
}
