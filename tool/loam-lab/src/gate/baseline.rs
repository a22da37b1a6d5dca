//! The baseline: a small file in a program's repository. It has the figures of a replay and the
//! machine of the measurement.
//!
//! The file is JSON and has a version as results files have: keys may be added, and a change of
//! meaning raises [`VERSION`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use loam_format::results::machine::Machine;
use loam_format::results::{Results, Tool};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{row, summary, was_disturbed, COMPARED, NOW};
use crate::analyse::stats::{Method, Summary, BOOTSTRAP_FROM};
use crate::store::{Store, StoreError};
use crate::traces::summary::SizeClass;

/// The value of the first key.
pub const FORMAT: &str = "loam-gate-baseline";
/// Raised when an older reader would misunderstand the file.
pub const VERSION: u32 = 1;

/// Why a file is no baseline.
#[derive(Debug, Error)]
pub enum BaselineError {
    /// The file can not be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// The file is not a baseline.
    #[error(
        "{path} is neither a trace of `loam record` nor a baseline of `loam gate`: {reason}; \
         `loam gate TRACE --baseline FILE --write-baseline` writes one"
    )]
    Other {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file comes from a newer version.
    #[error(
        "{path} has format version {found}; this loam understands up to {VERSION}: use a newer loam"
    )]
    TooNew {
        /// The file.
        path: String,
        /// Its version.
        found: u64,
    },
}

/// A figure of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of trials.
    pub trials: usize,
}

impl Kept {
    fn of(summary: &Summary) -> Kept {
        Kept {
            median: summary.median,
            low: summary.low,
            high: summary.high,
            trials: summary.count,
        }
    }

    /// The figure as it was summarised when it was measured.
    pub fn summary(&self) -> Summary {
        Summary {
            median: self.median,
            low: self.low,
            high: self.high,
            count: self.trials,
            method: match self.trials {
                0 | 1 => Method::Single,
                few if few < BOOTSTRAP_FROM => Method::Range,
                _ => Method::Bootstrap,
            },
        }
    }
}

/// A baseline.
#[derive(Debug, Serialize, Deserialize)]
pub struct Baseline {
    /// Always [`FORMAT`].
    pub format: String,
    /// At most [`VERSION`].
    pub version: u32,
    /// When it was measured, UTC.
    pub created: String,
    /// The tool that measured.
    pub tool: Tool,
    /// The command that was recorded.
    pub command: Vec<String>,
    /// The allocator that it was replayed on.
    pub allocator: String,
    /// That allocator's version.
    pub allocator_version: Option<String>,
    /// Percent of the recording's speed; 0: without pauses.
    pub speed_percent: u64,
    /// Whether other work kept the machine busy.
    pub disturbed: bool,
    /// The machine of the measurement.
    pub machine: Machine,
    /// The figures, by the names that `--limit` uses.
    pub figures: BTreeMap<String, Kept>,
    /// The blocks that lived at the peak, by size.
    pub sizes: Vec<SizeClass>,
}

impl Baseline {
    /// The baseline of a finished replay on that allocator; none if there are no trials.
    pub fn of(results: &Results, allocator: &str, sizes: &[SizeClass]) -> Option<Baseline> {
        let row = row(results, NOW, allocator)?;
        let trace = results.experiments.first()?.trace.as_ref()?;
        let record = results
            .allocators
            .iter()
            .find(|record| record.label == allocator)?;
        let figures = COMPARED
            .iter()
            .filter_map(|figure| Some((figure.id.to_owned(), Kept::of(&summary(&row, figure)?))));
        Some(Baseline {
            format: FORMAT.to_owned(),
            version: VERSION,
            created: results.updated.clone(),
            tool: results.tool.clone(),
            command: trace.command.clone(),
            allocator: allocator.to_owned(),
            allocator_version: record.version.clone(),
            speed_percent: trace.speed_percent,
            disturbed: was_disturbed(&row),
            machine: results.machine.clone(),
            figures: figures.collect(),
            sizes: sizes
                .iter()
                .filter(|class| class.peak_bytes > 0)
                .copied()
                .collect(),
        })
    }

    /// Reads a baseline.
    pub fn load(path: &Path) -> Result<Baseline, BaselineError> {
        #[derive(Deserialize)]
        struct Head {
            format: Option<String>,
            version: Option<u64>,
        }
        let shown = || path.display().to_string();
        let bytes = fs::read(path).map_err(|source| BaselineError::Unreadable {
            path: shown(),
            source,
        })?;
        let other = |reason: String| BaselineError::Other {
            path: shown(),
            reason,
        };
        let head: Head =
            serde_json::from_slice(&bytes).map_err(|error| other(error.to_string()))?;
        match (head.format.as_deref(), head.version) {
            (Some(FORMAT), Some(found)) if found > u64::from(VERSION) => {
                Err(BaselineError::TooNew {
                    path: shown(),
                    found,
                })
            }
            (Some(FORMAT), Some(_)) => {
                serde_json::from_slice(&bytes).map_err(|error| other(error.to_string()))
            }
            (Some(FORMAT), None) => Err(other("it has no \"version\"".to_owned())),
            _ => Err(other(format!("its \"format\" is not \"{FORMAT}\""))),
        }
    }

    /// Writes the baseline.
    pub fn save(&self, store: &Store) -> Result<(), StoreError> {
        store.replace(|file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        })
    }
}

/// Whether these are the first bytes of a baseline.
pub fn looks_like_baseline(head: &[u8]) -> bool {
    String::from_utf8_lossy(head).contains(FORMAT)
}
