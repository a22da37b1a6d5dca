//! `loam gate`: compares a program's trace with a baseline, for a build that must fail when memory
//! gets worse.
//!
//! `loam_lab::gate` judges. This module has the lab replay both sides, and writes the answer to the
//! terminal, to a job's summary and into the exit code.

pub mod args;

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{bail, Context, Result};

use loam_format::results::Results;
use loam_lab::allocators::{discover, spec};
use loam_lab::gate::baseline::{looks_like_baseline, Baseline};
use loam_lab::gate::{self, Against, Gated};
use loam_lab::measure::Ending;
use loam_lab::plan::{self, Plan};
use loam_lab::replay::{judge, Survey, Which};
use loam_lab::store::{looks_like_results, Store};
use loam_lab::traces::file::is_trace;
use loam_lab::traces::summary::{self, SizeClass};
use loam_process::layout::Layout;

use crate::exit::Exit;
use crate::lab::{self, stop::Stop};
use crate::output;
use crate::replay;
use args::GateOptions;

/// The baseline that the user named.
enum Reference {
    Trace(Which, Box<Survey>),
    File(Box<Baseline>),
    /// The baseline does not exist yet; it is written.
    New(Store),
}

/// Runs the verb.
pub fn run(options: &GateOptions, layout: &Layout) -> Result<Exit> {
    if !options.write_baseline && options.limits.judge_nothing() {
        bail!("every limit is off, and the gate would judge nothing: leave one on");
    }
    let replayer = replay::find_replayer(layout)?;
    let survey = whole(&options.which)?;
    let reference = reference(options)?;
    if let Some(path) = &options.markdown {
        append(path, "")?;
    }
    let mut measure = options.measure.clone();
    if measure.allocators.is_empty() {
        let stream = survey.choose(options.which.process)?;
        let recorded = &survey.processes[&stream].process.allocator;
        if recorded.is_empty() {
            bail!(
                "the trace does not say which allocator it was recorded on; name one with \
                   --allocator"
            );
        }
        let available = discover::all(layout);
        let Some(known) = spec::known(recorded, &available) else {
            bail!(
                "the trace was recorded on `{recorded}`, which is no allocator of this machine; \
                   --allocator names another one"
            );
        };
        measure.allocators = vec![known.name.clone()];
    }
    let stop = Stop::when_asked()?;
    let folders = (replay::folder()?, replay::folder()?);
    let ready = match replay::ready(&options.which, &survey, folders.0.path(), &stop) {
        Err(error) => return replay::interrupted(&error).ok_or(error),
        Ok(ready) => ready,
    };
    let stream = ready.record.process;
    let planned = plan::replay(&measure, layout, &replayer, ready);
    let mut plan = match options.measure.allocators.is_empty() {
        true => planned.context(
            "the trace's allocator can not be replayed on; --allocator names another one",
        )?,
        false => planned?,
    };
    let mut before_sizes = Vec::new();
    if let Reference::Trace(which, survey) = &reference {
        let ready = match replay::ready(which, survey, folders.1.path(), &stop) {
            Err(error) => return replay::interrupted(&error).ok_or(error),
            Ok(ready) => ready,
        };
        before_sizes = summary::of(survey, ready.record.process)?.sizes;
        plan = plan.beside(gate::BEFORE, &measure, &replayer, ready)?;
    }
    let sizes = summary::of(&survey, stream)?.sizes;
    let allocator = plan.wanted()[0].clone();
    let (results, ending) = trials(plan, options, &measure, layout, folders.0.path(), stop)?;
    match ending {
        Ending::Interrupted(signal) => return Ok(Exit::Signal(signal)),
        Ending::Unsaved { error, .. } => return Err(error.into()),
        Ending::Complete => {}
    }
    gate::require_believed(&results, &options.limits)?;
    match &reference {
        Reference::New(store) => write_baseline(store, &results, &allocator, &sizes),
        Reference::File(baseline) => answer(
            options,
            &results,
            &allocator,
            &Against::File(baseline),
            &sizes,
        ),
        Reference::Trace(..) => answer(
            options,
            &results,
            &allocator,
            &Against::Trace(&before_sizes),
            &sizes,
        ),
    }
}

/// Reads a trace, and refuses one that is damaged or lacks a part: its figures are not those of the
/// program.
fn whole(which: &Which) -> Result<Survey> {
    let survey = which.survey()?;
    let faults = survey.faults(&[survey.choose(which.process)?]);
    if !faults.is_empty() {
        bail!(
            "{} is damaged or cut off, and nothing was compared: {}; record it again",
            which.trace.display(),
            faults.join("; ")
        );
    }
    Ok(survey)
}

/// Examines the baseline before anything is measured.
fn reference(options: &GateOptions) -> Result<Reference> {
    let path = &options.baseline;
    if options.write_baseline {
        return Ok(Reference::New(Store::claim(path, looks_like_baseline)?));
    }
    if is_trace(path) {
        let which = Which {
            trace: path.clone(),
            process: None,
            speed: options.which.speed,
        };
        let survey = whole(&which)?;
        return Ok(Reference::Trace(which, Box::new(survey)));
    }
    let baseline = Baseline::load(path)?;
    // Both verbs' speeds that a baseline may have are fixed ones.
    let speed_percent = options.which.speed.percent(0);
    if baseline.speed_percent != speed_percent {
        let speed = |percent| match percent {
            0 => "--speed max".to_owned(),
            percent => format!("--speed {}", percent as f64 / 100.0),
        };
        bail!(
            "{} was measured with {}, and this is {}: what a heap gives back in pauses differs; \
             use the same speed",
            path.display(),
            speed(baseline.speed_percent),
            speed(speed_percent)
        );
    }
    Ok(Reference::File(Box::new(baseline)))
}

/// Replays. The results go to the user's file, or are deleted with the folder.
fn trials(
    plan: Plan,
    options: &GateOptions,
    measure: &loam_lab::options::MeasureOptions,
    layout: &Layout,
    folder: &Path,
    stop: Stop,
) -> Result<(Results, Ending)> {
    let path = options
        .measure
        .json
        .clone()
        .unwrap_or_else(|| folder.join("results.json"));
    let store = Store::claim(&path, looks_like_results)?;
    store.lock()?;
    let mut results = plan.into_results(measure, layout);
    let ending = lab::trials(&mut results, &store, measure, stop)?;
    judge(&mut results);
    if matches!(ending, Ending::Complete) {
        loam_lab::store::save(&results, &store)?;
    }
    Ok((results, ending))
}

fn write_baseline(
    store: &Store,
    results: &Results,
    allocator: &str,
    sizes: &[SizeClass],
) -> Result<Exit> {
    let baseline = Baseline::of(results, allocator, sizes).context("no trial was finished")?;
    baseline.save(store)?;
    output::say(&format!(
        "baseline: {} (commit it, and compare with --baseline)",
        output::path(store.path())
    ));
    Ok(Exit::Done)
}

fn answer(
    options: &GateOptions,
    results: &Results,
    allocator: &str,
    against: &Against,
    sizes: &[SizeClass],
) -> Result<Exit> {
    let gated: Gated = gate::judge(results, allocator, against, &options.limits, sizes)
        .context("no trial was finished")?;
    let baseline = options.baseline.display().to_string();
    // Each of the two outputs is written even if the other one can not be.
    let summary = options.markdown.as_ref().map_or(Ok(()), |path| {
        let text = gate::markdown(&gated, &baseline);
        append(path, &text)
    });
    output::write_stdout(&gate::text(&gated, &baseline))?;
    summary?;
    Ok(match gated.has_failed() {
        true => Exit::Finding,
        false => Exit::Done,
    })
}

fn append(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new();
    let file = file.create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("{} can not be written", path.display()))
}
