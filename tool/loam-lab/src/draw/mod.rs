//! The terminal's table and the HTML report. Both are drawn from a results file; nothing here
//! measures.

mod html;
pub mod markdown;
mod method;
mod page;
mod remarks;
mod section;
mod summary;
pub mod table;

pub use html::{looks_like_report, render, report};

use loam_format::results::Results;

use crate::experiments::{self, Experiment};

/// The experiments of a results file, in its order.
pub fn experiments_of(results: &Results) -> Vec<Box<dyn Experiment>> {
    results
        .experiments
        .iter()
        .map(|record| experiments::of_record(record))
        .collect()
}
