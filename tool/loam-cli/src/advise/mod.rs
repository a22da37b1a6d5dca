//! `loam advise`: replays over what is here, and one recommendation. `loam_lab::advise` judges.

pub mod args;

use std::path::Path;

use anyhow::{bail, Context, Result};

use loam_format::results::{Results, Status, TraceRecord};
use loam_lab::advise;
use loam_lab::allocators::{discover, spec};
use loam_lab::measure::Ending;
use loam_lab::options::MeasureOptions;
use loam_lab::plan::{self, Plan, Ready};
use loam_lab::store::{looks_like_results, Store};
use loam_lab::traces::summary;
use loam_process::layout::Layout;
use loam_report::terminal;

use crate::exit::{Coded, Exit};
use crate::lab::{self, stop::Stop};
use crate::output;
use crate::replay;
use args::AdviseOptions;

/// Runs the verb.
pub fn run(options: &AdviseOptions, layout: &Layout) -> Result<Exit> {
    let replayer = replay::find_replayer(layout)?;
    let survey = replay::survey(&options.which)?;
    let stop = Stop::when_asked()?;
    let folder = replay::folder()?;
    let ready = match replay::ready(&options.which, &survey, folder.path(), &stop) {
        Err(error) => return replay::interrupted(&error).ok_or(error),
        Ok(ready) => ready,
    };
    let stream = ready.record.process;
    let again = |record: &TraceRecord| Ready {
        arguments: ready.arguments.clone(),
        record: record.clone(),
    };
    let mut measure = MeasureOptions {
        rounds: 1,
        ..options.measure.clone()
    };
    let available = discover::all(layout);
    let specs = match measure.allocators.is_empty() {
        true => advise::candidates(&available),
        false => spec::split(&measure.allocators, &available)?,
    };
    measure.allocators.clone_from(&specs);
    let first = plan::replay(&measure, layout, &replayer, again(&ready.record))?;
    let first = trials(first, &measure, layout, folder.path(), stop.clone())?;
    let base = believed(&first)?;
    let kept = advise::kept(&advise::places(&first, &base), &base);
    let figures = summary::of(&survey, stream)?;
    output::say(&format!(
        "kept after one trial each: {}",
        match kept.is_empty() {
            true => "nothing beside the recorded allocator".to_owned(),
            false => loam_format::words::list(&kept),
        }
    ));
    measure.rounds = options.measure.rounds;
    // Labels of specs without a name of their own are the specs.
    measure.allocators = std::iter::once(base.clone())
        .chain(kept.iter().map(|label| spec_of(label, &specs)))
        .collect();
    let second = plan::replay(&measure, layout, &replayer, again(&ready.record))?;
    let second = trials(second, &measure, layout, folder.path(), stop)?;
    let base = believed(&second)?;
    output::write_stdout(&answer(&second, &base, &figures)?)?;
    Ok(Exit::Done)
}

/// What the user wrote for that label.
fn spec_of(label: &str, specs: &[String]) -> String {
    let prefix = format!("{label}=");
    let named = specs.iter().find(|spec| spec.starts_with(&prefix));
    named.map_or_else(|| label.to_owned(), String::clone)
}

fn trials(
    plan: Plan,
    measure: &MeasureOptions,
    layout: &Layout,
    folder: &Path,
    stop: Stop,
) -> Result<Results> {
    let store = Store::claim(&folder.join("results.json"), looks_like_results)?;
    let mut results = plan.into_results(measure, layout);
    match lab::trials(&mut results, &store, measure, stop)? {
        Ending::Interrupted(signal) => Err(Coded {
            exit: Exit::Signal(signal),
            message: "interrupted; no advice".to_owned(),
        }
        .into()),
        Ending::Unsaved { error, .. } => Err(error.into()),
        Ending::Complete => {
            replay::judge(&mut results);
            Ok(results)
        }
    }
}

/// The label of the recorded allocator, if its replay is the program's.
fn believed(results: &Results) -> Result<String> {
    let trace = results.experiments[0]
        .trace
        .as_ref()
        .context("nothing was replayed")?;
    let judged = loam_lab::experiments::replay::judged(trace.error.as_ref(), trace);
    match (&trace.same_allocator, trace.error) {
        (Some(base), Some(error)) if error.reproduces => Ok(base.clone()),
        _ => bail!("no advice is drawn from this trace. {judged}"),
    }
}

fn answer(results: &Results, base: &str, figures: &summary::Summary) -> Result<String> {
    let places = advise::places(results, base);
    let trace = results.experiments[0]
        .trace
        .as_ref()
        .context("nothing was replayed")?;
    let mut text = String::new();
    match advise::best(&places, base) {
        Some(place) => {
            let record = results
                .allocators
                .iter()
                .find(|record| record.label == place.allocator)
                .context("the advised allocator is not in the plan")?;
            text += &terminal::wrapped(&format!(
                "{}: {} of the average memory and {} of the processor time.",
                place.allocator,
                advise::ratio(&place.memory_ratio),
                advise::ratio(&place.time_ratio)
            ));
            text += &format!("\n    {}\n", advise::line(record, &trace.command));
        }
        None => {
            text += &terminal::wrapped(
                "Nothing helps: no allocator or setting here surely saves 5 % of memory or of processor time at a \
                 cost of at most 10 % of the other.",
            );
            for hint in advise::program(figures) {
                text += &terminal::wrapped(&format!("In the program: {hint}"));
            }
        }
    }
    text += &terminal::grid(&advise::grid(&places, base));
    text += "\n";
    let judged = loam_lab::experiments::replay::judged(trace.error.as_ref(), trace);
    for remark in std::iter::once(&judged).chain(&trace.remarks) {
        text += &terminal::wrapped(remark);
    }
    if trace.speed_percent == 0 {
        text += &terminal::wrapped(
            "The program's pauses were left out: what a heap gives back as time passes is not in these figures \
             (--speed 1).",
        );
    }
    for trial in results
        .failed()
        .filter(|trial| trial.status != Status::Unavailable)
    {
        text += &terminal::wrapped(&format!("Left out: {} failed.", trial.describe()));
    }
    Ok(text)
}
