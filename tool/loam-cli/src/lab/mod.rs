//! `loam lab`: measures allocators, keeps the results and draws them.
//!
//! ```text
//! plan (which experiments, which allocators, where the results go)
//!   -> measure (a process a trial; the results file is rewritten after each)
//!   -> results file
//!   -> analyse (medians, intervals, ratios paired by round)
//!   -> draw (the table on the terminal, the HTML report)
//! ```
//!
//! `show`, `compare` and `merge` start from the results file. So does everything that `measure`
//! prints at its end: it can be printed again later.

pub mod args;
mod progress;
pub mod stop;

use std::path::{Path, PathBuf};

use anyhow::{bail, Result};

use loam_format::results::Results;
use loam_format::{plain, words};
use loam_lab::measure::watchdog::Watchdog;
use loam_lab::measure::{self, Bench, Ending};
use loam_lab::options::{Earlier, MeasureOptions};
use loam_lab::outputs::Outputs;
use loam_lab::plan::{self, Plan};
use loam_lab::store::Store;
use loam_lab::{compare, draw, merge, resume, store};
use loam_process::ending::Watch;
use loam_process::layout::Layout;

use crate::exit::{leave, Exit};
use crate::output;
use args::{LabAction, LabArgs};
use progress::Bar;
use stop::Stop;

/// Runs the verb.
pub fn run(args: Box<LabArgs>, layout: &Layout) -> Result<Exit> {
    match args.resolve() {
        LabAction::Measure(options) => measure(&options, layout),
        LabAction::Show {
            results,
            html,
            markdown,
        } => {
            Watch::at_once(&[]).begin(leave)?;
            show(&results, html.as_deref(), markdown)
        }
        LabAction::Compare { a, b } => {
            Watch::at_once(&[]).begin(leave)?;
            let (before, after) = (store::load(&a)?, store::load(&b)?);
            let styled = output::stdout_is_styled();
            output::write_stdout(&compare::render(&before, &after, styled))?;
            Ok(Exit::Done)
        }
        LabAction::Merge {
            results,
            output,
            overwrite,
        } => merged(&results, &output, overwrite),
    }
}

fn merged(paths: &[PathBuf], target: &Path, overwrite: bool) -> Result<Exit> {
    let load = |path: &PathBuf| Ok((path.clone(), store::load(path)?));
    let files = paths.iter().map(load).collect::<Result<Vec<_>>>()?;
    let merged = merge::merge(files)?;
    if !overwrite {
        resume::require_unfinished(target)?;
    }
    let place = Store::claim(target, store::looks_like_results)?;
    place.lock()?;
    store::save(&merged, &place)?;
    output::say(&format!(
        "{} of {} in {}; next: loam lab show {}",
        words::count(merged.trials.len(), "trial"),
        words::count(merged.experiments.len(), "experiment"),
        output::path(target),
        output::path(target)
    ));
    Ok(Exit::Done)
}

fn measure(options: &MeasureOptions, layout: &Layout) -> Result<Exit> {
    let stop = Stop::when_asked()?;
    let plan = plan::make(options, layout)?;
    carry_out(plan, options, layout, stop, |_| false)
}

/// Measures what is planned, and shows the results. `judge` examines the results before they are
/// drawn, and returns whether it added something to them.
pub fn carry_out(
    plan: Plan,
    options: &MeasureOptions,
    layout: &Layout,
    stop: Stop,
    judge: impl FnOnce(&mut Results) -> bool,
) -> Result<Exit> {
    let outputs = Outputs::claim(options.json.as_deref(), options.html.as_deref())?;
    outputs.json.lock()?;
    let mut results = plan.into_results(options, layout);
    match options.earlier {
        Earlier::Keep => resume::require_unfinished(outputs.json.path())?,
        Earlier::Resume => resume::take_over(&mut results, outputs.json.path())?,
        Earlier::Overwrite => {}
    }
    announce(&results, &outputs);
    let ending = trials(&mut results, &outputs.json, options, stop)?;
    if judge(&mut results) && !matches!(ending, Ending::Unsaved { .. }) {
        store::save(&results, &outputs.json)?;
    }

    // The table is drawn even after an error: the finished trials are worth showing.
    let table = draw::table::render(&results, output::stdout_is_styled());
    let shown = output::write_stdout(&table);
    if let Ending::Unsaved { error, lost } = ending {
        bail!(
            "{error}\n  Measuring was stopped. Finished trials up to this one are in the file; \
             not in it: {lost}.{}",
            match results.can_go_on() {
                true => "\n  --resume goes on from there.",
                false => "",
            }
        );
    }
    draw::report(&results, &outputs.html)?;
    output::say(&format!("results: {}", output::path(outputs.json.path())));
    output::say(&format!("report:  {}", output::path(outputs.html.path())));
    Ok(match ending {
        Ending::Interrupted(signal) => {
            let rest = match results.can_go_on() {
                true => format!(
                    " `--json {} --resume` runs what is missing.",
                    plain::word(&outputs.json.path().to_string_lossy())
                ),
                false => String::new(),
            };
            let missing = words::count(results.missing(), "trial");
            output::say(&format!("interrupted; {missing} not run.{rest}"));
            Exit::Signal(signal)
        }
        // A missing reader may be what interrupted the run, so only here is the error of the table
        // returned. `main` does not treat a missing reader as a failure.
        _ => {
            shown?;
            match results.failed().next() {
                Some(_) => Exit::Finding,
                None => Exit::Done,
            }
        }
    })
}

/// Runs the planned steps that are missing in the results, and shows progress.
pub fn trials(
    results: &mut Results,
    store: &Store,
    options: &MeasureOptions,
    stop: Stop,
) -> Result<Ending> {
    let bench = Bench {
        timeout: options.timeout,
        stop: Box::new(stop),
        watchdog: Watchdog::start()?,
    };
    let steps = measure::steps(results);
    let mut bar = Bar::new(&steps);
    Ok(measure::measure(results, &steps, store, &bench, &mut bar))
}

fn announce(results: &Results, outputs: &Outputs) {
    for record in results.allocators.iter().filter(|record| !record.measured) {
        let reason = record.reason.as_deref().unwrap_or("absent");
        let remedy = record
            .remedy
            .as_ref()
            .map(|r| format!(" (to get it: {r})"))
            .unwrap_or_default();
        output::say(&format!("not measured: {}: {reason}{remedy}", record.label));
    }
    let done = results.trials.iter().filter(|trial| !trial.warm_up).count();
    if done > 0 {
        let trials = words::count(done, "finished trial");
        let path = output::path(outputs.json.path());
        output::say(&format!("resuming {path}: {trials} kept"));
    }
}

fn show(path: &Path, html: Option<&Path>, markdown: bool) -> Result<Exit> {
    let results = store::load(path)?;
    let text = if markdown {
        draw::markdown::render(&results)
    } else {
        draw::table::render(&results, output::stdout_is_styled())
    };
    output::write_stdout(&text)?;
    if let Some(html) = html {
        let store = store::Store::claim(html, draw::looks_like_report)?;
        draw::report(&results, &store)?;
        output::say(&format!("report:  {}", output::path(store.path())));
    }
    Ok(Exit::Done)
}
