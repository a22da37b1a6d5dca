//! The experiments: how each is run, which figures it yields, what its charts show, how its
//! findings are put into words.
//!
//! An experiment is a program that prints the lab's lines. One that nothing here knows is run and
//! drawn all the same: the defaults of the trait look only at what every checkpoint has. The
//! known ones add the articles' questions, figures and charts; one file each.

mod generic;
mod lfh;
mod named;
pub mod phrases;
mod tokens;

use super::analyse::figures::{Figure, FigureTable};
use super::analyse::runs::View;
use super::args::Form;
use super::draw::chart::Chart;
use super::results::Case;

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
pub const QUICK_SET: [&str; 2] = ["lfh", "tokens"];

/// The experiment of that name; one that is not known is treated by the defaults.
pub fn of_name(name: &str) -> Box<dyn Experiment> {
    match name {
        "lfh" => Box::new(lfh::Lfh),
        "tokens" => Box::new(tokens::Tokens),
        other => Box::new(named::Named::of(other)),
    }
}
