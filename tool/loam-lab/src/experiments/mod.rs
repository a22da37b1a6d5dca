//! The experiments: how each is run, which figures it yields, what its charts show, how its
//! findings are put into words.
//!
//! An experiment is a program that prints the lab's lines. One that nothing here knows is run and
//! drawn all the same: the defaults of the trait look only at what every checkpoint has. The
//! known ones add the articles' questions, figures and charts; one file each.

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
    /// Its name, which is its program's too.
    fn name(&self) -> &str;

    /// A heading.
    fn title(&self) -> String;

    /// What it is there to find out, in a sentence.
    fn question(&self) -> String;

    /// The ways in which it is run.
    fn cases(&self, plan: &CaseContext) -> Vec<Case> {
        vec![plan.case("malloc", &[], plan.labels.to_vec())]
    }

    /// How its rows are formed; as they are, or one an allocator.
    fn shape<'a>(&self, view: View<'a>) -> View<'a> {
        view
    }

    /// What its article found, confirmed or not; empty where there is no article.
    fn claims(&self, table: &FigureTable) -> Vec<Claim> {
        let _ = table;
        Vec::new()
    }

    /// The one figure that says what fragmentation did; nothing if it is about something else.
    fn headline(&self) -> Option<Headline> {
        None
    }

    /// Further tables, which name what a row an allocator has no room for.
    fn grids(&self, view: &View) -> Vec<Grid> {
        let _ = view;
        Vec::new()
    }

    /// The columns of its table.
    fn figures(&self) -> Vec<Figure> {
        generic::figures()
    }

    /// What was found about one row, in plain words.
    fn sentence(&self, table: &FigureTable, row: usize) -> String {
        generic::sentence(table, row)
    }

    /// What was found altogether, most important first.
    fn findings(&self, table: &FigureTable) -> Vec<String> {
        generic::findings(table)
    }

    /// Its charts.
    fn charts(&self, view: &View) -> Vec<Chart> {
        generic::charts(view)
    }
}

/// What a reader who has a minute is told of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Headline {
    /// The figure's id.
    pub figure: &'static str,
    /// What it is, as the heading of a column.
    pub heading: &'static str,
    /// How it comes about, in a sentence.
    pub why: &'static str,
}

/// What the cases of an experiment are planned from.
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

    /// The allocator that other designs of a program are compared on: the system's, if measured.
    pub fn reference(&self) -> Option<String> {
        let system = self.labels.iter().find(|label| *label == "system");
        system.or(self.labels.first()).cloned()
    }
}

/// An experiment's part of a results file, in its own shape.
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

/// Run by default in the quick form.
pub const QUICK_SET: [&str; 3] = ["lfh", "tokens", "sparse"];

/// The experiment of that name; one that is not known is treated by the defaults.
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
        // Only this variant has a series of that name: it keeps it.
        assert!(of("contention", "per-thread", "collisions").is_some());
        assert!(of("buffer-cache", "cure depth 4", "percent_used").is_some());
        // Several have: they are told apart, and the plain one keeps it.
        assert!(of("levels", "arena levels", "drop_seconds").is_some());
        assert!(of("queue", "aligned list sequential", "seconds").is_some());
        assert!(of("queue", "list sequential", "seconds").is_some());
        assert!(of("levels", "levels", "drop_seconds").is_none());
    }
}
