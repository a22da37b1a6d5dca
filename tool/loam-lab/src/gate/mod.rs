//! `loam gate`: did a program's memory or time get worse since a baseline?
//!
//! ```text
//! replays of the trace (and of the baseline's trace, in the same rounds)
//!   -> values of each figure; ratios to the baseline, paired by round where both were replayed
//!   -> judge: the median beyond the limit, and the whole interval above 1
//!   -> page: a table for the terminal and for a job's summary
//! ```
//!
//! A baseline is another trace, or a small file with the figures of an earlier replay (`baseline`).
//! Nothing here measures.

pub mod baseline;
mod judge;
pub mod limits;
mod page;

use anyhow::{bail, Result};

pub use judge::{judge, Against, Gated, Judged, Outcome};
use limits::Limits;
pub use page::{markdown, text};

use loam_format::results::Results;
use loam_format::units::Unit;

use crate::analyse::figures::largest;
use crate::analyse::runs::{Row, Run, View};
use crate::analyse::stats::Summary;
use crate::experiments::replay;

/// The name of the experiment that replays the trace.
pub const NOW: &str = "replay";
/// The name of the experiment that replays the baseline's trace.
pub const BEFORE: &str = "baseline";

/// Refuses to judge if trials failed, or if the replay does not reproduce the program.
pub fn require_believed(results: &Results, limits: &Limits) -> Result<()> {
    if let Some(trial) = results.failed().next() {
        bail!(
            "{} failed: {}; nothing was compared",
            trial.describe(),
            trial.reason.as_deref().unwrap_or("no reason known")
        );
    }
    let Some(most) = limits.of(limits::ERROR) else {
        return Ok(());
    };
    let traces = results
        .experiments
        .iter()
        .filter_map(|one| one.trace.as_ref());
    for (trace, error) in traces.filter_map(|trace| Some((trace, trace.error?))) {
        let worst = error.at_peak.abs().max(error.on_average);
        if worst <= most {
            continue;
        }
        bail!(
            "the replay of {} is {:.1} % off from what was recorded, and {:.1} % is the most that \
             is believed: its figures are not the program's. `docs/replay.md` says what makes such \
             traces; --limit error={:.0}% believes it",
            trace.path.display(),
            100.0 * worst,
            100.0 * most,
            (100.0 * worst).ceil()
        );
    }
    Ok(())
}

/// A figure that is compared.
#[derive(Debug, Clone, Copy)]
pub struct Compared {
    /// As `--limit` and files call it.
    pub id: &'static str,
    /// As tables call it.
    pub title: &'static str,
    /// How it is written.
    pub unit: Unit,
    /// Percent that it may grow without a `--limit`; none: it is shown and not judged.
    pub limit: Option<f64>,
    /// A growth below this is ignored: the measurement has this grain.
    pub grain: f64,
    /// Whether it depends on the machine and what else runs there.
    pub is_time: bool,
    /// The number.
    pub of: fn(&Run) -> Option<f64>,
}

/// Limits of memory are chosen: replays of one trace differ by less than 1 %, and a difference that
/// deserves a failed build is larger. The end and the faults depend on when a heap gives memory
/// back, which varies with time.
pub const COMPARED: [Compared; 6] = [
    Compared {
        id: "peak",
        title: "peak",
        unit: Unit::Bytes,
        limit: Some(5.0),
        grain: 262_144.0,
        is_time: false,
        of: replay::peak,
    },
    Compared {
        id: "average",
        title: "average",
        unit: Unit::Bytes,
        limit: Some(5.0),
        grain: 262_144.0,
        is_time: false,
        of: replay::average,
    },
    Compared {
        id: "end",
        title: "at the end",
        unit: Unit::Bytes,
        limit: Some(10.0),
        grain: 262_144.0,
        is_time: false,
        of: replay::at_end,
    },
    Compared {
        id: "faults",
        title: "page faults",
        unit: Unit::Count,
        limit: Some(10.0),
        grain: 200.0,
        is_time: false,
        of: |run| largest(run, "faults"),
    },
    Compared {
        id: "processor",
        title: "processor time",
        unit: Unit::Seconds,
        limit: Some(15.0),
        grain: 0.005,
        is_time: true,
        of: replay::processor,
    },
    Compared {
        id: "live",
        title: "most live",
        unit: Unit::Bytes,
        limit: None,
        grain: 0.0,
        is_time: false,
        of: |run| largest(run, "live_bytes"),
    },
];

/// The trials of an experiment under an allocator.
fn row(results: &Results, experiment: &str, allocator: &str) -> Option<Row> {
    let view = View::of(results, experiment);
    view.rows
        .into_iter()
        .find(|row| row.allocator == allocator && row.is_plain())
}

fn summary(row: &Row, figure: &Compared) -> Option<Summary> {
    Summary::of(&row.values(figure.of))
}

/// Whether other work or cold memory disturbed one of the row's trials.
fn was_disturbed(row: &Row) -> bool {
    row.runs.iter().any(|run| run.noisy)
}
