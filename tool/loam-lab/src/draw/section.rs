//! The report's section about one experiment.

use maud::Markup;

use loam_report::chart::Chart;
use loam_report::grid::Grid;

use crate::experiments::claims::Claim;

/// One experiment, analysed.
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// What was found.
    pub findings: Vec<String>,
    /// The table of figures.
    pub table: Markup,
    /// Label and sentence of each row.
    pub sentences: Vec<(String, String)>,
    /// Name, direction and meaning of each figure.
    pub meanings: Vec<(String, String)>,
    /// Its charts.
    pub charts: Vec<Chart>,
    /// The verdicts on its article's findings.
    pub claims: Vec<Claim>,
    /// Further tables.
    pub grids: Vec<Grid>,
    /// Its part of the report's first minute.
    pub minute: Option<Minute>,
}

/// One experiment's column in the first minute.
pub struct Minute {
    /// Its heading.
    pub heading: &'static str,
    /// How the figure arises.
    pub why: &'static str,
    /// Allocator, figure, and whether it is the best.
    pub cells: Vec<(String, String, bool)>,
}
