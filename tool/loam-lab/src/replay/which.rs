//! Which process of which trace is replayed, and how fast: made ready for the lab's plan.

use std::path::{Path, PathBuf};

use anyhow::Result;

use loam_format::results::{MarkRecord, TraceRecord};
use loam_format::trace::Mark;

use super::lives::Lives;
use super::{prepare, survey_of_all, Prepared, ReplayError, Survey, Wishes};
use crate::measure::Stop;
use crate::plan::{self, Ready};
use crate::traces::marks;

/// Marks that are drawn.
const MOST_MARKS: usize = 50;

/// How fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// With pauses; a long recording goes faster.
    Auto,
    /// Percent of the recording's speed; 0: without pauses.
    Percent(u64),
}

/// Chosen: the nanoseconds that a trial with `auto` may take. A shorter time distorts what
/// allocators give back by the clock in more recordings; a longer one makes a run on ten allocators
/// a matter of many minutes.
const TRIAL_NS: u64 = 10_000_000_000;

impl Speed {
    /// Percent of the recording's speed, for a recording of this length. 0: without pauses.
    pub fn percent(self, nanoseconds: u64) -> u64 {
        match self {
            Speed::Percent(percent) => percent,
            Speed::Auto => {
                let exact = u128::from(nanoseconds) * 100 / u128::from(TRIAL_NS);
                u64::try_from(exact)
                    .unwrap_or(u64::MAX)
                    .clamp(100, MOST_PERCENT)
            }
        }
    }
}

/// The most that the replayer takes.
const MOST_PERCENT: u64 = 1_000_000;

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

impl Which {
    /// What is in the trace, if it can be replayed here.
    pub fn survey(&self) -> Result<Survey> {
        let survey = survey_of_all(&self.trace)?;
        survey.choose(self.process)?;
        refuse_other_pages(&survey)?;
        Ok(survey)
    }

    /// Prepares the replay in a folder of its own. Notes how long each block lives if `lives` is
    /// given.
    pub fn ready(
        &self,
        survey: &Survey,
        lives: Option<&Lives>,
        folder: &Path,
        stop: &dyn Stop,
    ) -> Result<Ready> {
        let stream = survey.choose(self.process)?;
        let process = &survey.processes[&stream];
        let nanoseconds = process.until().saturating_sub(process.first_time);
        let speed_percent = self.speed.percent(nanoseconds);
        let wishes = Wishes {
            pauses: speed_percent != 0,
            lives,
        };
        let prepared = prepare(survey, stream, wishes, folder, stop)?;
        let arguments = vec![
            "--program".to_owned(),
            prepared.path.display().to_string(),
            "--speed-percent".to_owned(),
            speed_percent.to_string(),
        ];
        Ok(Ready {
            arguments,
            record: record(self, survey, &prepared, speed_percent)?,
        })
    }
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
    let process = &survey.processes[&prepared.stream];
    let repairs = &prepared.repairs;
    add(
        repairs.dropped,
        "The recorder dropped # events: blocks of theirs are missing, or are never freed.",
    );
    add(
        prepared.missing.max(process.unreadable()),
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
    if process.end.is_none() {
        remarks.push(
            "The trace has no end: its recording was cut off, and what came later is missing."
                .to_owned(),
        );
    }
    if let Some(cut) = process.cut() {
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
