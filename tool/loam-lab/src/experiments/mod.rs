//! The experiments: how each is run, its figures and charts, and its findings in words.
//!
//! An experiment is a program that prints the lab's lines. An unknown experiment is run and drawn
//! all the same: the defaults of the trait use only what every checkpoint has. The known
//! experiments add their articles' questions, figures and charts, in one file each.

mod buffer_cache;
pub mod claims;
mod contention;
mod generic;
mod handoff;
mod levels;
mod lfh;
mod named;
mod part;
mod phase;
pub mod phrases;
mod queue;
pub mod replay;
mod sizes;
mod sparse;
mod tokens;

use loam_format::results::{Case, ExperimentRecord, Form, Results};
use loam_report::chart::Chart;
use loam_report::grid::Grid;

use crate::analyse::figures::{Figure, FigureTable};
use crate::analyse::runs::View;
use claims::Claim;

/// One experiment.
pub trait Experiment {
    /// Its name, which is also its program's name.
    fn name(&self) -> &str;

    /// A heading.
    fn title(&self) -> String;

    /// The question that it answers, in a sentence.
    fn question(&self) -> String;

    /// The ways in which it is run.
    fn cases(&self, plan: &CaseContext) -> Vec<Case> {
        vec![plan.case("malloc", &[], plan.labels.to_vec())]
    }

    /// How its rows are formed: as they are, or merged into one for each allocator.
    fn shape<'a>(&self, view: View<'a>) -> View<'a> {
        view
    }

    /// Its article's findings and their verdicts; empty if there is no article.
    fn claims(&self, table: &FigureTable) -> Vec<Claim> {
        let _ = table;
        Vec::new()
    }

    /// The one figure that shows the effect of fragmentation; none if the experiment is about
    /// something else.
    fn headline(&self) -> Option<Headline> {
        None
    }

    /// Further tables, for what does not fit in one row for each allocator.
    fn grids(&self, view: &View) -> Vec<Grid> {
        let _ = view;
        Vec::new()
    }

    /// The columns of its table.
    fn figures(&self) -> Vec<Figure> {
        generic::figures()
    }

    /// The findings about one row, in plain words.
    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        generic::sentence(table, row)
    }

    /// The findings of the whole experiment, the most important first.
    fn findings(&self, table: &FigureTable) -> Vec<String> {
        generic::findings(table)
    }

    /// Its charts.
    fn charts(&self, view: &View) -> Vec<Chart> {
        generic::charts(view)
    }
}

/// An experiment's part of the report's first minute.
#[derive(Debug, Clone, Copy)]
pub struct Headline {
    /// The figure's id.
    pub figure: &'static str,
    /// The figure's name, as the heading of a column.
    pub heading: &'static str,
    /// How the figure arises, in a sentence.
    pub why: &'static str,
}

/// The input for planning the cases of an experiment.
#[derive(Debug)]
pub struct CaseContext<'a> {
    /// Labels of the allocators to measure.
    pub labels: &'a [String],
    /// The label of this project's heap, if it is among them.
    pub loam: Option<&'a str>,
    /// Size of the experiment.
    pub form: Form,
    /// Trials of each allocator.
    pub rounds: u32,
}

impl CaseContext<'_> {
    /// A case that runs in every round.
    pub fn case(&self, name: &str, arguments: &[&str], allocators: Vec<String>) -> Case {
        Case {
            name: name.to_owned(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            allocators,
            rounds: self.rounds,
        }
    }

    /// The allocator on which other designs of a program are compared: the system's, if it is
    /// measured.
    pub fn reference(&self) -> Option<String> {
        let system = self.labels.iter().find(|label| *label == "system");
        system.or(self.labels.first()).cloned()
    }
}

/// An experiment's part of a results file, with rows as the experiment shapes them.
pub fn view<'a>(experiment: &dyn Experiment, results: &'a Results) -> View<'a> {
    experiment.shape(View::of(results, experiment.name()))
}

/// Names of the experiments that are known, in the order of the lab.
pub const NAMES: [&str; 10] = [
    "lfh",
    "contention",
    "tokens",
    "buffer-cache",
    "queue",
    "sizes",
    "levels",
    "phase",
    "sparse",
    "handoff",
];

/// The experiments of the quick form, if the user names none.
pub const QUICK_SET: [&str; 3] = ["lfh", "tokens", "sparse"];

/// The experiment of that name. An unknown one gets the defaults.
pub fn of_name(name: &str) -> Box<dyn Experiment> {
    match name {
        "lfh" => Box::new(lfh::Lfh),
        "contention" => Box::new(contention::Contention),
        "tokens" => Box::new(tokens::Tokens),
        "buffer-cache" => Box::new(buffer_cache::BufferCache),
        "queue" => Box::new(queue::Queue),
        "sizes" => Box::new(sizes::Sizes),
        "levels" => Box::new(levels::Levels),
        "phase" => Box::new(phase::Phase),
        "sparse" => Box::new(sparse::Sparse),
        "handoff" => Box::new(handoff::Handoff),
        "replay" => Box::new(replay::Replay),
        other => Box::new(named::Named::of(other)),
    }
}

/// The experiment of a record.
pub fn of_record(record: &ExperimentRecord) -> Box<dyn Experiment> {
    match &record.part {
        Some(part) => Box::new(part::OfPart::new(record, part)),
        None => of_name(&record.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::pick;

    /// Two allocators, every experiment, in a tiny form.
    fn results() -> Results {
        let text = include_str!("../../tests/data/every-experiment.json");
        Results::parse(text).unwrap()
    }

    #[test]
    fn a_row_is_an_allocator_and_holds_the_series_of_all_variants() {
        let results = results();
        let of = |name: &str, series: &str, key: &str| {
            let experiment = of_name(name);
            let view = super::view(experiment.as_ref(), &results);
            let labels: Vec<String> = view.rows.iter().map(|row| row.label()).collect();
            assert_eq!(labels, ["system", "loam"], "{name}");
            assert_eq!(view.base, Some(0), "{name}");
            pick::of_row(&view.rows[1], |run| pick::last(run, series, key))
        };
        // Only this variant has a series of that name, so the series keeps the name.
        assert!(of("contention", "per-thread", "collisions").is_some());
        assert!(of("buffer-cache", "cure depth 4", "percent_used").is_some());
        // Several variants have it: the plain one keeps the name, and the others are told apart.
        assert!(of("levels", "arena levels", "drop_seconds").is_some());
        assert!(of("queue", "aligned list sequential", "seconds").is_some());
        assert!(of("queue", "list sequential", "seconds").is_some());
        assert!(of("levels", "levels", "drop_seconds").is_none());
    }
}
