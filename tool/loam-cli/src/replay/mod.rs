//! `loam replay`: a trace becomes an experiment of the lab.
//!
//! ```text
//! survey the trace -> prepare it (once, in a temporary folder)
//!   -> the lab's trials of native/replayer -> the error of the replay
//!   -> the lab's table and report
//! ```

pub mod args;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use loam_format::results::{MarkRecord, Results, TraceRecord};
use loam_format::trace::Mark;
use loam_format::words;
use loam_lab::plan::{self, Ready};
use loam_lab::replay::lives::Lives;
use loam_lab::replay::{self, Prepared, ReplayError, Survey, Wishes};
use loam_lab::traces::marks;
use loam_process::layout::{Layout, REPLAYER_NAME};

use crate::exit::Exit;
use crate::lab::{self, stop::Stop};
use crate::output;
use args::{ReplayOptions, Speed};

/// Marks that are drawn.
const MOST_MARKS: usize = 50;

/// Runs the verb.
pub fn run(options: &ReplayOptions, layout: &Layout) -> Result<Exit> {
    let replayer = find_replayer(layout)?;
    let which = &options.which;
    let survey = survey(which)?;
    // From here on a signal is noted, so that the temporary folder goes.
    let stop = Stop::when_asked()?;
    let ready = match ready(which, &survey, &std::env::temp_dir(), &stop) {
        Err(error) => return interrupted(&error).ok_or(error),
        Ok(ready) => ready,
    };
    let plan = plan::replay(&options.measure, layout, &replayer, ready)?;
    let mut reproduces = true;
    let exit = lab::carry_out(plan, &options.measure, layout, stop, |results| {
        reproduces = judge(results);
        true
    })?;
    Ok(match exit {
        Exit::Done if !reproduces => Exit::Finding,
        other => other,
    })
}

/// Which process of which trace, and how fast.
#[derive(Debug, Clone)]
pub struct Which {
    /// The trace.
    pub trace: PathBuf,
    /// The process of it.
    pub process: Option<u32>,
    /// How fast.
    pub speed: Speed,
}

/// A place for prepared replays; it goes with the value.
pub fn folder() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("loam-replay-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .context("no temporary folder for the prepared replay")
}

/// What is in the trace, if it can be replayed here.
pub fn survey(which: &Which) -> Result<Survey> {
    let survey = replay::survey_of_all(&which.trace)?;
    survey.choose(which.process)?;
    refuse_other_pages(&survey)?;
    Ok(survey)
}

/// Prepares a trace in a folder of its own.
pub fn ready(which: &Which, survey: &Survey, folder: &Path, stop: &Stop) -> Result<Ready> {
    ready_with(which, survey, None, folder, stop)
}

/// The same, and notes how long each block lives.
pub fn ready_with(
    which: &Which,
    survey: &Survey,
    lives: Option<&Lives>,
    folder: &Path,
    stop: &Stop,
) -> Result<Ready> {
    let stream = survey.choose(which.process)?;
    let process = &survey.processes[&stream];
    if let Some(cut) = process.cut() {
        output::print_warning(&cut);
    }
    let speed_percent = (which.speed).percent(process.last_time.saturating_sub(process.first_time));
    let wishes = Wishes {
        pauses: speed_percent != 0,
        lives,
    };
    let prepared = replay::prepare(survey, stream, wishes, folder, stop)?;
    let record = record(which, survey, &prepared, speed_percent)?;
    output::say(&format!(
        "replaying {}: {} events of {}, {}",
        output::path(&which.trace),
        prepared.events,
        record.program,
        words::count(prepared.threads as usize, "thread"),
    ));
    let arguments = vec![
        "--program".to_owned(),
        prepared.path.display().to_string(),
        "--speed-percent".to_owned(),
        speed_percent.to_string(),
    ];
    Ok(Ready { arguments, record })
}

/// How to end if the error is that the user wanted to stop.
pub fn interrupted(error: &anyhow::Error) -> Option<Exit> {
    match error.downcast_ref::<ReplayError>() {
        Some(ReplayError::Interrupted(signal)) => Some(Exit::Signal(*signal)),
        _ => None,
    }
}

/// Notes the error of the replay; false if it is known and too large, or if the trace can not have
/// one.
pub fn judge(results: &mut Results) -> bool {
    replay::note_errors(results);
    let mut traces = results
        .experiments
        .iter()
        .filter_map(|one| one.trace.as_ref());
    traces.all(|trace| trace.imported.is_none() && trace.error.is_none_or(|error| error.reproduces))
}

/// The replayer, which the build brings.
pub fn find_replayer(layout: &Layout) -> Result<PathBuf> {
    let found = layout.find(REPLAYER_NAME);
    let found = found.context("the replayer is not built")?;
    Ok(std::path::absolute(found)?)
}

fn refuse_other_pages(survey: &Survey) -> Result<(), ReplayError> {
    let here = rustix::param::page_size() as u64;
    let recorded = survey.header.page_size;
    if recorded != 0 && recorded != here {
        return Err(ReplayError::PageSize {
            path: survey.path.clone(),
            recorded,
            here,
            architecture: survey.header.architecture.clone(),
        });
    }
    Ok(())
}

fn record(
    which: &Which,
    survey: &Survey,
    prepared: &Prepared,
    speed_percent: u64,
) -> Result<TraceRecord> {
    let process = &survey.processes[&prepared.stream].process;
    Ok(TraceRecord {
        path: which.trace.clone(),
        sha256: plan::digest(&which.trace)?,
        command: survey.header.command.clone(),
        process: prepared.stream,
        program: match process.program.as_str() {
            "" => format!("process {}", prepared.stream),
            program => program.to_owned(),
        },
        recorded_allocator: process.allocator.clone(),
        same_allocator: None,
        events: prepared.events,
        allocations: prepared.allocations,
        threads: prepared.threads,
        seconds: prepared.nanoseconds as f64 * 1e-9,
        peak_live_bytes: prepared.peak_live,
        processor_seconds: survey.processes[&prepared.stream].processor_seconds(),
        speed_percent,
        remarks: remarks(survey, prepared),
        error: None,
        marks: marks(survey, prepared)?,
        imported: survey.header.origin.as_ref().map(|one| one.format.clone()),
    })
}

/// The first moments that the program named: more of them would hide the curves.
fn marks(survey: &Survey, prepared: &Prepared) -> Result<Vec<MarkRecord>> {
    let marks = marks::of(survey, prepared.stream)?;
    let record = |mark: &Mark| MarkRecord {
        seconds: mark.time.saturating_sub(prepared.first_time) as f64 * 1e-9,
        name: mark.name.clone(),
    };
    Ok(marks.iter().take(MOST_MARKS).map(record).collect())
}

/// What makes the trace say less than it should.
fn remarks(survey: &Survey, prepared: &Prepared) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut add = |count: u64, text: &str| {
        if count > 0 {
            remarks.push(text.replace('#', &count.to_string()));
        }
    };
    let repairs = &prepared.repairs;
    add(
        repairs.dropped,
        "The recorder dropped # events: blocks of theirs are missing, or are never freed.",
    );
    add(
        prepared.missing,
        "# events lie in damaged chunks of the trace and are left out.",
    );
    add(
        repairs.unknown_frees,
        "# frees are of blocks that the trace does not have; they are left out.",
    );
    add(
        repairs.allocations_over_live,
        "# blocks end without a free: their memory was handed out again; they are freed there.",
    );
    add(
        prepared.failed,
        "# requests failed when they were recorded; they are left out.",
    );
    let here = std::env::consts::ARCH;
    let recorded = survey.header.architecture.as_str();
    if !recorded.is_empty() && recorded != here {
        remarks.push(format!(
            "The trace was recorded on {recorded}, this machine is {here}: sizes of the program's \
             own types may differ there, and times do."
        ));
    }
    if let Some(cut) = survey.processes[&prepared.stream].cut() {
        remarks.push(format!("{}{}.", cut[..1].to_uppercase(), &cut[1..]));
    }
    if prepared.large > 0 && prepared.large_seen * 2 < prepared.large {
        remarks.push(format!(
            "Of {} blocks of two pages and more the recorder saw what {} touched; for the others \
             it is guessed.",
            prepared.large, prepared.large_seen
        ));
    }
    remarks
}
