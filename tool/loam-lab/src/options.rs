//! The options of the lab's caller.

use std::path::PathBuf;
use std::time::Duration;

use loam_format::results::Form;

/// What happens to finished trials in the results file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// The trials stay: the run is refused.
    Keep,
    /// The trials count, and only the missing trials run.
    Resume,
    /// The trials are replaced.
    Overwrite,
}

/// What to measure and where to put it.
#[derive(Debug, Clone)]
pub struct MeasureOptions {
    /// Experiments; none means the set of the form.
    pub names: Vec<String>,
    /// Size of the experiments.
    pub form: Form,
    /// Allocators as the user wrote them; none means every one found.
    pub allocators: Vec<String>,
    /// Results file, if named.
    pub json: Option<PathBuf>,
    /// Report, if named.
    pub html: Option<PathBuf>,
    /// Seed of the experiments.
    pub seed: u64,
    /// Trials of each allocator.
    pub rounds: u32,
    /// What happens to an earlier run in the results file.
    pub earlier: Earlier,
    /// Longest time for one trial.
    pub timeout: Duration,
    /// Where the workloads are, if not where the build puts them.
    pub workloads_dir: Option<PathBuf>,
    /// Whether to measure programs for Windows, under Wine, on Wine's heaps and on Loam.
    pub windows: bool,
}
