//! The answer in the forms that a terminal, a program and a browser read.

use loam_format::units::Unit;
use loam_report::chart::{Axis, Chart, Curve, Kind, Point};
use loam_report::grid::Grid;
use loam_report::html::{self, Page};
use loam_report::terminal;
use maud::html;
use serde::Serialize;

use super::apart::Separated;
use super::hints::{self, Hint};
use super::verify::Verification;
use super::{frontier, grid, ratio, Place};
use crate::analyse::stats::Summary;

/// Recognises our own reports, which may be replaced.
const GENERATOR: &str = "loam advise";

/// The allocator to take.
#[derive(Debug, Clone, Serialize)]
pub struct Advised {
    /// The label.
    pub allocator: String,
    /// The command line that runs the program on it, for a shell.
    pub line: String,
}

/// The answer.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The trace.
    pub trace: String,
    /// The recorded command.
    pub command: Vec<String>,
    /// The label of the recorded allocator.
    pub recorded: String,
    /// None: no candidate helps.
    pub advised: Option<Advised>,
    /// What the command did when it was really run; none if it was not.
    pub verified: Option<Verification>,
    /// All places that were measured in rounds, with the recorded allocator.
    pub places: Vec<Place>,
    /// Labels of the frontier, least memory first.
    pub frontier: Vec<String>,
    /// What separating long-lived blocks saves; none if another heap saves as much.
    pub separated: Option<Separated>,
    /// What to change in the program.
    pub hints: Vec<Hint>,
    /// How close the replay is to the program, and what else limits the answer, in sentences.
    pub remarks: Vec<String>,
}

impl Answer {
    /// The frontier of the places, by label.
    pub fn frontier_of(places: &[Place]) -> Vec<String> {
        let front = frontier(places, 1.0);
        front.iter().map(|one| one.allocator.clone()).collect()
    }

    fn place(&self, label: &str) -> Option<&Place> {
        self.places.iter().find(|one| one.allocator == label)
    }

    fn headline(&self) -> String {
        if let Some(verified) = &self.verified {
            return match verified.held() {
                Some(held) => format!(
                    "{}: really run, {} of the average memory, {} of the peak and {} of the \
                     processor time.",
                    held.allocator,
                    ratio(&held.memory_ratio),
                    ratio(&held.peak_ratio),
                    ratio(&held.time_ratio)
                ),
                None => "Nothing helps: what the replays advise does not hold when the command is \
                         really run."
                    .to_owned(),
            };
        }
        match self
            .advised
            .as_ref()
            .and_then(|one| self.place(&one.allocator))
        {
            Some(place) => format!(
                "{}: {} of the average memory and {} of the program's processor time.",
                place.allocator,
                ratio(&place.memory_ratio),
                ratio(&place.time_ratio)
            ),
            None => "Nothing helps: no allocator or setting here surely saves 5 % of memory or of \
                     processor time at a cost of at most 10 % of the other."
                .to_owned(),
        }
    }

    /// The hints that are shown. The hint about the size that holds the peak is useful only if no
    /// heap helps.
    fn shown(&self) -> impl Iterator<Item = &Hint> {
        let is_shown =
            |hint: &&Hint| hint.kind != hints::Kind::LargestSize || self.advised.is_none();
        self.hints.iter().filter(is_shown)
    }

    fn grids(&self) -> impl Iterator<Item = Grid> + '_ {
        let really = self.verified.iter().map(|one| one.grid(&self.recorded));
        really.chain([grid(&self.places, &self.recorded)])
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = terminal::wrapped(&self.headline());
        if let Some(advised) = &self.advised {
            text += &format!("\n    {}\n", advised.line);
        }
        for hint in self.shown() {
            text += &terminal::wrapped(&format!("In the program: {}", hint.text));
        }
        for grid in self.grids() {
            text += &terminal::grid(&grid);
        }
        text += "\n";
        for remark in &self.remarks {
            text += &terminal::wrapped(remark);
        }
        text
    }

    /// Processor time against memory, one point an allocator.
    fn chart(&self) -> Option<Chart> {
        let curve = |place: &Place| Curve {
            label: place.allocator.clone(),
            allocator: place.allocator.clone(),
            variant: String::new(),
            points: vec![point(&place.memory, &place.time)],
        };
        Chart::of(
            Kind::Scatter,
            [
                "frontier",
                "Processor time against average memory",
                "Each point is an allocator, with the interval of its trials. Further left is less \
                 memory, further down less time. apart-N keeps long-lived blocks apart from the \
                 others, which is a change of the program.",
            ],
            Axis::of("Average resident memory", Unit::Bytes),
            Axis::of("Processor time", Unit::Seconds),
            self.places.iter().map(curve).collect(),
        )
    }

    /// An HTML page that needs no other file.
    pub fn html(&self, version: &str) -> String {
        let chart = self.chart();
        let charts: Vec<&Chart> = chart.iter().collect();
        let labels: Vec<&str> = self
            .places
            .iter()
            .map(|one| one.allocator.as_str())
            .collect();
        let page = Page {
            generator: GENERATOR,
            version,
            title: &format!("loam advise: {}", self.command.join(" ")),
            allocators: &labels,
            charts: &charts,
        };
        let body = html! {
            main {
                h1 { "Which allocator should " code { (self.command.join(" ")) } " run on?" }
                p.lead { (self.headline()) }
                @if let Some(advised) = &self.advised { pre { (advised.line) } }
                @for hint in self.shown() { p { b { "In the program: " } (hint.text) } }
                @if let Some(chart) = &chart { (html::figure(chart)) }
                @for grid in self.grids() { (html::grid(&grid)) }
                @for remark in &self.remarks { p.reading { (remark) } }
            }
        };
        page.render(&body).into_string()
    }
}

/// Whether these are the first bytes of one of our pages.
pub fn looks_like_advice(head: &[u8]) -> bool {
    html::is_made_by(head, GENERATOR)
}

fn point(x: &Summary, y: &Summary) -> Point {
    Point {
        x: x.median,
        y: y.median,
        low: y.low,
        high: y.high,
        count: y.count,
        x_range: Some((x.low, x.high)),
    }
}
