//! An experiment of a merged file. It behaves as the original experiment, with a name of its own
//! and its machine in the heading.

use loam_format::results::{Case, ExperimentRecord, Part};
use loam_report::chart::Chart;
use loam_report::grid::Grid;

use super::claims::Claim;
use super::{of_name, CaseContext, Experiment, Headline};
use crate::analyse::figures::{Figure, FigureTable};
use crate::analyse::runs::View;

/// An experiment of a merged file.
pub struct OfPart {
    inner: Box<dyn Experiment>,
    name: String,
    title: String,
}

impl OfPart {
    /// The experiment of a record of a merged file.
    pub fn new(record: &ExperimentRecord, part: &Part) -> OfPart {
        let inner = of_name(&part.of);
        let program = record.trace.as_ref().map(|trace| {
            let name = trace.program.rsplit('/').next().unwrap_or(&trace.program);
            format!(" ({name})")
        });
        OfPart {
            title: format!(
                "{}{} on {}",
                inner.title(),
                program.unwrap_or_default(),
                part.machine.summary()
            ),
            name: record.name.clone(),
            inner,
        }
    }
}

impl Experiment for OfPart {
    fn name(&self) -> &str {
        &self.name
    }

    fn title(&self) -> String {
        self.title.clone()
    }

    fn question(&self) -> String {
        self.inner.question()
    }

    fn cases(&self, plan: &CaseContext) -> Vec<Case> {
        self.inner.cases(plan)
    }

    fn shape<'a>(&self, view: View<'a>) -> View<'a> {
        self.inner.shape(view)
    }

    fn claims(&self, table: &FigureTable) -> Vec<Claim> {
        self.inner.claims(table)
    }

    fn headline(&self) -> Option<Headline> {
        self.inner.headline()
    }

    fn grids(&self, view: &View) -> Vec<Grid> {
        self.inner.grids(view)
    }

    fn figures(&self) -> Vec<Figure> {
        self.inner.figures()
    }

    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        self.inner.sentence(table, row)
    }

    fn findings(&self, table: &FigureTable) -> Vec<String> {
        self.inner.findings(table)
    }

    fn charts(&self, view: &View) -> Vec<Chart> {
        let mut charts = self.inner.charts(view);
        for chart in &mut charts {
            // Charts of a page need different ids, and most ids begin with the experiment's name.
            if !chart.id.starts_with(&format!("{}-", self.name)) {
                chart.id = format!("{}-{}", self.name, chart.id);
            }
            chart.group = chart
                .group
                .take()
                .map(|group| format!("{group} ({})", self.name));
        }
        charts
    }
}
