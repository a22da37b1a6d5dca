//! `loam advise`: replays over what is here, and one recommendation. `loam_lab::advise` judges.

pub mod args;
mod verify;

use std::path::Path;

use anyhow::{bail, Context, Result};

use loam_format::results::{AllocatorRecord, Results, Status, TraceRecord};
use loam_lab::advise::apart::{self, Separated};
use loam_lab::advise::hints::{self, Hint};
use loam_lab::advise::page::{looks_like_advice, Advised, Answer};
use loam_lab::advise::{self, rooms, Place};
use loam_lab::allocators::{discover, spec, Allocator};
use loam_lab::measure::Ending;
use loam_lab::options::MeasureOptions;
use loam_lab::plan::{self, Plan, Ready};
use loam_lab::store::{looks_like_results, Store};
use loam_lab::traces::{lives, shapes, stacks};
use loam_process::layout::Layout;

use crate::exit::{Coded, Exit};
use crate::lab::{self, stop::Stop};
use crate::output;
use crate::replay;
use crate::run::resolve_command;
use args::AdviseOptions;

/// Runs the verb.
pub fn run(options: &AdviseOptions, layout: &Layout) -> Result<Exit> {
    let program = options.command.first();
    let program = program.map(|name| resolve_command(name)).transpose()?;
    let replayer = replay::find_replayer(layout)?;
    let page = match &options.measure.html {
        Some(path) => Some(Store::claim(path, looks_like_advice)?),
        None => None,
    };
    let survey = replay::survey(&options.which)?;
    let stop = Stop::when_asked()?;
    let folder = replay::folder()?;
    let stream = survey.choose(options.which.process)?;
    let lives = lives::of(&survey, stream)?;
    let which = &options.which;
    let ready = replay::ready_with(which, &survey, Some(&lives.lives), folder.path(), &stop);
    let ready = match ready {
        Err(error) => return replay::interrupted(&error).ok_or(error),
        Ok(ready) => ready,
    };
    let again = |record: &TraceRecord| Ready {
        arguments: ready.arguments.clone(),
        record: record.clone(),
    };
    let mut measure = MeasureOptions {
        rounds: 1,
        ..options.measure.clone()
    };
    let available = discover::all(layout);
    let mut specs = match measure.allocators.is_empty() {
        true => advise::candidates(&available),
        false => spec::split(&measure.allocators, &available)?,
    };
    specs.extend(separations(&ready.record, &available, &specs, &lives));
    measure.allocators.clone_from(&specs);
    let first = plan::replay(&measure, layout, &replayer, again(&ready.record))?;
    let first = trials(first, &measure, layout, folder.path(), stop.clone())?;
    let base = believed(&first)?;
    let tried = advise::places(&first, &base);
    let kept = advise::kept(&tried, &base);
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
        .chain(kept)
        .map(|label| spec_of(&label, &specs))
        .collect();
    let second = plan::replay(&measure, layout, &replayer, again(&ready.record))?;
    let second = trials(second, &measure, layout, folder.path(), stop.clone())?;
    let base = believed(&second)?;
    let places = advise::places(&second, &base);
    let separated = apart::judge(&places, &tried, &base, &lives);
    let shapes = shapes::of(&survey, stream)?;
    let sizes: Vec<u64> = shapes.sizes.iter().map(|one| one.size).collect();
    let recorded = second.allocators.iter().find(|one| one.label == base);
    let rooms = recorded.map(|one| rooms::of(&replayer, one, &sizes));
    let stacks = match separated {
        Some(_) => stacks::of(&survey, stream)?,
        None => None,
    };
    let hints = hints::of(&hints::Sources {
        shapes: &shapes,
        allocator: &base,
        rooms: &rooms.unwrap_or_default(),
        separated: separated.as_ref(),
        stacks: stacks.as_ref(),
    });
    let mut answer = answer(&second, &base, places, separated, hints)?;
    if let Some(program) = &program {
        verify::run(options, program, &second, &mut answer, &stop)?;
    }
    if let Some(page) = page {
        let text = answer.html(loam_format::VERSION);
        page.replace(|file| file.write_all(text.as_bytes()))?;
        output::say(&format!("page: {}", output::path(page.path())));
    }
    let text = match options.json {
        true => serde_json::to_string_pretty(&answer)? + "\n",
        false => answer.text(),
    };
    output::write_stdout(&text)?;
    Ok(Exit::Done)
}

/// Replays that keep long-lived blocks apart, and the recorded allocator that they are compared
/// with. None where that one or Loam is not here.
fn separations(
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

fn record<'r>(results: &'r Results, label: &str) -> Result<&'r AllocatorRecord> {
    let mut records = results.allocators.iter();
    let record = records.find(|record| record.label == label);
    record.context("the advised allocator is not in the plan")
}

fn advised(results: &Results, label: &str) -> Result<Advised> {
    let trace = results.experiments[0].trace.as_ref();
    let command = &trace.context("nothing was replayed")?.command;
    Ok(Advised {
        allocator: label.to_owned(),
        line: advise::line(record(results, label)?, command),
    })
}

fn answer(
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
    let advised = match advise::best(&places, base) {
        Some(place) => Some(advised(results, &place.allocator)?),
        None => None,
    };
    let mut remarks = vec![loam_lab::experiments::replay::judged(
        trace.error.as_ref(),
        trace,
    )];
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
