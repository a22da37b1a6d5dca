//! `loam advise`: replays over what is here, and one recommendation. `loam_lab::advise` judges.

pub mod args;
mod verify;

use std::path::Path;

use anyhow::Result;

use loam_format::results::{Results, TraceRecord};
use loam_lab::advise::answer::{answer, believed, separations, spec_of};
use loam_lab::advise::page::looks_like_advice;
use loam_lab::advise::{self, apart, hints, rooms};
use loam_lab::allocators::{discover, spec};
use loam_lab::measure::Ending;
use loam_lab::options::MeasureOptions;
use loam_lab::plan::{self, Plan, Ready};
use loam_lab::replay::judge;
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
    let survey = options.which.survey()?;
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
        Ending::Interrupted(signal) => Err(interrupted(signal)),
        Ending::Unsaved { error, .. } => Err(error.into()),
        Ending::Complete => {
            judge(&mut results);
            Ok(results)
        }
    }
}

fn interrupted(signal: u8) -> anyhow::Error {
    let coded = Coded {
        exit: Exit::Signal(signal),
        message: "interrupted; no advice".to_owned(),
    };
    coded.into()
}
