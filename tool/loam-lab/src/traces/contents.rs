//! What is in a trace: all that `loam trace info` says.

use std::path::Path;

use anyhow::Result;
use serde_json::{json, Value};

use loam_format::trace::Mark;
use loam_process::symbols::Symbols;

use super::marks;
use super::stacks::{self, Stacks};
use super::summary::{self, Summary};
use crate::replay::{self, Survey};

/// The contents of a trace, and of one of its processes.
#[derive(Debug)]
pub struct Contents {
    /// The trace.
    pub survey: Survey,
    /// The process's figures.
    pub summary: Summary,
    /// Its stacks.
    pub stacks: Option<Stacks>,
    /// Its marks.
    pub marks: Vec<Mark>,
}

impl Contents {
    /// Reads a trace. Without a process it is the one that requested most bytes.
    pub fn of(trace: &Path, process: Option<u32>) -> Result<Contents> {
        let survey = replay::survey(trace)?;
        let stream = survey.choose(process)?;
        Ok(Contents {
            summary: summary::of(&survey, stream)?,
            stacks: stacks::of(&survey, stream)?,
            marks: marks::of(&survey, stream)?,
            survey,
        })
    }

    /// For programs.
    pub fn document(&self, symbols: &mut Symbols) -> Value {
        let processes: Vec<_> = self
            .survey
            .processes
            .iter()
            .map(|(stream, process)| {
                json!({
                    "number": stream,
                    "process": process.process,
                    "end": process.end,
                    "events": process.events,
                    "dropped": process.dropped,
                    "threads": process.threads,
                    "first_time": process.first_time,
                    "last_time": process.last_time,
                    "samples": process.sample_count,
                })
            })
            .collect();
        let stacks = self.stacks.as_ref().map(|stacks| {
            let sites = stacks.sites.iter().map(|site| {
                json!({
                    "functions": stacks.names(site, symbols),
                    "allocated": site.allocated,
                    "allocated_error": site.allocated.error(),
                    "peak": site.peak,
                    "peak_error": site.peak.error(),
                    "types": site.types,
                })
            });
            json!({ "stack_bytes": stacks.mean, "sites": sites.collect::<Vec<_>>() })
        });
        let survey = &self.survey;
        json!({
            "trace": survey.path.to_string_lossy(),
            "stacks": stacks,
            "marks": self.marks,
            "bytes": survey.bytes,
            "header": survey.header,
            "processes": processes,
            "summary": self.summary,
            "damage": survey.damage,
            "missing_events": survey.missing,
        })
    }
}
