//! By how much call paths, and types of live blocks, grew between two traces.

use std::path::{Path, PathBuf};

use anyhow::{bail, Result};
use serde_json::{json, Value};

use loam_format::plain;
use loam_process::symbols::Symbols;

use super::of::Of;
use super::paths::{self, Changed, Path as CallPath};
use super::stacks::{self, Site};
use crate::replay;

/// The difference of two traces.
#[derive(Debug)]
pub struct Diff {
    /// The first trace.
    pub before: Side,
    /// The second one.
    pub after: Side,
    /// What became of each path, the one that grew most first.
    pub paths: Vec<Changed>,
    /// The same of the types of what lived at the end, if both recordings looked for them.
    pub types: Option<Vec<Changed>>,
}

/// A trace, as far as it is compared.
#[derive(Debug)]
pub struct Side {
    /// The file.
    pub trace: PathBuf,
    /// How long it was recorded.
    pub seconds: f64,
    /// Bytes of all paths.
    pub bytes: f64,
    /// Why it has less than was recorded; nothing for a whole trace.
    pub faults: Vec<String>,
}

/// What is read of a trace.
struct Read {
    side: Side,
    /// The kind of sample.
    sampled: String,
    paths: Vec<CallPath>,
    types: Option<Vec<CallPath>>,
}

impl Diff {
    /// Compares two traces, which must have stacks.
    pub fn of(before: &Path, after: &Path, of: Of, symbols: &mut Symbols) -> Result<Diff> {
        let (before, after) = (read(before, of, symbols)?, read(after, of, symbols)?);
        if before.sampled != after.sampled {
            let kinds = [&before, &after].map(|read| match read.sampled.as_str() {
                "" => "all blocks of the program".to_owned(),
                kind => plain::line(kind).into_owned(),
            });
            bail!(
                "{} and {} can not be compared. The first one: {}. The other one: {}.",
                plain::path(&before.side.trace),
                plain::path(&after.side.trace),
                kinds[0],
                kinds[1]
            );
        }
        Ok(Diff {
            before: before.side,
            after: after.side,
            paths: paths::compare(before.paths, after.paths),
            types: match (before.types, after.types) {
                (Some(before), Some(after)) => Some(paths::compare(before, after)),
                _ => None,
            },
        })
    }

    /// For programs. Fields may be added; none is removed or changes its meaning while `version`
    /// stays.
    pub fn document(&self) -> Value {
        let side = |side: &Side| {
            let (seconds, bytes) = (side.seconds, side.bytes);
            let trace = side.trace.to_string_lossy();
            json!({ "trace": trace, "seconds": seconds, "bytes": bytes })
        };
        let types = self.types.as_ref().map(|all| {
            let all = all.iter().map(|changed| {
                json!({
                    "type": changed.functions.concat(),
                    "before": changed.before,
                    "after": changed.after,
                    "error": changed.error,
                })
            });
            all.collect::<Vec<_>>()
        });
        json!({
            "format": "loam-trace-diff",
            "version": 1,
            "before": side(&self.before),
            "after": side(&self.after),
            "paths": self.paths,
            "types": types,
        })
    }
}

fn read(trace: &Path, of: Of, symbols: &mut Symbols) -> Result<Read> {
    stacks::require(trace)?;
    let survey = replay::survey(trace)?;
    let stream = survey.choose(None)?;
    let process = &survey.processes[&stream];
    let seconds = process.until().saturating_sub(process.first_time) as f64 * 1e-9;
    let figure = |_: usize, site: &Site| of.estimate(site);
    let (paths, types) = match stacks::of(&survey, stream)? {
        Some(stacks) => (
            paths::without_lines(&stacks, symbols, figure),
            paths::types(&stacks),
        ),
        None => (Vec::new(), None),
    };
    Ok(Read {
        side: Side {
            bytes: paths.iter().map(|path| path.bytes).sum(),
            faults: survey.faults(&[stream]),
            trace: survey.path,
            seconds,
        },
        sampled: survey.header.sampled,
        paths,
        types,
    })
}
