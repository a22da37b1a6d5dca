//! Reads trials: sorts checkpoints by variant and series, and groups them into rows.

use serde_json::{Map, Value};

use loam_format::results::lines::{self, Checkpoint, Line};
use loam_format::results::{Results, Trial};

/// The variant's name in experiments with a single variant, and for every allocator under test.
pub const PLAIN: &str = "malloc";

/// One variant of one trial.
#[derive(Debug, Clone)]
pub struct Run {
    /// The round of its trial.
    pub round: u32,
    /// Whether other work kept the machine busy.
    pub noisy: bool,
    /// Its series in order of appearance.
    pub series: Vec<Series>,
    /// Its trial's start line.
    pub start: Map<String, Value>,
    /// Its trial's end line.
    pub end: Map<String, Value>,
}

/// One curve of a run.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points, in the order in which they were measured.
    pub points: Vec<Checkpoint>,
}

/// All runs of one variant under one allocator.
#[derive(Debug, Clone)]
pub struct Row {
    /// The variant.
    pub variant: String,
    /// The allocator's label.
    pub allocator: String,
    /// Its runs. The noisy runs are left out if enough others remain.
    pub runs: Vec<Run>,
    /// The noisy runs that were left out.
    pub left_out: Vec<Run>,
}

/// One experiment of a results file.
#[derive(Debug)]
pub struct View<'a> {
    /// The whole file.
    pub results: &'a Results,
    /// The experiment's name.
    pub experiment: String,
    /// Rows in the order of the plan.
    pub rows: Vec<Row>,
    /// Index of the row that ratios refer to: the system's row, else the first.
    pub base: Option<usize>,
}

impl Run {
    /// The series of that name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// Every point of every series, in order.
    pub fn points(&self) -> impl Iterator<Item = &Checkpoint> {
        self.series.iter().flat_map(|series| &series.points)
    }
}

impl Row {
    /// The row's name in tables.
    pub fn label(&self) -> String {
        if self.variant == PLAIN {
            self.allocator.clone()
        } else {
            format!("{} ({})", self.variant, self.allocator)
        }
    }

    /// Whether this is an allocator under test, and not another design of the program.
    pub fn is_plain(&self) -> bool {
        self.variant == PLAIN
    }

    /// A figure of each run in `runs`.
    pub fn values(&self, figure: impl Fn(&Run) -> Option<f64>) -> Vec<f64> {
        self.runs
            .iter()
            .filter_map(figure)
            .filter(|value| value.is_finite())
            .collect()
    }

    /// A figure of this row divided by the base's, round by round. Pairs are formed before noisy
    /// runs are left out: leaving out noisy runs of either row alone would break pairs.
    pub fn ratios(&self, base: &Row, figure: impl Fn(&Run) -> Option<f64>) -> Vec<f64> {
        let all = |row: &Row| -> Vec<(u32, bool, f64)> {
            let runs = row.runs.iter().chain(&row.left_out);
            runs.filter_map(|run| Some((run.round, run.noisy, figure(run)?)))
                .collect()
        };
        let bases = all(base);
        let pairs: Vec<(bool, f64)> = all(self)
            .into_iter()
            .filter_map(|(round, noisy, value)| {
                let (_, base_noisy, base) = bases.iter().find(|(other, ..)| *other == round)?;
                let ratio = value / base;
                ratio.is_finite().then_some((noisy || *base_noisy, ratio))
            })
            .collect();
        let quiet = pairs.iter().filter(|(noisy, _)| !noisy).count();
        let quiet_only = are_enough(quiet, pairs.len());
        pairs
            .iter()
            .filter(|(noisy, _)| !(quiet_only && *noisy))
            .map(|(_, ratio)| *ratio)
            .collect()
    }
}

impl<'a> View<'a> {
    /// Reads the experiment's trials. Lines were checked when they were measured. A file that was
    /// edited since may hold bad lines, which are skipped.
    pub fn of(results: &'a Results, experiment: &str) -> View<'a> {
        let mut rows: Vec<Row> = Vec::new();
        let trials = results
            .trials
            .iter()
            .filter(|trial| trial.is_measured() && trial.experiment == experiment);
        for trial in trials {
            for (variant, run) in read(trial) {
                let position = rows
                    .iter()
                    .position(|row| row.variant == variant && row.allocator == trial.allocator);
                let index = position.unwrap_or_else(|| {
                    let allocator = trial.allocator.clone();
                    rows.push(Row {
                        variant,
                        allocator,
                        runs: Vec::new(),
                        left_out: Vec::new(),
                    });
                    rows.len() - 1
                });
                rows[index].runs.push(run);
            }
        }
        rows.iter_mut().for_each(leave_out_noisy);
        sort_as_planned(&mut rows, results);
        let base = rows
            .iter()
            .position(|row| row.allocator == "system" && row.variant == PLAIN)
            .or_else(|| rows.iter().position(|row| row.allocator == "system"))
            .or(if rows.is_empty() { None } else { Some(0) });
        View {
            results,
            experiment: experiment.to_owned(),
            rows,
            base,
        }
    }

    /// The row that ratios refer to.
    pub fn base_row(&self) -> Option<&Row> {
        self.base.map(|index| &self.rows[index])
    }

    /// The row that a row is compared with: the same variant on the base's allocator, if that was
    /// measured; else the base itself.
    pub fn base_of(&self, row: usize) -> Option<usize> {
        let base = self.base?;
        let (row, base_row) = (&self.rows[row], &self.rows[base]);
        if row.allocator == base_row.allocator {
            return Some(base);
        }
        let is_partner =
            |other: &Row| other.variant == row.variant && other.allocator == base_row.allocator;
        Some(self.rows.iter().position(is_partner).unwrap_or(base))
    }

    /// Rows of the allocators themselves, in contrast to other designs of the program.
    pub fn plain_rows(&self) -> impl Iterator<Item = &Row> {
        let variant = self
            .base_row()
            .map_or(PLAIN, |row| row.variant.as_str())
            .to_owned();
        self.rows.iter().filter(move |row| row.variant == variant)
    }

    /// Names of the series, in order of appearance.
    pub fn series_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for series in self
            .rows
            .iter()
            .flat_map(|row| &row.runs)
            .flat_map(|run| &run.series)
        {
            if !names.contains(&series.name) {
                names.push(series.name.clone());
            }
        }
        names
    }
}

fn read(trial: &Trial) -> Vec<(String, Run)> {
    let mut runs: Vec<(String, Run)> = Vec::new();
    let (mut start, mut end) = (Map::new(), Map::new());
    for raw in &trial.lines {
        match lines::parse(raw) {
            Ok(Line::Checkpoint(point)) => add_point(&mut runs, trial, *point),
            Ok(Line::End(object)) => end = object,
            Ok(Line::Start(object)) => start = object,
            Ok(Line::Other) | Err(_) => {}
        }
    }
    for (_, run) in &mut runs {
        run.start.clone_from(&start);
        run.end.clone_from(&end);
    }
    runs
}

fn add_point(runs: &mut Vec<(String, Run)>, trial: &Trial, point: Checkpoint) {
    let variant = if point.variant.is_empty() {
        PLAIN
    } else {
        point.variant.as_str()
    };
    let index = runs
        .iter()
        .position(|(name, _)| name == variant)
        .unwrap_or_else(|| {
            let run = Run {
                round: trial.round,
                noisy: trial.noisy,
                series: Vec::new(),
                start: Map::new(),
                end: Map::new(),
            };
            runs.push((variant.to_owned(), run));
            runs.len() - 1
        });
    let series = &mut runs[index].1.series;
    match series.iter_mut().find(|known| known.name == point.series) {
        Some(known) => known.points.push(point),
        None => series.push(Series {
            name: point.series.clone(),
            points: vec![point],
        }),
    }
}

/// Whether there are enough quiet measurements to leave the noisy ones out: at least half. With
/// fewer, dropping most of the data would hide more than it cures, so all measurements count.
fn are_enough(quiet: usize, all: usize) -> bool {
    quiet > 0 && quiet * 2 >= all
}

fn leave_out_noisy(row: &mut Row) {
    let quiet = row.runs.iter().filter(|run| !run.noisy).count();
    if are_enough(quiet, row.runs.len()) {
        let (noisy, quiet) = std::mem::take(&mut row.runs)
            .into_iter()
            .partition(|run| run.noisy);
        row.runs = quiet;
        row.left_out = noisy;
    }
}

/// Trials of several allocators interleave. Tables show the allocators in the order in which the
/// user named them.
fn sort_as_planned(rows: &mut [Row], results: &Results) {
    let first_seen: Vec<String> = rows.iter().map(|row| row.variant.clone()).collect();
    let variant_rank = |row: &Row| {
        // The allocators themselves come first, then the other designs in order of appearance.
        let seen = first_seen.iter().position(|name| *name == row.variant);
        (row.variant != PLAIN, seen)
    };
    let allocator_rank = |row: &Row| {
        results
            .allocators
            .iter()
            .position(|record| record.label == row.allocator)
    };
    rows.sort_by_key(|row| (variant_rank(row), allocator_rank(row)));
}

#[cfg(test)]
mod tests;
